"""The shape of communication: a schedule is channels of phases of rounds, and a round is arrays of transfers.

Rounds are generated afresh each time they are asked for; a schedule of any length costs no memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from simcollectives.errors import ScheduleError

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Ints = int | IntArray
"""One entry a row or message, or one number for all."""
Column = TypeVar("Column", bound=npt.NDArray[Any])


@dataclass(frozen=True)
class Round:
    """Transfers that happen at once; every array has one entry a row.

    Row i carries the chunks ``first[i] + k * stride[i]`` for ``k < count[i]`` from rank ``src[i]`` to rank ``dst[i]``,
    which copies them, or adds them to its own where ``reduce[i]``. All rows of one (src, dst) are one message. A round
    reads before it writes, and several reductions may hit one chunk. Arrays never change once a round is made: two
    rounds that hold the same array have the same numbers.
    """

    src: IntArray
    dst: IntArray
    first: IntArray
    count: IntArray
    stride: IntArray
    reduce: BoolArray


@dataclass(frozen=True)
class Regular:
    """Rounds in which every rank sends and receives ``messages`` messages, all of ``chunks(step)`` chunks."""

    messages: int
    chunks: Callable[[int], int]
    reduces: bool


@dataclass(frozen=True)
class Phase:
    """``steps`` rounds, made on demand by ``round_at(step)`` for ``0 <= step < steps``.

    What engines may rely on, to go fast: no rank sends or receives more than ``ports`` messages in a round; the rounds
    are ``regular``; with ``same_pairs``, every step has the same (src, dst) pairs; with ``rotation``, it has them, one
    row each, and rank i at step t sends as many bytes as rank ``i - t * rotation`` at step 0, wherever chunk c has the
    bytes of chunk 0.
    """

    steps: int
    round_at: Callable[[int], Round]
    ports: int = 1
    regular: Regular | None = None
    rotation: int | None = None
    same_pairs: bool = False


Phases = tuple[Phase, ...]


@dataclass(frozen=True)
class Schedule:
    """What one algorithm sends for one collective.

    A message is cut into ``chunks`` chunks. Channels run concurrently, each with its own round counter. Dedicated
    parameter servers are the extra devices ``world_size .. world_size + servers - 1``. What reaches a chunk in one
    round is added in the order of ranks, the receiver's own in its place; with ``own_first`` it begins with its own.
    """

    collective: str
    world_size: int
    chunks: int
    channels: tuple[Phases, ...]
    servers: int = 0
    root: int = 0
    own_first: bool = False

    @property
    def devices(self) -> int:
        """Ranks and dedicated servers together."""
        return self.world_size + self.servers

    @property
    def rounds(self) -> int:
        """Rounds of the longest channel."""
        return max((sum(phase.steps for phase in channel) for channel in self.channels), default=0)

    @property
    def messages_at_once(self) -> int:
        """At most so many messages are in one round of all channels, known without making any."""
        if self.servers:
            return self.world_size * self.servers
        return sum(max(map(self._messages_of, channel), default=0) for channel in self.channels)

    def _messages_of(self, phase: Phase) -> int:
        # Where many meet on a port and rounds are not regular, they all meet at the root.
        return phase.ports if phase.regular is None and phase.ports > 1 else phase.ports * self.world_size

    def rounds_of(self, channel: int) -> Iterator[Round]:
        """Generate the rounds of one channel in order."""
        for phase in self.channels[channel]:
            for step in range(phase.steps):
                yield phase.round_at(step)


def make_round(
    src: npt.ArrayLike,
    dst: npt.ArrayLike,
    *,
    first: npt.ArrayLike = 0,
    count: npt.ArrayLike = 1,
    stride: npt.ArrayLike = 1,
    reduce: npt.ArrayLike = False,
    wrap: int | None = None,
) -> Round:
    """Build a round from arrays of one length, or scalars that stand for all rows.

    With ``wrap``, chunk numbers are taken modulo ``wrap``: a row that passes the end becomes two rows (it may pass it
    once). Rows without chunks are kept: they are empty messages, which still cost a latency.

    Raises:
        ScheduleError: a row sends from a rank to itself.
    """
    source, destination = np.asarray(src, dtype=np.int64), np.asarray(dst, dtype=np.int64)
    rows = max(source.size, destination.size)
    source, destination = spread(source, rows), spread(destination, rows)
    to_itself = source == destination
    if np.count_nonzero(to_itself):
        raise ScheduleError(f"a round sends from rank {int(source[to_itself][0])} to itself")
    start, length, skip = _column(first, rows, int), _column(count, rows, int), _column(stride, rows, int)
    adds = _column(reduce, rows, bool)
    if wrap is not None:
        if start.min(initial=0) < 0 or start.max(initial=0) >= wrap:
            start = start % wrap
        whole, step = common(length), common(skip)
        to_the_end = wrap - start
        before = np.minimum(whole, to_the_end if isinstance(step, int) and step == 1 else -(-to_the_end // step))
        passes = (before < whole).nonzero()[0]
        if len(passes):
            rest = start[passes] + before[passes] * skip[passes] - wrap
            source, destination = (np.concatenate([ends, ends[passes]]) for ends in (source, destination))
            start, length = np.concatenate([start, rest]), np.concatenate([before, length[passes] - before[passes]])
            skip, adds = (_longer(column, passes) for column in (skip, adds))
    return Round(source, destination, start, length, skip, adds)


def _column(values: Any, rows: int, kind: type[int]) -> npt.NDArray[Any]:
    return constant(kind(values), rows) if isinstance(values, int) else spread(np.asarray(values, dtype=kind), rows)


@lru_cache(maxsize=256, typed=True)
def constant(value: int, rows: int) -> npt.NDArray[Any]:
    """Return a column of ``rows`` times one whole number, or truth value, which is held once."""
    return spread(np.array(value), rows)


def spread(values: Column, rows: int) -> Column:
    """Return a column of ``rows`` entries; where it is one number over and over, it is held once."""
    if values.shape == (rows,):
        return values
    if values.size != 1:
        raise ValueError(f"{values.size} values do not make a column of {rows} rows")
    column = np.ndarray((rows,), values.dtype, values, 0, (0,))
    column.setflags(write=False)
    return column  # type: ignore[return-value]


def common(column: npt.NDArray[Any]) -> Any:
    """Return the number that a column holds once for all its rows, or the column where there is none."""
    return column.item(0) if column.strides == (0,) and len(column) else column


def _longer(column: npt.NDArray[Any], rows: IntArray) -> npt.NDArray[Any]:
    """Return a column with some of its rows once more at its end."""
    value = common(column)
    if isinstance(value, int):
        return constant(value, len(column) + len(rows))
    return np.concatenate([column, column[rows]])


def single(round_: Round, ports: int = 1) -> Phase:
    """Return a phase of one fixed round."""
    return Phase(1, lambda _step: round_, ports)


def repeated(steps: int, round_at: Callable[[int], Round]) -> Phases:
    """Return one phase of ``steps`` rounds, or nothing when there are none."""
    return (Phase(steps, round_at),) if steps > 0 else ()


def regular_phases(
    steps: int,
    round_at: Callable[[int], Round],
    *,
    messages: int = 1,
    chunks: Callable[[int], int] = lambda _step: 1,
    reduces: bool = False,
    rotation: int | None = None,
) -> Phases:
    """Return one phase of ``steps`` regular rounds, or nothing when there are none."""
    if steps == 0:
        return ()
    regular = Regular(messages, chunks, reduces)
    return (Phase(steps, round_at, messages, regular, rotation, same_pairs=rotation is not None),)
