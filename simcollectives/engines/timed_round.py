"""One round of at most one message a port, as arrays, and what it does to the ranks' clocks."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simcollectives.engines.durations import alone_seconds
from simcollectives.engines.job import Job
from simcollectives.engines.pricing import drawn_alpha, flow_bytes, reduction_seconds
from simcollectives.schedule.types import IntArray, Phase, Round

FloatArray = npt.NDArray[np.float64]

CHECK_EVERY = 8
"""Rounds between two looks whether one round adds the same constant to every rank."""


@dataclass(frozen=True, slots=True)
class TimedRound:
    """A round with the seconds of its messages; arrays by message, ``reduction`` in seconds after it."""

    src: IntArray
    dst: IntArray
    level: IntArray
    bytes: IntArray
    latency: FloatArray
    seconds: FloatArray
    reduction: FloatArray | None


def timed_round(job: Job, phase: Phase, step: int, number: int) -> TimedRound:
    """Time the messages of a step, round ``number`` of all, in which no rank sends or receives more than one."""
    round_ = phase.round_at(step)
    src, dst, message_bytes, reduced_bytes = _messages(job, round_)
    level, alpha, overhead, bandwidth = job.full_cluster.network.links(src, dst)
    latency = drawn_alpha(job, 0, number, src, dst, alpha) + overhead
    flowing = flow_bytes(job, 0, number, src, dst, message_bytes)
    reduction = reduction_seconds(job, 0, number, dst, reduced_bytes) if round_.reduce.any() else None
    return TimedRound(
        src=src,
        dst=dst,
        level=level,
        bytes=message_bytes,
        latency=latency,
        seconds=alone_seconds(latency, flowing, bandwidth),
        reduction=None if reduction is None else reduction[dst],
    )


def _messages(job: Job, round_: Round) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Join rows into messages, which the sender alone tells apart."""
    sizes = job.layout.row_elements(round_) * job.itemsize
    reduced = sizes * round_.reduce
    devices = job.schedule.devices
    rows = np.bincount(round_.src, minlength=devices)
    if len(round_.src) == 0 or rows.max() <= 1:
        return round_.src, round_.dst, sizes, reduced
    destination = np.zeros(devices, dtype=np.int64)
    destination[round_.src] = round_.dst
    src = np.flatnonzero(rows).astype(np.int64)
    totals = np.zeros((2, devices), dtype=np.int64)
    np.add.at(totals[0], round_.src, sizes)
    np.add.at(totals[1], round_.src, reduced)
    return src, destination[src], totals[0, src], totals[1, src]


def advance(clock: FloatArray, timed: TimedRound) -> FloatArray:
    """Return when each rank leaves a round that it entered at ``clock``."""
    end = np.maximum(clock[timed.src], clock[timed.dst]) + timed.seconds
    after = clock.copy()
    after[timed.src] = end
    after[timed.dst] = np.maximum(after[timed.dst], end)
    if timed.reduction is not None:
        after[timed.dst] += timed.reduction
    return after


