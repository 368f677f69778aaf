"""Checking expectations: the value found, the bound it has to satisfy, and both in words."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from simcollectives.errors import counted
from simcollectives.measured.spread import range_of, spread
from simcollectives.scenario.crossings import find_crossings, leader
from simcollectives.scenario.keys import NUMBER, RATIO, Kind, Value, is_option, point_text
from simcollectives.scenario.measured import PointError
from simcollectives.scenario.results import Check
from simcollectives.scenario.types import (
    AlgorithmEntry,
    Bound,
    CrossoverExpectation,
    ErrorExpectation,
    Expectation,
    MetricExpectation,
    OrderExpectation,
    Point,
    RatioExpectation,
    Selector,
)

SAME = 1e-12
"""Numbers that agree to this, relatively, are equal for every bound: sums of floats differ by the order of terms."""


class Runs(Protocol):
    """What evaluates the runs that expectations are about."""

    @property
    def metrics(self) -> Mapping[str, Kind]:
        """The metrics of a run, with their units."""

    def values(self, entry: AlgorithmEntry, point: Point) -> Mapping[str, Any]:
        """Return the metrics of one run."""

    def seconds(self, entry: AlgorithmEntry, point: Point) -> float:
        """Return the time of one run."""

    def label(self, run: Selector) -> str:
        """Return what a run is called."""

    def quantum(self, key: str) -> int | None:
        """Return of what the values of a key are whole multiples, if anything."""

    def kind(self, key: str) -> Kind | None:
        """Return what kind of value a key of a point takes; None for the options of algorithms."""

    def lack(self, metric: str) -> str:
        """Return why a run may lack a metric."""


class Compared(Protocol):
    """Something measured beside its prediction."""

    @property
    def errors(self) -> tuple[PointError, ...]:
        """The errors of the prediction."""


def check_expectation(evaluator: Runs, expectation: Expectation, measured: Sequence[Compared] = ()) -> Check:
    """Evaluate what an expectation is about, and compare; ``measured`` is what errors are of.

    Raises:
        InputError: a run is too large for its engine.
        ScheduleError: a bug in a schedule.
    """
    if isinstance(expectation, CrossoverExpectation):
        return _crossover(evaluator, expectation)
    if isinstance(expectation, RatioExpectation):
        return _ratio(evaluator, expectation)
    if isinstance(expectation, OrderExpectation):
        return _order(evaluator, expectation)
    if isinstance(expectation, MetricExpectation):
        return _metric(evaluator, expectation)
    if isinstance(expectation, ErrorExpectation):
        return _error(expectation, measured)
    raise TypeError(f"{type(expectation).__name__} is no expectation")


def satisfies(bound: Bound, value: float) -> bool:
    """Whether a value is within a bound.

    >>> satisfies(Bound("equals", (70.0,), relative=0.01), 70.5), satisfies(Bound("at_most", (3.0,)), 3.1)
    (True, False)
    """
    slack = SAME * max(abs(value), *(abs(limit) for limit in bound.values))
    first, last = bound.values[0], bound.values[-1]
    if bound.relation == "equals":
        allowed = bound.absolute if bound.absolute is not None else (bound.relative or 0.0) * abs(first)
        return abs(value - first) <= allowed + slack
    above = bound.relation == "at_most" or value >= first - slack
    below = bound.relation == "at_least" or value <= last + slack
    return above and below


def bound_text(bound: Bound, kind: Kind) -> str:
    """Return a bound in words.

    >>> bound_text(Bound("equals", (3,), relative=0.005), NUMBER)
    'equals 3 within 0.5%'
    """
    values = " and ".join(_shown(value, kind) for value in bound.values)
    text = f"{bound.relation.replace('_', ' ')} {values}"
    if bound.absolute is not None:
        return f"{text} within {_shown(bound.absolute, kind)}"
    return text if bound.relative is None else f"{text} within {RATIO.format(bound.relative)}"


def _shown(value: float, kind: Kind) -> str:
    return kind.format(value, 6)


def _result(expectation: Expectation, subject: str, value: Any, passed: bool, bound: str, found: str) -> Check:
    """Return a check; `found` is the value in words."""
    expected = bound if passed or expectation.because is None else f"{bound} ({expectation.because})"
    return Check(expectation.text, expectation.line, passed, value, f"{subject} is {found}", expected)


def _at(point: Point) -> str:
    """Return the point without options, which stand in labels."""
    kept = {key: value for key, value in point.items() if not is_option(key)}
    return f" at {point_text(kept)}" if kept else ""


def _run_text(evaluator: Runs, run: Selector) -> str:
    return evaluator.label(run) + _at(run.point)


def _bounded(expectation: Expectation, subject: str, value: Value | None, bound: Bound, kind: Kind, lack: str) -> Check:
    text = bound_text(bound, kind)
    if value is None:
        return _result(expectation, subject, None, False, text, lack)
    return _result(expectation, subject, value, satisfies(bound, value), text, _shown(value, kind))


def _metric(evaluator: Runs, expectation: MetricExpectation) -> Check:
    metric = expectation.metric
    value = evaluator.values(expectation.selector.entry, expectation.selector.point)[metric]
    subject = f"{metric} of {_run_text(evaluator, expectation.selector)}"
    return _bounded(expectation, subject, value, expectation.bound, evaluator.metrics[metric], evaluator.lack(metric))


def _ratio(evaluator: Runs, expectation: RatioExpectation) -> Check:
    runs = (expectation.first, expectation.second)
    first, second = (evaluator.values(run.entry, run.point)[expectation.metric] for run in runs)
    value = first / second if first is not None and second else None
    subject = f"{expectation.metric} of {_run_text(evaluator, runs[0])} over that of {_run_text(evaluator, runs[1])}"
    kind = evaluator.metrics[expectation.metric]
    lack = f"not defined ({_or_none(first, kind)} over {_or_none(second, kind)})"
    return _bounded(expectation, subject, value, expectation.bound, NUMBER, lack)


def _error(expectation: ErrorExpectation, measured: Sequence[Compared]) -> Check:
    points = [
        point
        for place in expectation.chosen
        for point in measured[place].errors
        if point.metric == expectation.metric
        and (expectation.messages is None or range_of(point.message_bytes or 0) == expectation.messages)
    ]
    of = "" if expectation.metric == "seconds" else f" in {expectation.metric}"
    subject = f"{expectation.statistic} error{of} of {expectation.what}"
    bound = bound_text(expectation.bound, RATIO)
    if not points:
        return _result(expectation, subject, None, False, bound, "not defined: 0 and no value have no error")
    found = spread([point.relative for point in points])
    value = float(getattr(found, expectation.statistic))
    ways = ("slow", "fast") if expectation.metric.endswith("seconds") else ("high", "low")
    worst = f"{RATIO.format(abs(found.worst), 3)} too {ways[found.worst < 0]}"
    where = f"of {counted(found.points, 'point')}, the worst {worst} at {points[found.worst_at].where}"
    text = f"{RATIO.format(value, 3)} ({where})"
    return _result(expectation, subject, value, satisfies(expectation.bound, value), bound, text)


def _or_none(value: Value | None, kind: Kind) -> str:
    return "no value" if value is None else _shown(value, kind)


def _order(evaluator: Runs, expectation: OrderExpectation) -> Check:
    metric = expectation.metric
    values = [evaluator.values(run.entry, run.point)[metric] for run in expectation.selectors]
    pairs = itertools.pairwise(values)
    passed = all(a is not None and b is not None and b - a > SAME * max(abs(a), abs(b)) for a, b in pairs)
    labels = [evaluator.label(run) for run in expectation.selectors]
    kind = evaluator.metrics[metric]
    found = ", ".join(f"{label} {_or_none(value, kind)}" for label, value in zip(labels, values, strict=True))
    subject = metric + _at(expectation.selectors[0].point)
    return _result(expectation, subject, tuple(values), passed, f"strictly increasing: {', '.join(labels)}", found)


def _crossover(evaluator: Runs, expectation: CrossoverExpectation) -> Check:
    along, grid = expectation.along, expectation.grid
    kind = evaluator.kind(along) or NUMBER
    quantum = evaluator.quantum(along)

    def first(value: Value) -> float:
        return evaluator.seconds(expectation.first.entry, {**expectation.first.point, along: value})

    def second(value: Value) -> float:
        return evaluator.seconds(expectation.second.entry, {**expectation.second.point, along: value})

    whole = kind.whole or evaluator.kind(along) is None
    found = find_crossings(first, second, grid, quantum, whole=whole)
    bound = bound_text(expectation.bound, kind)
    labels = evaluator.label(expectation.first), evaluator.label(expectation.second)
    subject = f"crossover of {labels[0]} and {labels[1]} along {along}{_at(expectation.first.point)}"
    if len(found) == 1:
        passed = satisfies(expectation.bound, found[0])
        return _result(expectation, subject, found[0], passed, bound, _shown(found[0], kind))
    ends = f"between {_shown(grid[0], kind)} and {_shown(grid[-1], kind)}"
    if found:
        places = ", ".join(_shown(value, kind) for value in found)
        return _result(
            expectation, subject, tuple(found), False, bound, f"not single: {len(found)} {ends}, at {places}"
        )
    side = leader(first, second, grid)
    why = f"{labels[side > 0]} is never slower" if side else "the times are equal throughout"
    return _result(expectation, subject, None, False, bound, f"nowhere {ends}: {why}")
