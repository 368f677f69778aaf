"""The vectorized engine: one round is a handful of NumPy operations on arrays over ranks.

It takes schedules whose messages never wait for each other on a port: at most one message a port and round; or rounds
in which all ranks enter together and every rank sends and receives k equal messages, which last alpha + k n / B. There
it equals the event engine bit for bit while it plays round by round, since both take a message's duration from
``durations``; skipped rounds are added in another order, and agree to rounds x 2^-53.

A phase that repeats is cut short when one round has added the same constant to every rank: the state is then an
eigenvector of the round in max-plus algebra (Baccelli et al., Synchronization and Linearity, 1992), and the rest of the
phase is that constant times the rounds left. A regular round on a uniform state needs no arrays at all.
"""

from collections import deque
from functools import cache
from math import isqrt

import numpy as np

from simcollectives.cluster.network import FloatArray
from simcollectives.engines.bytes_sent import add_declared_bytes
from simcollectives.engines.critical_path import ArraySegment, RingSegment, Segment, UniformSegment, critical_path
from simcollectives.engines.durations import alone_seconds, shared_end
from simcollectives.engines.job import Job
from simcollectives.engines.ring_phase import RingPhase
from simcollectives.engines.run import Parts
from simcollectives.engines.timed_round import Timer
from simcollectives.engines.watch import Watch
from simcollectives.schedule.types import IntArray, Phase, Regular

KEPT_BYTES = 32 << 20
"""Rounds are kept for the way back along the critical path as far as they fit in this."""

LEAST_SPACING = 16
"""Rounds of a segment, at least, if they fit in ``KEPT_BYTES``."""


def refusal(job: Job) -> str | None:
    """Why the vectorized engine cannot be exact for a job, or None where it can."""
    channels = job.schedule.channels
    if len(channels) != 1:
        return "several channels meet on the ports"
    if not job.full_cluster.network.private:
        return "messages of several devices share resources"
    phases = channels[0]
    shared = [index for index, phase in enumerate(phases) if phase.ports > 1]
    if not shared:
        return None
    what = f"up to {max(phase.ports for phase in phases)} messages meet on a port"
    if any(phase.regular is None for phase in phases[: shared[-1] + 1]):
        return f"{what} while ranks or messages differ"
    if not job.layout.even:
        return f"{what} and chunks are uneven"
    if not job.full_cluster.network.plain:
        return f"{what} and links differ"
    if not job.conditions.ideal:
        return f"{what} and ranks differ"
    if not all(_level_of(job, phase) is not None for phase in phases[: shared[-1] + 1]):
        return f"{what} on links of several kinds"
    return None


def _level_of(job: Job, phase: Phase) -> int | None:
    """The level that all messages of all rounds of a phase use, or None where there are several."""
    network = job.full_cluster
    if len(network.levels) == 1:
        return 0
    if phase.ports >= network.gpus_per_node:
        return None
    seen = set()
    for step in range(min(phase.steps, 1) if phase.same_pairs else phase.steps):
        round_ = phase.round_at(step)
        seen.update(np.unique(network.network.levels_crossed(round_.src, round_.dst)).tolist())
        if len(seen) > 1:
            return None
    return seen.pop() if seen else 0


