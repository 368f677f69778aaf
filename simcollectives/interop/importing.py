"""Configs of other tools, and what a person gives beside them, as one scenario of a training step."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simcollectives.errors import InputError, Problem
from simcollectives.interop.accelerate import (
    DEFAULT,
    Launch,
    inline_deepspeed,
    read_data_parallel,
    read_fsdp,
    read_launch,
)
from simcollectives.interop.config_files import NAMES, ConfigFile, Kind, read_config
from simcollectives.interop.deepspeed import read_deepspeed
from simcollectives.interop.deepspeed_auto import Surroundings
from simcollectives.interop.importing_given import Given, note_given, read_model_given
from simcollectives.interop.importing_ranks import Ranks, note_peak, read_ranks
from simcollectives.interop.scenario_text import scenario_text
from simcollectives.interop.settings import Findings, Setting, Unmodelled
from simcollectives.training.model import Model

Files = dict[Kind, ConfigFile]


@dataclass(frozen=True)
class Imported:
    """What was read. ``text`` is the scenario; None where ``lacking`` says what is not known for one."""

    settings: tuple[Setting, ...]
    unmodelled: tuple[Unmodelled, ...]
    warnings: tuple[str, ...]
    text: str | None
    lacking: str = ""


def import_files(
    paths: Sequence[str | os.PathLike[str]], given: Given, folder: str | os.PathLike[str] = "."
) -> Imported:
    """Read configs, one of a kind at most, into a scenario that will stand in ``folder``.

    Raises:
        InputError: whatever is wrong with the files, or with what is given beside them; all at once.
    """
    command = Findings("")
    files = _read_all(paths, command)
    model = read_model_given(given, files.get("model"), Path(folder), command)
    launched = Findings(files["accelerate"].path if "accelerate" in files else "")
    launch = read_launch(files["accelerate"].data, launched, given.dtype) if "accelerate" in files else None
    ranks = read_ranks(given, launch, launched.file, command)
    strategy = _read_strategy(files, launch, launched, _surroundings(given, model, ranks), command)
    found = [command, launched, *strategy]
    known = [one for findings in found for one in findings.settings]
    note_given(given, model, known, command)
    for dtype in (str(one.value) for one in known if one.path == ("training", "dtype")):
        note_peak(given, dtype, command)
    if problems := [problem for findings in found for problem in findings.problems]:
        raise InputError(problems)
    return _finish(files, given, model, found)


def _read_all(paths: Sequence[str | os.PathLike[str]], command: Findings) -> Files:
    files: Files = {}
    for path in paths:
        read = _read_one(path, command)
        if read is None:
            continue
        if read.kind in files:
            rule = f"this is {NAMES[read.kind]}, and so is {files[read.kind].path}; give one of them"
            command.problems.append(Problem(read.path, rule))
        files.setdefault(read.kind, read)
    if not files.keys() & {"accelerate", "deepspeed"} and not command.problems:
        rule = "no file says how the model is trained; give a ds_config.json, or the YAML of accelerate"
        command.problems.append(Problem("FILE", rule))
    return files


def _read_one(path: str | os.PathLike[str], command: Findings, kind: Kind | None = None) -> ConfigFile | None:
    try:
        read = read_config(path, kind)
    except InputError as error:
        command.unreadable(os.fspath(path), error)
        return None
    command.warnings += read.warnings
    return read


def _surroundings(given: Given, model: Model | None, ranks: Ranks | None) -> Surroundings:
    return Surroundings(
        integration=given.auto,
        world_size=None if ranks is None else ranks.world_size,
        hidden=None if model is None or model.shape is None else model.shape.hidden,
        micro_batch=given.micro_batch,
        accumulation=given.accumulation,
        dtype=given.dtype,
    )


def _read_strategy(
    files: Files, launch: Launch | None, launched: Findings, around: Surroundings, command: Findings
) -> list[Findings]:
    """Read how the model is trained; return what is found in a file of DeepSpeed, if there is one."""
    given = files.get("deepspeed")
    if launch is None:
        return [] if given is None else [_read_deepspeed(given, around)]
    accelerate = files["accelerate"]
    if around.integration != "hugging_face":
        rule = f'{accelerate.path} is accelerate\'s, which resolves "auto" as Hugging Face does; leave --auto out'
        command.problems.append(Problem("--auto", rule))
    if launch.kind != "DEEPSPEED":
        if given is not None:
            rule = f"{accelerate.path} does not train with DeepSpeed (distributed_type); give one of the two files"
            command.problems.append(Problem(given.path, rule))
        elif launch.kind == "FSDP":
            read_fsdp(accelerate.data, launch, around.accumulation or 1, launched)
        else:
            read_data_parallel(launch, launched)
        return []
    made, name = inline_deepspeed(accelerate.data, launch, launched)
    if made is not None:
        if given is not None:
            rule = f"{accelerate.path} has no deepspeed_config_file, and accelerate reads no other; name it there"
            command.problems.append(Problem(given.path, rule))
        read_deepspeed(made, around, launched)
        return []
    file = given or _read_one(_beside(str(name), accelerate.path), command, "deepspeed")
    return [] if file is None else [_read_deepspeed(file, around, _completed(file, command))]


def _beside(name: str, path: str) -> Path:
    """Where a file is that a config names: from here, as accelerate looks for it, or from the config's folder."""
    return Path(name) if Path(name).is_file() else Path(path).parent / name


def _completed(file: ConfigFile, command: Findings) -> ConfigFile:
    """Return what accelerate makes of a file of DeepSpeed before it is used."""
    if "zero_optimization" not in file.data:
        rule = "this key is missing, and accelerate needs it; add zero_optimization, with a stage"
        command.problems.append(Problem(f"{file.path}: $.zero_optimization", rule))
    return replace(file, data={"gradient_accumulation_steps": 1, **file.data})


def _read_deepspeed(file: ConfigFile, around: Surroundings, completed: ConfigFile | None = None) -> Findings:
    found = Findings(file.path)
    if completed is not None:
        found.origins = {key: DEFAULT for key in completed.data if key not in file.data}
    read_deepspeed((completed or file).data, around, found)
    return found


def _finish(files: Files, given: Given, model: Model | None, found: list[Findings]) -> Imported:
    settings = tuple(setting for findings in found for setting in findings.settings)
    unmodelled = tuple(one for findings in found for one in findings.unmodelled)
    warnings = tuple(dict.fromkeys(text for findings in found for text in findings.warnings))
    options = {"--cluster": given.cluster is None, "--model": model is None}
    lacking = " and ".join(name for name, absent in options.items() if absent)
    if lacking:
        return Imported(settings, unmodelled, warnings, None, f"a scenario needs {lacking}, too")
    names = ", ".join(Path(file.path).name for file in files.values() if file.kind != "model")
    title = Setting(
        "title", f"{'' if model is None else model.name} as {names} has it", "simcollectives import", ("title",)
    )
    head = [f"made by simcollectives import from {names}", *warnings]
    return Imported(settings, unmodelled, warnings, scenario_text((title, *settings), unmodelled, head))
