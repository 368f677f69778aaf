"""Running a scenario: rows for every point and algorithm, then its checks and what else it asks for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simcollectives.engines import contributions
from simcollectives.errors import InputError, Problem
from simcollectives.measured import fit_link
from simcollectives.scenario.build import build_cluster, options_at, restricted
from simcollectives.scenario.evaluation import Evaluator
from simcollectives.scenario.expectations import check_expectation
from simcollectives.scenario.keys import point_text
from simcollectives.scenario.numerics.running import run_numerics_scenario
from simcollectives.scenario.numerics.types import NumericsScenario
from simcollectives.scenario.points import sweep_points
from simcollectives.scenario.results import ROW_KEYS, Check, MeasuredComparison, Row, ScenarioResult
from simcollectives.scenario.training.running import run_training
from simcollectives.scenario.training.types import AnyScenario, TrainingScenario
from simcollectives.scenario.types import AlgorithmEntry, Scenario, Selector

Progress = Callable[[int, int], None]
"""Called with the number of things done and the number of all, rows and checks together."""


def planned_runs(scenario: Scenario) -> list[tuple[AlgorithmEntry, dict[str, Any]]]:
    """Return the rows to be, in order: point by point, and the algorithms in each; none twice.

    An algorithm that a swept option does not concern has one row for all its values.
    """
    found: dict[Any, tuple[AlgorithmEntry, dict[str, Any]]] = {}
    for point in sweep_points(scenario.sweeps):
        for entry in scenario.collective.algorithms:
            mine = restricted(point, entry)
            found.setdefault((entry.label, frozenset(mine.items())), (entry, mine))
    return list(found.values())


@dataclass
class _Collected:
    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    extras: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def run_scenario(scenario: AnyScenario, progress: Progress | None = None) -> ScenarioResult:
    """Run everything that a scenario asks for. An interrupt (Ctrl-C) keeps what is finished.

    Runs that turn out to be too large for their engine are the result's ``problems``; the others are kept.

    Raises:
        ScheduleError: a bug in a schedule.
    """
    if isinstance(scenario, TrainingScenario):
        return run_training(scenario, progress)
    if isinstance(scenario, NumericsScenario):
        return run_numerics_scenario(scenario, progress)
    evaluator = Evaluator(scenario)
    collected = _Collected()
    interrupted = False
    try:
        _collect(evaluator, collected, progress)
    except KeyboardInterrupt:
        interrupted = True
    except InputError as error:
        collected.problems += error.problems
    return ScenarioResult(
        scenario=scenario,
        rows=tuple(collected.rows),
        checks=tuple(collected.checks),
        warnings=tuple(collected.warnings),
        notes=tuple(evaluator.reasons),
        interrupted=interrupted,
        problems=tuple(dict.fromkeys(collected.problems)),
        **collected.extras,
    )


def _collect(evaluator: Evaluator, collected: _Collected, progress: Progress | None) -> None:
    scenario = evaluator.scenario
    runs = planned_runs(scenario)
    total = len(runs) + len(scenario.expectations)
    for number, (entry, point) in enumerate(runs, 1):
        try:
            row = evaluator.row(entry, point)
            collected.rows.append({key: row[key] for key in ROW_KEYS})
        except InputError as error:
            collected.problems += error.problems
        if progress is not None:
            progress(number, total)
    if collected.problems:
        return
    for number, expectation in enumerate(scenario.expectations, len(runs) + 1):
        collected.checks.append(check_expectation(evaluator, expectation))
        if progress is not None:
            progress(number, total)
    if scenario.measured is not None:
        comparison = _compare(scenario)
        collected.extras["measured"] = comparison
        collected.warnings += [f"{comparison.sweep.name}: {text}" for text in comparison.sweep.dropped]
        collected.warnings += [f"fit of {comparison.label}: {text}" for text in comparison.fit.warnings]
    if scenario.contributions is not None:
        collected.extras["contributions"] = (_contributions(scenario, scenario.contributions),)
    timelines = [(_title(selector), evaluator.run(selector.entry, selector.point)) for selector in scenario.timelines]
    collected.extras["timelines"] = tuple((title, run.timeline) for title, run in timelines if run.timeline is not None)


def _title(selector: Selector) -> str:
    return f"{selector.entry.label}, {point_text(selector.point)}" if selector.point else selector.entry.label


def _contributions(scenario: Scenario, selector: Selector) -> str:
    cluster = build_cluster(scenario.cluster, selector.point)
    options = options_at(scenario.collective, selector.entry, selector.point)
    return contributions(scenario.collective.name, selector.entry.name, cluster, options)


def _compare(scenario: Scenario) -> MeasuredComparison:
    settings = scenario.measured
    if settings is None:
        raise ValueError("the scenario has no measured sweep")
    collective = scenario.collective
    cluster = build_cluster(scenario.cluster, settings.point)
    options = options_at(collective, settings.entry, settings.point)
    fit = fit_link(
        collective.name, settings.entry.name, options, cluster, settings.level, settings.sweep, collective.dtype
    )
    return MeasuredComparison(settings.sweep, settings.entry.label, fit)
