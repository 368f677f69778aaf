"""From the kernels of one rank to its steps, in the quantities that simulated ones have.

A kernel belongs to the step in which the host launched it. A step lasts from the end of the one before, or its mark's
start, to its last kernel's end or its mark's, whichever is later: so steps follow one another without gaps.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simcollectives.measured.logs.kineto_names import Collective
from simcollectives.measured.logs.types import MeasuredCollective, MeasuredStep
from simcollectives.training.timeline import Interval, total, union, without

_NANOSECOND = 1e-9
Launches = tuple["array[int]", "array[int]"]
"""Correlations and the times (ns) of their launches."""

Times = npt.NDArray[np.int64]


class Kernel(NamedTuple):
    """A communication kernel: start and end (ns), the launch it belongs to, and the collective."""

    start: int
    end: int
    correlation: int
    collective: Collective

    @property
    def begins(self) -> int:
        """When the last rank had come, where the trace says how long the wait was."""
        waiting = round((self.collective.waiting_us or 0.0) * 1000)
        return min(self.start + waiting, self.end)


class Mark(NamedTuple):
    """A step as the profiler marks it on the host (ns)."""

    name: str
    start: int
    end: int


@dataclass
class Work:
    """Kernels or copies as columns of numbers (ns)."""

    starts: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q"))
    correlations: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, start: int, end: int, correlation: int) -> None:
        """Note one."""
        self.starts.append(start)
        self.ends.append(end)
        self.correlations.append(correlation)


class _Spans(NamedTuple):
    """Everything of one sort, with the step that each belongs to; -1 is before the first."""

    starts: Times
    ends: Times
    steps: Times


def measured_steps(
    compute: Work,
    others: Work,
    kernels: Sequence[Kernel],
    marks: Sequence[Mark],
    launches: Launches,
    rank: int | None,
) -> tuple[MeasuredStep, ...]:
    """The steps of a rank, in order; all kernels are one step where none is marked."""
    collectives = Work()
    for kernel in kernels:
        collectives.add(kernel.start, kernel.end, kernel.correlation)
    everything = (compute, others, collectives)
    if not marks:  # then everything belongs to one step, whenever it was launched
        marks, launches = [_whole(everything)], (array("q"), array("q"))
    marks = sorted(marks, key=lambda mark: mark.start)
    spans = [_assigned(work, marks, launches) for work in everything]
    order = np.lexsort((np.array(collectives.correlations), _launch_times(collectives, launches)))
    found = []
    for number, window in enumerate(_windows(marks, spans)):
        mine = [kernels[place] for place in order[spans[2].steps[order] == number].tolist()]
        near = [kernels[place] for place in np.flatnonzero(_is_near(spans[2], window)).tolist()]
        found.append(_step(marks[number].name, rank, window, spans, near, mine))
    return tuple(found)


def _whole(everything: Sequence[Work]) -> Mark:
    starts = [start for work in everything for start in work.starts]
    return Mark("whole trace", min(starts), max(end for work in everything for end in work.ends))


def _launch_times(work: Work, launches: Launches) -> Times:
    """When each was launched; when it started, where no launch is in the trace."""
    starts, wanted = np.array(work.starts, dtype=np.int64), np.array(work.correlations, dtype=np.int64)
    known, times = (np.array(column, dtype=np.int64) for column in launches)
    if not len(known) or not len(wanted):
        return starts
    order = np.argsort(known, kind="stable")
    places = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    there = known[order][places] == wanted
    result: Times = np.where(there, times[order][places], starts)
    return result


def _assigned(work: Work, marks: Sequence[Mark], launches: Launches) -> _Spans:
    launched = _launch_times(work, launches)
    steps = np.searchsorted(np.array([mark.start for mark in marks]), launched, side="right") - 1
    steps = np.where(launched > marks[-1].end, len(marks), steps)
    return _Spans(np.array(work.starts, dtype=np.int64), np.array(work.ends, dtype=np.int64), steps)


def _windows(marks: Sequence[Mark], spans: Sequence[_Spans]) -> Iterator[tuple[int, int]]:
    """Start and end of each step."""
    begin = max([marks[0].start, *(int(one.ends[one.steps < 0].max(initial=marks[0].start)) for one in spans)])
    for number, mark in enumerate(marks):
        end = max([begin, mark.end, *(int(one.ends[one.steps == number].max(initial=begin)) for one in spans)])
        yield begin, end
        begin = end


def _step(
    name: str,
    rank: int | None,
    window: tuple[int, int],
    spans: Sequence[_Spans],
    near: Sequence[Kernel],
    mine: Sequence[Kernel],
) -> MeasuredStep:
    """A step of which ``near`` are the communication kernels that run in its window, ``mine`` those launched in it."""
    begin, end = window
    compute = union(_within(spans[0], window))
    taking = union(_within(spans[2], window))
    waiting = None
    if all(kernel.collective.waiting_us is not None for kernel in near):
        waits = union(_clipped(((kernel.start, kernel.begins) for kernel in near), window))
        running = union(_clipped(((kernel.begins, kernel.end) for kernel in near), window))
        waiting = _seconds(without(without(waits, running), compute))
    busy = union([*compute, *taking])
    covered = _Covered(compute)
    return MeasuredStep(
        name=name,
        rank=rank,
        step_seconds=(end - begin) * _NANOSECOND,
        compute_seconds=_seconds(compute),
        communication_seconds=_seconds(taking),
        exposed_seconds=_seconds(without(taking, compute)),
        waiting_seconds=waiting,
        idle_seconds=_seconds(without([(begin, end)] if end > begin else [], busy)),
        collectives=tuple(_collective(kernel, begin, covered) for kernel in mine),
    )


def _is_near(spans: _Spans, window: tuple[int, int]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (spans.ends > window[0]) & (spans.starts < window[1])
    return found


def _within(spans: _Spans, window: tuple[int, int]) -> Iterator[Interval]:
    near = _is_near(spans, window)
    return _clipped(zip(spans.starts[near].tolist(), spans.ends[near].tolist(), strict=True), window)


def _clipped(intervals: "Iterator[Interval] | zip[tuple[int, int]]", window: tuple[int, int]) -> Iterator[Interval]:
    for start, end in intervals:
        yield max(start, window[0]), min(end, window[1])


def _seconds(intervals: Sequence[Interval]) -> float:
    return total(intervals) * _NANOSECOND


class _Covered:
    """How much of any interval a union of intervals covers."""

    def __init__(self, intervals: Sequence[Interval]) -> None:
        self._starts = np.array([start for start, _ in intervals], dtype=np.int64)
        self._ends = np.array([end for _, end in intervals], dtype=np.int64)
        self._before = np.concatenate([[0], np.cumsum(self._ends - self._starts)])

    def until(self, time: int) -> int:
        """What is covered before a time."""
        place = int(np.searchsorted(self._starts, time, side="right"))
        if place == 0:
            return 0
        return int(self._before[place - 1]) + min(time, int(self._ends[place - 1])) - int(self._starts[place - 1])


def _collective(kernel: Kernel, begin: int, covered: _Covered) -> MeasuredCollective:
    one = kernel.collective
    exposed = kernel.end - kernel.start - (covered.until(kernel.end) - covered.until(kernel.start))
    return MeasuredCollective(
        kind=one.kind or one.word,
        name=one.name,
        group=one.group,
        group_size=one.group_size,
        elements=one.elements,
        dtype=one.dtype,
        bytes=one.bytes,
        micro_batch=one.micro_batch,
        phase=one.phase,
        start=(kernel.begins - begin) * _NANOSECOND,
        end=(kernel.end - begin) * _NANOSECOND,
        exposed=exposed * _NANOSECOND,
    )
