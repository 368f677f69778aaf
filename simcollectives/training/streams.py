"""Plays programs on streams, as CUDA does, on SimPy.

An operation starts when the one before it on its stream has ended, what it comes ``after`` has ended, and the host has
issued it. A group runs one collective at a time, in issue order; a collective begins when its last rank has come to it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import simpy

from simcollectives.errors import ScheduleError
from simcollectives.training.outline import Outline, outline
from simcollectives.training.pricing import Price
from simcollectives.training.program import Call, Program
from simcollectives.training.shared_links import SharedLinks, Use
from simcollectives.training.timeline import Change, Span, StepTimeline

MOST_RECORDED = 16
"""Where more ranks are played, only the operations of the lowest are recorded; of the others, when they end."""


@dataclass(slots=True)
class _Meeting:
    """A collective, from the first rank that comes to it until it has ended."""

    call: Call
    came: list[tuple[int, int]] = field(default_factory=list)
    begins: float = 0.0


_Key = tuple[str, tuple[int, int], int]
"""Name of the groups, which of them, and the number of the collective in it."""


@dataclass(slots=True)
class _Lane:
    """One rank: its program as segments, how long each lasts, and how far it is."""

    program: Program
    outline: Outline
    seconds: Sequence[float]
    waits: list[int]
    start: list[float]
    recorded: bool
    done: list[bool]
    end: float = 0.0


class _Play:
    def __init__(
        self,
        programs: Mapping[int, Program],
        price: Callable[[Call], Price],
        starts: Mapping[int, float],
        seconds: Mapping[int, Sequence[float]],
    ) -> None:
        self.env = simpy.Environment(min([0.0, *starts.values()]))
        self.links = SharedLinks(self.env)
        self.price, self.starts = price, starts
        self.meetings: dict[_Key, _Meeting] = {}
        self.members: dict[tuple[str, tuple[int, int]], list[int]] = {}
        self.ready: deque[tuple[int, int]] = deque()
        self.releasing = False
        self.spans: list[Span] = []
        self.first = min(programs)
        self.lanes = self._lanes(programs, seconds)
        calls = {call for program in programs.values() for call in program.calls}
        # Groups that not all are in meet at single ports, else at all ports of a level together.
        self.apart = any(len({call.siblings(rank) for rank in programs}) > 1 for call in calls)
        begins = starts.get(self.first, 0.0)
        self.memory = [Change(begins, item, size) for item, size in programs[self.first].standing]

    def _lanes(self, programs: Mapping[int, Program], seconds: Mapping[int, Sequence[float]]) -> dict[int, _Lane]:
        outlines: dict[tuple[int, bool], Outline] = {}
        lanes = {}
        for rank, program in programs.items():
            recorded = rank == self.first or len(programs) <= MOST_RECORDED
            key = id(program), recorded
            if key not in outlines:
                outlines[key] = outline(program.operations, joined=not recorded)
            made = outlines[key]
            given = seconds.get(rank) or [operation.seconds for operation in program.operations]
            lasting = [sum(given[place] for place in places) for places in made.places]
            waits, count = list(made.waits), len(made.places)
            played = lasting_for(program, given) if recorded and rank in seconds else program
            lanes[rank] = _Lane(played, made, lasting, waits, [0.0] * count, recorded, [False] * count)
        return lanes

    def run(self) -> StepTimeline:
        for rank in self.lanes:
            timeout = simpy.Timeout(self.env, self.starts.get(rank, 0.0) - self.env.now, rank)
            timeout.callbacks.append(self._set_off)
        self.env.run()
        self._check_all_ran()
        spans = sorted(self.spans, key=lambda span: (span.start, span.rank))
        ends = {rank: lane.end for rank, lane in self.lanes.items()}
        return StepTimeline(tuple(spans), tuple(self.memory), ends)

    def _set_off(self, event: Any) -> None:
        rank = event.value
        lane = self.lanes[rank]
        lane.end = self.env.now
        self._release([(rank, segment) for segment, count in enumerate(lane.waits) if count == 0])

    def _check_all_ran(self) -> None:
        stuck = [
            (rank, place)
            for rank, lane in self.lanes.items()
            for places, done in zip(lane.outline.places, lane.done, strict=True)
            for place in (() if done else places)
        ]
        if stuck:
            rank, place = stuck[0]
            name = self.lanes[rank].program.operations[place].name
            rule = f"the first is {name} on rank {rank}; they wait for each other"
            raise ScheduleError(f"{len(stuck)} operations never ran: {rule}")

    def _release(self, segments: list[tuple[int, int]]) -> None:
        """Begin segments, and those that end at once release others: a queue instead of recursion."""
        self.ready.extend(segments)
        if self.releasing:
            return
        self.releasing = True
        while self.ready:
            self._begin(*self.ready.popleft())
        self.releasing = False

    def _begin(self, rank: int, segment: int) -> None:
        lane = self.lanes[rank]
        lane.start[segment] = self.env.now
        operation = lane.program.operations[lane.outline.places[segment][0]]
        if rank == self.first:
            self.memory += [Change(self.env.now, item, size) for item, size in operation.allocates]
        if operation.call is not None:
            self._come(rank, segment, operation.call)
        elif lane.seconds[segment] > 0:
            timeout = simpy.Timeout(self.env, lane.seconds[segment], (rank, segment))
            timeout.callbacks.append(self._timed_out)
        else:
            self._end(rank, segment, self.env.now, None)

    def _timed_out(self, event: Any) -> None:
        rank, segment = event.value
        self._end(rank, segment, self.lanes[rank].start[segment], None)

    def _come(self, rank: int, segment: int, call: Call) -> None:
        number = self.lanes[rank].outline.number[segment] or 0
        key = call.group, call.siblings(rank), number
        meeting = self.meetings.setdefault(key, _Meeting(call))
        if meeting.call != call:
            raise ScheduleError(f"ranks meet in {call.group} for different collectives: {meeting.call} and {call}")
        meeting.came.append((rank, segment))
        members = self._members(key, call)
        if len(meeting.came) == len(members):
            meeting.begins = self.env.now
            price = self.price(call)
            use: Use = price.use
            if self.apart:
                use = {(level, member): share for level, share in price.use.items() for member in members}
            self.links.start(price.seconds, use, lambda: self._part(key, meeting, price))

    def _members(self, key: _Key, call: Call) -> list[int]:
        """The ranks of a group that are played."""
        group = key[:2]
        if group not in self.members:
            self.members[group] = [rank for rank in self.lanes if call.siblings(rank) == key[1]]
        return self.members[group]

    def _part(self, key: _Key, meeting: _Meeting, price: Price) -> None:
        del self.meetings[key]
        for rank, segment in meeting.came:
            self._end(rank, segment, meeting.begins, price)

    def _end(self, rank: int, segment: int, begins: float, price: Price | None) -> None:
        lane, now = self.lanes[rank], self.env.now
        lane.done[segment] = True
        lane.end = max(lane.end, now)
        if lane.recorded:
            place = lane.outline.places[segment][0]
            operation = lane.program.operations[place]
            self.spans.append(Span(rank, place, operation, lane.start[segment], begins, now, price))
            if rank == self.first:
                self.memory += [Change(now, item, -size) for item, size in operation.frees]
        free = []
        for other in lane.outline.then[segment]:
            lane.waits[other] -= 1
            if lane.waits[other] == 0:
                free.append((rank, other))
        self._release(free)


def lasting_for(program: Program, seconds: Sequence[float]) -> Program:
    """Return the program with other seconds, by place."""
    pairs = zip(program.operations, seconds, strict=True)
    return replace(program, operations=tuple(replace(operation, seconds=own) for operation, own in pairs))


def play(
    programs: Mapping[int, Program],
    price: Callable[[Call], Price],
    starts: Mapping[int, float] | None = None,
    seconds: Mapping[int, Sequence[float]] | None = None,
) -> StepTimeline:
    """Play one program for each rank that is played; one rank may stand for others that are like it.

    ``price`` tells what a collective costs alone. ``starts`` are the seconds at which ranks begin, where that is not 0;
    ``seconds`` by place replace those of a rank's operations. The memory is that of the lowest rank; where there are
    more than ``MOST_RECORDED`` ranks, so are the spans.

    Raises:
        ScheduleError: programs that wait for each other, or that meet for different collectives.
    """
    return _Play(programs, price, starts or {}, seconds or {}).run()
