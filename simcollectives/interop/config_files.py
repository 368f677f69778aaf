"""Which tool's config a file is, and what is in it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from simcollectives.errors import InputError, Problem, listing
from simcollectives.interop import accelerate_keys, deepspeed_keys
from simcollectives.interop.json_files import parse_object, read_text, without_comments
from simcollectives.interop.yaml_files import parse_mapping

Kind = Literal["accelerate", "deepspeed", "model"]

NAMES: Mapping[Kind, str] = {
    "accelerate": "an accelerate config",
    "deepspeed": "a DeepSpeed config",
    "model": "a Hugging Face config.json",
}
_ACCELERATE = ("distributed_type", "compute_environment", "fsdp_config", "deepspeed_config", "num_processes")
_MODEL = ("model_type", "architectures")
_MOST_SHOWN = 8


@dataclass(frozen=True)
class ConfigFile:
    """A file, its kind and its content."""

    path: str
    kind: Kind
    data: dict[str, Any]
    warnings: tuple[str, ...] = ()


def read_config(path: str | os.PathLike[str], kind: Kind | None = None) -> ConfigFile:
    """Read a file: JSON, with comments and trailing commas at most, or YAML; ``kind`` if it is known.

    Raises:
        InputError: it cannot be read, or is the config of none of the tools.
    """
    name = os.fspath(path)
    text = read_text(path)
    warnings: tuple[str, ...] = ()
    if Path(path).suffix in (".yaml", ".yml") or not text.lstrip().startswith(("{", "/", "#")):
        data = parse_mapping(text, name)
    else:
        text, taken = without_comments(text)
        data = parse_object(text, name)
        warnings = _taken_out(name, taken)
    return ConfigFile(name, kind or _kind(data, name), data, warnings)


def _taken_out(name: str, taken: tuple[str, ...]) -> tuple[str, ...]:
    if not taken:
        return ()
    rule = "DeepSpeed itself reads that, Hugging Face refuses it"
    return (f"{name} is no plain JSON ({listing(taken, _MOST_SHOWN)}): {rule}",)


def _kind(data: Mapping[str, Any], name: str) -> Kind:
    if any(key in data for key in _ACCELERATE):
        return "accelerate"
    if any(key in data for key in _MODEL):
        return "model"
    known = {*deepspeed_keys.TOP, "bfloat16"}
    if any(key in known for key in data):
        return "deepspeed"
    if "cluster" in data and ("training" in data or "collective" in data):
        raise InputError("this is a scenario already; simcollectives run runs it", name)
    expected = f"{accelerate_keys.TOP[1]} as accelerate's, zero_optimization as DeepSpeed's, or model_type as a model's"
    has = f"it has {listing(list(data), _MOST_SHOWN)}" if data else "it is empty"
    raise InputError([Problem("$", f"no config that is known here: {has}; a config has {expected}")], name)
