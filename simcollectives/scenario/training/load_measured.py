"""The section ``measured:`` of a training scenario: steps of traces, or numbers, each at a point of its own."""

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from simcollectives.errors import InputError, counted, listing, show_value, suggestion
from simcollectives.measured.logs import MeasuredStep, ReadLog, read_log
from simcollectives.measured.step_comparison import chosen_step, step_values
from simcollectives.scenario.build import build_cluster
from simcollectives.scenario.context import Context
from simcollectives.scenario.load_measured import check_repeats, load_each
from simcollectives.scenario.places import Path
from simcollectives.scenario.training.build import settings_at, workload_of
from simcollectives.scenario.training.keys import MEASURED_METRICS
from simcollectives.scenario.training.measured_numbers import check_numbers
from simcollectives.scenario.training.naming import TrainingNamer
from simcollectives.scenario.training.schema import StepMeasuredModel
from simcollectives.scenario.training.types import StepMeasurement
from simcollectives.scenario.types import Selector
from simcollectives.units import format_seconds

_EXAMPLE = "{strategy: ddp, step_seconds: 112 ms} or {strategy: ddp, file: trace.json.gz}"
_RATE_ROUNDING = 0.1
"""A rate may be a mean over other steps than the one that was timed."""

_Logs = dict[str, ReadLog | None]


def load_measured_steps(
    context: Context, value: Any, namer: TrainingNamer | None
) -> tuple[StepMeasurement, ...] | None:
    """Return what was measured; None after noting a problem."""
    logs: _Logs = {}
    found = load_each(context, value, lambda path, raw: _load(context, path, raw, namer, logs), _EXAMPLE)
    if namer is not None:
        check_repeats(context, found or (), lambda one, other: _same(namer, one, other))
    return found


def _same(namer: TrainingNamer, one: StepMeasurement, other: StepMeasurement) -> bool:
    """Whether two are one measurement: a step of a trace, or the same numbers from the same source."""
    alike = (one.entry, one.values, one.step) == (other.entry, other.values, other.step)
    return alike and (one.step is not None or one.name == other.name) and namer.same_point(one.point, other.point)


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
        wrong = any(name in value for name in MEASURED_METRICS)
        _check_numbers(context, path, value, given, silent=wrong or len(context.problems) > before)
    if selector is None or namer is None or len(context.problems) > before:
        return None
    if step is not None:
        _check_ranks(context, path, step, namer, selector)
    _check_tokens(context, path, given, namer, selector)
    if len(context.problems) > before:
        return None
    name = model.source or (f"{model.file}, {step.name}" if step is not None else "given numbers")
    told = _told(str(model.file), logs[str(model.file)]) if step is not None else ()
    values = given if step is None else step_values(step)
    return StepMeasurement(selector.entry, selector.point, name, values, step, told, context.document.line(path))


def _check_numbers(
    context: Context, path: Path, value: Mapping[str, Any], given: Mapping[str, float], *, silent: bool
) -> None:
    """Note numbers that cannot be those of one step; ``silent`` where one is written, if wrongly."""
    if "step" in value:
        context.add((*path, "step"), "a step is one of a trace; name it by file: trace.json.gz, or leave step: out")
    if not given and not silent:
        rule = f"nothing is measured here; write one of {listing(list(MEASURED_METRICS))}"
        context.add(path, f"{rule}, or a trace: file: trace.json.gz")
    check_numbers(given, lambda name, message: context.add((*path, name), message))


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
    ranks = step.world_size
    if ranks in (None, simulated):
        ranks = max([simulated, *(one.group_size or 0 for one in step.collectives)])
    if ranks != simulated:
        ran = f"the trace is of {counted(ranks or 0, 'rank')}, the cluster has {simulated} there"
        context.add((*path, "file"), f"{ran}; write the point of the trace, such as nodes: 4, or change the cluster")


def _check_tokens(
    context: Context, path: Path, given: Mapping[str, float], namer: TrainingNamer, selector: Selector
) -> None:
    """Note a rate that is not that of the simulated step's tokens: it may be of one rank, or of other batches."""
    if namer.cluster is None or not {"step_seconds", "tokens_per_second"} <= given.keys():
        return
    settings = settings_at(namer.training, selector.point)
    ranks = build_cluster(namer.cluster, selector.point).world_size
    tokens = workload_of(settings).tokens * settings.accumulation * ranks
    seconds, rate = given["step_seconds"], given["tokens_per_second"]
    if abs(seconds * rate / tokens - 1) > _RATE_ROUNDING:
        rule = f"{rate:g} x {format_seconds(seconds)} are {seconds * rate:.4g} tokens, and a step of"
        remedy = "write the rate of all ranks and the batch that was measured, or leave one out"
        context.add((*path, "tokens_per_second"), f"{rule} {counted(ranks, 'rank')} has {tokens} there; {remedy}")


def _told(file: str, log: ReadLog | None) -> tuple[str, ...]:
    """What reading the trace had to say."""
    return () if log is None else tuple(f"{file}: {text}" for text in (*log.warnings, *map(str, log.skipped)))
