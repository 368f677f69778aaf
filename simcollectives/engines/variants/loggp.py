"""LogGP, played as LogGOPSim does: one CPU a device, a latency, and gaps on the ports.

    send at t     needs CPU and send port     CPU busy to t + o, port to t + g + n G, head arrives at t + o + L
    receive at t  needs CPU and receive port  CPU busy to t + o + n G (+ n gamma), port to t + g + n G

One message alone takes 2 o + L + n G. L = alpha and G = 1 / bandwidth of the message's link; o and g are the model's.
A device has one CPU for both directions and one full-duplex port a level. The CPU takes what is ready first; at one
instant sends before receives, then in order of the schedule. Adding what was received occupies the CPU.

Order ``program``: a rank goes through its rounds as MPI_Irecv, MPI_Isend, MPI_Waitall would. It enters a round when all
its sends and receives of the one before are complete, and a receive is processed only after it is posted. Order
``event``: all receives are posted from the start and a send waits only for its chunks. An incoming message has a buffer
of its own in both. Since receives are posted before sends and awaited after them, no order or protocol can deadlock; a
schedule that leaves work undone raises all the same.

A send is complete at t + o (eager), or when its head has reached the posted receive, t + o + L (rendezvous). A
rendezvous message starts when both its ends are posted; as in LogGOPSim the handshake costs nothing.

Against LogGOPSim (commit 76451de, run on the whole table): order ``event`` with ``eager`` is the same but for what goes
first of things ready at one instant. In order ``program`` an early message takes the receiver's CPU when its receive is
posted, there when it arrives. A rendezvous there sends its data at once, and only the send's completion waits. O, the
CPU time per byte, is 0 here; n bytes cost n G, there (n - 1) G.

References: Alexandrov, Ionescu, Schauser and Scheiman, SPAA 1995 (LogGP); Hoefler, Schneider and Lumsdaine, HPDC 2010
(LogGOPSim). Assumes that the sender's data may stay in use until it has left: no copy is charged.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from heapq import heappop, heappush

from simcollectives.engines.job import Job
from simcollectives.engines.run import Parts, Timeline
from simcollectives.engines.variants.models import LogGP
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
from simcollectives.errors import ScheduleError
from simcollectives.schedule.types import IntArray

_SEND, _RECEIVE = 0, 1
_MESSAGES_BETWEEN_LOOKS = 16


@dataclass(slots=True)
class _Turn:
    """One rank's part in one round: messages by number."""

    sends: list[int] = field(default_factory=list)
    receives: list[int] = field(default_factory=list)
    left: int = 0
    over: Moment = ()


