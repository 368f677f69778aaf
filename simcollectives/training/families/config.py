"""Reading a model's config: fields with the names and defaults of transformers, all problems at once.

A family declares its config as a frozen dataclass: a field's type is its kind, its default that of transformers 5.
"""

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from simcollectives.errors import Problem, nearest, show_value

MOST = (1 << 31) - 1
MOST_LAYERS = 10_000


@dataclass(frozen=True, kw_only=True)
class Config:
    """What decides about the tensors of a model."""

    def problems(self) -> list[tuple[str, str]]:
        """Return what does not fit together: fields, each with its message."""
        return []

    def warnings(self) -> list[str]:
        """Return what the model leaves out."""
        return []


C = TypeVar("C", bound=Config)


def size(default: Any, *aliases: str, most: int = MOST) -> Any:
    """Return a field that a whole file must give. ``default`` holds in a nested part, which leaves out defaults."""
    return field(default=default, metadata={"must": True, "aliases": aliases, "most": most})


def option(default: Any, *aliases: str, follows: str = "") -> Any:
    """Return a field that may be left out, which has other names too, or ``follows`` from others by a property."""
    return field(default=default, metadata={"aliases": aliases, "follows": follows})


@dataclass(frozen=True)
class Reading(typing.Generic[C]):
    """A config, or None where there are problems; ``assumed`` are the fields left out, with what stands for them."""

    config: C | None
    assumed: tuple[tuple[str, object], ...]
    problems: tuple[Problem, ...]


def read_fields(kind: type[C], data: Mapping[str, Any], place: str = "$", *, whole: bool = True) -> Reading[C]:
    """Read the fields of a config; keys that are not among them are of no consequence here.

    ``whole``: sizes must be given. Otherwise the data are a nested part, which leaves out what equals the default.
    """
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    assumed: list[Field[Any]] = []
    problems: list[Problem] = []
    for spec in fields(kind):
        key = next((key for key in (spec.name, *spec.metadata.get("aliases", ())) if key in data), None)
        if key is None and whole and spec.metadata.get("must"):
            problems.append(Problem(f"{place}.{spec.name}", _missing(spec, data)))
        elif key is None:
            assumed.append(spec)
        elif (message := _wrong(hints[spec.name], data[key], spec)) is not None:
            problems.append(Problem(f"{place}.{key}", message))
        else:
            values[spec.name] = tuple(data[key]) if isinstance(data[key], list) else data[key]
    if problems:
        return Reading(None, (), tuple(problems))
    config = kind(**values)
    found = tuple(Problem(f"{place}.{name}", message) for name, message in config.problems())
    known = [(spec.name, getattr(config, spec.metadata.get("follows") or spec.name)) for spec in assumed]
    return Reading(None if found else config, tuple(known), found)


def _missing(spec: Field[Any], data: Mapping[str, Any]) -> str:
    near = nearest(spec.name, data, 0.8)
    hint = "" if near is None else f"is it {show_value(near)}, misspelled? "
    return f"this field is missing; {hint}add it, such as {show_value(spec.name)}: {_example(spec.default)}"


def _example(value: object) -> str:
    return show_value(list(value)) if isinstance(value, tuple) else show_value(value)


def _wrong(hint: Any, value: Any, spec: Field[Any]) -> str | None:
    """Return what is wrong with a value of this type, or None."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and types.NoneType in kinds:
        return None
    base = next(kind for kind in kinds if kind is not types.NoneType)
    check, rule = _CHECKS[typing.get_origin(base) or base]
    most = spec.metadata.get("most", MOST)
    if check(value, most):
        return None
    shown = repr(value) if isinstance(value, float) else show_value(value)
    example = _example(1 if spec.default is None else spec.default)
    return f"{shown} is not {rule.format(most=most)}; write for instance {example}"


def _is_whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _is_probability(value: Any, most: int) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value <= 1


_CHECKS: dict[Any, tuple[Callable[[Any, int], bool], str]] = {
    int: (_is_whole, "a whole number from 1 to {most}"),
    float: (_is_probability, "a number from 0 to 1"),
    bool: (lambda value, most: isinstance(value, bool), "true or false"),
    str: (lambda value, most: isinstance(value, str), "a text"),
    tuple: (
        lambda value, most: isinstance(value, list | tuple) and bool(value) and all(_is_whole(v, most) for v in value),
        "a list of whole numbers from 1 to {most}",
    ),
}
