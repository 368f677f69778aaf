"""ZeRO-1 and ZeRO-2 as the paper has them: gradients are reduce-scattered, parameters gathered after the optimizer.

Buckets are filled in the order in which gradients become complete, and closed by the gradient that fills them; each is
reduced while the backward pass goes on, and every rank owns 1/N of it. Stage 2 frees a bucket's gradients but its own
part when it is reduced, so it reduces every micro-batch; stage 1 keeps all and reduces the last one.

    traffic of a rank = 2 (N - 1)/N x bytes of the parameters, whatever the buckets

Reference: Rajbhandari et al. 2020, arXiv:1910.02054, sections 5 and 7. Assumes that gradients are written where they
are sent from, so that nothing is copied, and that a bucket is padded to a multiple of N.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from simcollectives.engines.job import DTYPES
from simcollectives.training.model import Parameter
from simcollectives.training.passes import (
    GRADIENTS,
    NEW_GRADIENTS,
    NO_HOOKS,
    PARAMETERS,
    Hooks,
    backward,
    forward,
    optimizer_on,
    ready_order,
    stand_model,
)
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Item, Program
from simcollectives.training.setup import Training
from simcollectives.training.sharding import UNSHARDED_GRADIENTS, padded, stand_optimizer_shard
from simcollectives.training.strategies.types import Options

ADDING = "adding"


@dataclass(frozen=True)
class Part:
    """Gradients of one dtype that are reduced together."""

    name: str
    parameters: tuple[Parameter, ...]
    parameter_dtype: str
    gradient_dtype: str

    @property
    def elements(self) -> int:
        """Elements of all gradients."""
        return sum(p.elements for p in self.parameters)

    @property
    def gradient_bytes(self) -> int:
        """Bytes of all gradients."""
        return self.elements * DTYPES[self.gradient_dtype]

    def shard(self, ranks: int) -> int:
        """Elements of a rank's part."""
        return padded(self.elements, ranks) // ranks

    def shard_bytes(self, ranks: int) -> int:
        """Bytes of the gradients of a rank's part."""
        return self.shard(ranks) * DTYPES[self.gradient_dtype]


def parts_of(training: Training, name: str, parameters: Sequence[Parameter]) -> list[Part]:
    """Divide parameters by their dtypes."""
    found: dict[str | None, list[Parameter]] = {}
    for parameter in parameters:
        found.setdefault(parameter.dtype, []).append(parameter)
    return [
        Part(
            name if len(found) == 1 else f"{name}, {training.parameter_dtype(held[0])}",
            tuple(held),
            training.parameter_dtype(held[0]),
            training.gradient_dtype(held[0]),
        )
        for held in found.values()
    ]


def buckets_of(training: Training, limit: int) -> list[Part]:
    """Return buckets in the order in which they are complete; each is closed when it has reached the limit."""
    found: list[Part] = []
    open_: dict[str | None, list[Parameter]] = {}

    def close(dtype: str | None) -> None:
        found.extend(parts_of(training, f"bucket {len(found)}", open_.pop(dtype)))

    for parameter in ready_order(training):
        held = open_.setdefault(parameter.dtype, [])
        held.append(parameter)
        if sum(p.elements for p in held) >= limit:
            close(parameter.dtype)
    for dtype in list(open_):
        close(dtype)
    return found


@dataclass
class Scatterer:
    """Reduce-scatters parts of the gradients as soon as they are complete.

    ``frees``: of what is reduced only the own part stays, which is added to that of earlier micro-batches.
    """

    builder: Builder
    training: Training
    parts: Sequence[Part]
    frees: bool
    first: bool
    ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.part_of = {p.name: index for index, part in enumerate(self.parts) for p in part.parameters}
        self.left = [len(part.parameters) for part in self.parts]

    def ready(self, parameter: Parameter) -> None:
        """Take a complete gradient, and reduce its part if it was the last."""
        index = self.part_of[parameter.name]
        self.left[index] -= 1
        if self.left[index] == 0:
            self._reduce(self.parts[index])

    def _reduce(self, part: Part) -> None:
        builder, ranks = self.builder, self.training.world_size
        call = Call("reduce_scatter", WORLD, ranks, padded(part.elements, ranks), part.gradient_dtype)
        shard = part.shard_bytes(ranks)
        allocates: list[Item] = [(GRADIENTS if self.first else NEW_GRADIENTS, shard)] if self.frees else []
        frees: list[Item] = [(UNSHARDED_GRADIENTS, part.gradient_bytes)] if self.frees else []
        end = builder.collective(part.name, call, after=[builder.last[COMPUTE]], allocates=allocates, frees=frees)
        if self.frees and not self.first:
            seconds = self.training.memory_seconds(3 * shard)
            added: list[Item] = [(NEW_GRADIENTS, shard)]
            end = builder.compute(f"add {part.name}", seconds, stream=ADDING, after=[end], frees=added)
        self.ends.append(end)


def write_program(training: Training, options: Options, stage: int) -> Program:
    """Write the step of one rank."""
    builder = Builder()
    ranks = training.world_size
    buckets = buckets_of(training, options["reduce_bucket_size"])
    stand_model(builder, training)
    stand_optimizer_shard(builder, training, sum(bucket.shard(ranks) for bucket in buckets))
    ends: list[int] = []
    for micro_batch in range(training.accumulation):
        builder.micro_batch, builder.phase = micro_batch, "forward"
        forward(builder, training)
        builder.phase = "backward"
        first, last = micro_batch == 0, micro_batch == training.accumulation - 1
        scatterer = Scatterer(builder, training, buckets, stage == 2, first)
        if stage == 2:
            backward(builder, training, Hooks(ready=scatterer.ready, gradient_item=UNSHARDED_GRADIENTS))
        else:
            backward(builder, training, Hooks(ready=scatterer.ready) if last else NO_HOOKS, first=first)
        ends = scatterer.ends
    kept = sum(b.shard_bytes(ranks) if stage == 2 else b.gradient_bytes for b in buckets)
    optimizer_on_parts(builder, training, buckets, ends, [(GRADIENTS, kept)])
    _gather(builder, training, buckets)
    return builder.program()


def optimizer_on_parts(
    builder: Builder, training: Training, parts: Sequence[Part], after: Sequence[int], frees: list[Item]
) -> int:
    """Issue the optimizer on a rank's own of all parts, once they are reduced."""
    own = [(part.shard(training.world_size), part.parameter_dtype, part.gradient_dtype) for part in parts]
    return optimizer_on(builder, training, own, after=after, frees=frees)


def _gather(builder: Builder, training: Training, buckets: Sequence[Part]) -> None:
    """Gather all parameters in place, one message for each dtype."""
    ranks = training.world_size
    elements: dict[str, int] = {}
    for bucket in buckets:
        dtype = bucket.parameter_dtype
        elements[dtype] = elements.get(dtype, 0) + padded(bucket.elements, ranks)
    ends = [
        builder.collective(
            PARAMETERS if len(elements) == 1 else f"{PARAMETERS}, {dtype}",
            Call("all_gather", WORLD, ranks, count, dtype),
            after=[builder.last[COMPUTE]],
        )
        for dtype, count in elements.items()
    ]
    builder.compute("new parameters", 0.0, after=ends)
