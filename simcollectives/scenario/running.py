"""Running a scenario: rows for every point and algorithm, then its checks and what else it asks for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simcollectives.engines import contributions
from simcollectives.errors import InputError, Problem
from simcollectives.measured import fit_link
from simcollectives.scenario.build import build_cluster, options_at, planned_runs
from simcollectives.scenario.evaluation import Evaluator
from simcollectives.scenario.expectations import check_expectation
from simcollectives.scenario.keys import point_text
from simcollectives.scenario.measured import MeasuredComparison
from simcollectives.scenario.nccl import check_nccl, predict_nccl
from simcollectives.scenario.numerics.running import run_numerics_scenario
from simcollectives.scenario.numerics.types import NumericsScenario
from simcollectives.scenario.planning import Plan, plan_scenario
from simcollectives.scenario.progress import Progress, Tracker
from simcollectives.scenario.results import ROW_KEYS, Check, Row, ScenarioResult
from simcollectives.scenario.training.planning import StepPlan
from simcollectives.scenario.training.running import run_training
from simcollectives.scenario.training.types import AnyScenario, TrainingScenario
from simcollectives.scenario.types import MeasuredSettings, NcclExpectation, Scenario, Selector


@dataclass
class _Collected:
    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    extras: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def run_scenario(
    scenario: AnyScenario, progress: Progress | None = None, announce: Callable[[Plan | StepPlan], None] | None = None
) -> ScenarioResult:
    """Run everything that a scenario asks for. An interrupt (Ctrl-C) keeps what is finished.

    ``announce`` is called with what all runs cost, before they are made (not of numerics); ``progress`` now and then.
    Runs that turn out to be too large for their engine are the result's ``problems``; the others are kept.

    Raises:
        ScheduleError: a bug in a schedule.
    """
    if isinstance(scenario, TrainingScenario):
        return run_training(scenario, progress, announce)
    if isinstance(scenario, NumericsScenario):
        return run_numerics_scenario(scenario, progress)
    evaluator = Evaluator(scenario)
    collected = _Collected()
    interrupted = False
    try:
        tracker = None
        if progress is not None or announce is not None:
            plan = plan_scenario(scenario)
            if announce is not None:
                announce(plan)
            if progress is not None:
                tracker = Tracker(plan, progress)
                evaluator.watch = tracker.watch
        _collect(evaluator, collected, lambda: None if tracker is None else tracker.finish_item())
    except KeyboardInterrupt:
        interrupted = True
    except InputError as error:
        collected.problems += error.problems
    return ScenarioResult(
        scenario=scenario,
        rows=tuple(collected.rows),
        checks=tuple(collected.checks),
        warnings=tuple(collected.warnings),
        notes=(*filter(None, [scenario.cluster.note]), *evaluator.reasons),
        interrupted=interrupted,
        problems=tuple(dict.fromkeys(collected.problems)),
        **collected.extras,
    )


def _collect(evaluator: Evaluator, collected: _Collected, finish_item: Callable[[], None]) -> None:
    scenario = evaluator.scenario
    for entry, point in planned_runs(scenario.sweeps, scenario.entries):
        try:
            row = evaluator.row(entry, point)
            collected.rows.append({key: row[key] for key in ROW_KEYS})
        except InputError as error:
            collected.problems += error.problems
        finish_item()
    if collected.problems:
        return
    compared = tuple(_compare(scenario, settings) for settings in scenario.measured)
    collected.extras["measured"] = compared
    for one in compared:
        collected.warnings += [f"{one.sweep.name}: {text}" for text in one.sweep.dropped]
        of = f"{one.label} to {one.sweep.name}" if len(compared) > 1 else one.label
        collected.warnings += [f"fit of {of}: {text}" for text in one.fit.warnings]
    for expectation in scenario.expectations:
        if isinstance(expectation, NcclExpectation) and scenario.nccl is not None:
            collected.checks.append(check_nccl(scenario, scenario.nccl, expectation))
        else:
            collected.checks.append(check_expectation(evaluator, expectation, compared))
        finish_item()
    if scenario.nccl is not None:
        collected.extras["nccl"] = predict_nccl(scenario, scenario.nccl)
        collected.warnings += [] if scenario.nccl.log is None else scenario.nccl.log.warnings
    if scenario.contributions is not None:
        collected.extras["contributions"] = (_contributions(scenario, scenario.contributions),)
    timelines = []
    for selector in scenario.timelines:
        timelines.append((_title(selector), evaluator.run(selector.entry, selector.point).timeline))
        finish_item()
    collected.extras["timelines"] = tuple((title, drawn) for title, drawn in timelines if drawn is not None)


def _title(selector: Selector) -> str:
    return f"{selector.entry.label}, {point_text(selector.point)}" if selector.point else selector.entry.label


def _contributions(scenario: Scenario, selector: Selector) -> str:
    cluster = build_cluster(scenario.cluster, selector.point)
    options = options_at(scenario.collective, selector.entry, selector.point)
    return contributions(scenario.collective.name, selector.entry.name, cluster, options)


def _compare(scenario: Scenario, settings: MeasuredSettings) -> MeasuredComparison:
    collective = scenario.collective
    cluster = build_cluster(scenario.cluster, settings.point)
    options = options_at(collective, settings.entry, settings.point)
    fit = fit_link(
        collective.name, settings.entry.name, options, cluster, settings.level, settings.sweep, collective.dtype
    )
    return MeasuredComparison(settings.sweep, settings.entry.label, fit, settings.point)
