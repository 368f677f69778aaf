"""What a scenario costs, found out before it is run: its rows, and roughly what its checks run on demand."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from simcollectives.engines import DTYPES, check_engine
from simcollectives.engines.data import held_bytes
from simcollectives.engines.estimate import ROUGH_SECONDS, Estimate, measured, rough, verify_seconds
from simcollectives.errors import InputError
from simcollectives.scenario.build import message_at, planned_runs, restricted
from simcollectives.scenario.evaluation import Evaluator, is_verified
from simcollectives.scenario.keys import FACTOR, kind_of, owner
from simcollectives.scenario.numbers import at
from simcollectives.scenario.types import (
    AlgorithmEntry,
    CrossoverExpectation,
    ErrorExpectation,
    Expectation,
    MetricExpectation,
    NcclExpectation,
    OrderExpectation,
    Point,
    RatioExpectation,
    Scenario,
    Selector,
)

ROOT_RUNS = 12
"""Runs that finding a crossing between two values of a grid takes, about."""

_LEAST_SHARE = 0.02
"""What costs less of the whole is not timed."""


@dataclass(frozen=True)
class PlannedRun:
    """A run that is made ``times`` times (with seeds), what it costs once, and executing it on arrays on top."""

    entry: AlgorithmEntry
    point: Point
    estimate: Estimate
    times: int = 1
    timeline: bool = False
    verify_seconds: float = 0.0
    verify_bytes: int = 0

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.times * self.estimate.seconds + self.verify_seconds

    @property
    def memory_bytes(self) -> int:
        """Bytes held at most."""
        return max(self.estimate.memory_bytes, self.verify_bytes)


@dataclass(frozen=True)
class Plan:
    """All that a scenario runs: ``items`` are its rows, checks and timelines in order, each with the runs it makes."""

    scenario: Scenario
    items: tuple[tuple[PlannedRun, ...], ...]

    @property
    def runs(self) -> Iterator[PlannedRun]:
        """All of them."""
        return (run for item in self.items for run in item)

    @property
    def messages(self) -> int:
        """Messages of all runs."""
        return sum(run.times * run.estimate.messages for run in self.runs)

    @property
    def seconds(self) -> float:
        """Seconds of all runs."""
        return sum(run.seconds for run in self.runs)

    @property
    def memory_bytes(self) -> int:
        """Bytes held at most: runs are made one after another."""
        return max((run.memory_bytes for run in self.runs), default=0)


def selectors_of(expectation: Expectation) -> tuple[Selector, ...]:
    """Return the runs that an expectation names; of a crossover they lack the key along which it is."""
    if isinstance(expectation, MetricExpectation):
        return (expectation.selector,)
    if isinstance(expectation, RatioExpectation | CrossoverExpectation):
        return (expectation.first, expectation.second)
    if isinstance(expectation, OrderExpectation):
        return expectation.selectors
    if isinstance(expectation, ErrorExpectation | NcclExpectation):
        return ()
    raise TypeError(f"{type(expectation).__name__} is no expectation")


def plan_scenario(scenario: Scenario) -> Plan:
    """Estimate all that a scenario runs; what will be refused costs nothing.

    Where it comes to more than a second, the longest run of each algorithm is timed in part, and the others of the same
    algorithm are taken to be as much faster or slower than their rough estimates.
    """
    planner = _Planner(Evaluator(scenario))
    rows = [planner.row(entry, point) for entry, point in planned_runs(scenario.sweeps, scenario.entries)]
    checks = [planner.check(expectation) for expectation in scenario.expectations]
    drawings = [planner.runs([(one.entry, one.point)], timeline=True) for one in scenario.timelines]
    return _timed(Plan(scenario, (*rows, *checks, *drawings)))


@dataclass(frozen=True)
class _Shape:
    """What runs share that differ only in their message: what elements are divided by, and the ranks."""

    period: int
    world_size: int


@dataclass
class _Planner:
    """Estimates runs, those once that differ only in what makes no difference: bandwidths, and most messages."""

    evaluator: Evaluator
    _shapes: dict[Hashable, _Shape] = field(default_factory=dict)
    _estimates: dict[Hashable, Estimate | None] = field(default_factory=dict)
    _seen: set[Hashable] = field(default_factory=set)

    def row(self, entry: AlgorithmEntry, point: Point) -> tuple[PlannedRun, ...]:
        """The run of a row, and its execution on arrays."""
        runs = self.runs([(entry, point)])
        if not runs:
            return runs
        key, message = _shape_key(entry, point), message_at(self.evaluator.scenario.collective, point)
        world_size, verified = self._shapes[key].world_size, ("verified", key, message)
        if not is_verified(self.evaluator.scenario, world_size, message) or verified in self._seen:
            return runs
        self._seen.add(verified)
        seconds = verify_seconds(self.evaluator.job(entry, point))
        held = held_bytes(world_size, message, self.evaluator.scenario.collective.dtype)
        return (replace(runs[0], verify_seconds=seconds, verify_bytes=held),)

    def check(self, expectation: Expectation) -> tuple[PlannedRun, ...]:
        """The runs that an expectation makes beside the rows."""
        if isinstance(expectation, CrossoverExpectation):
            return self._crossover(expectation)
        return self.runs([(selector.entry, selector.point) for selector in selectors_of(expectation)])

    def _crossover(self, expectation: CrossoverExpectation) -> tuple[PlannedRun, ...]:
        """The runs on the grid, and some for a root between two of its values."""
        kind = kind_of(expectation.along)
        found: list[PlannedRun] = []
        for one in (expectation.first, expectation.second):
            points = [{**one.point, expectation.along: value} for value in expectation.grid]
            runs = self.runs([(one.entry, point) for point in points], form_counts=True)
            found += runs
            if runs and kind is not None and not kind.whole:
                longest = max(runs, key=lambda run: run.seconds)
                found.append(replace(longest, times=ROOT_RUNS * longest.times))
        return tuple(found)

    def runs(
        self, wanted: Sequence[tuple[AlgorithmEntry, Point]], *, timeline: bool = False, form_counts: bool = False
    ) -> tuple[PlannedRun, ...]:
        """Those of some runs that are new and not refused; with ``form_counts``, nor given by a closed form."""
        found = []
        for entry, point in wanted:
            mine = restricted(point, entry)
            key = (entry.label, frozenset(mine.items()), timeline)
            if key in self._seen:
                continue
            self._seen.add(key)
            estimate = self._estimate(entry, mine, timeline, form_counts)
            seeds = None if timeline else self.evaluator.seeds(mine)
            times = 1 if seeds is None else seeds + 1
            if estimate is not None:
                found.append(PlannedRun(entry, mine, estimate, times, timeline))
        return tuple(found)

    def _estimate(self, entry: AlgorithmEntry, point: Point, timeline: bool, form_counts: bool) -> Estimate | None:
        """What one run costs; None where it is refused, or given by a closed form."""
        scenario = self.evaluator.scenario
        shape_key = _shape_key(entry, point)
        elements = message_at(scenario.collective, point) // DTYPES[scenario.collective.dtype]
        shape = self._shapes.get(shape_key)
        if shape is not None:
            key = (shape_key, elements % shape.period == 0, timeline, form_counts)
            if key in self._estimates:
                return self._estimates[key]
        try:
            job = self.evaluator.job(entry, point)
            self._shapes[shape_key] = _Shape(job.layout.period or job.layout.chunks, job.schedule.world_size)
            time = at(scenario.time, point)
            check_engine(job, scenario.engine, timeline, time, scenario.skipping)
            given = form_counts and self.evaluator.form(job) is not None
            estimate = None if given else rough(job, scenario.engine, timeline, time, scenario.skipping)
        except InputError:
            return None
        self._estimates[shape_key, job.layout.even, timeline, form_counts] = estimate
        return estimate


def _shape_key(entry: AlgorithmEntry, point: Point) -> Hashable:
    """What of a run decides its cost, but for whether its chunks are even."""
    return entry.label, frozenset((key, value) for key, value in point.items() if decides_cost(key))


def decides_cost(key: str) -> bool:
    """Whether a key decides the cost of a run: not latencies, bandwidths and the like, nor how often it is made."""
    kind = kind_of(key)
    if key == "message" or owner(key) in ("seed", "seeds"):
        return False
    return kind is None or kind.whole or kind is FACTOR or owner(key) in ("skew", "jitter")


def _timed(plan: Plan) -> Plan:
    total = plan.seconds
    if total <= ROUGH_SECONDS:
        return plan
    asked, evaluator = plan.scenario, Evaluator(plan.scenario)
    kinds: dict[Hashable, list[PlannedRun]] = {}
    for run in plan.runs:
        kinds.setdefault(_kind(run), []).append(run)
    factors: dict[Hashable, float] = {}
    for kind, runs in kinds.items():
        longest = max(runs, key=lambda run: run.estimate.seconds)
        if sum(run.seconds for run in runs) > _LEAST_SHARE * total:
            job, estimate = evaluator.job(longest.entry, longest.point), longest.estimate
            time = at(asked.time, longest.point)
            found = measured(job, estimate, longest.timeline, time, asked.skipping, least_seconds=0.0)
            factors[kind] = found.seconds / estimate.seconds
    return replace(plan, items=tuple(tuple(_scaled(run, factors) for run in item) for item in plan.items))


def _kind(run: PlannedRun) -> Hashable:
    return run.entry.label, run.estimate.engine, run.timeline


def _scaled(run: PlannedRun, factors: dict[Hashable, float]) -> PlannedRun:
    seconds = run.estimate.seconds * factors.get(_kind(run), 1.0)
    return replace(run, estimate=replace(run.estimate, seconds=seconds))
