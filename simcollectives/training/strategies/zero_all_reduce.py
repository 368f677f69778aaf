"""ZeRO-1 and ZeRO-2 as DeepSpeed does them: buckets are all-reduced, and parameters gathered in one message.

Gradients are copied into a bucket in the order in which they become complete (stage 1 without ``overlap_comm``: as
parameters are registered, after the backward pass). A bucket is reduced when the next gradient would not fit; one that
is larger than a bucket is reduced alone. There is no reduce-scatter: the whole bucket is all-reduced, or with
``use_multi_rank_bucket_allreduce: false`` reduced to each owner in turn. Stage 2 does so for every micro-batch, stage 1
for the last one. Without ``overlap_comm`` all of it stands on the compute stream; with it a second bucket is filled
meanwhile, and the host waits for the device after the backward pass.

With ``offload_optimizer: cpu`` a rank's own part of every bucket is copied to the host instead, where the optimizer
runs: in float32 for the last micro-batch, and whole gradients out and in to add up those before it. The host waits for
each part to be checked for overflow.

    traffic of a rank = (2 + 1) (N - 1)/N x bytes of the parameters, where the paper has 2

Reference: deepspeed 0.19.8, runtime/zero/stage_1_and_2.py. Assumes that the whole model has one dtype.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from simcollectives.training.model import Parameter
from simcollectives.training.offload import Host, HostOptimizer, accumulate_on_host, gradient_to_host
from simcollectives.training.passes import (
    BUCKETS,
    GRADIENTS,
    NEW_GRADIENTS,
    PARAMETERS,
    Hooks,
    backward,
    forward,
    optimizer_on,
    stand_buffers,
)
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Item, Program
from simcollectives.training.setup import Training
from simcollectives.training.sharding import UNSHARDED_GRADIENTS, stand_optimizer_shard
from simcollectives.training.strategies.types import Options
from simcollectives.training.strategies.zero_flat import FlatParameters, Slice, flat_parameters, split_at
from simcollectives.training.strategies.zero_offload import host_in_use
from simcollectives.training.strategies.zero_options import Dtypes, dtypes_of, with_gradient_copy

REDUCTION = "reduction"
COPIES = "copies of buckets"
OFFLOAD_BUFFER = "offload buffer"


@dataclass
class _Reducer:
    """Fills and reduces buckets during the backward pass of one micro-batch."""

    builder: Builder
    training: Training
    options: Options
    stage: int
    flat: FlatParameters
    dtypes: Dtypes
    first: bool
    last: bool
    host: Host | None
    held: list[Parameter] = field(default_factory=list)
    number: int = 0
    shard_made: bool = False

    @property
    def stream(self) -> str:
        """Where buckets are reduced."""
        return REDUCTION if self.options["overlap_comm"] else COMPUTE

    @property
    def elements(self) -> int:
        """Elements in the bucket."""
        return sum(p.elements for p in self.held)

    def ready(self, parameter: Parameter) -> None:
        """Put a complete gradient into the bucket, which is reduced first if it would not fit."""
        limit = self.options["reduce_bucket_size"]
        if self.elements + parameter.elements > limit:
            self.reduce()
        self.held.append(parameter)
        if self.options["contiguous_gradients"] and parameter.elements <= limit:
            size = parameter.elements * self.dtypes.model_bytes
            seconds = self.training.memory_seconds(2 * size)
            frees = [(UNSHARDED_GRADIENTS, size)] if self.stage == 2 else []
            self.builder.compute(f"{parameter.name} into bucket {self.number}", seconds, frees=frees)

    def reduce(self) -> None:
        """Reduce the bucket: divide, all-reduce a copy of it, and copy the own part out."""
        if not self.held:
            return
        builder, width = self.builder, self.dtypes.model_bytes
        name, size = f"bucket {self.number}", self.elements * width
        self._wait_for_the_one_before()
        divided = self.training.memory_seconds(2 * size)
        builder.compute(f"divide {name}", divided, stream=self.stream, after=[builder.last[COMPUTE]])
        for kind, slices in self._messages():
            self._message(name, kind, slices)
        mine = sum(size for owner, size in self.flat.slices(self.held) if owner == 0)
        if self.host is not None:
            self._to_host(self.host, f"own part of {name}", mine)
        else:
            seconds = self.training.memory_seconds(4 * mine * width)
            allocates, frees = self._shard(), self._left_in_place()
            builder.compute(f"own part of {name}", seconds, stream=self.stream, allocates=allocates, frees=frees)
        self.held, self.number = [], self.number + 1

    def _to_host(self, host: Host, name: str, mine: int) -> None:
        """Copy the own part out; to add up, the whole gradients that are partly the rank's own."""
        builder, training, stream, model = self.builder, self.training, self.stream, self.dtypes.model
        width = self.dtypes.model_bytes
        end = builder.compute(name, training.memory_seconds(2 * mine * width), stream=stream)
        whole = sum(p.elements for p in own_parameters(self.flat, self.held)) * width
        if mine and training.accumulation > 1:
            held = not self.first
            end = accumulate_on_host(
                builder, training, host, name, whole, held=held, returns=False, stream=stream, after=[end]
            )
        if mine and self.last:
            seconds = training.memory_seconds(2 * mine * width)
            checked = builder.compute(f"norm and overflow of {name}", seconds, stream=stream, after=[end])
            builder.host(f"wait for overflow of {name}", after=[checked])
            end = gradient_to_host(builder, training, host, name, mine, model, stream=stream)
        left = self._left_in_place() if self.stage == 2 else [(GRADIENTS, whole)]
        builder.compute(f"free {name}", 0.0, stream=stream, after=[end], frees=left)

    def _wait_for_the_one_before(self) -> None:
        """With overlap, the bucket is filled behind the reduction of the one before; some paths stop the host, too."""
        builder, before = self.builder, self.builder.last.get(REDUCTION)
        if not self.options["overlap_comm"] or before is None:
            return
        if self._reduces_to_owners or not self.options["contiguous_gradients"]:
            builder.host("wait for the device", after=builder.last.values())
        builder.compute("wait for the bucket before", 0.0, after=[before])

    @property
    def _reduces_to_owners(self) -> bool:
        names = "reduce_scatter", "contiguous_gradients"
        return all(self.options[name] for name in names) and not self.options["use_multi_rank_bucket_allreduce"]

    def _messages(self) -> list[tuple[str, list[Slice]]]:
        """Kinds and slices of what is sent for a bucket, in order."""
        slices = self.flat.slices(self.held)
        if not (self.options["reduce_scatter"] and self.options["contiguous_gradients"]):
            return [("all_reduce", [(0, self.elements)])]
        limit = self.options["reduce_bucket_size"]
        if not self._reduces_to_owners:
            return [("all_reduce", message) for message in split_at(slices, limit)]
        owners = dict.fromkeys(owner for owner, _ in slices)
        found = []
        for owner in owners:
            found += [("reduce", m) for m in split_at([s for s in slices if s[0] == owner], limit)]
        return found

    def _message(self, name: str, kind: str, slices: list[Slice]) -> None:
        """Send a part of a bucket; several slices are copied together, and cast where that is asked for."""
        builder, dtypes = self.builder, self.dtypes
        elements = sum(size for _, size in slices)
        scattered = len(self.held) > 1 and not self.options["contiguous_gradients"]
        copied = elements * dtypes.model_bytes if len(slices) > 1 or scattered else 0
        cast = elements * dtypes.communication_bytes if dtypes.communication != dtypes.model else 0
        items = [(COPIES, copied + cast)] if copied + cast else []
        moved = 2 * copied + (elements * dtypes.model_bytes + cast if cast else 0)
        if items:
            builder.compute(f"copy {name}", self.training.memory_seconds(moved), stream=self.stream, allocates=items)
        call = Call(kind, WORLD, self.training.world_size, elements, dtypes.communication)
        builder.collective(name, call, stream=self.stream, frees=items)

    def _shard(self) -> list[Item]:
        """The own part of the gradients: made with the first bucket; in stage 1 all gradients stay where they are."""
        if self.stage == 1 or self.shard_made:
            return []
        self.shard_made = True
        size = self.flat.shard * self.dtypes.accumulation_bytes
        return [(GRADIENTS if self.first else NEW_GRADIENTS, size)]

    def _left_in_place(self) -> list[Item]:
        """Gradients that were not copied into a buffer, and are freed only now."""
        if self.stage == 1:
            return []
        limit, apart = self.options["reduce_bucket_size"], not self.options["contiguous_gradients"]
        left = [p.elements for p in self.held if apart or p.elements > limit]
        return [(UNSHARDED_GRADIENTS, sum(left) * self.dtypes.model_bytes)] if left else []

    def finish(self, buffers: list[Item]) -> None:
        """Reduce what is left, wait for it, add it to what earlier micro-batches left, and free the buffers."""
        self.reduce()
        builder = self.builder
        if self.options["overlap_comm"]:
            builder.host("wait for the device", after=builder.last.values())
        added = self.flat.shard * self.dtypes.accumulation_bytes if self.shard_made and not self.first else 0
        frees = [*buffers, (NEW_GRADIENTS, added)] if added else buffers
        builder.compute("end of the reduction", self.training.memory_seconds(3 * added), frees=frees)