class RingPhase:
    """A phase in which rank i always sends to rank i + 1: rounds are sums and maxima of slices.

    Between steps the chunks move on by one rank, and their bytes with them.
    """

    def __init__(self, job: Job, phase: Phase, first: TimedRound) -> None:
        """Prepare the arrays of the first round; edge i goes from rank i to rank i + 1."""
        self._ranks = len(first.src)
        self._first = first
        self._even = job.layout.even
        self._bandwidth = job.full_cluster.network.links(first.src, first.dst)[3]
        self._same_links = job.full_cluster.uniform_link is not None
        reduces = first.reduction is not None
        # By edge: the gamma of its receiver.
        self._gamma = job.full_cluster.gamma_of_rank[first.dst] if reduces else None
        # Any rotation of the ring's edges, with the one before the first, is a slice of three turns.
        self._bytes = np.tile(first.bytes.astype(np.float64), 3)
        self._latency = np.tile(first.latency, 3)[self._ranks - 1 : 2 * self._ranks]
        self._width = np.tile(self._bandwidth, 3)[self._ranks - 1 : 2 * self._ranks]
        self._seconds = np.tile(first.seconds, 3)
        self._gammas = None if self._gamma is None else np.tile(self._gamma, 3)[self._ranks - 1 : 2 * self._ranks - 1]

    @classmethod
    def of(cls, job: Job, phase: Phase) -> "RingPhase | None":
        """Recognise a ring: one message from every rank to the next, moving on by one rank a step."""
        if phase.rotation != 1 or job.conditions.random:
            return None
        first = timed_round(job, phase, 0, 0)
        rank = np.arange(job.schedule.devices)
        if len(first.src) != len(rank) or np.any(first.src != rank) or np.any(first.dst != (rank + 1) % len(rank)):
            return None
        return cls(job, phase, first)

    def bytes_at(self, step: int) -> IntArray:
        """Bytes on each edge."""
        return self._first.bytes if self._even else np.roll(self._first.bytes, step)

    def timed_at(self, step: int, rank: int) -> TimedRound:
        """The two messages of one rank in one round."""
        edges = np.array([(rank - 1) % self._ranks, rank])
        first = self._first
        message_bytes = first.bytes[edges if self._even else (edges - step) % self._ranks]
        seconds = alone_seconds(first.latency[edges], message_bytes.astype(np.float64), self._bandwidth[edges])
        reduction = None if self._gamma is None else self._gamma[edges] * message_bytes.astype(np.float64)
        ends = first.src[edges], first.dst[edges], first.level[edges]
        return TimedRound(*ends, message_bytes, first.latency[edges], seconds, reduction)

    def timed(self, step: int) -> TimedRound:
        """One round, as ``timed_round`` makes it."""
        message_bytes = self.bytes_at(step)
        seconds = alone_seconds(self._first.latency, message_bytes.astype(np.float64), self._bandwidth)
        reduction = None if self._gamma is None else self._gamma * message_bytes.astype(np.float64)
        first = self._first
        return TimedRound(first.src, first.dst, first.level, message_bytes, first.latency, seconds, reduction)

    def walk(
        self, clock: FloatArray, step: int, count: int, *, skip: bool, entered: list[FloatArray] | None = None
    ) -> tuple[FloatArray, int, float | None]:
        """Play up to ``count`` rounds; ``entered`` is given the clocks at which ranks enter each.

        Returns the clocks, the rounds played, and the seconds that every further round adds to every rank (after
        rotating them by one where bytes rotate) once that is a constant.
        """
        n = self._ranks
        # One rank and one edge more on either side, so that neighbours are slices.
        x, edges = np.empty(n + 2), np.empty(n + 1)
        x[1:-1], x[0], x[-1] = clock, clock[-1], clock[0]
        inner, here, there, left, right = x[1:-1], x[:-1], x[1:], edges[:-1], edges[1:]
        seconds, reduction = self._padded(step)
        looks = skip and (self._even or self._same_links)
        for played in range(1, count + 1):
            before = inner.copy() if looks and played % CHECK_EVERY == 0 else None
            if entered is not None:
                entered.append(inner.copy())
            np.maximum(here, there, out=edges)
            edges += seconds
            np.maximum(left, right, out=inner)
            if reduction is not None:
                inner += reduction
            x[0], x[-1] = x[-2], x[1]
            if before is not None:
                growth = inner - (before if self._even else np.roll(before, 1))
                if growth.max() - growth.min() <= 2 * np.spacing(inner.max()):
                    return inner.copy(), played, float(growth.max())
            if not self._even and played < count:
                seconds, reduction = self._padded(step + played)
        return inner.copy(), count, None

    def skipped(self, clock: FloatArray, rounds: int, growth: float) -> FloatArray:
        """Clocks after ``rounds`` more rounds of constant growth."""
        return (clock if self._even else np.roll(clock, rounds)) + rounds * growth

    def add_bytes(self, sent: IntArray, steps: int) -> None:
        """Add what each rank sends in all steps to ``sent`` [level, device]."""
        cycles, rest = divmod(steps, self._ranks)
        turn = np.concatenate([[0], np.cumsum(np.tile(self._first.bytes, 2))])
        end = self._ranks + np.arange(self._ranks) + 1
        total = cycles * int(self._first.bytes.sum()) + turn[end] - turn[end - rest]
        sent[self._first.level, self._first.src] += total

    def _padded(self, step: int) -> tuple[FloatArray, FloatArray | None]:
        """Seconds of the edges, the last one first as well, and seconds of reduction of the ranks."""
        start = self._ranks - 1 - (0 if self._even else step % self._ranks)
        turn = slice(start, start + self._ranks + 1)
        if self._even or self._same_links:
            seconds = self._seconds[turn]
        else:
            seconds = alone_seconds(self._latency, self._bytes[turn], self._width)
        received = self._bytes[start : start + self._ranks]
        return seconds, None if self._gammas is None else self._gammas * received
