"""The section ``training:``, checked against models, strategies and algorithms."""

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from simcollectives.algorithms import find_algorithm, resolve_options
from simcollectives.engines import DTYPES
from simcollectives.errors import InputError, Problem, nearest
from simcollectives.interop.huggingface import read_model
from simcollectives.metrics import COLLECTIVES
from simcollectives.scenario.context import Context, unknown_key
from simcollectives.scenario.load_collective import listed_once, readable
from simcollectives.scenario.places import Path, place_text
from simcollectives.scenario.schema_values import Reference
from simcollectives.scenario.training.naming import written_options
from simcollectives.scenario.training.schema import (
    ALL,
    MAX_PARAMETERS,
    Compared,
    ConfigModel,
    OptimizerModel,
    TensorModel,
    TrainingModel,
    UniformModel,
    read_strategy,
)
from simcollectives.scenario.training.types import TrainingSettings
from simcollectives.scenario.types import AlgorithmEntry
from simcollectives.training.catalogue import load_model
from simcollectives.training.comparison import COMPARED
from simcollectives.training.families import BuiltModel
from simcollectives.training.model import Model, Parameter
from simcollectives.training.plain import tensor_model, uniform_model
from simcollectives.training.pricing import Choice
from simcollectives.training.setup import OPTIMIZERS, Optimizer, Precision
from simcollectives.training.strategies.table import find_strategy, label_of

PATH: Path = ("training",)


def load_training(context: Context, value: Any, compared: Any = None) -> TrainingSettings | None:
    """Return the settings of a training step, without strategies that do not exist; None where nothing is left.

    ``compared`` is what the section ``compare:`` says, None where there is none.
    """
    parsed = context.validate(PATH, value, TrainingModel)
    entries = _entries(context, value, compared) if isinstance(value, dict) else []
    if parsed is None:
        return None
    model, notes = _model(context, parsed.model)
    if model is not None and model.elements > MAX_PARAMETERS:
        context.add((*PATH, "model"), f"{model.elements:.6g} parameters; a model has at most {MAX_PARAMETERS:.0e}")
        model = None
    choices = _choices(context, parsed.collectives or {})
    precision = _precision(parsed)
    if ("mfu" in value or is_swept(context, "mfu")) == ("layer_seconds" in value):
        context.add(PATH, "compute takes its time from mfu, or from layer_seconds; write one of them, such as mfu: 45%")
    if "seed" in value and parsed.jitter is None:
        remedy = "write jitter: {lognormal: 1%}, or leave seed out"
        context.add((*PATH, "seed"), f"nothing is random, so that every seed gives the same step; {remedy}")
    layers = {} if model is None else _layer_seconds(context, parsed, model)
    if model is None or not entries:
        return None
    return TrainingSettings(
        model=model,
        strategies=tuple(entries),
        sequence=1 if parsed.sequence is None and not model.has_sequence else parsed.sequence,
        micro_batch=parsed.micro_batch,
        accumulation=parsed.accumulation,
        train_batch=parsed.train_batch,
        precision=precision,
        optimizer=_optimizer(parsed.optimizer, precision),
        mfu=parsed.mfu,
        layer_seconds=layers,
        recomputation=parsed.recomputation,
        attention_kernel=parsed.attention_kernel,
        attention_flops=parsed.attention_flops,
        iteration=parsed.step,
        slow=parsed.slow or {},
        jitter=parsed.jitter,
        seed=parsed.seed,
        choices=choices,
        notes=notes,
    )


def is_swept(context: Context, key: str) -> bool:
    """Whether every sweep gives a key values, as far as one can tell before they are read."""
    written = context.document.data.get("sweep")
    sweeps = written if isinstance(written, list) else [written]
    return all(isinstance(sweep, dict) and key in sweep for sweep in sweeps)


def _model(context: Context, written: Any) -> tuple[Model | None, tuple[str, ...]]:
    path: Path = (*PATH, "model", "config") if isinstance(written, ConfigModel) else (*PATH, "model")
    try:
        if isinstance(written, UniformModel):
            return uniform_model(written.parameters, written.layers, written.tensors_per_layer), ()
        if isinstance(written, TensorModel):
            return tensor_model("tensors", [Parameter(name, tuple(s)) for name, s in written.tensors.items()]), ()
        if isinstance(written, ConfigModel):
            name = FilePath(written.config).name or written.config
            built = _read_config(FilePath(context.document.source).parent / written.config, name)
            assumed = ", ".join(f"{field} {value}" for field, value in built.assumed)
            notes = (f"{name} leaves out {assumed}: the defaults of transformers are taken",) if assumed else ()
            return built.model, (*built.warnings, *notes)
        return load_model(written), ()
    except InputError as error:
        for problem in error.problems:
            context.add(path, f"{problem.place}: {problem.message}" if problem.place else problem.message)
    return None, ()


