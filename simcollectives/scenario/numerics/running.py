"""Running a numerics scenario: every variant is trained once, and compared with one device after each recorded step."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from simcollectives.cluster import Cluster
from simcollectives.errors import InputError, Problem
from simcollectives.scenario.build import build_cluster
from simcollectives.scenario.expectations import check_expectation
from simcollectives.scenario.keys import Kind, kind_of
from simcollectives.scenario.numerics.keys import NUMERICS_METRICS
from simcollectives.scenario.numerics.types import NumericsScenario
from simcollectives.scenario.places import placed
from simcollectives.scenario.progress import Progress, Tally
from simcollectives.scenario.results import Check, Row, ScenarioResult
from simcollectives.scenario.types import EMPTY, AlgorithmEntry, Point, Selector
from simcollectives.training.numerics import History, NumericsPlan, NumericsRow, compare, one_device, plain, train

NUMERICS_ROW_KEYS = ("label", "point", *(one.name for one in fields(NumericsRow)))
"""The keys of a row, in order: ``label`` is the variant, ``point`` the recorded step; the others as `NumericsRow`."""

_ITEM_SECONDS = 0.02
"""All variants and expectations are taken to cost the same."""


@dataclass
class NumericsEvaluator:
    """Trains the variants of a scenario and what they are compared with, one device and data parallelism, each once."""

    scenario: NumericsScenario
    _rows: dict[str, tuple[NumericsRow, ...]] = field(default_factory=dict)
    _histories: dict[str, History] = field(default_factory=dict)

    @property
    def metrics(self) -> Mapping[str, Kind]:
        """The metrics of a row, with their units."""
        return NUMERICS_METRICS

    def label(self, run: Selector) -> str:
        """Return what a variant is called."""
        return run.entry.label

    def quantum(self, key: str) -> int | None:
        """No key has whole multiples only."""
        del key
        return None

    def kind(self, key: str) -> Kind | None:
        """Return what kind of value a key of a point takes."""
        return kind_of(key)

    def lack(self, metric: str) -> str:
        """Return what is said of a row without a metric, which none is."""
        del metric
        return "not defined"

    def seconds(self, entry: AlgorithmEntry, point: Point) -> float:
        """Numbers are trained, not time: no expectation asks for it."""
        raise TypeError(f"{entry.label} has no time")

    def rows(self, entry: AlgorithmEntry) -> tuple[NumericsRow, ...]:
        """Train a variant, and compare it after each recorded step, with one device and with data parallelism.

        Raises:
            InputError: the loss is no longer finite, or this computer is too small.
        """
        if entry.label not in self._rows:
            plan = self.scenario.numerics.plans[entry.label]
            cluster = build_cluster(self.scenario.cluster, EMPTY)
            try:
                history = self._history(plan, cluster)
                alone, replicated = self._history(one_device(plan), None), self._history(plain(plan), cluster)
            except (InputError, MemoryError) as error:
                smaller = "write fewer samples, or record fewer steps"
                raise placed(error, entry, entry.label, smaller, self.scenario.file) from error
            self._rows[entry.label] = compare(history, alone, replicated)
        return self._rows[entry.label]

    def _history(self, plan: NumericsPlan, cluster: Cluster | None) -> History:
        if repr(plan) not in self._histories:
            self._histories[repr(plan)] = train(plan, self.scenario.numerics.record, cluster)
        return self._histories[repr(plan)]

    def values(self, entry: AlgorithmEntry, point: Point) -> Mapping[str, Any]:
        """Return the metrics of one row. Raises as `rows` does."""
        row = next(row for row in self.rows(entry) if row.step == point["step"])
        return {name: getattr(row, name) for name in NUMERICS_METRICS}


def _ddp_note(scenario: NumericsScenario) -> tuple[str, ...]:
    if all(plan.strategy == "ddp" for plan in scenario.numerics.plans.values()):
        return ()
    return ("compared with ddp: everything as in the variant, but all of it on every device",)


def run_numerics_scenario(scenario: NumericsScenario, progress: Progress | None = None) -> ScenarioResult:
    """Train every variant, then check. An interrupt (Ctrl-C) keeps what is finished.

    Raises:
        ScheduleError: a bug in a schedule.
    """
    evaluator = NumericsEvaluator(scenario)
    rows: list[Row] = []
    checks: list[Check] = []
    problems: list[Problem] = []
    interrupted = False
    entries = scenario.numerics.entries
    costs = [_ITEM_SECONDS] * (len(entries) + len(scenario.expectations))
    tally = None if progress is None else Tally(costs, progress)
    try:
        for entry in entries:
            try:
                found = evaluator.rows(entry)
                rows += [{"label": entry.label, "point": {"step": row.step}, **asdict(row)} for row in found]
            except InputError as error:
                problems += error.problems
            if tally is not None:
                tally.finish_item()
        for expectation in () if problems else scenario.expectations:
            checks.append(check_expectation(evaluator, expectation))
            if tally is not None:
                tally.finish_item()
    except KeyboardInterrupt:
        interrupted = True
    return ScenarioResult(
        scenario=scenario,
        rows=tuple(rows),
        checks=tuple(checks),
        notes=(
            "compared with one device: the same samples in one batch, without mistakes",
            *_ddp_note(scenario),
        ),
        interrupted=interrupted,
        problems=tuple(dict.fromkeys(problems)),
    )
