"""Units: parameters that are gathered, and whose gradients are reduced, together; and how they are cut into shards.

    flat      the parameters one after another, cut into N equal parts                         ZeRO-1 and 2
    elements  each parameter by itself, flattened                                              ZeRO-3 (DeepSpeed)
    rows      each parameter by itself, along its first dimension                              FSDP2

Each piece that is cut is filled up with zeros to a multiple of N: a bias of 10 on 4 ranks takes 12. A unit's rows
[rank, element] are what its reduce-scatter takes and its all-gather gives, so that rank k's shard is row k.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simcollectives.training.model import Parameter
from simcollectives.training.numerics.layers import Array, Parameters
from simcollectives.training.sharding import padded

FLAT, ELEMENTS, ROWS = "flat", "elements", "rows"


@dataclass(frozen=True)
class Unit:
    """Parameters that travel together, each rank of ``ranks`` keeping a part; ``cut`` is flat, elements or rows."""

    name: str
    parameters: tuple[Parameter, ...]
    ranks: int
    cut: str

    def rows(self, arrays: Parameters) -> Array:
        """Return [rank, element]: every rank's shard of whole arrays."""
        whole = [arrays[parameter.name] for parameter in self.parameters]
        if self.cut == FLAT:
            whole = [np.concatenate([array.reshape(-1) for array in whole])]
        elif self.cut == ELEMENTS:
            whole = [array.reshape(-1) for array in whole]
        return np.concatenate([_filled(array, self.ranks).reshape(self.ranks, -1) for array in whole], axis=1)

    def arrays(self, rows: Array) -> dict[str, Array]:
        """Return the whole arrays, each a copy, of the shards [rank, element]."""
        if self.cut == FLAT:
            ends = np.cumsum([parameter.elements for parameter in self.parameters])
            parts = np.split(rows.reshape(-1)[: ends[-1]], ends[:-1])
        else:
            parts = list(self._parts(rows))
        return {
            parameter.name: part.reshape(parameter.shape).copy()
            for parameter, part in zip(self.parameters, parts, strict=True)
        }

    def _parts(self, rows: Array) -> Iterator[Array]:
        start = 0
        for parameter in self.parameters:
            length, width = _cut_of(parameter.shape if self.cut == ROWS else (parameter.elements,))
            end = start + padded(length, self.ranks) // self.ranks * width
            yield rows[:, start:end].reshape(-1)[: parameter.elements]
            start = end


def _cut_of(shape: Sequence[int]) -> tuple[int, int]:
    """Return the length of the first dimension, and the elements of one entry of it."""
    return shape[0], int(np.prod(shape[1:], dtype=np.int64))


def _filled(array: Array, ranks: int) -> Array:
    length, _ = _cut_of(array.shape)
    more = padded(length, ranks) - length
    return np.concatenate([array, np.zeros((more, *array.shape[1:]))]) if more else array
