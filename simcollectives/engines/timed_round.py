"""One round of at most one message a port, as arrays, and what it does to the ranks' clocks."""

from typing import NamedTuple

import numpy as np

from simcollectives.cluster.network import FloatArray, Floats
from simcollectives.engines.durations import alone_seconds
from simcollectives.engines.job import Job
from simcollectives.engines.pricing import drawn_alpha, flow_bytes, seconds_to_reduce
from simcollectives.schedule.types import IntArray, Ints, Phase, Round, common


class Ends(NamedTuple):
    """Where the messages of a round go: ``src`` and ``dst`` have one entry a message, ``level`` one or one for all.

    ``all_send`` and ``all_receive`` tell that all ranks do, and message i is rank i's.
    """

    src: IntArray
    dst: IntArray
    all_send: bool
    all_receive: bool
    level: Ints


class _Links(NamedTuple):
    """What follows from the ends of the rows of a round alone; ``latency`` is alpha + overhead."""

    ends: Ends
    joined: bool
    alpha: Floats
    overhead: Floats
    latency: Floats
    bandwidth: Floats


class TimedRound(NamedTuple):
    """A round with the seconds of its messages.

    ``latency`` and ``seconds`` are by message, ``reduction`` (seconds after the round, None where nobody reduces) by
    device; each an array, or one number for all.
    """

    ends: Ends
    latency: Floats
    seconds: Floats
    reduction: Floats | None


class Timer:
    """Times the rounds of a job in which no rank sends or receives more than one message.

    Many rounds have the same ends as the one before, or are like it altogether: what follows is kept.
    """

    def __init__(self, job: Job) -> None:
        """Prepare what all rounds share."""
        self._job, self._itemsize, self._chunk_bytes = job, job.itemsize, job.layout.floor * job.itemsize
        self._rank = self._every_rank = job.full_cluster.network.every_rank
        self._reduces = np.count_nonzero(common(job.full_cluster.gamma_of_rank)) > 0
        self._even, self._random = job.layout.even, job.conditions.random
        self._last: tuple[Phase, int, TimedRound, Ints] | None = None
        self._rows: tuple[IntArray, IntArray] | None = None
        self._links: _Links | None = None

    def timed(self, phase: Phase, step: int, number: int) -> tuple[TimedRound, Ints]:
        """Time the messages of a step, round ``number`` of all; return their bytes, too."""
        regular = phase.regular if self._even else None
        chunks = 0 if regular is None else regular.chunks(step)
        repeats = regular is not None and phase.same_pairs and not self._random
        if repeats and self._last is not None and self._last[0] is phase and self._last[1] == chunks:
            return self._last[2:]
        round_ = phase.round_at(step)
        links = self._links_of(round_.src, round_.dst)
        if regular is None:
            sizes, reduced = self._bytes(round_, links)
        else:
            sizes = chunks * self._chunk_bytes
            reduced = sizes if regular.reduces else 0
        timed = self._priced(number, links, sizes, reduced if self._reduces else 0)
        self._last = (phase, chunks, timed, sizes) if repeats else None
        return timed, sizes

    def _priced(self, number: int, links: _Links, sizes: Ints, reduced: Ints) -> TimedRound:
        ends, latency = links.ends, links.latency
        flowing: Floats = float(sizes) if isinstance(sizes, int) else sizes.astype(np.float64)
        if self._random:
            where = (self._job, 0, number, ends.src, ends.dst)
            latency, flowing = drawn_alpha(*where, links.alpha) + links.overhead, flow_bytes(*where, sizes)
        seconds = alone_seconds(latency, flowing, links.bandwidth)
        return TimedRound(ends, latency, seconds, self._reduction(number, ends, reduced))

    def _bytes(self, round_: Round, links: _Links) -> tuple[Ints, Ints]:
        """Bytes of the messages, and those that their receivers reduce."""
        rows: Ints = self._job.layout.common_elements(round_) * self._itemsize
        adds = common(round_.reduce)
        reduced: Ints = rows * adds if self._reduces and adds is not False else 0
        return self._joined(round_, links, rows), self._joined(round_, links, reduced)

    def _links_of(self, src: IntArray, dst: IntArray) -> _Links:
        if self._links is None or self._rows is None or self._rows[0] is not src or self._rows[1] is not dst:
            self._links = self._found(src, dst)
            self._rows = src, dst
        return self._links

    def _found(self, src: IntArray, dst: IntArray) -> _Links:
        """Join rows into messages, which the sender alone tells apart, and look their links up."""
        all_send, all_receive, joined = self._is_every_rank(src), self._is_every_rank(dst), False
        if not all_send and not all_receive and not (src[1:] > src[:-1]).all():
            rows = np.bincount(src, minlength=len(self._rank))
            joined = bool(np.count_nonzero(rows > 1))
            if joined:
                destination = np.empty_like(self._rank)
                destination[src] = dst
                src = rows.nonzero()[0].astype(np.int64, copy=False)
                dst = destination[src]
                all_send = len(src) == len(rows)
        src, dst = (self._rank if all_send else src), (self._rank if all_receive else dst)
        level, alpha, overhead, bandwidth = self._job.full_cluster.network.links(src, dst)
        ends = Ends(src, dst, all_send, all_receive, level)
        return _Links(ends, joined, alpha, overhead, alpha + overhead, bandwidth)

    def _is_every_rank(self, ranks: IntArray) -> bool:
        if ranks is self._every_rank:
            return True
        rank = self._rank
        if len(ranks) != len(rank) or ranks.item(0) != 0 or np.count_nonzero(ranks != rank):
            return False
        self._every_rank = ranks
        return True

    def _joined(self, round_: Round, links: _Links, row_bytes: Ints) -> Ints:
        if not links.joined:
            return row_bytes
        total = np.zeros_like(self._rank)
        np.add.at(total, round_.src, row_bytes)
        return total if links.ends.all_send else total[links.ends.src]

    def _reduction(self, number: int, ends: Ends, reduced: Ints) -> Floats | None:
        if isinstance(reduced, int) and reduced == 0:
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


def add_bytes(sent: IntArray, ends: Ends, message_bytes: Ints) -> None:
    """Add what each rank sends in a round to ``sent`` [level, device]."""
    if not isinstance(ends.level, int) or len(ends.src) < sent.shape[1]:
        sent[ends.level, ends.src] += message_bytes
    elif ends.all_send or isinstance(message_bytes, int):
        sent[ends.level] += message_bytes
    else:
        by_rank = np.empty_like(ends.src)
        by_rank[ends.src] = message_bytes
        sent[ends.level] += by_rank


def entry(values: Floats, index: int) -> float:
    """Return one entry, or the number that stands for all."""
    return float(values.item(index)) if isinstance(values, np.ndarray) else values