def _read_config(file: FilePath, name: str) -> BuiltModel:
    """Read a config.json; its problems say which field they are about."""
    try:
        return read_model(file)
    except InputError as error:
        raise InputError([_named(problem, name) for problem in error.problems]) from None


def _named(problem: Problem, file: str) -> Problem:
    field = problem.place.removeprefix("$").removeprefix(".")
    line = f" (line {problem.line})" if problem.line else ""
    return Problem("", f"{field} in {file}{line}: {problem.message}" if field else f"{file}{line}: {problem.message}")


def _entries(context: Context, value: Mapping[str, Any], compared: Any) -> list[AlgorithmEntry]:
    """Return the strategies that exist; of a list with other things in it, too."""
    written = [key for key in ("strategy", "strategies") if key in value]
    if compared is not None:
        for key in written:
            context.add((*PATH, key), "compare: names the strategies already; leave one of them out")
        context.validate_type(("compare",), compared, Compared)
        return _listed(context, ("compare",), list(COMPARED) if compared == ALL else compared)
    if len(written) != 1:
        what = "strategy and strategies cannot stand together" if written else "no strategy is named"
        if written or not any(nearest(key, ("strategy", "strategies")) for key in value):
            context.add(PATH, f"{what}; write strategy: ddp, or strategies: [ddp, all_reduce_once]")
        return []
    named = value[written[0]]
    if written[0] == "strategies":
        return _listed(context, (*PATH, "strategies"), named)
    paths: dict[Path, Reference] = {(*PATH, "strategy"): one for one in readable([named], read_strategy).values()}
    return listed_once(context, paths, lambda path, reference: _entry(context, path, reference))


def _listed(context: Context, path: Path, named: Any) -> list[AlgorithmEntry]:
    found = readable(named if isinstance(named, list) else [], read_strategy)
    paths = {(*path, index): one for index, one in found.items()}
    return listed_once(context, paths, lambda path, reference: _entry(context, path, reference))


def _entry(context: Context, path: Path, reference: Reference) -> AlgorithmEntry | None:
    try:
        strategy = find_strategy(reference.name)
    except InputError as error:
        context.add_error(path, error)
        return None
    try:
        options = written_options(reference.name, reference.options)
    except InputError as error:
        for problem in error.problems:
            context.add((*path, reference.name, problem.place), problem.message)
        return None
    given = {name: options[name] for name in reference.options}
    return AlgorithmEntry(
        reference.name, given, label_of(strategy, options), place_text(path), context.document.line(path)
    )


def _choices(context: Context, written: Mapping[str, Reference]) -> dict[str, Choice]:
    choices: dict[str, Choice] = {}
    for collective, reference in written.items():
        path = (*PATH, "collectives", collective)
        if collective not in COLLECTIVES:
            context.add(path, unknown_key(collective, list(COLLECTIVES)), unusable=True)
            continue
        try:
            algorithm = find_algorithm(collective, reference.name)
            choices[collective] = reference.name, resolve_options(algorithm, reference.options)
        except InputError as error:
            context.add_error(path, error)
    return choices


def _precision(parsed: TrainingModel) -> Precision:
    parameters = parsed.parameters or parsed.dtype
    return Precision(parsed.dtype, parameters, parsed.gradients or parameters)


def _optimizer(written: OptimizerModel, precision: Precision) -> Optimizer:
    master = DTYPES[precision.parameters] < 4 if written.master is None else written.master
    return Optimizer(written.name, OPTIMIZERS[written.name], master, written.gradient_copy)


def _layer_seconds(context: Context, parsed: TrainingModel, model: Model) -> dict[str, tuple[float, float]]:
    """Return the measured seconds of every layer; a problem for each that is unknown or left out."""
    if parsed.layer_seconds is None:
        return {}
    path = (*PATH, "layer_seconds")
    names = [layer.name for layer in model.layers]
    for name in parsed.layer_seconds:
        if name != "block" and name not in names:
            context.add((*path, name), unknown_key(name, ["block", *names]))
    found = {}
    lacking = []
    for layer in model.layers:
        measured = parsed.layer_seconds.get(layer.name, parsed.layer_seconds.get("block") if layer.block else None)
        if measured is None:
            lacking.append(layer.name)
        else:
            found[layer.name] = measured.forward, measured.backward
    if lacking:
        rule = f"{', '.join(lacking[:4])}{' ...' if len(lacking) > 4 else ''} have no time"
        context.add(path, f"{rule}; write {{forward: 0 s, backward: 0 s}} where a layer takes none")
    return found
