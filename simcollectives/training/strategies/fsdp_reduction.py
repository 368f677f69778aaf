"""How FSDP2 reduces the gradients of a unit: copy-in, reduce-scatter, all-reduce between replicas, accumulation.

As foreach_reduce of torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, 2.13. The collective averages float32 and
bfloat16; other dtypes are divided before it, by about the root of the ranks, and after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from simcollectives.engines.job import DTYPES
from simcollectives.training.passes import GRADIENTS
from simcollectives.training.program import Builder, Item
from simcollectives.training.setup import Training
from simcollectives.training.sharding import SCATTER_BUFFERS, UNSHARDED_GRADIENTS
from simcollectives.training.strategies.fsdp_units import Dtypes, Mesh, Unit
from simcollectives.training.strategies.types import Options

SCATTER, REDUCE = "reduce-scatter", "all-reduce"
REDUCED, PARTLY_REDUCED = "reduced gradients", "partly reduced gradients"
AVERAGED = ("float32", "bfloat16")


def division_factors(ranks: int) -> tuple[int, float]:
    """Return what gradients are divided by before and after they are summed.

    >>> division_factors(8), division_factors(6)
    ((4, 2.0), (4, 1.5))
    """
    before = 1
    while ranks % before == 0 and ranks / before > before:
        before *= 2
    return before, ranks / before


@dataclass
class Reduced:
    """What both versions of FSDP do with gradients that are reduced.

    ``summed`` are units that have gradients from earlier micro-batches, ``ends`` the last operation of each stream
    since the kernels last waited.
    """

    builder: Builder
    training: Training
    mesh: Mesh
    dtypes: Mapping[str, Dtypes]
    summed: set[str] = field(default_factory=set, init=False)
    ends: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def ranks(self) -> int:
        """Number of ranks whose gradients are averaged."""
        return self.mesh.shard * self.mesh.replicas

    def kernel(self, name: str, moved: int, stream: str, after: int, **items: list[Item]) -> int:
        """Issue what moves bytes on a stream, after another operation."""
        seconds = self.training.memory_seconds(moved)
        return self.builder.compute(name, seconds, stream=stream, after=[after], **items)

    def add(self, name: str, stream: str, reduced: int, output: Item, frees: list[Item]) -> int:
        """Cast what was reduced to the parameters' dtype, and add it to what there is from earlier micro-batches."""
        dtypes, size = self.dtypes[name], output[1]
        own = size // DTYPES[dtypes.reduced] * DTYPES[dtypes.own]
        cast = size + own if dtypes.own != dtypes.reduced else 0
        if name not in self.summed:
            made = [(GRADIENTS, own)]
            return self.kernel(f"{name} gradients cast", cast, stream, reduced, allocates=made, frees=frees)
        copy = [(REDUCED, own)] if cast else []
        moved = cast + 3 * own
        return self.kernel(f"{name} gradients added", moved, stream, reduced, allocates=copy, frees=[*copy, *frees])

    def wait(self) -> None:
        """Let the kernels wait for all that was reduced so far."""
        if self.ends:
            self.builder.compute("wait for gradients", 0.0, after=list(self.ends.values()))
            self.ends.clear()


