"""ZeRO-3 as DeepSpeed does it: the parameters, gathered and released by the hooks of every module.

Gathers run on the communicator; what is made of them, on a stream of its own (with ``overlap_comm``). Several
parameters gathered at once come in one flat buffer, and are copied out of it when the first of them is waited for; one
alone is gathered in place. The host never runs ahead of more than two parameters that are waited for. A gather takes
memory that was released before it: it waits where more than ``max_live_parameters``, or than what the hooks themselves
keep, would stand at once (DeepSpeed leaves that to PyTorch's allocator).

With ``offload_param`` the rank's shard of what is gathered is first copied from the host, which waits for it; shards on
drives are read before that, ahead where there are buffers.

With ``zero_hpz_partition_size`` a parameter that is released leaves a second shard on the rank, of which the next
gathers need only these ranks, until the step. With ``zero_quantized_weights`` 8-bit integers and a float32 scale for
about 8,000 of them are gathered, and made parameters again when they are waited for.

Reference: deepspeed 0.19.8, runtime/zero/partition_parameters.py; Wang et al. 2023, arXiv:2306.10209 (ZeRO++).
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simcollectives.training.model import Module, Parameter
from simcollectives.training.offload import LEAST_ON_DRIVE, NVME_READ, Host, copy_to_device, offloads
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Item
from simcollectives.training.setup import Training
from simcollectives.training.sharding import GATHER_BUFFERS, UNSHARDED, padded
from simcollectives.training.strategies.types import Options
from simcollectives.training.strategies.zero_fetch import Coordinator, most_live, visits_of
from simcollectives.training.strategies.zero_options import Dtypes
from simcollectives.training.strategies.zero_visits import Stop

GATHERING = "all-gather copies"
SECOND_SHARDS = "second shards"
OUTSTANDING = 2
QUANTIZED_GROUP = 8000
HPZ = "hpz"


@dataclass
class _Gather:
    """Parameters gathered at once. ``ends`` are its collectives; ``buffers`` what stands until they are copied out."""

    name: str
    parameters: Sequence[Parameter]
    ends: list[int]
    buffers: list[Item]
    outputs: list[Item]
    moved: int
    ready: int | None = None


@dataclass
class Parameters:
    """What a rank holds of the parameters, through the passes of a step; a pass ``begin``s and ``end``s."""

    builder: Builder
    training: Training
    options: Options
    dtypes: Dtypes
    persistent: Sequence[Parameter]
    held: dict[str, int] = field(default_factory=dict)
    second: dict[str, int] = field(default_factory=dict)
    host: Host | None = None

    def __post_init__(self) -> None:
        self.stream = GATHERING if self.options["overlap_comm"] else COMPUTE
        self.ranks = self.training.world_size
        self.flying: dict[str, _Gather] = {}
        self.events: list[int] = []
        self.waited = self.joined = -1
        self.freed: deque[tuple[int, int]] = deque()
        self.standing = self.room = 0
        self.reads: dict[str, int] = {}
        self.on_drive: frozenset[str] = frozenset()
        if offloads(self.options)[1] == "nvme":
            kept = {p.name for p in self.persistent}
            large = [p for p in self.training.model.parameters if self._shard_bytes(p) >= LEAST_ON_DRIVE]
            self.on_drive = frozenset(p.name for p in large if p.name not in kept)

    def _shard_bytes(self, parameter: Parameter) -> int:
        return padded(parameter.elements, self.ranks) // self.ranks * self.dtypes.model_bytes

    def begin(self, stops: Sequence[Stop], *, known: bool) -> None:
        """Begin a forward and backward pass."""
        self.stops = deque(stops)
        dry, self.coordinator = (
            Coordinator(
                visits_of(stops),
                self.options,
                frozenset(p.name for p in self.persistent),
                known=known,
                available=set(self.held),
                on_drive=self.on_drive,
                buffers=self.options["param_buffer_count"],
            )
            for _ in range(2)
        )
        self.room = max(self.options["max_live_parameters"], most_live(stops, dry))

    def before(self, _module: Module) -> None:
        """Run the hooks of all that is entered with a module: compute waits for its parameters."""
        for visit in self.stops[0].entered:
            fetch = self.coordinator.fetch(visit)
            self.gather(fetch.needed)
            for parameter in fetch.waited:
                self._wait(parameter)
            self._join()
            self.gather(fetch.ahead)
            if self.host is not None:
                for parameter in fetch.read:
                    self._read(self.host, parameter)

    def after(self, module: Module) -> None:
        """Run the hook of what is left; in the backward pass, what needs no gradient of its input has none."""
        left = self.stops.popleft().left
        if left is not None:
            late = self.builder.phase == "backward" and module.kind == "embedding"
            self._release(self.coordinator.release(left, late=late))

    def end(self) -> None:
        """End the backward pass: what no hook released is released."""
        kept = {p.name for p in self.persistent}
        rest = [p for p in self.training.model.parameters if p.name in self.held and p.name not in kept]
        self._release(rest)

    def gather(self, parameters: Iterable[Parameter]) -> None:
        """Gather parameters: those with a second shard first, from the ranks that hold it."""
        ordered = sorted(parameters, key=lambda p: self.training.model.place[p.name])
        near = [p for p in ordered if p.name in self.second]
        far = [p for p in ordered if p.name not in self.second]
        size = self.options["zero_hpz_partition_size"]
        for group, ranks, chosen in ((HPZ, min(size, self.ranks), near), (WORLD, self.ranks, far)):
            if chosen:
                self._gather(chosen, group, ranks)

    def _gather(self, parameters: Sequence[Parameter], group: str, ranks: int) -> None:
        more = f" and {len(parameters) - 1} more" if len(parameters) > 1 else ""
        name = f"{parameters[0].name}{more}"
        elements = sum(padded(p.elements, self.ranks) for p in parameters)
        after = self._make_room(sum(p.elements for p in parameters))
        if self.host is not None:
            after = self._from_host(self.host, name, parameters, after)
        if self.options["zero_quantized_weights"]:
            gather = self._quantized(name, parameters, elements, group, ranks, after)
        else:
            gather = self._plain(name, parameters, elements, group, ranks, after)
        for parameter in parameters:
            self.flying[parameter.name] = gather

    def _from_host(self, host: Host, name: str, parameters: Sequence[Parameter], after: list[int]) -> list[int]:
        """Copy the own shards to the device, after what is on drives has been read."""
        far = [p for p in parameters if p.name in self.on_drive]
        for parameter in far:
            if parameter.name not in self.reads:
                self._read(host, parameter)
        read = [self.reads.pop(p.name) for p in far]
        size = sum(self._shard_bytes(p) for p in parameters)
        after = [*after, *read]
        return [copy_to_device(self.builder, host, name, size, stream=self.stream, after=after, blocks=True)]

    def _read(self, host: Host, parameter: Parameter) -> None:
        seconds = self._shard_bytes(parameter) / host.read
        self.reads[parameter.name] = self.builder.copy(f"{parameter.name} read", seconds, stream=NVME_READ)

    def _plain(
        self, name: str, parameters: Sequence[Parameter], elements: int, group: str, ranks: int, after: list[int]
    ) -> _Gather:
        """Several go into a flat buffer, to which the own shards are copied first."""
        builder, width = self.builder, self.dtypes.model_bytes
        size = elements * width
        kind = "all_reduce" if self._by_all_reduce(parameters, group) else "all_gather"
        call = Call(kind, group, ranks, elements, self.dtypes.model)
        if len(parameters) == 1:
            end = builder.collective(name, call, after=self._issued(after), allocates=[(UNSHARDED, size)])
            return _Gather(name, parameters, [end], [], [(UNSHARDED, size)], 0)
        seconds = self.training.memory_seconds(2 * size / ranks)
        # What was all-reduced is not copied out: parameters are views of it, each with its padding.
        views = kind == "all_reduce"
        buffers = [(UNSHARDED if views else GATHER_BUFFERS, size)]
        put = builder.compute(f"shards of {name}", seconds, stream=self.stream, after=after, allocates=buffers)
        end = builder.collective(name, call, after=[put])
        outputs = [(UNSHARDED, (padded(p.elements, self.ranks) if views else p.elements) * width) for p in parameters]
        if views:
            return _Gather(name, parameters, [end], [], outputs, 0)
        return _Gather(name, parameters, [end], buffers, outputs, 2 * sum(size for _, size in outputs))

    def _by_all_reduce(self, parameters: Sequence[Parameter], group: str) -> bool:
        return bool(self.options["use_all_reduce_for_fetch_params"] and len(parameters) > 1 and group == WORLD)

    def _quantized(
        self, name: str, parameters: Sequence[Parameter], elements: int, group: str, ranks: int, after: list[int]
    ) -> _Gather:
        """Gather 8-bit integers, and as many scales as the own shards have groups from every rank."""
        builder, width = self.builder, self.dtypes.model_bytes
        scales = quantization_groups(elements // ranks) * ranks
        buffers = [(GATHER_BUFFERS, elements + 4 * scales)]
        own = elements // ranks * (width + 1)
        seconds = self.training.memory_seconds(own)
        put = builder.compute(f"quantize {name}", seconds, stream=self.stream, after=after, allocates=buffers)
        ends = [
            builder.collective(name, Call("all_gather", group, ranks, elements, "int8"), after=[put]),
            builder.collective(f"scales of {name}", Call("all_gather", group, ranks, scales, "float32"), after=[put]),
        ]
        outputs = [(UNSHARDED, p.elements * width) for p in parameters]
        copied = 2 * elements * width if len(parameters) > 1 else 0
        return _Gather(name, parameters, ends, buffers, outputs, elements * (1 + width) + copied)

    def _issued(self, after: list[int]) -> list[int]:
        """What a collective waits for that is issued from the gathering stream."""
        return [*after, *self.builder.latest(self.stream)]

    def _make_room(self, elements: int) -> list[int]:
        """Return the release that a gather of some elements waits for, if any."""
        after: list[int] = []
        while self.freed and self.standing + elements > self.room:
            place, size = self.freed.popleft()
            self.standing -= size
            after = [place]
        self.standing += elements
        return after

    def _wait(self, parameter: Parameter) -> None:
        """Wait for a parameter; at more than two that are waited for, the host stops."""
        gather = self.flying.pop(parameter.name)
        builder = self.builder
        if len(self.events) > OUTSTANDING:
            oldest = self.events[-OUTSTANDING - 1]
            if oldest > self.waited:
                builder.host("wait for a fetch", after=[oldest])
                self.waited = oldest
        if gather.ready is None:
            gather.ready = builder.compute(
                f"copy out {gather.name}" if gather.moved else f"wait for {gather.name}",
                self.training.memory_seconds(gather.moved),
                stream=self.stream,
                after=gather.ends,
                allocates=gather.outputs if gather.buffers else [],
                frees=gather.buffers,
            )
        self.events.append(builder.last[self.stream])
        index = [p.name for p in gather.parameters].index(parameter.name)
        self.held[parameter.name] = gather.outputs[index][1]

    def _join(self) -> None:
        """Compute waits for what is on the gathering stream."""
        last = self.builder.last.get(GATHERING, -1)
        if last > self.joined:
            self.builder.compute("wait for parameters", 0.0, after=[last])
            self.joined = last

    def _release(self, parameters: Sequence[Parameter]) -> None:
        """Free parameters after what was computed; their second shards are made first."""
        parameters = [p for p in parameters if p.name in self.held]
        if not parameters:
            return
        for parameter in parameters:
            self._keep_second_shard(parameter)
        frees = [(UNSHARDED, self.held.pop(p.name)) for p in parameters]
        place = self.builder.compute(f"release {parameters[0].name}", 0.0, frees=frees)
        self.freed.append((place, sum(p.elements for p in parameters)))

    def _keep_second_shard(self, parameter: Parameter) -> None:
        if self.options["zero_hpz_partition_size"] == 1 or parameter.name in self.second:
            return
        size = self._second_shard(parameter)
        self.second[parameter.name] = size
        seconds = self.training.memory_seconds(2 * size)
        made = self.builder.compute(f"second shard of {parameter.name}", seconds, allocates=[(SECOND_SHARDS, size)])
        self.builder.host("wait for a second shard", after=[made])

    def _second_shard(self, parameter: Parameter) -> int:
        ranks = min(self.options["zero_hpz_partition_size"], self.ranks)
        return int(padded(parameter.elements, self.ranks) // ranks * self.dtypes.model_bytes)

    def stand(self) -> None:
        """Note what stands before a step: persistent parameters, but at first second shards, made with the first."""
        builder, parameters = self.builder, self.training.model.parameters
        if self.training.iteration != 0:
            self.held = {p.name: padded(p.elements, self.ranks) * self.dtypes.model_bytes for p in self.persistent}
            builder.stand(UNSHARDED, sum(self.held.values()))
        elif self.options["zero_hpz_partition_size"] > 1:
            self.second = {p.name: self._second_shard(p) for p in parameters}
            builder.stand(SECOND_SHARDS, sum(self.second.values()))

    def renew(self) -> None:
        """After the optimizer: gather the persistent parameters one by one; second shards are out of date."""
        builder = self.builder
        self._release([p for p in self.persistent if p.name in self.held])
        ends = []
        for parameter in self.persistent:
            size = padded(parameter.elements, self.ranks) * self.dtypes.model_bytes
            call = Call("all_gather", WORLD, self.ranks, size // self.dtypes.model_bytes, self.dtypes.model)
            held = [(UNSHARDED, size)]
            after = [builder.last[COMPUTE]]
            if self.host is not None:
                after = self._from_host(self.host, parameter.name, [parameter], after)
            ends.append(builder.collective(parameter.name, call, after=after, allocates=held))
        frees = [(SECOND_SHARDS, size) for size in self.second.values()]
        builder.compute("end of the step", 0.0, after=ends, frees=frees)


def quantization_groups(elements: int) -> int:
    """Return into how many groups a shard is divided, each with its scale: of 8,000 elements, more or less.

    DeepSpeed (CUDAQuantizer) refuses what is not a multiple of 8; here the last group is then smaller.

    >>> quantization_groups(64_000)
    8
    """
    groups = -(-elements // QUANTIZED_GROUP)
    if elements % 8:
        return groups
    while elements % (8 * groups):
        groups += 1
    while elements % (16 * groups) == 0 and elements / groups > QUANTIZED_GROUP:
        groups *= 2
    return groups
