"""The section ``measured:`` of a training scenario: steps of traces, or numbers, each at a point of its own."""

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from simcollectives.errors import InputError, listing, show_value, suggestion
from simcollectives.measured.logs import MeasuredStep, ReadLog, read_log
from simcollectives.measured.step_comparison import chosen_step, step_values
from simcollectives.scenario.build import build_cluster
from simcollectives.scenario.context import Context
from simcollectives.scenario.load_measured import load_each
from simcollectives.scenario.places import Path
from simcollectives.scenario.training.keys import MEASURED_METRICS
from simcollectives.scenario.training.naming import TrainingNamer
from simcollectives.scenario.training.schema import StepMeasuredModel
from simcollectives.scenario.training.types import StepMeasurement
from simcollectives.scenario.types import Selector
from simcollectives.units import format_seconds

_EXAMPLE = "{strategy: ddp, step_seconds: 112 ms} or {strategy: ddp, file: trace.json.gz}"
_POSITIVE = ("step_seconds", "peak_bytes", "tokens_per_second")
_ROUNDING = 0.02
"""Numbers written by hand are rounded: so much of the step their sum may be off."""

_Logs = dict[str, ReadLog | None]


def load_measured_steps(
    context: Context, value: Any, namer: TrainingNamer | None
) -> tuple[StepMeasurement, ...] | None:
    """Return what was measured; None after noting a problem."""
    logs: _Logs = {}
    return load_each(context, value, lambda path, raw: _load(context, path, raw, namer, logs), _EXAMPLE, _sameness)


def _sameness(one: StepMeasurement) -> object:
    return one.entry.label, one.point, one.values


def _load(
    context: Context, path: Path, value: dict[str, Any], namer: TrainingNamer | None, logs: _Logs
) -> StepMeasurement | None:
    before = len(context.problems)
    model = context.validate(path, value, StepMeasuredModel)
    if model is None:
        return None
    given = {name: getattr(model, name) for name in MEASURED_METRICS if getattr(model, name) is not None}
    step = _of_trace(context, path, model, logs) if "file" in value else None
    if "file" in value and given:
        context.add(path, f"a trace says {', '.join(given)} itself; leave file: out, or the numbers")
    own = set(StepMeasuredModel.model_fields)
    selector = None if namer is None else namer.selector(path, model.strategy, value, own, {})
    if "file" not in value:
        _check_numbers(context, path, value, given, silent=len(context.problems) > before)
    if selector is None or namer is None or len(context.problems) > before:
        return None
    if step is not None:
        _check_ranks(context, path, step, namer, selector)
    if len(context.problems) > before:
        return None
    name = model.source or (f"{model.file}, {step.name}" if step is not None else "given numbers")
    told = _told(str(model.file), logs[str(model.file)]) if step is not None else ()
    values = given if step is None else step_values(step)
    return StepMeasurement(selector.entry, selector.point, name, values, step, told, context.document.line(path))


def _check_numbers(
    context: Context, path: Path, value: Mapping[str, Any], given: Mapping[str, float], *, silent: bool
) -> None:
    """Note numbers that cannot be those of one step; ``silent`` where a number may be misspelt."""
    if "step" in value:
        context.add((*path, "step"), "a step is one of a trace; name it by file: trace.json.gz, or leave step: out")
    if not given and not silent:
        rule = f"nothing is measured here; write one of {listing(list(MEASURED_METRICS))}"
        context.add(path, f"{rule}, or a trace: file: trace.json.gz")
    for name in _POSITIVE:
        if given.get(name) == 0:
            context.add((*path, name), "0 leaves no relative error; write what was measured, or leave it out")
    whole = given.get("step_seconds", 0)
    for name, most in (("compute", whole), ("exposed", given.get("communication_seconds", 0)), ("exposed", whole)):
        part = given.get(f"{name}_seconds", 0)
        if 0 < most * (1 + _ROUNDING) < part:
            rule = f"{format_seconds(part)} are more than the {format_seconds(most)} that they are a part of"
            context.add((*path, f"{name}_seconds"), f"{rule}; step = compute + exposed + idle")
            return
    parts = [given.get(f"{name}_seconds") for name in ("compute", "exposed", "idle")]
    known = [part for part in parts if part is not None]
    if len(known) == len(parts) and whole and abs(sum(known) - whole) > _ROUNDING * whole:
        words = " + ".join(map(format_seconds, known))
        rule = f"compute + exposed + idle are {words} = {format_seconds(sum(known))}, the step {format_seconds(whole)}"
        context.add(
            (*path, "step_seconds"), f"{rule}; they must be the same: leave idle_seconds out if it is not known"
        )


def _of_trace(context: Context, path: Path, model: StepMeasuredModel, logs: _Logs) -> MeasuredStep | None:
    """Return the step of a trace that is meant, or note why there is none."""
    here = (*path, "file")
    if model.file is None or context.is_unusable(here):
        return None
    if model.file not in logs:
        try:
            logs[model.file] = read_log(FilePath(context.document.source).parent / model.file)
        except InputError as error:
            logs[model.file] = None
            context.add_file_error(here, model.file, error)
    log = logs[model.file]
    if log is None:
        context.unusable.add(here)
        return None
    if not log.steps:
        remedy = "a step comes from a trace of PyTorch's profiler; for sweeps write a scenario with collective:"
        context.add(here, f"{show_value(model.file)[1:-1]} is a {log.format} and has no steps; {remedy}")
        return None
    found = chosen_step(log.steps, model.step)
    if found is None:
        names = [step.name for step in log.steps]
        context.add((*path, "step"), f"no step {show_value(model.step)} in the trace; {suggestion(model.step, names)}")
    elif found.step_seconds <= 0:
        context.add(here, f"{found.name} takes no time; name another by step:")
    return found


def _check_ranks(context: Context, path: Path, step: MeasuredStep, namer: TrainingNamer, selector: Selector) -> None:
    """Note a trace of another number of ranks than are simulated there."""
    if namer.cluster is None:
        return
    simulated = build_cluster(namer.cluster, selector.point).world_size
    most = max((one.group_size or 0 for one in step.collectives), default=0)
    if step.world_size not in (None, simulated) or most > simulated:
        ran = f"the trace is of {max(step.world_size or 0, most)} ranks, the cluster has {simulated} there"
        context.add((*path, "file"), f"{ran}; write the point of the trace, such as nodes: 4, or change the cluster")


def _told(file: str, log: ReadLog | None) -> tuple[str, ...]:
    """What reading the trace had to say."""
    return () if log is None else tuple(f"{file}: {text}" for text in (*log.warnings, *map(str, log.skipped)))
