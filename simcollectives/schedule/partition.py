"""How a message is cut into chunks: whole elements, counts that differ by at most one, the longer chunks first.

Where every rank has a part of the message and several chunks of it, parts are cut first, then chunks out of each.
"""

from dataclasses import dataclass

import numpy as np

from simcollectives.schedule.types import IntArray, Ints, Round, common, spread


def partition(elements: int, chunks: int) -> IntArray:
    """Elements of each of ``chunks`` chunks.

    >>> partition(10, 4).tolist()
    [3, 3, 2, 2]
    """
    floor, remainder = divmod(elements, chunks)
    return floor + (np.arange(chunks, dtype=np.int64) < remainder)


@dataclass(frozen=True)
class Layout:
    """The partition of a message of ``elements`` elements into ``chunks`` chunks, taken ``group`` at a time.

    ``period`` smaller than ``chunks`` repeats the same partition for every rank, as an all-to-all does. ``parts``, of
    which ``chunks`` is a multiple, cuts the message into so many parts, and each of these into equally many chunks.
    """

    elements: int
    chunks: int
    group: int = 1
    period: int = 0
    parts: int = 1

    @property
    def floor(self) -> int:
        """Elements of a shorter chunk."""
        return self.elements // (self.period or self.chunks)

    @property
    def remainder(self) -> int:
        """Number of chunks that are one element longer."""
        return self.elements % (self.period or self.chunks)

    @property
    def even(self) -> bool:
        """Whether all chunks have the same number of elements."""
        return self.remainder == 0

    def head(self, count: int, stride: int = 1) -> int:
        """Elements of the groups of chunks 0, stride, .., (count - 1) stride: no ``count`` groups have more.

        >>> Layout(10, 4).head(2), Layout(10, 4).head(2, stride=2), Layout(10, 8, group=4).head(1)
        (6, 5, 6)
        """
        if self.group == 1:
            return count * self.floor + min(count, -(-self.remainder // stride))
        longer = sum(min(max(self.remainder - k * stride * self.group, 0), self.group) for k in range(count))
        return count * self.group * self.floor + longer

    def chunk_elements(self) -> IntArray:
        """Elements of every chunk."""
        return self._sizes(np.arange(self.chunks, dtype=np.int64))

    def row_elements(self, round_: Round) -> IntArray:
        """Elements that each row of a round carries."""
        return spread(np.asarray(self.common_elements(round_), dtype=np.int64), len(round_.src))

    def common_elements(self, round_: Round) -> Ints:
        """As ``row_elements``, or one number where the rows are alike."""
        count: Ints = common(round_.count)
        if self.even:
            return count * self.floor
        if self.period or 1 < self.parts < self.chunks:
            return self._elements_by_chunk(round_)
        first, stride = common(round_.first), common(round_.stride)
        # In place, as new arrays cost more than sums.
        longer = np.asarray(self.remainder + stride - 1 - first)
        longer //= stride
        np.maximum(longer, 0, out=longer)
        elements = np.minimum(longer, count)
        elements += count * self.floor
        return elements if elements.ndim else int(elements)

    def _elements_by_chunk(self, round_: Round) -> IntArray:
        count = round_.count
        if len(count) == 0 or (count.strides == (0,) and count[0] == 1):
            return self._sizes(round_.first)
        starts = np.concatenate([[0], np.cumsum(count)[:-1]])
        row = np.repeat(np.arange(len(count)), count)
        chunk = round_.first[row] + (np.arange(len(row)) - starts[row]) * round_.stride[row]
        return np.bincount(row, weights=self._sizes(chunk), minlength=len(count)).astype(np.int64)

    def _sizes(self, chunk: IntArray) -> IntArray:
        """Elements of some chunks: the first of every part, then the second of every part, .. are one longer."""
        turn = chunk % self.period if self.period else chunk
        if self.parts > 1:
            of_part = (self.period or self.chunks) // self.parts
            turn = turn % of_part * self.parts + turn // of_part
        return self.floor + (turn < self.remainder)
