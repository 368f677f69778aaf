"""What a person gives beside the files: the model, its sequences, the batch, and how fast kernels are."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simcollectives.errors import InputError, Problem
from simcollectives.interop.config_files import ConfigFile
from simcollectives.interop.deepspeed_auto import TRAINER_MICRO_BATCH, Integration
from simcollectives.interop.huggingface import read_model
from simcollectives.interop.settings import Findings, Setting
from simcollectives.training.catalogue import load_model, model_names
from simcollectives.training.model import Model
from simcollectives.training.workload import Recomputation
from simcollectives.units import format_ratio

SEQUENCE, MFU = 2048, 0.4
"""What is assumed where nobody says it."""


@dataclass(frozen=True)
class Given:
    """What the command line says; None where it says nothing.

    ``mfu`` is the share of the ``peak`` that kernels reach, in FLOP/s; ``model`` a name or the path of a config.json.
    """

    cluster: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    model: str | None = None
    sequence: int | None = None
    micro_batch: int | None = None
    accumulation: int | None = None
    dtype: str | None = None
    mfu: float | None = None
    peak: float | None = None
    recomputation: Recomputation | None = None
    auto: Integration = "hugging_face"


def read_model_given(given: Given, file: ConfigFile | None, folder: Path, found: Findings) -> Model | None:
    """Note the model: by its name, or by the path of its config.json from ``folder``; None where nobody names one."""
    if file is not None:
        if given.model is not None:
            found.problems.append(Problem("--model", f"{file.path} is a model already; give one of them"))
        return _model_in(file.path, file.path, folder, found)
    if given.model is None:
        return None
    if given.model not in model_names() and (os.sep in given.model or Path(given.model).exists()):
        return _model_in(given.model, "--model", folder, found)
    try:
        model = load_model(given.model)
    except InputError as error:
        rule = f"{error.problems[0].message}; or give the path of a config.json"
        found.problems.append(Problem("--model", rule))
        return None
    found.settings.append(Setting("model", given.model, "--model", ("training", "model")))
    return model


def _model_in(path: str, origin: str, folder: Path, found: Findings) -> Model | None:
    try:
        built = read_model(path)
    except InputError as error:
        found.unreadable(path, error)
        return None
    found.warnings += built.warnings
    file = os.path.join(path, "config.json") if Path(path).is_dir() else path
    written = {"config": os.path.relpath(file, folder)}
    found.settings.append(Setting("model", written, origin, ("training", "model")))
    return built.model


def note_given(given: Given, model: Model | None, known: Sequence[Setting], found: Findings) -> None:
    """Note what no file says, as given or as assumed."""
    places = {one.path[1:] for one in known}
    if ("micro_batch",) not in places:
        _note(found, "micro_batch", given.micro_batch, TRAINER_MICRO_BATCH, "as TrainingArguments do")
    if ("accumulation",) not in places:
        _note(found, "accumulation", given.accumulation, 1, "as TrainingArguments do")
    longest = SEQUENCE if model is None or model.longest_sequence is None else min(SEQUENCE, model.longest_sequence)
    if model is not None and model.family == "resnet":
        longest = 1
    _note(found, "sequence", given.sequence, longest)
    _note(found, "mfu", None if given.mfu is None else format_ratio(given.mfu, None), format_ratio(MFU))
    if given.recomputation is not None and ("recomputation",) in places:
        rule = "the file has activation checkpointing; leave --recomputation out, or change the file"
        found.problems.append(Problem("--recomputation", rule))
    elif given.recomputation is not None:
        found.settings.append(
            Setting("recomputation", given.recomputation, "--recomputation", ("training", "recomputation"))
        )


def _note(found: Findings, name: str, value: Any, assumed: Any, why: str = "") -> None:
    option = f"--{name.replace('_', '-')}"
    origin = option if value is not None else f"assumed{', ' if why else ''}{why}; {option} gives another"
    if value is None:
        found.warnings.append(f"{name} {assumed} is assumed; {option} gives another")
    found.settings.append(Setting(name, assumed if value is None else value, origin, ("training", name)))
