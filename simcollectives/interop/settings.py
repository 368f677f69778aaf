"""What reading other tools' configs finds: values with their origins, what is not modelled, and what is wrong."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simcollectives.errors import InputError, Problem, show_value, suggestion

Check = Callable[[Any], Any]
"""Returns a value as it is meant; raises ValueError with a rule and a remedy where it cannot be."""

ScenarioPath = tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """One resolved value: its name in the tool's config, where it comes from, and its place in the scenario, if any."""

    name: str
    value: Any
    origin: str
    path: ScenarioPath = ()
    note: str = ""


@dataclass(frozen=True)
class Unmodelled:
    """A value that would change the step, and is not in the scenario."""

    name: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Key:
    """A key that a config may have.

    ``option`` is that of the strategies, where the value makes a difference: in these ZeRO ``stages``, or versions of
    FSDP. ``why`` says what a value other than the default changes that is not modelled; without either it changes no
    step. ``also`` are other names of the key. ``written`` are the values of the option, where they have other names.
    """

    name: str
    check: Check
    default: Any = None
    option: str = ""
    stages: tuple[int, ...] = ()
    why: str = ""
    also: tuple[str, ...] = ()
    written: Mapping[Any, Any] = field(default_factory=dict)


@dataclass
class Findings:
    """What is found in one file; ``origins`` of values that the file itself does not give, by their full name."""

    file: str
    origins: dict[str, str] = field(default_factory=dict)
    settings: list[Setting] = field(default_factory=list)
    unmodelled: list[Unmodelled] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, name: str, message: str) -> None:
        """Note a problem of the value with this full name."""
        problem = Problem(f"{self.file}: $.{name}" if name else self.file, message)
        if problem not in self.problems:
            self.problems.append(problem)

    def unreadable(self, path: str, error: InputError) -> None:
        """Note why another file cannot be read."""
        file = error.source or path
        self.problems += [replace(one, place=f"{file}: {one.place}" if one.place else file) for one in error.problems]

    def origin(self, name: str) -> str:
        """Return where the value with this full name comes from."""
        return self.origins.get(name, self.file)

    def section(self, data: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Return the object under a key, empty where there is none; a problem where it is another thing."""
        value = data.get(name.rpartition(".")[2])
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.wrong(name, f"{show_value(value)} is not an object; write {{...}}")
        return {}

    def check_keys(self, data: Mapping[str, Any], names: Sequence[str], prefix: str = "", *, free: str = "") -> None:
        """Note every key that is not known."""
        for key in data:
            if key not in names:
                rule = f"{free or 'this key'} is not known; {suggestion(key, names, 'keys here')}"
                self.wrong(f"{prefix}{key}", rule)

    def read(self, data: Mapping[str, Any], keys: Sequence[Key], prefix: str = "") -> dict[str, tuple[Any, str]]:
        """Return the value of every key with its origin, "" for a default; where one is wrong, its default."""
        found = {}
        for key in keys:
            given = [name for name in (key.name, *key.also) if name in data]
            left_out = (self.origins.get(f"{prefix}{name}") for name in (key.name, *key.also))
            found[key.name] = (key.default, next(filter(None, left_out), ""))
            if len(given) > 1:
                self.wrong(f"{prefix}{given[1]}", f"this is {given[0]} by another name; keep one of them")
            elif given and (data[given[0]] is not None or key.default is not None):
                name = f"{prefix}{given[0]}"
                try:
                    origin = self.origin(name)
                    named = f"{origin}: {given[0]}" if origin == self.file and given[0] != key.name else origin
                    found[key.name] = (key.check(data[given[0]]), named)
                except ValueError as error:
                    self.wrong(name, str(error))
        return found


def names_of(keys: Sequence[Key]) -> list[str]:
    """Return every name that the keys have."""
    return [name for key in keys for name in (key.name, *key.also)]


def anything(value: Any) -> Any:
    """Take any value."""
    return value


def boolean(value: Any) -> bool:
    """Take true or false, as text too, as pydantic and accelerate do."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise ValueError(f"{show_value(value)} is neither true nor false; write true or false")
    return value


def text(value: Any) -> str:
    """Take a text."""
    if not isinstance(value, str):
        raise ValueError(f'{show_value(value)} is not a text; write it in quotes, "..."')
    return value


def whole(least: int, most: int = 1 << 63) -> Check:
    """Take a whole number, as 5e8 and as text too; an error says its bounds."""

    def check(value: Any) -> int:
        number = _as_whole(value)
        if number is None or not least <= number <= most:
            bounds = f"of {least} or more" if most == 1 << 63 else f"from {least} to {most}"
            raise ValueError(f"{show_value(value)} is not a whole number {bounds}; write for instance {max(least, 1)}")
        return number

    return check


def _as_whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def ratio(value: Any) -> float:
    """Take a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{show_value(value)} is not a number from 0 to 1; write for instance 0.5")
    return float(value)


def one_of(*names: str) -> Check:
    """Take one of these words, in upper or lower case."""
    folded = {name.lower(): name for name in names}

    def check(value: Any) -> str:
        if isinstance(value, str) and value.lower() in folded:
            return folded[value.lower()]
        raise ValueError(f"{show_value(value)} is not among its values; {suggestion(value, names, 'write one of')}")

    return check
