"""What a training scenario costs, found out before it is run: the seconds of its rows, checks and drawings."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from simcollectives.engines import DTYPES, make_job
from simcollectives.engines.closed_form import closed_form_parts
from simcollectives.engines.estimate import rough
from simcollectives.errors import InputError
from simcollectives.scenario.build import build_cluster, planned_runs, restricted
from simcollectives.scenario.keys import TRAINING_KEYS, without_options
from simcollectives.scenario.planning import ROOT_RUNS, decides_cost, selectors_of
from simcollectives.scenario.training.build import choices_at, settings_at
from simcollectives.scenario.training.evaluation import TrainingEvaluator
from simcollectives.scenario.training.types import TrainingScenario
from simcollectives.scenario.types import AlgorithmEntry, CrossoverExpectation, Expectation, Point
from simcollectives.training.pricing import default_choices

_LITTLE_SECONDS, _LITTLE_SHARE = 3.0, 0.02
"""Up to here nothing is timed; what is timed is no more of the whole."""

_STEP_SECONDS, _PASS_SECONDS = 3e-3, 5e-5
"""Of a step, and of one module in one micro-batch of one rank: written, played and measured."""

_PRICED_SIZES = 5
"""Different sizes of collectives in a step, about."""


@dataclass(frozen=True)
class StepPlan:
    """All steps of a scenario: ``costs`` are the seconds of its rows, measurements, checks and drawings, in order."""

    costs: tuple[float, ...]
    steps: int

    @property
    def seconds(self) -> float:
        """Seconds of all steps."""
        return sum(self.costs)


def plan_steps(scenario: TrainingScenario, evaluator: TrainingEvaluator) -> StepPlan:
    """Estimate all that a scenario simulates; what will be refused costs nothing.

    Where it comes to more than seconds, one row that costs little of it is simulated, and the others are taken to be as
    much faster or slower than their rough estimates.
    """
    planner = _Planner(scenario)
    runs = planned_runs(scenario.sweeps, scenario.entries)
    rows = [planner.cost([run]) for run in runs]
    measured = [planner.cost([(one.entry, one.point)]) for one in scenario.measured]
    checks = [planner.check(one) for one in scenario.expectations]
    drawn = [planner.cost([(one.entry, one.point)], again=True) for one in scenario.timelines]
    costs = [*rows, *measured, *checks, *drawn]
    factor = 1.0
    if sum(costs) > _LITTLE_SECONDS:
        factor = _factor(evaluator, [(planner.step(run[1]), run) for run in runs], _LITTLE_SHARE * sum(costs))
    return StepPlan(tuple(factor * cost for cost in costs), planner.steps)


def _factor(
    evaluator: TrainingEvaluator, rows: Sequence[tuple[float, tuple[AlgorithmEntry, Point]]], most: float
) -> float:
    """How much longer a step takes than its rough estimate, by a row of ``most`` seconds."""
    small = [row for row in rows if row[0] <= most]
    if not small:
        return 1.0
    cost, run = max(small, key=lambda row: row[0])
    taken = []
    try:
        for _ in range(2):  # the first may import modules, and asks for prices
            start = perf_counter()
            evaluator.row(*run)
            taken.append(perf_counter() - start)
    except InputError:
        return 1.0
    return min(taken) / cost


@dataclass
class _Planner:
    scenario: TrainingScenario
    steps: int = 0
    _seen: set[Hashable] = field(default_factory=set)
    _priced: set[Hashable] = field(default_factory=set)
    _prices: dict[Hashable, float] = field(default_factory=dict)

    def check(self, expectation: Expectation) -> float:
        """Seconds of the steps that an expectation asks for beside the rows."""
        named = [(one.entry, one.point) for one in selectors_of(expectation)]
        if not isinstance(expectation, CrossoverExpectation):
            return self.cost(named)
        grid = [(entry, {**point, expectation.along: value}) for value in expectation.grid for entry, point in named]
        return self.cost(grid) * (1 + ROOT_RUNS / len(expectation.grid))

    def cost(self, wanted: Sequence[tuple[AlgorithmEntry, Point]], *, again: bool = False) -> float:
        """Seconds of some steps, as far as they are new, or simulated ``again``."""
        seconds = 0.0
        for entry, point in wanted:
            mine = restricted(point, entry)
            key = entry.label, frozenset(mine.items())
            if key in self._seen and not again:
                continue
            self._seen.add(key)
            self.steps += 1
            seconds += self.step(mine) + self._new_prices(entry, mine)
        return seconds

    def step(self, point: Point) -> float:
        """Seconds of one step of any strategy, whose collectives have their prices."""
        settings = settings_at(self.scenario.training, point)
        modules = sum(len(layer.modules) for layer in settings.model.layers)
        played, steady = len({1.0, *settings.slow.values()}), settings.iteration != 0
        try:
            if settings.jitter is not None:
                played = build_cluster(self.scenario.cluster, point).world_size * (2 if steady else 1)
            elif played > 1 and steady:
                played *= 3  # to find out how far behind slower ranks begin
        except InputError:
            return 0.0
        return _STEP_SECONDS + settings.accumulation * modules * played * _PASS_SECONDS

    def _new_prices(self, entry: AlgorithmEntry, point: Point) -> float:
        """Seconds of pricing collectives on a cluster that no step before was on."""
        choices = repr(choices_at(settings_at(self.scenario.training, point), entry, point))
        of_cluster = {key: value for key, value in without_options(point).items() if key not in TRAINING_KEYS}
        key = choices, frozenset(of_cluster.items())
        if key in self._priced:
            return 0.0
        self._priced.add(key)
        alike = choices, frozenset((key, value) for key, value in of_cluster.items() if decides_cost(key))
        if alike not in self._prices:
            self._prices[alike] = self._price(entry, point)
        return self._prices[alike]

    def _price(self, entry: AlgorithmEntry, point: Point) -> float:
        """Seconds of pricing the all-reduces of a step; a closed form takes none to speak of."""
        settings = settings_at(self.scenario.training, point)
        try:
            cluster = build_cluster(self.scenario.cluster, point)
            name, options = {**default_choices(cluster), **choices_at(settings, entry, point)}["all_reduce"]
            dtype = settings.precision.gradients
            job = make_job("all_reduce", name, cluster, settings.model.elements * DTYPES[dtype], options, dtype)
            return 0.0 if closed_form_parts(job) is not None else _PRICED_SIZES * rough(job).seconds
        except InputError:
            return 0.0
