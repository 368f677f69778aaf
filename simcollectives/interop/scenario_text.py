"""A scenario as YAML text, each value with the origin of it in a comment."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from simcollectives.interop.noting import STRATEGY
from simcollectives.interop.settings import ScenarioPath, Setting, Unmodelled

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*|[0-9]+(\.[0-9]+)? ?(%|[A-Za-z]+(/[A-Za-z]+)?)")
_WORDS = ("null", "true", "false")
_TOP = ("title", "cluster", "training")
_INNER = ("machine", "nodes", "gpus_per_node", "model", "strategy", "sequence", "micro_batch", "accumulation")


def scenario_text(settings: Sequence[Setting], unmodelled: Sequence[Unmodelled], head: Sequence[str]) -> str:
    """Return the YAML of the settings that have a place in a scenario, after comments: ``head``, what is left out."""
    comments = [*head, *(f"not modelled: {one.name} = {shown(one.value)}: {one.reason}" for one in unmodelled)]
    with_options = {one.path[:3] for one in settings if len(one.path) > 3}
    plain = [
        replace(one, path=STRATEGY, value=one.path[2])
        if len(one.path) == 3 and one.path[:2] == STRATEGY and one.path not in with_options
        else one
        for one in settings
    ]
    placed = {one.path: one for one in sorted(plain, key=_rank) if one.path}
    lines = [f"# {_one_line(text)}" for text in comments]
    return "\n".join([*lines, *_block((), placed)]) + "\n"


def _rank(setting: Setting) -> tuple[int, int]:
    """Where a setting stands in a scenario."""
    top, inner = (*setting.path, "", "")[:2]
    return _TOP.index(top) if top in _TOP else len(_TOP), _INNER.index(inner) if inner in _INNER else len(_INNER)


def _block(path: ScenarioPath, placed: dict[ScenarioPath, Setting]) -> Iterator[str]:
    depth = len(path)
    names = dict.fromkeys(one[depth] for one in placed if len(one) > depth and one[:depth] == path)
    for name in names:
        here = (*path, name)
        inside = any(len(one) > len(here) and one[: len(here)] == here for one in placed)
        setting = placed.get(here)
        value = "" if inside or setting is None else f" {written(setting.value)}"
        comment = "" if setting is None else f"  # {_one_line(_origin(setting))}"
        yield f"{'  ' * depth}{name}:{value}{comment}"
        if inside:
            yield from _block(here, placed)


def _origin(setting: Setting) -> str:
    return f"{setting.origin}; {setting.note}" if setting.note else setting.origin


def written(value: Any) -> str:
    """Return a value as YAML on one line.

    >>> written("llama-3-8b"), written("45%"), written("true"), written({"alpha": "5 us", "n": 2})
    ('llama-3-8b', '45%', '"true"', '{alpha: 5 us, n: 2}')
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {written(one)}" for key, one in value.items()) + "}"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _WORDS else json.dumps(value)
    return json.dumps(value)


def shown(value: Any, most: int = 100) -> str:
    """Return any value of a config on one short line, as JSON, of at most about so many characters."""
    try:
        line = json.dumps(value)
    except (TypeError, ValueError):
        line = str(value)
    return _one_line(line if len(line) <= most else f"{line[:most]}...")


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