@cache
def _reuse_memory() -> None:
    """Have the arrays of a round take the memory of those of earlier ones, where it would be given back and cleared.

    GNU's malloc keeps up to twice the size of the largest block that was freed (mallopt(3), M_MMAP_THRESHOLD).
    """
    np.empty(KEPT_BYTES // 2, dtype=np.int8)


class _Walk:
    """State of one evaluation: when each device enters its next round."""

    def __init__(self, job: Job, *, skip: bool, watch: Watch | None = None) -> None:
        _reuse_memory()
        self.job, self.skip, self.watch = job, skip, watch
        self.gamma = job.cluster.device.reduction_seconds_per_byte
        ideal = job.conditions.ideal or job.schedule.rounds == 0
        self.uniform = job.layout.even and job.full_cluster.network.plain and ideal
        self.devices = job.schedule.devices
        self.seconds = 0.0
        self.rounds = 0
        self.clock: FloatArray | None = None if ideal else job.conditions.starts(self.devices)
        self.segments: list[Segment] = []
        self.sent: IntArray = np.zeros((len(job.full_cluster.levels), self.devices), dtype=np.int64)
        # A round takes up to six numbers a device.
        self.spacing = max(isqrt(job.schedule.rounds) + 1, min(LEAST_SPACING, KEPT_BYTES // (48 * self.devices)))
        self.timer = Timer(job)
        self.kept: deque[ArraySegment] = deque()
        self.kept_bytes = 0

    def run(self) -> float:
        phases = self.job.schedule.channels[0]
        last_shared = max((i for i, phase in enumerate(phases) if phase.ports > 1), default=-1)
        for index, phase in enumerate(phases):
            regular = phase.regular if self.clock is None and self.uniform else None
            level = _level_of(self.job, phase) if regular and (index <= last_shared or self.skip) else None
            if regular is not None and level is not None:
                self._uniform_phase(phase, regular, level)
                if self.watch is not None and len(self.sent) > 1:  # the levels were found round by round
                    self.watch(phase.steps * regular.messages * self.devices)
            else:
                if self.clock is None:
                    self.clock = np.full(self.devices, self.seconds)
                ring = RingPhase.of(self.job, phase, self.spacing)
                if ring is not None:
                    self._ring_phase(phase, ring)
                else:
                    self._array_phase(phase)
            self.rounds += phase.steps
        return self.seconds if self.clock is None else float(self.clock.max())

    def _uniform_phase(self, phase: Phase, regular: Regular, level: int) -> None:
        """All ranks enter and leave each round together: one clock stands for all."""
        link, k, now = self.job.full_cluster.levels[level].link, regular.messages, self.seconds
        chunk_bytes = self.job.layout.floor * self.job.itemsize
        latency = link.alpha + link.overhead
        chunks_sent = 0
        for step in range(phase.steps):
            chunks = regular.chunks(step)
            chunks_sent += chunks
            message_bytes = chunks * chunk_bytes
            if k == 1:
                now += alone_seconds(latency, message_bytes, link.bandwidth)
            else:
                now = shared_end(now, link.alpha, message_bytes + link.overhead * link.bandwidth, link.bandwidth, k)
            if regular.reduces and self.gamma:
                now += self.gamma * (k * message_bytes)
        self.seconds = now
        bytes_sent = k * chunks_sent * chunk_bytes
        self.sent[level] += bytes_sent
        reduction = self.gamma * bytes_sent if regular.reduces else 0.0
        latency_seconds = phase.steps * (link.alpha + k * link.overhead)
        self.segments.append(UniformSegment(level, latency_seconds, bytes_sent / link.bandwidth, reduction))

    def _array_phase(self, phase: Phase) -> None:
        clock = self._clock()
        sent = None if add_declared_bytes(self.job, phase, self.sent) else self.sent
        for first in range(0, phase.steps, self.spacing):
            count = min(self.spacing, phase.steps - first)
            segment = ArraySegment(phase, first, count, self.rounds + first, clock, self.timer)
            segment.played, clock = segment.play(sent, self.watch)
            self.segments.append(segment)
            self._keep(segment)
        self.clock = clock

    def _keep(self, segment: ArraySegment) -> None:
        """Keep the rounds of a segment, and drop those of the oldest ones that are too many."""
        self.kept.append(segment)
        self.kept_bytes += segment.kept_bytes
        while len(self.kept) > 1 and self.kept_bytes > KEPT_BYTES:
            oldest = self.kept.popleft()
            self.kept_bytes -= oldest.kept_bytes
            oldest.played = None

    def _ring_phase(self, phase: Phase, ring: RingPhase) -> None:
        clock, step = self._clock(), 0
        while step < phase.steps:
            count = min(self.spacing, phase.steps - step)
            after, done, growth = ring.walk(clock, step, count, skip=self.skip)
            self.segments.append(RingSegment(ring, step, done, clock))
            clock, step = after, step + done
            if self.watch is not None:
                self.watch(done * self.devices)
            left = phase.steps - step
            if growth is not None and left:
                self.segments.append(RingSegment(ring, step, left, clock, grows=True))
                clock, step = ring.skipped(clock, left, growth), phase.steps
        self.clock = clock
        add_declared_bytes(self.job, phase, self.sent)

    def _clock(self) -> FloatArray:
        return np.full(self.devices, self.seconds) if self.clock is None else self.clock


def vectorized_seconds(job: Job, *, skip: bool = True) -> float:
    """As ``vectorized``, the seconds alone, without the walk back along the critical path."""
    return _Walk(job, skip=skip).run()


def vectorized(job: Job, *, skip: bool = True, watch: Watch | None = None) -> tuple[Parts, float, IntArray]:
    """Evaluate a job that ``refusal`` accepts. Returns the parts, the seconds and the bytes sent [level, device]."""
    walk = _Walk(job, skip=skip, watch=watch)
    seconds = walk.run()
    return critical_path(job, walk.segments, walk.clock, seconds), seconds, walk.sent
