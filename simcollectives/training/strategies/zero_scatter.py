"""ZeRO-3 as DeepSpeed does it: gradients, reduced bucket by bucket while the backward pass goes on.

A gradient is copied into the bucket when it is complete; the bucket is reduced before one that would not fit, and at
the end. Its parts are put side by side for their owners, each gradient padded to a multiple of N, and reduce-scattered
at once (``reduce_scatter: false``: the bucket is all-reduced as it is). A rank adds its part to a buffer that stands
all the time. All of it is on a stream of its own with ``overlap_comm``; the host never runs ahead of more than two
buckets, and waits for the last one at the end of every backward pass.

With ``offload_optimizer`` that buffer is on the host: a part is copied out and back, or in, added to and out again; and
after the last micro-batch it is copied out once more, in float32.

With ``zero_quantized_gradients``, and more than one node, each gradient goes by itself as 4-bit integers with float32
scales: an all-to-all in the node, where the sum is made, then one across nodes. Vectors, and what is no multiple of
2 N, are reduce-scattered.

Reference: deepspeed 0.19.8, runtime/zero/stage3.py and runtime/comm/coalesced_collectives.py; Wang et al. 2023,
arXiv:2306.10209 (ZeRO++).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from simcollectives.training.model import Parameter
from simcollectives.training.offload import Host, accumulate_on_host, gradient_to_drive, gradient_to_host, offloads
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Item
from simcollectives.training.setup import Training
from simcollectives.training.sharding import SCATTER_BUFFERS, UNSHARDED_GRADIENTS, padded
from simcollectives.training.strategies.types import Options
from simcollectives.training.strategies.zero_options import Dtypes

REDUCTION = "reduction"
OUTSTANDING = 2
NODE, ACROSS = "node", "across nodes"


@dataclass
class Gradients:
    """The bucket, through the backward passes of a step. ``first``: there is nothing to add to yet.

    With a ``host`` parts are added up there, and after the ``last`` micro-batch copied in float32, but for those of
    parameters whose optimizer ``stays`` on the device.
    """

    builder: Builder
    training: Training
    options: Options
    dtypes: Dtypes
    first: bool = True
    held: list[Parameter] = field(default_factory=list)
    number: int = 0
    host: Host | None = None
    last: bool = False
    stays: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.stream = REDUCTION if self.options["overlap_comm"] else COMPUTE
        self.ranks = self.training.world_size
        self.events: list[int] = []

    @property
    def elements(self) -> int:
        """Elements in the bucket."""
        return sum(p.elements for p in self.held)

    def ready(self, parameter: Parameter) -> None:
        """Take a complete gradient, after the bucket is reduced if it would not fit."""
        limit = self.options["reduce_bucket_size"]
        if self.held and self.elements + parameter.elements > limit:
            self.reduce()
        if self.options["contiguous_gradients"] and self.elements + parameter.elements <= limit:
            size = parameter.elements * self.dtypes.model_bytes
            self.builder.compute(
                f"{parameter.name} into bucket {self.number}",
                self.training.memory_seconds(2 * size),
                stream=self.stream,
                after=[self.builder.last[COMPUTE]],
                frees=[(UNSHARDED_GRADIENTS, size)],
            )
        self.held.append(parameter)

    def reduce(self) -> None:
        """Reduce the bucket and add the own part to what is kept."""
        if not self.held:
            return
        builder = self.builder
        if len(self.events) > OUTSTANDING:
            builder.host("wait for a bucket", after=[self.events[-OUTSTANDING - 1]])
        builder.compute(f"bucket {self.number}", 0.0, stream=self.stream, after=[builder.last[COMPUTE]])
        kept = self.options["contiguous_gradients"] and self.elements <= self.options["reduce_bucket_size"]
        if kept and not self.options["reduce_scatter"]:
            buffers = self._all_reduce(f"bucket {self.number}")
        else:
            buffers = self._scatter(sorted(self.held, key=lambda p: self.training.model.place[p.name]))
        own = local_elements(self.held, self.ranks)
        widths = self.dtypes.communication_bytes, self.dtypes.accumulation_bytes
        moved = own * (sum(widths) + (0 if self.first else widths[1]))
        left: list[Item] = []
        if not kept:
            left = [(UNSHARDED_GRADIENTS, self.elements * self.dtypes.model_bytes)]
        if self.host is not None:
            self._to_host(self.host, f"own part of bucket {self.number}", own)
            moved = 0
        seconds = self.training.memory_seconds(moved)
        name = f"keep own part of bucket {self.number}"
        self.events.append(builder.compute(name, seconds, stream=self.stream, frees=[*buffers, *left]))
        self.held, self.number = [], self.number + 1

    def _to_host(self, host: Host, name: str, own: int) -> None:
        """Add the own part to that on the host, on the device; write it to drives in the end."""
        builder, training, stream, dtype = self.builder, self.training, self.stream, self.dtypes.accumulation
        size, held = own * self.dtypes.accumulation_bytes, not self.first
        accumulate_on_host(builder, training, host, name, size, held=held, returns=True, stream=stream)
        if not self.last:
            return
        staying = local_elements([p for p in self.held if p.name in self.stays], self.ranks)
        if staying:
            seconds = training.memory_seconds((self.dtypes.accumulation_bytes + 4) * staying)
            builder.compute(f"{name} that stays", seconds, stream=stream)
        if leaving := own - staying:
            drives = offloads(self.options)[0] == "nvme"
            end = gradient_to_host(builder, training, host, name, leaving, dtype, stream=stream, blocks=drives)
            if drives:
                gradient_to_drive(builder, host, name, leaving, [end])

    def _cast(self, name: str, elements: int) -> list[Item]:
        """Divide gradients, in another dtype if they are reduced in one."""
        same = self.dtypes.communication == self.dtypes.model
        size = elements * self.dtypes.communication_bytes
        moved = elements * self.dtypes.model_bytes + size
        items: list[Item] = [] if same else [(SCATTER_BUFFERS, size)]
        seconds = self.training.memory_seconds(moved)
        self.builder.compute(f"divide {name}", seconds, stream=self.stream, allocates=items)
        return items

    def _all_reduce(self, name: str) -> list[Item]:
        buffers = self._cast(name, self.elements)
        call = Call("all_reduce", WORLD, self.ranks, self.elements, self.dtypes.communication)
        self.builder.collective(name, call, stream=self.stream)
        return buffers

    def _scatter(self, parameters: Sequence[Parameter]) -> list[Item]:
        """Reduce to the owners: all at once, or each by itself where gradients are quantized."""
        if not self._quantizes:
            return self._reduce_scatter(f"bucket {self.number}", parameters)
        buffers: list[Item] = []
        for parameter in parameters:
            if len(parameter.shape) < 2 or parameter.elements % (2 * self.ranks):
                buffers += self._reduce_scatter(parameter.name, [parameter])
            else:
                self._all_to_all(parameter)
        return buffers

    @property
    def _quantizes(self) -> bool:
        return bool(self.options["zero_quantized_gradients"]) and self.training.cluster.nodes > 1

    def _reduce_scatter(self, name: str, parameters: Sequence[Parameter]) -> list[Item]:
        elements = sum(padded(p.elements, self.ranks) for p in parameters)
        size = elements * self.dtypes.communication_bytes
        in_place = len(parameters) == 1 and parameters[0].elements % self.ranks == 0
        buffers = self._cast(name, sum(p.elements for p in parameters))
        if not in_place:
            side: list[Item] = [(SCATTER_BUFFERS, size)]
            seconds = self.training.memory_seconds(2 * size)
            self.builder.compute(f"parts of {name}", seconds, stream=self.stream, allocates=side)
            buffers += side
        call = Call("reduce_scatter", WORLD, self.ranks, elements, self.dtypes.communication)
        self.builder.collective(name, call, stream=self.stream)
        return buffers

    def _all_to_all(self, parameter: Parameter) -> None:
        """Two hops. As many scales as the gradient has rows or columns, in the node; a node's share of them across."""
        builder, cluster, name = self.builder, self.training.cluster, parameter.name
        inner, nodes = cluster.gpus_per_node, cluster.nodes
        width, payload = self.dtypes.communication_bytes, parameter.elements // 2
        scales = max(parameter.shape[0], parameter.shape[1], self.ranks)
        shares = payload // inner, scales // inner

        def kernel(what: str, moved: float, items: tuple[list[Item], list[Item]]) -> None:
            seconds = self.training.memory_seconds(moved)
            builder.compute(f"{what} {name}", seconds, stream=self.stream, allocates=items[0], frees=items[1])

        def send(group: str, size: int, stride: int, sizes: tuple[int, int]) -> None:
            for what, count, dtype in ((name, sizes[0], "int8"), (f"scales of {name}", sizes[1], "float32")):
                call = Call("all_to_all", group, size, count, dtype, stride)
                builder.collective(what, call, stream=self.stream)

        whole: list[Item] = [(SCATTER_BUFFERS, 2 * (payload + 4 * scales))]
        part: list[Item] = [(SCATTER_BUFFERS, 2 * (shares[0] + 4 * shares[1]))]
        kernel("quantize", parameter.elements * width + payload, (whole, []))
        send(NODE, inner, 1, (payload, scales))
        kernel("add up in the node", payload + shares[0], (part, whole))
        send(ACROSS, nodes, inner, shares)
        kernel("add up across nodes", shares[0] + parameter.elements // self.ranks * width, ([], part))

    def finish(self) -> None:
        """Reduce what is left; the host waits for it."""
        self.reduce()
        if self.stream in self.builder.last and self.events:
            self.builder.host("wait for the gradients", after=[self.events[-1]])
        self.first = False


def local_elements(parameters: Sequence[Parameter], ranks: int) -> int:
    """Elements of a rank's part of some gradients."""
    return sum(padded(p.elements, ranks) // ranks for p in parameters)