def write_program(training: Training, options: Options, stage: int) -> Program:
    """Write the step of one rank."""
    builder = Builder()
    host = host_in_use(training, options)
    if host is not None:
        options = {**options, "contiguous_gradients": True}
    training, dtypes = with_gradient_copy(training), dtypes_of(training, options)
    flat = flat_parameters(training.model.parameters, training.world_size, round_robin=options["round_robin_gradients"])
    builder.stand(PARAMETERS, flat.elements * dtypes.model_bytes)
    stand_buffers(builder, training)
    if host is None:
        stand_optimizer_shard(builder, training, flat.shard)
    else:
        builder.stand(OFFLOAD_BUFFER, max(p.elements for p in flat.parameters) * dtypes.model_bytes)
    _passes(builder, training, options, stage, flat, dtypes, host)
    builder.phase = "optimizer"
    kept = _kept_gradients(training, stage, flat, dtypes, offloaded=host is not None)
    if host is None:
        _step(builder, training, flat, dtypes, kept)
    else:
        _host_step(builder, training, options, flat, dtypes, host, kept)
    call = Call("all_gather", WORLD, training.world_size, flat.elements, dtypes.model)
    builder.collective("parameters", call, stream=COMPUTE)
    return builder.program()


def own_parameters(flat: FlatParameters, parameters: Iterable[Parameter]) -> list[Parameter]:
    """Return the parameters of which rank 0 owns a part."""
    return [p for p in parameters if any(owner == 0 for owner, _ in flat.slices([p]))]


