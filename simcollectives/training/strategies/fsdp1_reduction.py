"""How FSDP1 reduces the gradient of a flat parameter, on a stream of its own.

As _post_backward_hook and _reduce_grad of torch/distributed/fsdp/_runtime_utils.py, 2.13. Gradients are divided before
they are summed, by about the root of the ranks, and after it.
"""

from dataclasses import dataclass, field

from simcollectives.engines.job import DTYPES
from simcollectives.training.passes import GRADIENTS
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Call, Item
from simcollectives.training.sharding import SCATTER_BUFFERS, UNSHARDED_GRADIENTS
from simcollectives.training.strategies.fsdp_reduction import REDUCED, Reduced, division_factors
from simcollectives.training.strategies.fsdp_units import Unit

POST_BACKWARD, BETWEEN = "post-backward", "all-reduce"


@dataclass
class FlatReduction(Reduced):
    """The gradients of one rank. ``kept`` are bytes of flat gradients that are not reduced yet, by unit."""

    sharded: bool
    kept: dict[str, int] = field(default_factory=dict)

    @property
    def raw_item(self) -> str:
        """What gradients are called that a backward pass makes: without shards they become the gradients."""
        return UNSHARDED_GRADIENTS if self.sharded else GRADIENTS

    def flatten(self, unit: Unit, elements: int) -> None:
        """Join the gradients of a unit's parameters in one tensor, and add it to the one that is kept."""
        width = DTYPES[self.dtypes[unit.name].gathered]
        parts, flat = unit.elements * width, elements * width
        seconds = self.training.memory_seconds(parts + flat)
        joined, parted = [(self.raw_item, flat)], [(self.raw_item, parts)]
        self.builder.compute(f"{unit.name} gradients joined", seconds, allocates=joined, frees=parted)
        if unit.name in self.kept:
            seconds = self.training.memory_seconds(flat + 2 * self.kept[unit.name])
            self.builder.compute(f"{unit.name} gradients added", seconds, frees=joined)
        else:
            self.kept[unit.name] = flat

    def reduce(self, name: str, elements: int, padded: int) -> None:
        """Reduce a flat gradient: on shards, or of the whole."""
        if self.sharded:
            self._reduce_scatter(name, elements, padded)
        else:
            self._all_reduce_whole(name, elements)

    def _divided(self, name: str, size: int, stream: str, after: int, factor: float) -> int:
        return self.kernel(f"{name} gradients divided", 2 * size, stream, after) if factor > 1 else after

    def _reduce_scatter(self, name: str, elements: int, padded: int) -> None:
        """The gradient that autograd made is held until its copies are reduced, too."""
        dtypes, raw = self.dtypes[name], self.kept.pop(name)
        width = DTYPES[dtypes.reduced]
        frees: list[Item] = [(UNSHARDED_GRADIENTS, raw)]
        end = self.builder.last[COMPUTE]
        for needed, read, size in (
            (dtypes.gathered != dtypes.reduced, raw, elements * width),
            (padded != elements, elements * width, padded * width),
        ):
            if needed:
                copy = SCATTER_BUFFERS, size
                end = self.kernel(f"{name} gradients copied", read + size, POST_BACKWARD, end, allocates=[copy])
                frees.append(copy)
        before, after = division_factors(self.ranks)
        end = self._divided(name, padded * width, POST_BACKWARD, end, before)
        direct = dtypes.own == dtypes.reduced and name not in self.summed
        output = GRADIENTS if direct else REDUCED, padded // self.mesh.shard * width
        call = self.mesh.shard_call("reduce_scatter", padded, dtypes.reduced)
        end = self.builder.collective(name, call, stream=POST_BACKWARD, after=[end], allocates=[output], frees=frees)
        self.ends[POST_BACKWARD] = end
        stream = POST_BACKWARD
        if self.mesh.replicas > 1:
            stream = BETWEEN
            call = self.mesh.replica_call(padded // self.mesh.shard, dtypes.reduced)
            end = self.builder.collective(name, call, stream=BETWEEN, after=[end])
        end = self._divided(name, output[1], stream, end, after)
        self.ends[stream] = end if direct else self.add(name, stream, end, output, [output])
        self.summed.add(name)

    def _all_reduce_whole(self, name: str, elements: int) -> None:
        """Reduce in place, or a copy in another dtype; gradients have the parameters' dtype in the end."""
        dtypes, held = self.dtypes[name], self.kept[name]
        width, own = DTYPES[dtypes.reduced], elements * DTYPES[dtypes.own]
        size, end = elements * width, self.builder.last[COMPUTE]
        if held != size:
            change = {"allocates": [(GRADIENTS, size)], "frees": [(GRADIENTS, held)]}
            end = self.kernel(f"{name} gradients cast", held + size, POST_BACKWARD, end, **change)
        before, after = division_factors(self.ranks)
        end = self._divided(name, size, POST_BACKWARD, end, before)
        call = Call("all_reduce", WORLD, self.ranks, elements, dtypes.reduced)
        end = self.builder.collective(name, call, stream=POST_BACKWARD, after=[end])
        end = self._divided(name, size, POST_BACKWARD, end, after)
        if size != own:
            change = {"allocates": [(GRADIENTS, own)], "frees": [(GRADIENTS, size)]}
            end = self.kernel(f"{name} gradients cast back", size + own, POST_BACKWARD, end, **change)
        self.kept[name] = own
        self.ends[POST_BACKWARD] = end
