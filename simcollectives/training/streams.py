"""Plays programs on streams, as CUDA does, on SimPy.

An operation starts when the one before it on its stream has ended, what it comes ``after`` has ended, and the host has
issued it. A group runs one collective at a time, in issue order; a collective begins when its last rank has come to it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

from simcollectives.errors import ScheduleError
from simcollectives.training.pricing import Price
from simcollectives.training.program import HOST, Call, Operation, Program
from simcollectives.training.shared_links import SharedLinks
from simcollectives.training.timeline import Change, Span, StepTimeline


@dataclass(slots=True)
class _Meeting:
    """A collective, from the first rank that comes to it until it has ended."""

    call: Call
    came: list[tuple[int, int]] = field(default_factory=list)
    begins: float = 0.0


_Key = tuple[str, tuple[int, int], int]
"""Name of the groups, which of them, and the number of the collective in it."""


class _Play:
    def __init__(
        self, programs: Mapping[int, Program], price: Callable[[Call], Price], starts: Mapping[int, float]
    ) -> None:
        self.env = simpy.Environment()
        self.links = SharedLinks(self.env)
        self.programs, self.price, self.starts = programs, price, starts
        self.meetings: dict[_Key, _Meeting] = {}
        self.members: dict[tuple[str, tuple[int, int]], int] = {}
        self.waits: dict[int, list[int]] = {}
        self.then: dict[int, list[list[int]]] = {}
        self.number: dict[int, dict[int, int]] = {}
        self.start: dict[int, list[float]] = {}
        self.ready: deque[tuple[int, int]] = deque()
        self.releasing = False
        self.spans: list[Span] = []
        self.recorded = min(programs)
        begins = starts.get(self.recorded, 0.0)
        self.memory = [Change(begins, item, size) for item, size in programs[self.recorded].standing]

    def run(self) -> StepTimeline:
        for rank, program in self.programs.items():
            self._order(rank, program.operations)
        for rank in self.programs:
            timeout = simpy.Timeout(self.env, self.starts.get(rank, 0.0), rank)
            timeout.callbacks.append(self._set_off)
        self.env.run()
        self._check_all_ran()
        spans = sorted(self.spans, key=lambda span: (span.start, span.rank))
        return StepTimeline(tuple(spans), tuple(self.memory))

    def _set_off(self, event: Any) -> None:
        rank = event.value
        self._release([(rank, place) for place, count in enumerate(self.waits[rank]) if count == 0])

    def _check_all_ran(self) -> None:
        if len(self.spans) == sum(len(program.operations) for program in self.programs.values()):
            return
        ran = {(span.rank, span.place) for span in self.spans}
        stuck = [
            (rank, operation.name)
            for rank, program in self.programs.items()
            for place, operation in enumerate(program.operations)
            if (rank, place) not in ran
        ]
        rank, name = stuck[0]
        rule = f"the first is {name} on rank {rank}; they wait for each other"
        raise ScheduleError(f"{len(stuck)} operations never ran: {rule}")

    def _order(self, rank: int, operations: Sequence[Operation]) -> None:
        """Count what each operation waits for, and note who waits for it."""
        then: list[list[int]] = [[] for _ in operations]
        waits = [0] * len(operations)
        last: dict[str, int] = {}
        called: dict[str, list[int]] = {}
        numbers: dict[int, int] = {}
        for place, operation in enumerate(operations):
            before = set(operation.after)
            before.update(last[name] for name in (operation.stream, HOST) if name in last)
            if operation.call is not None:
                calls = called.setdefault(operation.call.group, [])
                before.update(calls[-1:])
                numbers[place] = len(calls)
                calls.append(place)
            if not all(0 <= other < place for other in before):
                raise ScheduleError(f"{operation.name} waits for itself, or for what is issued after it")
            for other in before:
                then[other].append(place)
            waits[place] = len(before)
            last[operation.stream] = place
        self.then[rank], self.waits[rank], self.number[rank] = then, waits, numbers
        self.start[rank] = [0.0] * len(operations)

    def _release(self, places: list[tuple[int, int]]) -> None:
        """Begin operations, and those that end at once release others: a queue instead of recursion."""
        self.ready.extend(places)
        if self.releasing:
            return
        self.releasing = True
        while self.ready:
            self._begin(*self.ready.popleft())
        self.releasing = False

    def _begin(self, rank: int, place: int) -> None:
        operation = self.programs[rank].operations[place]
        self.start[rank][place] = self.env.now
        if rank == self.recorded:
            self.memory += [Change(self.env.now, item, size) for item, size in operation.allocates]
        if operation.call is not None:
            self._come(rank, place, operation.call)
        elif operation.seconds > 0:
            timeout = simpy.Timeout(self.env, operation.seconds, (rank, place))
            timeout.callbacks.append(self._timed_out)
        else:
            self._end(rank, place, self.env.now, None)

    def _timed_out(self, event: Any) -> None:
        rank, place = event.value
        self._end(rank, place, self.start[rank][place], None)

    def _come(self, rank: int, place: int, call: Call) -> None:
        key = call.group, call.siblings(rank), self.number[rank][place]
        meeting = self.meetings.setdefault(key, _Meeting(call))
        if meeting.call != call:
            raise ScheduleError(f"ranks meet in {call.group} for different collectives: {meeting.call} and {call}")
        meeting.came.append((rank, place))
        if len(meeting.came) == self._members(key, call):
            meeting.begins = self.env.now
            price = self.price(call)
            self.links.start(price.seconds, price.use, lambda: self._part(key, meeting, price))

    def _members(self, key: _Key, call: Call) -> int:
        """How many of the ranks that are played are in a group."""
        group = key[:2]
        if group not in self.members:
            self.members[group] = sum(call.siblings(rank) == key[1] for rank in self.programs)
        return self.members[group]

    def _part(self, key: _Key, meeting: _Meeting, price: Price) -> None:
        del self.meetings[key]
        for rank, place in meeting.came:
            self._end(rank, place, meeting.begins, price)

    def _end(self, rank: int, place: int, begins: float, price: Price | None) -> None:
        operation, now = self.programs[rank].operations[place], self.env.now
        self.spans.append(Span(rank, place, operation, self.start[rank][place], begins, now, price))
        if rank == self.recorded:
            self.memory += [Change(now, item, -size) for item, size in operation.frees]
        waits = self.waits[rank]
        free = []
        for other in self.then[rank][place]:
            waits[other] -= 1
            if waits[other] == 0:
                free.append((rank, other))
        self._release(free)


def play(
    programs: Mapping[int, Program], price: Callable[[Call], Price], starts: Mapping[int, float] | None = None
) -> StepTimeline:
    """Play one program for each rank that is played; one rank may stand for others that are like it.

    ``price`` tells what a collective costs alone. ``starts`` are the seconds at which ranks begin, where that is not 0.
    The memory is that of the lowest rank.

    Raises:
        ScheduleError: programs that wait for each other, or that meet for different collectives.
    """
    return _Play(programs, price, starts or {}).run()
