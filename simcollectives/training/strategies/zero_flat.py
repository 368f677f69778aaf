"""DeepSpeed's flat parameters of stages 1 and 2: one buffer, padded to a multiple of 2 N, of which each rank owns 1/N.

Reference: deepspeed 0.19.8, runtime/zero/stage_1_and_2.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from simcollectives.training.model import Parameter
from simcollectives.training.sharding import padded

Slice = tuple[int, int]
"""An owner, and elements."""


@dataclass(frozen=True)
class FlatParameters:
    """Parameters in the order of the buffer."""

    parameters: tuple[Parameter, ...]
    ranks: int

    @cached_property
    def elements(self) -> int:
        """Elements of the buffer."""
        return padded(sum(p.elements for p in self.parameters), 2 * self.ranks)

    @property
    def shard(self) -> int:
        """Elements that a rank owns."""
        return self.elements // self.ranks

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Where each parameter begins."""
        found, start = {}, 0
        for parameter in self.parameters:
            found[parameter.name] = start
            start += parameter.elements
        return found

    def slices(self, parameters: Iterable[Parameter]) -> list[Slice]:
        """Return who owns which part of some gradients, in their order; neighbours of one owner are one slice."""
        found: list[Slice] = []
        for parameter in parameters:
            start = self.offsets[parameter.name]
            end = start + parameter.elements
            while start < end:
                owner = start // self.shard
                size = min(end, (owner + 1) * self.shard) - start
                if found and found[-1][0] == owner:
                    size_before = found.pop()[1]
                    found.append((owner, size_before + size))
                else:
                    found.append((owner, size))
                start += size
        return found


def flat_parameters(parameters: Sequence[Parameter], ranks: int, *, round_robin: bool) -> FlatParameters:
    """Lay parameters out as they are registered, or every N-th of them side by side."""
    if round_robin:
        parameters = [p for rank in range(ranks) for p in parameters[rank::ranks]]
    return FlatParameters(tuple(parameters), ranks)


def split_at(slices: Iterable[Slice], limit: int) -> list[list[Slice]]:
    """Close a message with the slice that takes it over a limit of elements."""
    found: list[list[Slice]] = [[]]
    for one in slices:
        found[-1].append(one)
        if sum(size for _, size in found[-1]) > limit:
            found.append([])
    return [message for message in found if message]
