"""Running a training scenario: rows for every point and strategy, then its checks, and the steps to draw."""

from dataclasses import dataclass, field
from typing import Any

from simcollectives.errors import InputError, Problem
from simcollectives.scenario.build import restricted
from simcollectives.scenario.expectations import check_expectation
from simcollectives.scenario.keys import point_text
from simcollectives.scenario.points import sweep_points
from simcollectives.scenario.results import Check, DrawnStep, Row, ScenarioResult
from simcollectives.scenario.training.evaluation import TRAINING_ROW_KEYS, TrainingEvaluator
from simcollectives.scenario.training.types import TrainingScenario
from simcollectives.scenario.types import AlgorithmEntry, Point
from simcollectives.training.step import Step

MAX_DRAWN = 4
"""So many rows are drawn, stream by stream, where no timeline is asked for."""


def planned_steps(scenario: TrainingScenario) -> list[tuple[AlgorithmEntry, dict[str, Any]]]:
    """Return the rows to be, in order: point by point, and the strategies in each; none twice."""
    found: dict[Any, tuple[AlgorithmEntry, dict[str, Any]]] = {}
    for point in sweep_points(scenario.sweeps):
        for entry in scenario.entries:
            mine = restricted(point, entry)
            found.setdefault((entry.label, frozenset(mine.items())), (entry, mine))
    return list(found.values())


@dataclass
class _Collected:
    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    steps: list[DrawnStep] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def run_training(scenario: TrainingScenario, progress: Any = None) -> ScenarioResult:
    """Run everything that a training scenario asks for. An interrupt (Ctrl-C) keeps what is finished.

    Raises:
        ScheduleError: a bug in a strategy.
    """
    evaluator = TrainingEvaluator(scenario)
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
        warnings=(*scenario.training.notes, *evaluator.warnings),
        notes=tuple(evaluator.reasons),
        interrupted=interrupted,
        problems=tuple(dict.fromkeys(collected.problems)),
        steps=tuple(collected.steps),
    )


def _collect(evaluator: TrainingEvaluator, collected: _Collected, progress: Any) -> None:
    scenario = evaluator.scenario
    runs = planned_steps(scenario)
    total = len(runs) + len(scenario.expectations)
    drawn = not scenario.timelines and len(runs) <= MAX_DRAWN
    for number, (entry, point) in enumerate(runs, 1):
        try:
            row, step = evaluator.row(entry, point)
            collected.rows.append({key: row[key] for key in TRAINING_ROW_KEYS})
            if drawn and step is not None:
                collected.steps.append(_drawn(entry, point, step))
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
    for selector in scenario.timelines:
        collected.steps.append(_drawn(selector.entry, selector.point, evaluator.step(selector.entry, selector.point)))


def _drawn(entry: AlgorithmEntry, point: Point, step: Step) -> DrawnStep:
    return DrawnStep(f"{entry.label}, {point_text(point)}" if point else entry.label, point, step)
