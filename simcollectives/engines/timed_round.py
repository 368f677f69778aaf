"""One round of at most one message a port, as arrays, and what it does to the ranks' clocks."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from simcollectives.cluster.network import FloatArray, Floats
from simcollectives.engines.durations import alone_seconds
from simcollectives.engines.job import Job
from simcollectives.engines.pricing import drawn_alpha, flow_bytes, seconds_to_reduce
from simcollectives.schedule.types import IntArray, Ints, Phase, Round, common


class Ends(NamedTuple):
    """The messages of a round without their bytes; ``src`` and ``dst`` have one entry a message.

    ``all_send`` and ``all_receive`` tell that all ranks do, and message i is rank i's; ``joined``, that messages have
    several rows.
    ``level``, ``alpha``, ``overhead``, their sum ``latency`` and ``bandwidth`` are by message, or one number for all.
    """

    src: IntArray
    dst: IntArray
    all_send: bool
    all_receive: bool
    joined: bool
    level: Ints
    alpha: Floats
    overhead: Floats
    latency: Floats
    bandwidth: Floats


class TimedRound(NamedTuple):
    """A round with the bytes and seconds of its messages.

    ``bytes``, ``latency`` and ``seconds`` are by message, ``reduction`` (seconds after the round, None where nobody
    reduces) by device; each an array, or one number for all.
    """

    ends: Ends
    bytes: Ints
    latency: Floats
    seconds: Floats
    reduction: Floats | None


class Timer:
    """Times the rounds of a job in which no rank sends or receives more than one message.

    Many rounds have the same ends as the one before: what follows from them alone is kept.
    """

    def __init__(self, job: Job) -> None:
        """Prepare what all rounds share."""
        self._job, self._itemsize = job, job.itemsize
        self._rank = np.arange(job.schedule.devices, dtype=np.int64)
        self._reduces = bool(np.any(common(job.full_cluster.gamma_of_rank)))
        self._row_ends: tuple[IntArray, IntArray] | None = None
        self._ends: Ends | None = None
        self._draws_alpha = job.conditions.alpha is not None

    def timed(self, phase: Phase, step: int, number: int) -> TimedRound:
        """Time the messages of a step, round ``number`` of all."""
        job, round_ = self._job, phase.round_at(step)
        ends = self._ends_of(round_.src, round_.dst)
        sizes, reduced = self._bytes(phase, step, round_, ends)
        where = (job, 0, number, ends.src, ends.dst)
        latency = drawn_alpha(*where, ends.alpha) + ends.overhead if self._draws_alpha else ends.latency
        seconds = alone_seconds(latency, flow_bytes(*where, sizes), ends.bandwidth)
        return TimedRound(ends, sizes, latency, seconds, self._reduction(number, ends, reduced))

    def _bytes(self, phase: Phase, step: int, round_: Round, ends: Ends) -> tuple[Ints, Ints]:
        """Bytes of the messages, and those that their receivers reduce."""
        layout = self._job.layout
        if phase.regular is not None and layout.even:
            sizes = phase.regular.chunks(step) * layout.floor * self._itemsize
            return sizes, sizes if phase.regular.reduces else 0
        rows: Ints = layout.common_elements(round_) * self._itemsize
        adds = common(round_.reduce)
        return self._joined(round_, ends, rows), self._joined(round_, ends, rows * adds) if self._reduces else 0

    def _ends_of(self, src: IntArray, dst: IntArray) -> Ends:
        if self._ends is None or self._row_ends is None or self._row_ends[0] is not src or self._row_ends[1] is not dst:
            self._ends = self._found(src, dst)
            self._row_ends = src, dst
        return self._ends

    def _found(self, src: IntArray, dst: IntArray) -> Ends:
        """Join rows into messages, which the sender alone tells apart, and look their links up."""
        all_send, all_receive, joined = self._is_every_rank(src), self._is_every_rank(dst), False
        if not all_send and not all_receive:
            rows = np.bincount(src, minlength=len(self._rank))
            joined = bool(np.count_nonzero(rows > 1))
            if joined:
                destination = np.empty_like(self._rank)
                destination[src] = dst
                src = rows.nonzero()[0].astype(np.int64, copy=False)
                dst = destination[src]
                all_send = len(src) == len(rows)
        level, alpha, overhead, bandwidth = self._job.full_cluster.network.links(src, dst)
        return Ends(src, dst, all_send, all_receive, joined, level, alpha, overhead, alpha + overhead, bandwidth)

    def _is_every_rank(self, ranks: IntArray) -> bool:
        rank = self._rank
        return len(ranks) == len(rank) and ranks[0] == rank[0] and not np.count_nonzero(ranks != rank)

    def _joined(self, round_: Round, ends: Ends, row_bytes: Ints) -> Ints:
        if not ends.joined:
            return row_bytes
        total = np.zeros_like(self._rank)
        np.add.at(total, round_.src, row_bytes)
        return total if ends.all_send else total[ends.src]

    def _reduction(self, number: int, ends: Ends, reduced: Ints) -> Floats | None:
        if not self._reduces or not np.count_nonzero(reduced):
            return None
        received: Floats
        if ends.all_receive or (isinstance(reduced, int) and len(ends.dst) == len(self._rank)):
            received = reduced.astype(np.float64) if isinstance(reduced, np.ndarray) else float(reduced)
        else:
            received = np.zeros(len(self._rank))
            received[ends.dst] = reduced
        return seconds_to_reduce(self._job, 0, number, received)


def advance(clock: FloatArray, timed: TimedRound) -> FloatArray:
    """Return when each rank leaves a round that it entered at ``clock``."""
    # A message ends after both its ends entered: setting its receiver's clock to that never sets it back.
    ends = timed.ends
    if ends.all_send or ends.all_receive:
        other = ends.dst if ends.all_send else ends.src
        end = clock.take(other)
        np.maximum(clock, end, out=end)
        end += timed.seconds
        after = np.empty_like(clock)
        after[other] = end
        np.maximum(after, end, out=after)
    else:
        end = np.maximum(clock.take(ends.src), clock.take(ends.dst))
        end += timed.seconds
        after = clock.copy()
        after[ends.dst] = end
        after[ends.src] = np.maximum(after.take(ends.src), end)
    if timed.reduction is not None:
        after += timed.reduction
    return after


def add_bytes(sent: IntArray, rounds: Iterable[TimedRound]) -> None:
    """Add what each rank sends in some rounds to ``sent`` [level, device]."""
    everyone = [0] * len(sent)
    for timed in rounds:
        src, level, message_bytes = timed.ends.src, timed.ends.level, timed.bytes
        if not isinstance(level, int):
            sent[level, src] += message_bytes
        elif isinstance(message_bytes, int) and len(src) == sent.shape[1]:
            everyone[level] += message_bytes
        elif timed.ends.all_send:
            sent[level] += message_bytes
        else:
            sent[level, src] += message_bytes
    sent += np.array(everyone)[:, None]


def entry(values: Floats, index: int) -> float:
    """Return one entry, or the number that stands for all."""
    return float(values.item(index)) if isinstance(values, np.ndarray) else values
