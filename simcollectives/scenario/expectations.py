"""Checking expectations: the value found, the bound it has to satisfy, and both in words."""

import itertools
from typing import Any

from simcollectives.engines import DTYPES
from simcollectives.scenario.build import label_at
from simcollectives.scenario.crossings import find_crossings, leader
from simcollectives.scenario.evaluation import Evaluator
from simcollectives.scenario.keys import (
    METRIC_LINKS,
    METRICS,
    NUMBER,
    RATIO,
    Kind,
    Value,
    is_option,
    kind_of,
    point_text,
)
from simcollectives.scenario.results import Check
from simcollectives.scenario.types import (
    Bound,
    CrossoverExpectation,
    Expectation,
    MetricExpectation,
    OrderExpectation,
    Point,
    RatioExpectation,
    Selector,
)

SAME = 1e-12
"""Numbers that agree to this, relatively, are equal for every bound: sums of floats differ by the order of terms."""


def check_expectation(evaluator: Evaluator, expectation: Expectation) -> Check:
    """Evaluate what an expectation is about, and compare.

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

    >>> bound_text(Bound("equals", (1.98e7,), relative=0.005), kind_of("message"))
    'equals 19.8 MB within 0.5%'
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


def _label(evaluator: Evaluator, run: Selector) -> str:
    return label_at(evaluator.scenario.collective, run.entry, run.point)


def _at(point: Point) -> str:
    """Return the point without options, which stand in labels."""
    kept = {key: value for key, value in point.items() if not is_option(key)}
    return f" at {point_text(kept)}" if kept else ""


def _run_text(evaluator: Evaluator, run: Selector) -> str:
    return _label(evaluator, run) + _at(run.point)


def _bounded(expectation: Expectation, subject: str, value: Value | None, bound: Bound, kind: Kind, lack: str) -> Check:
    text = bound_text(bound, kind)
    if value is None:
        return _result(expectation, subject, None, False, text, lack)
    return _result(expectation, subject, value, satisfies(bound, value), text, _shown(value, kind))


def _metric(evaluator: Evaluator, expectation: MetricExpectation) -> Check:
    metric = expectation.metric
    value = evaluator.values(expectation.selector.entry, expectation.selector.point)[metric]
    subject = f"{metric} of {_run_text(evaluator, expectation.selector)}"
    return _bounded(expectation, subject, value, expectation.bound, METRICS[metric], _lack(metric))


def _lack(metric: str) -> str:
    if metric == "closed_form_seconds":
        return "not known, since no closed form is exact there"
    if metric in METRIC_LINKS:
        return f"not defined, since the cluster has no {METRIC_LINKS[metric]} there"
    return "not defined, since the time is zero"


def _ratio(evaluator: Evaluator, expectation: RatioExpectation) -> Check:
    runs = (expectation.first, expectation.second)
    first, second = (evaluator.values(run.entry, run.point)[expectation.metric] for run in runs)
    value = first / second if first is not None and second else None
    subject = f"{expectation.metric} of {_run_text(evaluator, runs[0])} over that of {_run_text(evaluator, runs[1])}"
    lack = f"not defined ({_or_none(first, expectation.metric)} over {_or_none(second, expectation.metric)})"
    return _bounded(expectation, subject, value, expectation.bound, NUMBER, lack)


def _or_none(value: Value | None, metric: str) -> str:
    return "no value" if value is None else _shown(value, METRICS[metric])


def _order(evaluator: Evaluator, expectation: OrderExpectation) -> Check:
    metric = expectation.metric
    values = [evaluator.values(run.entry, run.point)[metric] for run in expectation.selectors]
    pairs = itertools.pairwise(values)
    passed = all(a is not None and b is not None and b - a > SAME * max(abs(a), abs(b)) for a, b in pairs)
    labels = [_label(evaluator, run) for run in expectation.selectors]
    found = ", ".join(f"{label} {_or_none(value, metric)}" for label, value in zip(labels, values, strict=True))
    subject = metric + _at(expectation.selectors[0].point)
    return _result(expectation, subject, tuple(values), passed, f"strictly increasing: {', '.join(labels)}", found)


def _crossover(evaluator: Evaluator, expectation: CrossoverExpectation) -> Check:
    along, grid = expectation.along, expectation.grid
    kind = kind_of(along) or NUMBER
    quantum = DTYPES[evaluator.scenario.collective.dtype] if along == "message" else None

    def first(value: Value) -> float:
        return evaluator.seconds(expectation.first.entry, {**expectation.first.point, along: value})

    def second(value: Value) -> float:
        return evaluator.seconds(expectation.second.entry, {**expectation.second.point, along: value})

    whole = kind.whole or kind_of(along) is None
    found = find_crossings(first, second, grid, quantum, whole=whole)
    bound = bound_text(expectation.bound, kind)
    labels = _label(evaluator, expectation.first), _label(evaluator, expectation.second)
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
