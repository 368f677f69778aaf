"""Why a vectorized run took as long as it did: its critical path, walked backwards from the last rank.

The walk forward keeps the clocks at the start of segments of about sqrt(rounds) rounds; going back, each segment is
played again with the clocks of all its rounds at hand. Time twice, memory sqrt(rounds) x ranks.
"""

from dataclasses import dataclass, field

import numpy as np

from simcollectives.engines.job import Job
from simcollectives.engines.run import Parts
from simcollectives.engines.timed_round import FloatArray, RingPhase, TimedRound, advance, timed_round
from simcollectives.schedule.types import Phase


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of rounds of one phase, from the clocks ``start`` on.

    ``before`` counts the rounds before the phase. With ``growth``, every round adds that constant. Without a phase, all
    ranks take the same ``parts`` (level, latency, bandwidth, reduction seconds) through it.
    """

    phase: Phase | None = None
    first: int = 0
    steps: int = 0
    start: FloatArray = field(default_factory=lambda: np.zeros(0))
    before: int = 0
    growth: float | None = None
    parts: tuple[int, float, float, float] | None = None

    @classmethod
    def constant(cls, level: int, latency: float, bandwidth: float, reduction: float) -> "Segment":
        """Rounds in which all ranks enter and leave together."""
        return cls(parts=(level, latency, bandwidth, reduction))


class _Path:
    """Seconds collected on the way back."""

    def __init__(self, levels: int) -> None:
        self.latency, self.bandwidth, self.reduction = [0.0] * levels, [0.0] * levels, 0.0

    def add(self, timed: TimedRound, message: int, times: int = 1) -> None:
        level = int(timed.level[message])
        self.latency[level] += times * float(timed.latency[message])
        self.bandwidth[level] += times * float(timed.seconds[message] - timed.latency[message])

    def add_reduction(self, timed: TimedRound, received: int, times: int = 1) -> None:
        if timed.reduction is not None:
            self.reduction += times * float(timed.reduction[received])


def critical_path(job: Job, segments: list[Segment], clock: FloatArray | None, seconds: float) -> Parts:
    """Split ``seconds`` into parts along a critical path that ends at the last rank of ``clock``.

    Raises:
        ScheduleError: the path does not explain the seconds.
    """
    names = tuple(level.name for level in job.full_cluster.levels)
    path = _Path(len(names))
    rank = 0 if clock is None else int(np.argmax(clock))
    stationary = _stationary(job, seconds) if clock is not None else None
    if stationary is not None:
        path = stationary
    else:
        for segment in reversed(segments):
            rank = _back(job, segment, rank, path)
        if job.schedule.rounds:
            path.latency[0] += float(job.conditions.starts(job.schedule.devices)[rank])
    return Parts.of_path(names, seconds, path.latency, path.bandwidth, path.reduction)


def _stationary(job: Job, seconds: float) -> _Path | None:
    """The path that stays at the receiver of a ring's slowest edge, if that alone explains the seconds."""
    phases = job.schedule.channels[0]
    rings = [RingPhase.of(job, phase) for phase in phases]
    if not job.layout.even or any(job.conditions.skew) or any(ring is None for ring in rings):
        return None
    rounds = [(ring.timed(0), phase.steps) for ring, phase in zip(rings, phases, strict=True) if ring is not None]
    total = sum(steps * (t.seconds + (0.0 if t.reduction is None else t.reduction)) for t, steps in rounds)
    slowest = int(np.argmax(total))
    if abs(float(np.max(total)) - seconds) > 1e-12 * seconds:
        return None
    path = _Path(len(job.full_cluster.levels))
    for timed, steps in rounds:
        path.add(timed, slowest, steps)
        path.add_reduction(timed, slowest, steps)
    return path


def _back(job: Job, segment: Segment, rank: int, path: _Path) -> int:
    """Walk a segment backwards from ``rank``; return where the path enters it."""
    if segment.parts is not None:
        level, latency, bandwidth, reduction = segment.parts
        path.latency[level] += latency
        path.bandwidth[level] += bandwidth
        path.reduction += reduction
        return rank
    phase = segment.phase
    if phase is None:
        return rank
    ring = RingPhase.of(job, phase)

    if segment.growth is not None and ring is not None:
        return _back_through_growth(segment, rank, path, ring, job.layout.even)
    if ring is not None:
        clocks: list[FloatArray] = []
        ring.walk(segment.start, segment.first, segment.steps, skip=False, entered=clocks)
        for number in range(segment.steps - 1, -1, -1):
            rank = _predecessor(ring.timed_at(segment.first + number, rank), clocks[number], rank, path)
        return rank
    rounds, clock = [], segment.start
    for step in range(segment.first, segment.first + segment.steps):
        timed = timed_round(job, phase, step, segment.before + step)
        rounds.append((timed, clock))
        clock = advance(clock, timed)
    for timed, entered in reversed(rounds):
        rank = _predecessor(timed, entered, rank, path)
    return rank


def _predecessor(timed: TimedRound, entered: FloatArray, rank: int, path: _Path) -> int:
    """Where the path of ``rank`` comes from in one round: the later end of the message that let it go."""
    mine = np.flatnonzero((timed.src == rank) | (timed.dst == rank))
    if len(mine) == 0:
        return rank
    ends = np.maximum(entered[timed.src[mine]], entered[timed.dst[mine]]) + timed.seconds[mine]
    message = int(mine[np.argmax(ends)])
    path.add(timed, message)
    for received in mine[timed.dst[mine] == rank].tolist():
        path.add_reduction(timed, received)
    src, dst = int(timed.src[message]), int(timed.dst[message])
    return src if entered[src] > entered[dst] else dst


def _back_through_growth(segment: Segment, rank: int, path: _Path, ring: RingPhase, even: bool) -> int:
    """Every round is the same, after turning the ranks by one a step where the bytes rotate."""
    n = len(segment.start)
    known: dict[int, tuple[int, _Path]] = {}
    for step in range(segment.steps - 1, -1, -1):
        turn = 0 if even else step
        here = (rank - turn) % n
        if here not in known:
            one = _Path(len(path.latency))
            known[here] = (_predecessor(ring.timed_at(segment.first, here), segment.start, here, one), one)
        before, one = known[here]
        rank = (before + turn) % n
        path.latency = [a + b for a, b in zip(path.latency, one.latency, strict=True)]
        path.bandwidth = [a + b for a, b in zip(path.bandwidth, one.bandwidth, strict=True)]
        path.reduction += one.reduction
    return rank