def _kept_gradients(training: Training, stage: int, flat: FlatParameters, dtypes: Dtypes, *, offloaded: bool) -> int:
    if stage == 2:
        return 0 if offloaded else flat.shard * dtypes.accumulation_bytes
    gone = sum(p.elements for p in own_parameters(flat, flat.parameters)) if offloaded else 0
    return (training.model.elements - gone) * dtypes.model_bytes


def _passes(
    builder: Builder,
    training: Training,
    options: Options,
    stage: int,
    flat: FlatParameters,
    dtypes: Dtypes,
    host: Host | None,
) -> None:
    copies = 2 if options["overlap_comm"] else 1
    size = options["reduce_bucket_size"] * dtypes.model_bytes * copies
    buffers = [(BUCKETS, size)] if options["contiguous_gradients"] and size else []
    made = False
    for micro_batch in range(training.accumulation):
        builder.micro_batch, builder.phase = micro_batch, "forward"
        forward(builder, training)
        builder.phase = "backward"
        first, last = micro_batch == 0, micro_batch == training.accumulation - 1
        if not made:
            builder.compute("buckets", 0.0, allocates=buffers)
        made = stage == 1
        reducer = _Reducer(builder, training, options, stage, flat, dtypes, first, last, host)
        during = stage == 2 or (last and options["overlap_comm"])
        more: dict[str, Any] = {"ready": reducer.ready} if during else {}
        item = UNSHARDED_GRADIENTS if stage == 2 else GRADIENTS
        hooks = Hooks(gradient_bytes=lambda p: p.elements * dtypes.model_bytes, gradient_item=item, **more)
        backward(builder, training, hooks, first=first or stage == 2)
        if stage == 1 and last and not during:
            for parameter in training.model.parameters:
                reducer.ready(parameter)
        if stage == 2 or last:
            reducer.finish(buffers)


def _step(builder: Builder, training: Training, flat: FlatParameters, dtypes: Dtypes, kept: int) -> None:
    """The optimizer: overflow and norm of the gradients first, each of which the host waits for; then the gather."""
    read = flat.shard * dtypes.accumulation_bytes
    for name, dtype in (("overflow", "uint8"), ("norm", "float32")):
        tell(builder, training, f"{name} of gradients", dtype, read)
    optimizer_on(builder, training, [(flat.shard, dtypes.model, dtypes.accumulation)], frees=[(GRADIENTS, kept)])


def _host_step(
    builder: Builder,
    training: Training,
    options: Options,
    flat: FlatParameters,
    dtypes: Dtypes,
    host: Host,
    kept: int,
) -> None:
    """The optimizer on the host, which has the overflow and norm of the gradients already."""
    for name, dtype in (("overflow", "uint8"), ("norm", "float32")):
        tell(builder, training, f"{name} of gradients", dtype, 0)
    optimizer = HostOptimizer(builder, training, host, options, dtypes.model, COMPUTE)
    end = optimizer.run([flat.shard], after=builder.last.values())
    builder.compute("parameters updated", 0.0, after=[end], frees=[(GRADIENTS, kept)] if kept else [])


def tell(builder: Builder, training: Training, name: str, dtype: str, read: int) -> None:
    """Make one number of what a rank holds, reduce it over all, and let the host wait for it."""
    builder.compute(name, training.memory_seconds(read))
    call = Call("all_reduce", WORLD, training.world_size, 1, dtype)
    end = builder.collective(name, call, stream=COMPUTE)
    builder.host(f"wait for the {name}", after=[end])