class _Play:
    """State of one evaluation: a queue of sends and receives that are ready, and when each CPU and port is free."""

    def __init__(self, job: Job, model: LogGP, record: bool) -> None:
        levels, devices = len(job.full_cluster.levels), job.schedule.devices
        self.job, self.model = job, model
        self.zero = start_moment(job)
        self.links = [level.link for level in job.full_cluster.levels]
        self.overheads = [link.overhead if model.overhead is None else model.overhead for link in self.links]
        self.gamma = job.cluster.device.reduction_seconds_per_byte
        self.cpus = [self.zero] * devices
        self.sends = [[self.zero] * devices for _ in range(levels)]
        self.receives = [[self.zero] * devices for _ in range(levels)]
        self.messages = [posting for postings in rounds_of_postings(job) for posting in postings]
        self.queue: list[tuple[float, int, int, Moment]] = []
        self.last = self.zero
        self.received: set[int] = set()
        self.ends = 0
        self.record = Record(job, record)
        self.discipline: _Program | _Events = _Program(self) if model.order == "program" else _Events(self)

    def run(self, watch: Watch | None = None) -> Moment:
        told = 0
        while self.queue:
            _, kind, number, moment = heappop(self.queue)
            (self._send if kind == _SEND else self._receive)(number, moment)
            # Half of a message is its send: all sends may come before the first receive.
            if watch is not None and self.ends // 2 - told >= _MESSAGES_BETWEEN_LOOKS:
                told, new = self.ends // 2, self.ends // 2 - told
                watch(new)
        if watch is not None:
            watch(self.ends // 2 - told)
        left = len(self.messages) - len(self.received)
        if left:
            first = next(m for number, m in enumerate(self.messages) if number not in self.received)
            where = f"the first, round {first.round}, from rank {first.src} to rank {first.dst}"
            raise ScheduleError(f"{self.job.label}: deadlock, {left} messages were never received; {where}")
        return self.last

    def put(self, kind: int, number: int, moment: Moment) -> None:
        """Make a send or a receive ready from ``moment`` on."""
        heappush(self.queue, (moment[0], kind, number, moment))

    def _waits(self, kind: int, number: int, moment: Moment, cpu: Moment, port: Moment) -> bool:
        """Put it back where the CPU or the port is busy."""
        free = max(cpu, port)
        if free[0] <= moment[0]:
            return False
        self.put(kind, number, free)
        return True

    def _send(self, number: int, moment: Moment) -> None:
        message = self.messages[number]
        src, level = message.src, message.level
        ports = self.sends[level]
        if self._waits(_SEND, number, moment, self.cpus[src], ports[src]):
            return
        link = self.links[level]
        self.cpus[src] = complete = later(moment, level, self.overheads[level])
        ports[src] = later(moment, level, self.model.gap, message.bytes / link.bandwidth)
        arrival = later(complete, level, link.alpha)
        self.record.send(message, moment[0], max(complete[0], moment[0] + message.bytes / link.bandwidth))
        if self.model.is_rendezvous(message.bytes):
            complete = arrival
        self.last = max(self.last, complete)
        self.ends += 1
        self.discipline.arrived(number, arrival)
        self.discipline.sent(number, complete)

    def _receive(self, number: int, moment: Moment) -> None:
        message = self.messages[number]
        dst, level = message.dst, message.level
        ports = self.receives[level]
        if self._waits(_RECEIVE, number, moment, self.cpus[dst], ports[dst]):
            return
        seconds = message.bytes / self.links[level].bandwidth
        end = later(moment, level, self.overheads[level], seconds)
        done = later(end, level, 0.0, 0.0, self.gamma * message.reduced_bytes)
        self.cpus[dst] = done
        ports[dst] = later(moment, level, self.model.gap, seconds)
        self.record.receive(message, moment[0], end[0], end[0], done[0])
        self.last = max(self.last, done)
        self.ends += 1
        self.received.add(number)
        self.discipline.done(number, done)


class _Program:
    """Rounds in order: post receives, post sends, wait for all."""

    def __init__(self, play: _Play) -> None:
        self.play = play
        self.turns = self._turns()
        devices, channels = play.job.schedule.devices, len(play.job.schedule.channels)
        self.at = {(channel, rank): -1 for channel in range(channels) for rank in range(devices)}
        # What the first end of a message left for the other: when it was posted, or when an eager message arrived.
        self.posted: dict[int, Moment] = {}
        self.early: dict[int, Moment] = {}
        for who in self.at:
            self._enter(who, play.zero)

    def _turns(self) -> dict[tuple[int, int], list[_Turn]]:
        turns: dict[tuple[int, int], dict[int, _Turn]] = defaultdict(lambda: defaultdict(_Turn))
        for number, message in enumerate(self.play.messages):
            turns[message.channel, message.src][message.round].sends.append(number)
            turns[message.channel, message.dst][message.round].receives.append(number)
        return {who: list(rounds.values()) for who, rounds in turns.items()}

    def _enter(self, who: tuple[int, int], moment: Moment) -> None:
        """Post everything that a rank does in its next round."""
        self.at[who] += 1
        turns = self.turns.get(who, [])
        if self.at[who] == len(turns):
            return
        turn = turns[self.at[who]]
        turn.left, turn.over = len(turn.sends) + len(turn.receives), moment
        for number in turn.receives:
            if number in self.early:
                self.play.put(_RECEIVE, number, max(moment, self.early.pop(number)))
            else:
                self._post(number, moment)
        for number in turn.sends:
            if self._is_rendezvous(number):
                self._post(number, moment)
            else:
                self.play.put(_SEND, number, moment)

    def _is_rendezvous(self, number: int) -> bool:
        return self.play.model.is_rendezvous(self.play.messages[number].bytes)

    def _post(self, number: int, moment: Moment) -> None:
        """Note that one end is posted; the second to be so starts a rendezvous."""
        other = self.posted.pop(number, None)
        if other is None:
            self.posted[number] = moment
        else:
            self.play.put(_SEND, number, max(moment, other))

    def arrived(self, number: int, arrival: Moment) -> None:
        """The head of a message is there."""
        if self._is_rendezvous(number):
            self.play.put(_RECEIVE, number, arrival)
        elif number in self.posted:
            self.play.put(_RECEIVE, number, max(arrival, self.posted.pop(number)))
        else:
            self.early[number] = arrival

    def sent(self, number: int, moment: Moment) -> None:
        """A send is complete."""
        message = self.play.messages[number]
        self._one_less((message.channel, message.src), moment)

    def done(self, number: int, moment: Moment) -> None:
        """A receive is complete."""
        message = self.play.messages[number]
        self._one_less((message.channel, message.dst), moment)

    def _one_less(self, who: tuple[int, int], moment: Moment) -> None:
        turn = self.turns[who][self.at[who]]
        turn.left -= 1
        turn.over = max(turn.over, moment)
        if turn.left == 0:
            self._enter(who, turn.over)


class _Events:
    """Sends wait for the receives that bring their chunks, and for nothing else."""

    def __init__(self, play: _Play) -> None:
        self.play = play
        self.followers: dict[int, list[int]] = defaultdict(list)
        self.missing = [0] * len(play.messages)
        self.ready = [play.zero] * len(play.messages)
        self._connect()
        for number, missing in enumerate(self.missing):
            if missing == 0:
                play.put(_SEND, number, play.zero)

    def _connect(self) -> None:
        """A send follows, for each of its chunks, the last copy that came in earlier rounds and all additions since."""
        writers: dict[tuple[int, int], list[int]] = {}
        messages, number = self.play.messages, 0
        while number < len(messages):
            first, here = number, (messages[number].channel, messages[number].round)
            while number < len(messages) and (messages[number].channel, messages[number].round) == here:
                self._follow(number, writers)
                number += 1
            for i in range(first, number):
                _write(messages[i], i, writers)

    def _follow(self, number: int, writers: dict[tuple[int, int], list[int]]) -> None:
        message = self.play.messages[number]
        before: set[int] = set()
        for chunks in (*message.copies, *message.additions):
            for chunk in chunks:
                before.update(writers.get((message.src, chunk), ()))
        self.missing[number] = len(before)
        for other in sorted(before):
            self.followers[other].append(number)

    def arrived(self, number: int, arrival: Moment) -> None:
        """The head of a message is there, where its receive is posted already."""
        self.play.put(_RECEIVE, number, arrival)

    def sent(self, number: int, moment: Moment) -> None:
        """A send is complete: nothing waits for that."""

    def done(self, number: int, moment: Moment) -> None:
        """A receive is complete."""
        for follower in self.followers.pop(number, ()):
            self.ready[follower] = max(self.ready[follower], moment)
            self.missing[follower] -= 1
            if self.missing[follower] == 0:
                self.play.put(_SEND, follower, self.ready[follower])


def _write(message: Posting, number: int, writers: dict[tuple[int, int], list[int]]) -> None:
    for chunks in message.copies:
        for chunk in chunks:
            writers[message.dst, chunk] = [number]
    for chunks in message.additions:
        for chunk in chunks:
            writers.setdefault((message.dst, chunk), []).append(number)


def loggp(
    job: Job, model: LogGP, *, record: bool = False, watch: Watch | None = None
) -> tuple[Parts, float, IntArray, Timeline | None]:
    """Play a job. Returns the parts, the seconds, the bytes sent [level, device], and the timeline if ``record``.

    Raises:
        ScheduleError: messages are left that can never be received.
    """
    play = _Play(job, model, record)
    last = play.run(watch)
    return parts_of(job, last), last[0], play.record.sent, play.record.timeline
