"""What happened in a step: spans of work on streams, and what stood in memory when."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from simcollectives.errors import ScheduleError
from simcollectives.training.pricing import Price
from simcollectives.training.program import Operation


@dataclass(frozen=True, slots=True)
class Span:
    """One operation of one rank, played. A collective ``begins`` when its last rank has come to it.

    ``place`` is that of the operation in the rank's program: the order in which the host issued it.
    """

    rank: int
    place: int
    operation: Operation
    start: float
    begins: float
    end: float
    price: Price | None = None

    @property
    def seconds(self) -> float:
        """How long it lasted, waiting included."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Change:
    """``bytes`` more (or, negative, less) of an item in memory at a time."""

    time: float
    item: str
    bytes: int


@dataclass(frozen=True)
class StepTimeline:
    """Spans in order of start, and the changes of the memory of rank 0 in the order in which they happened.

    ``ends`` are the seconds at which each rank that was played is done.
    """

    spans: tuple[Span, ...]
    memory: tuple[Change, ...]
    ends: Mapping[int, float] = field(default_factory=dict)

    def of_rank(self, rank: int) -> tuple[Span, ...]:
        """The spans of one rank."""
        return tuple(span for span in self.spans if span.rank == rank)

    def end_of(self, rank: int) -> float:
        """When the last operation of a rank ends."""
        return self.ends.get(rank, 0.0)


Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Join intervals that touch or overlap.

    >>> union([(3.0, 4.0), (0.0, 1.0), (0.5, 2.0), (5.0, 5.0)])
    [(0.0, 2.0), (3.0, 4.0)]
    """
    joined: list[Interval] = []
    for start, end in sorted(x for x in intervals if x[1] > x[0]):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return joined


def without(intervals: Sequence[Interval], taken: Sequence[Interval]) -> list[Interval]:
    """Return what is left of intervals where others are taken away; both are unions.

    >>> without([(0.0, 4.0)], [(1.0, 2.0), (3.0, 5.0)])
    [(0.0, 1.0), (2.0, 3.0)]
    """
    left = []
    first = 0
    for start, end in intervals:
        while first < len(taken) and taken[first][1] <= start:
            first += 1
        index, kept = first, start
        while index < len(taken) and taken[index][0] < end:
            if taken[index][0] > kept:
                left.append((kept, taken[index][0]))
            kept = max(kept, taken[index][1])
            index += 1
        if kept < end:
            left.append((kept, end))
    return left


def total(intervals: Iterable[Interval]) -> float:
    """Seconds of disjoint intervals together."""
    return sum((end - start for start, end in intervals), 0.0)


@dataclass(frozen=True)
class Peak:
    """The most memory at once: when, how much, and what it is made of."""

    time: float
    bytes: int
    items: dict[str, int]


def most_of_each(changes: Sequence[Change]) -> dict[str, int]:
    """Return the most that each item takes at any time."""
    held: dict[str, int] = {}
    most: dict[str, int] = {}
    for change in changes:
        held[change.item] = held.get(change.item, 0) + change.bytes
        most[change.item] = max(most.get(change.item, 0), held[change.item])
    return most


def peak(changes: Sequence[Change]) -> Peak:
    """Find the first instant with most memory.

    Raises:
        ScheduleError: more of an item is freed than there is.
    """
    held: dict[str, int] = {}
    standing, most, until = 0, 0, 0
    for number, change in enumerate(changes, start=1):
        held[change.item] = held.get(change.item, 0) + change.bytes
        if held[change.item] < 0:
            raise ScheduleError(f"{-held[change.item]} B more of {change.item} are freed than were allocated")
        standing += change.bytes
        if standing > most:
            most, until = standing, number
    items: dict[str, int] = {}
    for change in changes[:until]:
        items[change.item] = items.get(change.item, 0) + change.bytes
    time = changes[until - 1].time if until else 0.0
    return Peak(time, most, {item: size for item, size in items.items() if size})
