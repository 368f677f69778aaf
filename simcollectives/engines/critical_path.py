"""Why a vectorized run took as long as it did: its critical path, walked backwards from the last rank.

The walk forward leaves segments of about sqrt(rounds) rounds, each with the clocks at its start, and the latest ones
also with their rounds. Going back, a segment without them is played again: time twice, memory sqrt(rounds) x ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simcollectives.cluster.network import FloatArray
from simcollectives.engines.job import Job
from simcollectives.engines.path import Path
from simcollectives.engines.ring_phase import RingPhase
from simcollectives.engines.run import Parts
from simcollectives.engines.timed_round import TimedRound, Timer, add_bytes, advance, entry
from simcollectives.engines.watch import Watch
from simcollectives.schedule.types import IntArray, Phase


class Segment(Protocol):
    """A run of rounds."""

    def back(self, rank: int, path: Path) -> int:
        """Walk back from a rank at its end; return where the path enters it."""
        ...


@dataclass(frozen=True, slots=True)
class UniformSegment:
    """Rounds in which all ranks enter and leave together; seconds of a path through them, all on one level."""

    level: int
    latency: float
    bandwidth: float
    reduction: float

    def back(self, rank: int, path: Path) -> int:
        """Stay anywhere."""
        path.latency[self.level] += self.latency
        path.bandwidth[self.level] += self.bandwidth
        path.reduction += self.reduction
        return rank


@dataclass(frozen=True, slots=True)
class RingSegment:
    """Rounds of a ring from the clocks ``start`` on; with ``grows``, each adds the same constant to all."""

    ring: RingPhase
    first: int
    steps: int
    start: FloatArray
    grows: bool = False

    def back(self, rank: int, path: Path) -> int:
        """Play the ranks around the path again."""
        back = self.ring.back_through_growth if self.grows else self.ring.back
        return back(self.start, self.first, self.steps, rank, path)


Played = list[tuple[FloatArray, TimedRound]]
"""Rounds, each with the clocks at which ranks enter it."""


@dataclass(slots=True)
class ArraySegment:
    """Rounds of any phase from the clocks ``start`` on, the first of them round ``number`` of all."""

    phase: Phase
    first: int
    steps: int
    number: int
    start: FloatArray
    timer: Timer
    played: Played | None = None

    def play(self, sent: IntArray | None = None, watch: Watch | None = None) -> tuple[Played, FloatArray]:
        """Play the rounds; return them and the clocks after them. Adds what ranks send to ``sent`` [level, device]."""
        played, clock = [], self.start
        for step in range(self.steps):
            timed, message_bytes = self.timer.timed(self.phase, self.first + step, self.number + step)
            if sent is not None:
                add_bytes(sent, timed.ends, message_bytes)
            played.append((clock, timed))
            clock = advance(clock, timed)
            if watch is not None:
                watch(len(timed.ends.src))
        return played, clock

    @property
    def kept_bytes(self) -> int:
        """Memory of the rounds that are kept: those after the first are taken to share arrays as the second does."""
        held = [_arrays(clock, timed) for clock, timed in (self.played or [])[:2]]
        own = [array.nbytes for key, array in held[-1].items() if key not in held[0]] if held else []
        return sum(array.nbytes for arrays in held[:1] for array in arrays.values()) + (self.steps - 1) * sum(own)

    def back(self, rank: int, path: Path) -> int:
        """Go by what was played, or play it again."""
        for entered, timed in reversed(self.played or self.play()[0]):
            rank = _back(timed, entered, rank, path)
        return rank


def _arrays(clock: FloatArray, timed: TimedRound) -> dict[int, np.ndarray]:
    columns = (clock, *timed.ends, *timed[1:])
    return {id(column): column for column in columns if isinstance(column, np.ndarray) and column.base is None}


def _back(timed: TimedRound, entered: FloatArray, rank: int, path: Path) -> int:
    """Where the path of ``rank`` comes from in one round: the later end of the message that let it go."""
    ends, seconds, let_go, latest = timed.ends, timed.seconds, -1, -1.0
    src, dst = ends.src, ends.dst
    for mine, is_rank in ((src, ends.all_send), (dst, ends.all_receive)):
        message = rank if is_rank else int((mine == rank).argmax()) if len(mine) else -1
        if message >= 0 and mine.item(message) == rank:
            start = max(entered.item(src.item(message)), entered.item(dst.item(message)))
            end = start + entry(seconds, message)
            if end > latest:
                let_go, latest = message, end
    if let_go < 0:
        return rank
    level = ends.level if isinstance(ends.level, int) else ends.level.item(let_go)
    path.add(level, entry(timed.latency, let_go), entry(seconds, let_go))
    if timed.reduction is not None:
        path.reduction += entry(timed.reduction, rank)
    sender, receiver = src.item(let_go), dst.item(let_go)
    return sender if entered.item(sender) > entered.item(receiver) else receiver


def critical_path(job: Job, segments: Sequence[Segment], clock: FloatArray | None, seconds: float) -> Parts:
    """Split ``seconds`` into parts along a critical path that ends at the last rank of ``clock``.

    Raises:
        ScheduleError: the path does not explain the seconds.
    """
    path = _stationary(job, segments, seconds)
    if path is None:
        path = Path(job.full_cluster)
        rank = 0 if clock is None else int(np.argmax(clock))
        for segment in reversed(segments):
            rank = segment.back(rank, path)
        if job.schedule.rounds:
            path.latency[0] += float(job.conditions.starts(job.schedule.devices)[rank])
    return path.parts(seconds)


def _stationary(job: Job, segments: Sequence[Segment], seconds: float) -> Path | None:
    """The path that stays at the receiver of a ring's slowest edge, if that alone explains the seconds."""
    if any(job.conditions.skew) or not segments:
        return None
    rings = [segment for segment in segments if isinstance(segment, RingSegment)]
    rounds = [segment.ring.stationary() for segment in rings]
    if len(rings) < len(segments) or any(one is None for one in rounds):
        return None
    total = sum(ring.steps * one for ring, one in zip(rings, rounds, strict=True) if one is not None)
    slowest = int(np.argmax(total))
    if abs(float(np.max(total)) - seconds) > 1e-12 * seconds:
        return None
    path = Path(job.full_cluster)
    for segment in rings:
        segment.ring.stay(slowest, segment.steps, path)
    return path
