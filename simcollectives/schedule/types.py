"""The shape of communication: a schedule is channels of phases of rounds, and a round is arrays of transfers.

Rounds are generated afresh each time they are asked for; a schedule of any length costs no memory.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simcollectives.errors import ScheduleError

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Round:
    """Transfers that happen at once; every array has one entry a row.

    Row i carries the chunks ``first[i] + k * stride[i]`` for ``k < count[i]`` from rank ``src[i]`` to rank ``dst[i]``,
    which copies them, or adds them to its own where ``reduce[i]``. All rows of one (src, dst) are one message. A round
    reads before it writes, and several reductions may hit one chunk.
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
    are ``regular``; with ``rotation``, every step has the same (src, dst) pairs, one row each, and rank i at step t
    sends as many bytes as rank ``i - t * rotation`` at step 0, wherever chunk c has the bytes of chunk 0.
    """

    steps: int
    round_at: Callable[[int], Round]
    ports: int = 1
    regular: Regular | None = None
    rotation: int | None = None


Phases = tuple[Phase, ...]


@dataclass(frozen=True)
class Schedule:
    """What one algorithm sends for one collective.

    A message is cut into ``chunks`` chunks. Channels run concurrently, each with its own round counter. Dedicated
    parameter servers are the extra devices ``world_size .. world_size + servers - 1``.
    """

    collective: str
    world_size: int
    chunks: int
    channels: tuple[Phases, ...]
    servers: int = 0
    root: int = 0

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
    source, destination = np.atleast_1d(np.asarray(src, dtype=np.int64)), np.atleast_1d(np.asarray(dst, dtype=np.int64))
    rows = max(len(source), len(destination))
    source, destination, start, length, skip = (
        _column(values, rows, np.int64) for values in (source, destination, first, count, stride)
    )
    adds = _column(reduce, rows, np.bool_)
    to_itself = source == destination
    if to_itself.any():
        raise ScheduleError(f"a round sends from rank {int(source[to_itself][0])} to itself")
    if wrap is not None:
        start = start % wrap
        before = np.minimum(length, -((start - wrap) // skip))
        passes = before < length
        if np.any(passes):
            rest = (start + before * skip - wrap)[passes]
            source, destination, skip = (np.concatenate([a, a[passes]]) for a in (source, destination, skip))
            adds = np.concatenate([adds, adds[passes]])
            start = np.concatenate([start, rest])
            length = np.concatenate([before, (length - before)[passes]])
    return Round(source, destination, start, length, skip, adds)


def _column(values: npt.ArrayLike, rows: int, dtype: type[Any]) -> npt.NDArray[Any]:
    column = np.asarray(values, dtype=dtype)
    return column if column.shape == (rows,) else np.full(rows, column)


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
    return (Phase(steps, round_at, messages, Regular(messages, chunks, reduces), rotation),)
