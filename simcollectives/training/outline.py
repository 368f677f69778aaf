"""What waits for what in a program, and which operations may be played as one."""

from collections.abc import Sequence
from dataclasses import dataclass

from simcollectives.errors import ScheduleError
from simcollectives.training.program import HOST, Operation


@dataclass(frozen=True)
class Outline:
    """A program as a graph of segments: operations that follow one another, and that nothing else waits for between.

    ``places`` are those of a segment's operations, ``then`` the segments that wait for it, ``waits`` the number of
    those that it waits for. ``number`` counts the collectives of its group; only segments of one collective have one.
    """

    places: tuple[tuple[int, ...], ...]
    then: tuple[tuple[int, ...], ...]
    waits: tuple[int, ...]
    number: tuple[int | None, ...]


def outline(operations: Sequence[Operation], *, joined: bool) -> Outline:
    """Count what each operation waits for, and note who waits for it; ``joined`` makes the segments long.

    Raises:
        ScheduleError: an operation waits for itself or for a later one.
    """
    before, number = _waits(operations)
    then: list[list[int]] = [[] for _ in operations]
    for place, others in enumerate(before):
        for other in others:
            then[other].append(place)
    segment_of: list[int] = []
    places: list[list[int]] = []
    for place, others in enumerate(before):
        follows = joined and len(others) == 1 and operations[place].call is None
        if follows and len(then[others[0]]) == 1 and operations[others[0]].call is None:
            segment_of.append(segment_of[others[0]])
            places[segment_of[-1]].append(place)
        else:
            segment_of.append(len(places))
            places.append([place])
    return Outline(
        tuple(tuple(inside) for inside in places),
        tuple(tuple(segment_of[other] for other in then[inside[-1]]) for inside in places),
        tuple(len(before[inside[0]]) for inside in places),
        tuple(number[inside[0]] for inside in places),
    )


def _waits(operations: Sequence[Operation]) -> tuple[list[list[int]], list[int | None]]:
    """The places that each operation waits for: its stream, the host, its group, and what it comes after."""
    last: dict[str, int] = {}
    called: dict[str, list[int]] = {}
    before: list[list[int]] = []
    numbers: list[int | None] = []
    for place, operation in enumerate(operations):
        waits = set(operation.after)
        waits.update(last[name] for name in (operation.stream, HOST) if name in last)
        if operation.call is not None:
            calls = called.setdefault(operation.call.group, [])
            waits.update(calls[-1:])
            numbers.append(len(calls))
            calls.append(place)
        else:
            numbers.append(None)
        if not all(0 <= other < place for other in waits):
            raise ScheduleError(f"{operation.name} waits for itself, or for what is issued after it")
        before.append(sorted(waits))
        last[operation.stream] = place
    return before, numbers
