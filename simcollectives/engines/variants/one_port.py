"""The one-port model: alpha occupies the ports.

    start = max(send port free, receive port free, data there)        end = start + alpha + overhead + n / B

A message holds the sender's send port and the receiver's receive port of its level from start to end; a device has one
full-duplex port a level. Ports serve messages first in, first out in the order of the schedule: round by round, inside
a round every rank's first message, then every rank's second, and so on, each in row order. There is no barrier: a
message waits only for its ports and for its own chunks. A receiver adds what it has received before its port takes the
next message (gamma holds the receive port and the device's one adder, but no send port). Incoming data has a buffer of
its own: nothing waits until an older value of the chunk has left.

Times are sums and maxima of other times (max-plus), so that a faster link never lengthens a run.

Reference: Hockney, Parallel Computing 20 (1994); the one-port postal model of Bar-Noy and Kipnis, SPAA 1992.
"""

from simcollectives.engines.job import Job
from simcollectives.engines.run import Parts, Timeline
from simcollectives.engines.variants.postings import (
    Moment,
    Posting,
    Record,
    later,
    parts_of,
    rounds_of_postings,
    start_moment,
)
from simcollectives.engines.watch import Watch
from simcollectives.schedule.types import IntArray


class _Ports:
    """When each port, each adder and each chunk is free."""

    def __init__(self, job: Job, record: bool) -> None:
        levels, devices = len(job.full_cluster.levels), job.schedule.devices
        zero = start_moment(job)
        self.links = [level.link for level in job.full_cluster.levels]
        self.gamma = job.cluster.device.reduction_seconds_per_byte
        self.sends = [[zero] * devices for _ in range(levels)]
        self.receives = [[zero] * devices for _ in range(levels)]
        self.adders = [zero] * devices
        self.ready: list[dict[int, Moment]] = [{} for _ in range(devices)]
        self.last = zero
        self.record = Record(job, record)

    def transfer(self, posting: Posting) -> Moment:
        """Play one message; return when its data is there, adding where it must be."""
        src, dst, level = posting.src, posting.dst, posting.level
        sends, receives = self.sends[level], self.receives[level]
        start = max(sends[src], receives[dst])
        ready = self.ready[src]
        for chunks in (*posting.copies, *posting.additions):
            for chunk in chunks:
                there = ready.get(chunk)
                if there is not None and there > start:
                    start = there
        link = self.links[level]
        end = later(start, level, link.alpha + link.overhead, posting.bytes / link.bandwidth)
        adding = done = end
        if self.gamma and posting.reduced_bytes:
            adding = max(end, self.adders[dst])
            done = later(adding, level, 0.0, 0.0, self.gamma * posting.reduced_bytes)
            self.adders[dst] = done
        sends[src], receives[dst] = end, done
        self.last = max(self.last, done)
        self.record.send(posting, start[0], end[0])
        self.record.receive(posting, start[0], end[0], adding[0], done[0])
        return done

    def arrive(self, posting: Posting, done: Moment) -> None:
        """Make the chunks of a message wait for it."""
        ready = self.ready[posting.dst]
        for chunks in posting.copies:
            ready.update(dict.fromkeys(chunks, done))
        for chunks in posting.additions:
            for chunk in chunks:
                there = ready.get(chunk)
                ready[chunk] = done if there is None else max(there, done)


def one_port(
    job: Job, *, record: bool = False, watch: Watch | None = None
) -> tuple[Parts, float, IntArray, Timeline | None]:
    """Play a job. Returns the parts, the seconds, the bytes sent [level, device], and the timeline if ``record``."""
    ports = _Ports(job, record)
    for postings in rounds_of_postings(job):
        # A round reads before it writes.
        done = [ports.transfer(posting) for posting in postings]
        for posting, moment in zip(postings, done, strict=True):
            ports.arrive(posting, moment)
        if watch is not None:
            watch(len(postings))
    return parts_of(job, ports.last), ports.last[0], ports.record.sent, ports.record.timeline
