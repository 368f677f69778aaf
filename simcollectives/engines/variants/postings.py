"""What the variants play: the messages of a schedule one by one, in the order in which ranks post them.

A point in time carries the way to it, so that the last one says why a run took so long.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simcollectives.engines.job import Job
from simcollectives.engines.run import Parts, Timeline
from simcollectives.schedule.types import IntArray, Round

Moment = tuple[float, ...]
"""Seconds, and what they are made of: latency and bandwidth by level in turn, then reduction. Later is larger."""

Row = tuple[int, str, str, float, float, int, int, int, int]
"""One entry of a timeline."""


@dataclass(slots=True)
class Posting:
    """One message: all rows of one (src, dst) in a round."""

    src: int
    dst: int
    level: int
    channel: int
    round: int
    bytes: int
    reduced_bytes: int
    copies: tuple[range, ...] = ()
    additions: tuple[range, ...] = ()


def rounds_of_postings(job: Job) -> Iterator[list[Posting]]:
    """Generate the rounds: round by round, channel by channel.

    Inside a round the first message of every rank comes first, then the second of every rank, and so on, each set in
    row order: ranks post at the same pace.
    """
    streams = [job.schedule.rounds_of(channel) for channel in range(len(job.schedule.channels))]
    for number in range(job.schedule.rounds):
        for channel, stream in enumerate(streams):
            round_ = next(stream, None)
            if round_ is not None:
                yield _postings(job, round_, channel, number)


def _postings(job: Job, round_: Round, channel: int, number: int) -> list[Posting]:
    sizes = (job.layout.row_elements(round_) * job.itemsize).tolist()
    levels = job.full_cluster.network.levels_crossed(round_.src, round_.dst).tolist()
    columns = (round_.src, round_.dst, round_.first, round_.count, round_.stride, round_.reduce)
    found: dict[tuple[int, int], Posting] = {}
    posted: dict[int, int] = {}
    ordered: list[tuple[int, int, Posting]] = []
    rows = zip(*(column.tolist() for column in columns), sizes, levels, strict=True)
    for src, dst, first, count, stride, adds, size, level in rows:
        posting = found.get((src, dst))
        if posting is None:
            posting = found[src, dst] = Posting(src, dst, level, channel, number, 0, 0)
            position = posted.get(src, 0)
            posted[src] = position + 1
            ordered.append((position, len(ordered), posting))
        posting.bytes += size
        posting.reduced_bytes += size if adds else 0
        chunks = range(first, first + count * stride, stride)
        if adds:
            posting.additions += (chunks,)
        else:
            posting.copies += (chunks,)
    ordered.sort()
    return [posting for _, _, posting in ordered]


def start_moment(job: Job) -> Moment:
    """Time 0."""
    return (0.0,) * (2 * len(job.full_cluster.levels) + 2)


def later(moment: Moment, level: int, latency: float, bandwidth: float = 0.0, reduction: float = 0.0) -> Moment:
    """Return a moment after some more seconds."""
    parts = list(moment)
    parts[0] += latency + bandwidth + reduction
    parts[2 * level + 1] += latency
    parts[2 * level + 2] += bandwidth
    parts[-1] += reduction
    return tuple(parts)


def parts_of(job: Job, moment: Moment) -> Parts:
    """Split the seconds of a moment."""
    names = tuple(level.name for level in job.full_cluster.levels)
    return Parts(names, moment[1:-1:2], moment[2:-1:2], moment[-1])


class Record:
    """Bytes sent [level, device], and the timeline if it is asked for."""

    def __init__(self, job: Job, keep_rows: bool) -> None:
        self._names = [level.name for level in job.full_cluster.levels]
        self._sent = [[0] * job.schedule.devices for _ in self._names]
        self._rows: list[Row] | None = [] if keep_rows else None

    @property
    def sent(self) -> IntArray:
        """[level, device]."""
        return np.array(self._sent, dtype=np.int64)

    def send(self, posting: Posting, start: float, end: float) -> None:
        """Note what leaves a rank."""
        self._sent[posting.level][posting.src] += posting.bytes
        if self._rows is not None:
            stream, name = f"send {self._names[posting.level]}", f"to {posting.dst}"
            where = (posting.dst, posting.round, posting.channel)
            self._rows.append((posting.src, stream, name, start, end, posting.bytes, *where))

    def receive(self, posting: Posting, start: float, end: float, adding: float, added: float) -> None:
        """Note what reaches a rank from ``start`` to ``end``, and its reduction from ``adding`` to ``added``."""
        if self._rows is None:
            return
        stream, name = f"receive {self._names[posting.level]}", f"from {posting.src}"
        self._rows.append(
            (posting.dst, stream, name, start, end, posting.bytes, posting.src, posting.round, posting.channel)
        )
        if added > adding:
            what = (posting.reduced_bytes, -1, posting.round, posting.channel)
            self._rows.append((posting.dst, "reduce", "reduce", adding, added, *what))

    @property
    def timeline(self) -> Timeline | None:
        """All entries in order of start."""
        if self._rows is None:
            return None
        rows = sorted(self._rows, key=lambda row: (row[3], row[0], row[1], row[4]))
        columns = tuple(zip(*rows, strict=True)) if rows else ((),) * 9
        return Timeline(*columns)
