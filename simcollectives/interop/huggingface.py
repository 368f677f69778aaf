"""Hugging Face's config.json: which model it describes.

``model_type`` picks the family, ``architectures`` the heads. Fields that decide about no tensor are passed over. A
config of several models, such as of images and text, has a ``text_config``: the text model is taken, and a warning
names the rest. Fields that are left out get the defaults of transformers 5, and are listed; but the sizes of a whole
file must be there, since transformers always writes them. A nested part may lack them.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from simcollectives.errors import InputError, Problem, show_value, suggestion
from simcollectives.interop.json_files import read_object
from simcollectives.training.families import FAMILIES, BuiltModel, Family, build_model

NAMES = tuple(family.name for family in FAMILIES.values() if family.hugging_face)
"""The ``model_type`` of every family that can be read."""

_NESTED = "text_config"


def read_model(source: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None) -> BuiltModel:
    """Return the model that a config.json describes: a path to it, to its folder, or its content.

    ``name`` is the model's, by default that of the file, or of its folder where the file is config.json.

    Raises:
        InputError: the file is no config, its family or head is not known, or fields are missing or wrong: all at once.
    """
    if isinstance(source, Mapping):
        return _build(dict(source), name or "model")
    path = Path(source)
    if path.is_dir():
        if not (path / "config.json").exists():
            raise InputError("the folder has no config.json; name the file, or a folder that has one", str(path))
        path /= "config.json"
    data = read_object(path)
    try:
        return _build(data, name or _name_of(path.resolve()))
    except InputError as error:
        raise InputError(error.problems, str(path)) from None


def _name_of(path: Path) -> str:
    return (path.parent.name or "model") if path.stem == "config" else path.stem


def _build(data: dict[str, Any], name: str) -> BuiltModel:
    kind = data.get("model_type")
    nested = data.get(_NESTED)
    if kind in NAMES or not isinstance(nested, dict):
        return _one(data, name, "$", whole=True)
    inherited = {key: data[key] for key in ("tie_word_embeddings",) if key in data}
    built = _one({**inherited, **nested}, name, f"$.{_NESTED}", whole=False)
    others = [
        key for key, value in data.items() if isinstance(value, dict) and key.endswith("_config") and key != _NESTED
    ]
    left = (
        f"{_NESTED} of {show_value(kind)} is taken alone; left out: {', '.join(others) or 'what the other parts add'}"
    )
    return replace(built, warnings=(left, *built.warnings))


def _one(data: dict[str, Any], name: str, place: str, *, whole: bool) -> BuiltModel:
    family = _family(data, place)
    warnings = []
    if data.get("quantization_config") is not None:
        warnings.append("quantization_config is not applied: tensors have their shapes before quantization")
    given = data.get("architectures") or []
    problems = []
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        rule = f'{show_value(given)} is not a list of class names; write for instance ["{family.architectures[0]}"]'
        problems.append(Problem(f"{place}.architectures", rule))
        given = []
    if len(given) > 1:
        warnings.append(f"architectures: {given[0]} is taken, not {', '.join(given[1:])}")
    try:
        built = build_model(family, data, name, given[0] if given else None, place=place, whole=whole)
    except InputError as error:
        raise InputError([*problems, *error.problems]) from None
    if problems:
        raise InputError(problems)
    return replace(built, warnings=(*warnings, *built.warnings))


def _family(data: Mapping[str, Any], place: str) -> Family:
    kind = data.get("model_type")
    known = f"known: {', '.join(NAMES)}"
    if kind is None:
        raise InputError([Problem(f"{place}.model_type", f"this field is missing; add it; {known}")])
    if kind not in NAMES:
        rule = f"{show_value(kind)} is not a known family; {suggestion(kind, NAMES, whole=True)}"
        raise InputError([Problem(f"{place}.model_type", rule)])
    return FAMILIES[kind]