@dataclass
class Reduction(Reduced):
    """The gradients of one rank, from those that the backward pass makes to shards that are reduced.

    ``buffers`` are inputs of reduce-scatters that are still held, ``held`` the inputs of all-reduces; ``own_end`` is
    the last operation of a unit.
    """

    elements: Mapping[str, int]
    options: Options
    buffers: list[tuple[int, Item]] = field(default_factory=list)
    held: dict[str, Item] = field(default_factory=dict)
    own_end: dict[str, int] = field(default_factory=dict)
    accumulated: set[str] = field(default_factory=set)
    partial: dict[str, Item] = field(default_factory=dict)
    all_reduces: bool = True

    @property
    def casts(self) -> bool:
        """Whether gradients are reduced in another dtype than they are computed in."""
        return any(dtypes.gathered != dtypes.reduced for dtypes in self.dtypes.values())

    def begin_backward(self, *, last: bool) -> None:
        """Decide whether replicas reduce in this backward pass."""
        self.all_reduces = last or self.options.get("all_reduce", "every") == "every"

    def accumulate(self, unit: Unit, raw: int) -> None:
        """Add new gradients to those of earlier micro-batches that are kept in the dtype of the reduction."""
        if unit.name in self.accumulated:
            kept = unit.elements * DTYPES[self.dtypes[unit.name].reduced]
            seconds = self.training.memory_seconds(raw + 2 * kept)
            self.builder.compute(f"{unit.name} accumulated", seconds, frees=[(UNSHARDED_GRADIENTS, raw)])

    def keep(self, unit: Unit, raw: int) -> None:
        """Keep gradients without a reduction: in the dtype of the reduction, if that is another."""
        if self.casts and unit.name not in self.accumulated:
            kept = unit.elements * DTYPES[self.dtypes[unit.name].reduced]
            self.builder.compute(
                f"{unit.name} gradients cast",
                self.training.memory_seconds(raw + kept),
                allocates=[(UNSHARDED_GRADIENTS, kept)],
                frees=[(UNSHARDED_GRADIENTS, raw)],
            )
            self.accumulated.add(unit.name)

    def reduce(self, unit: Unit, raw: int) -> None:
        """Copy gradients into a buffer, on the stream of the kernels, and reduce it on others."""
        name = unit.name
        while len(self.buffers) >= self.options["reduce_scatter_buffers"]:
            scattered, buffer = self.buffers.pop(0)
            self.builder.compute(f"{name} waits for a buffer", 0.0, after=[scattered], frees=[buffer])
        if name in self.own_end:
            held = [self.held.pop(name)] if name in self.held else []
            self.builder.compute(f"{name} waits for its reduction", 0.0, after=[self.own_end.pop(name)], frees=held)
        dtype = self.dtypes[name].reduced
        if name in self.accumulated:
            self.accumulated.discard(name)
            raw = unit.elements * DTYPES[dtype]
        buffer = SCATTER_BUFFERS, self.elements[name] * DTYPES[dtype]
        copied = self.builder.compute(
            f"{name} gradients copy-in",
            self.training.memory_seconds(raw + buffer[1]),
            allocates=[buffer],
            frees=[(UNSHARDED_GRADIENTS, raw)],
        )
        self._scatter(name, copied, buffer)

    def _scatter(self, name: str, copied: int, buffer: Item) -> None:
        dtypes = self.dtypes[name]
        if dtypes.reduced not in AVERAGED and division_factors(self.ranks)[0] > 1:
            copied = self.kernel(f"{name} gradients divided", 2 * buffer[1], SCATTER, copied)
        output = self._output(name), buffer[1] // self.mesh.shard
        if self.mesh.shard == 1:
            scattered = self.kernel(f"{name} gradients", 2 * buffer[1], SCATTER, copied, allocates=[output])
        else:
            call = self.mesh.shard_call("reduce_scatter", self.elements[name], dtypes.reduced)
            if self.options.get("separate_reduce_scatter_group"):
                call = replace(call, group="reduce-scatter")
            scattered = self.builder.collective(name, call, stream=SCATTER, after=[copied], allocates=[output])
        self.buffers.append((scattered, buffer))
        if self.mesh.replicas == 1:
            self._sum(name, SCATTER, scattered, output)
        elif self.all_reduces:
            self._all_reduce(name, scattered, output)
        else:
            self._add_part(name, scattered, output)

    def _output(self, name: str) -> str:
        """Name what a reduce-scatter writes: it becomes the gradients, if there are none yet in this dtype."""
        if self.mesh.replicas > 1 and not self.all_reduces:
            return REDUCED if name in self.partial else PARTLY_REDUCED
        dtypes = self.dtypes[name]
        return GRADIENTS if dtypes.own == dtypes.reduced and name not in self.summed else REDUCED

    def _add_part(self, name: str, scattered: int, output: Item) -> None:
        """Add what is reduced in a shard group alone to that of earlier micro-batches."""
        end = scattered
        if name in self.partial:
            end = self.kernel(f"{name} gradients added", 3 * output[1], SCATTER, scattered, frees=[output])
        self.partial.setdefault(name, output)
        self.ends[SCATTER] = self.own_end[name] = end

    def _all_reduce(self, name: str, scattered: int, output: Item) -> None:
        if (part := self.partial.pop(name, None)) is not None:
            scattered = self.kernel(f"{name} gradients added", 3 * output[1], SCATTER, scattered, frees=[part])
        call = self.mesh.replica_call(self.elements[name] // self.mesh.shard, self.dtypes[name].reduced)
        self._sum(name, REDUCE, self.builder.collective(name, call, stream=REDUCE, after=[scattered]), output)

    def _sum(self, name: str, stream: str, reduced: int, output: Item) -> None:
        """Divide reduced gradients, cast them and add them to those of earlier micro-batches, as far as is needed."""
        end = reduced
        if self.dtypes[name].reduced not in AVERAGED and division_factors(self.ranks)[1] != 1:
            end = self.kernel(f"{name} gradients divided again", 2 * output[1], stream, end)
        if output[0] == REDUCED:
            frees = [output]
            if stream == REDUCE:
                # The input of an all-reduce is held until the kernels have waited for it.
                self.held[name], frees = output, []
            end = self.add(name, stream, end, output, frees)
        self.summed.add(name)
        self.ends[stream] = self.own_end[name] = end

    def finish(self) -> None:
        """Let the kernels wait for everything, and let go of all buffers."""
        self.wait()
        frees = [*(buffer for _, buffer in self.buffers), *self.held.values()]
        if frees:
            after = [scattered for scattered, _ in self.buffers]
            self.builder.compute("let buffers go", 0.0, after=after, frees=frees)
        self.buffers.clear()
        self.held.clear()
        self.own_end.clear()
