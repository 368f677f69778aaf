"""Running a training scenario: rows for every point and strategy, then its checks, and the steps to draw."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simcollectives.errors import InputError, Problem
from simcollectives.measured.step_comparison import PARTS, match_collectives
from simcollectives.scenario.build import is_free, planned_runs
from simcollectives.scenario.expectations import check_expectation
from simcollectives.scenario.keys import is_option, point_text, without_options
from simcollectives.scenario.measured import MeasuredStepComparison
from simcollectives.scenario.progress import Progress, Tally
from simcollectives.scenario.results import Check, PlayedStep, PointComparison, Row, ScenarioResult, SweepAdvice
from simcollectives.scenario.training.evaluation import TRAINING_ROW_KEYS, TrainingEvaluator
from simcollectives.scenario.training.planning import StepPlan, plan_steps
from simcollectives.scenario.training.types import StepMeasurement, TrainingScenario
from simcollectives.training.advice import advise
from simcollectives.training.comparison import compare
from simcollectives.training.step import IssuedCollective
from simcollectives.training.timeline import StepTimeline
from simcollectives.units import format_bytes

MAX_DRAWN = 4
"""So many rows are drawn, stream by stream, where no timeline is asked for."""

MIN_ADVISED = 3
"""Values of an option from which on a sweep has a best value with others on its sides."""

MAX_KEPT_SPANS = 2_000_000
"""So many operations of all steps are kept, about 500 MB; the others are kept without their timelines."""


@dataclass
class _Collected:
    rows: list[Row] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    steps: list[PlayedStep] = field(default_factory=list)
    drawn: list[PlayedStep] = field(default_factory=list)
    measured: list[MeasuredStepComparison] = field(default_factory=list)
    advice: list[SweepAdvice] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    spans: int = 0

    def keep(self, played: PlayedStep) -> None:
        """Keep the step of a row, without its timeline once too many operations are kept."""
        self.spans += len(played.step.timeline.spans)
        if self.spans > MAX_KEPT_SPANS:
            bare = replace(played.step, timeline=StepTimeline((), played.step.timeline.memory))
            played = replace(played, step=bare)
        self.steps.append(played)


def run_training(
    scenario: TrainingScenario, progress: Progress | None = None, announce: Callable[[StepPlan], None] | None = None
) -> ScenarioResult:
    """Run everything that a training scenario asks for. An interrupt (Ctrl-C) keeps what is finished.

    ``announce`` is called with what all steps cost, before they are simulated.

    Raises:
        ScheduleError: a bug in a strategy.
    """
    evaluator = TrainingEvaluator(scenario)
    collected = _Collected()
    interrupted = False
    try:
        tally = None
        if progress is not None or announce is not None:
            plan = plan_steps(scenario, evaluator)
            if announce is not None:
                announce(plan)
            tally = None if progress is None else Tally(plan.costs, progress)
        _collect(evaluator, collected, lambda: None if tally is None else tally.finish_item())
    except KeyboardInterrupt:
        interrupted = True
    except InputError as error:
        collected.problems += error.problems
    told = [*_too_large(collected.rows), *(text for one in scenario.measured for text in one.told)]
    unused = () if interrupted or collected.problems else evaluator.unused_choices
    return ScenarioResult(
        scenario=scenario,
        rows=tuple(collected.rows),
        checks=tuple(collected.checks),
        warnings=tuple(dict.fromkeys([*scenario.training.notes, *evaluator.warnings, *unused, *told])),
        notes=(*filter(None, [scenario.cluster.note]), *evaluator.reasons),
        interrupted=interrupted,
        problems=tuple(dict.fromkeys(collected.problems)),
        steps=tuple(collected.steps),
        drawn=tuple(collected.drawn),
        measured_steps=tuple(collected.measured),
        advice=tuple(collected.advice),
        comparisons=_comparisons(collected.steps) if scenario.compares else (),
    )


def _too_large(rows: Sequence[Row]) -> list[str]:
    """Say which steps do not fit, in one line where there are several."""
    over = [row for row in rows if row["fits"] is False]
    if not over:
        return []
    most = max(over, key=lambda row: row["peak_bytes"] - row["device_memory_bytes"])
    point = without_options(most["point"])
    where = f" at {point_text(point)}" if point else ""
    peak, capacity = most["peak_bytes"], most["device_memory_bytes"]
    more = f"{format_bytes(peak - capacity)} more than the device's {format_bytes(capacity)}"
    what = f"{format_bytes(peak)} at the peak, {more}"
    if len(over) == 1:
        return [f"{most['label']}{where} does not fit: {what}"]
    return [f"{len(over)} of {len(rows)} steps do not fit; {most['label']}{where} has the most: {what}"]


def _collect(evaluator: TrainingEvaluator, collected: _Collected, finish_item: Callable[[], None]) -> None:
    scenario = evaluator.scenario
    runs = planned_runs(scenario.sweeps, scenario.entries)
    for entry, point in runs:
        try:
            row, step = evaluator.row(entry, point)
            collected.rows.append({key: row[key] for key in TRAINING_ROW_KEYS})
            collected.keep(PlayedStep(entry.label, row["label"], point, step))
        except InputError as error:
            collected.problems += error.problems
        finish_item()
    if collected.problems:
        return
    for settings in scenario.measured:
        collected.measured.append(_beside(evaluator, settings))
        finish_item()
    for expectation in scenario.expectations:
        collected.checks.append(check_expectation(evaluator, expectation, collected.measured))
        finish_item()
    if len(runs) <= MAX_DRAWN and not scenario.timelines:
        collected.drawn += collected.steps
    for selector in scenario.timelines:
        step = evaluator.step(selector.entry, selector.point)
        collected.drawn.append(PlayedStep(selector.entry.label, evaluator.label(selector), selector.point, step))
        finish_item()
    collected.advice += _advice(scenario, collected)


def _beside(evaluator: TrainingEvaluator, settings: StepMeasurement) -> MeasuredStepComparison:
    """Lay a measured step beside the simulated one."""
    values = evaluator.values(settings.entry, settings.point)
    issued = [IssuedCollective(**one) for one in values["collectives"]]
    return MeasuredStepComparison(
        values["label"],
        settings.point,
        settings.name,
        settings.values,
        {name: values[name] for name in settings.values},
        values["world_size"],
        values["step_seconds"],
        {name: values[name] for name in PARTS},
        settings.step,
        () if settings.step is None else match_collectives(settings.step.collectives, issued),
    )


def _comparisons(steps: Sequence[PlayedStep]) -> tuple[PointComparison, ...]:
    """Compare the steps that are at one point, whatever the options of their strategies."""
    points: dict[frozenset[tuple[str, Any]], list[PlayedStep]] = {}
    for one in steps:
        points.setdefault(frozenset(without_options(one.point).items()), []).append(one)
    found = []
    for some in points.values():
        labelled = tuple((one.label, one.step) for one in some)
        found.append(PointComparison(without_options(some[0].point), labelled, compare(labelled)))
    return tuple(found)


def _advice(scenario: TrainingScenario, collected: _Collected) -> list[SweepAdvice]:
    """Return what the sweep of one option of a strategy says, if that is what was swept."""
    varied = [] if len(scenario.sweeps) != 1 else [one for one in scenario.sweeps[0].values.items() if len(one[1]) > 1]
    if collected.spans > MAX_KEPT_SPANS or len(varied) != 1:
        return []
    key, values = varied[0]
    found = []
    for entry in scenario.entries:
        if len(values) < MIN_ADVISED or not (is_option(key) and is_free(key, entry)):
            continue
        steps = [(one.point[key], one.step) for one in collected.steps if one.entry == entry.label]
        found.append(SweepAdvice(entry.label, key, advise(steps)))
    return found
