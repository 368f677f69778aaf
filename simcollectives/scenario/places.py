"""Where in a scenario file something stands, and values as they are written there."""

import json
import re
from typing import Any

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.scenario.types import AlgorithmEntry

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the file, such as ``("expect", 0, "equals")``."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LONGEST_WORD = 60
_SHOWN_ENTRIES = 4


def place_text(path: Path) -> str:
    """Return a path as errors write it.

    >>> print(place_text(("sweep", 0, "link.bandwidth")))
    $.sweep[0]["link.bandwidth"]
    """
    parts = ["$"]
    for key in path:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif _PLAIN_KEY.fullmatch(key) and len(key) <= _LONGEST_WORD:
            parts.append(f".{key}")
        else:
            parts.append(f"[{json.dumps(key) if key.isprintable() and len(key) <= _LONGEST_WORD else show_value(key)}]")
    return "".join(parts)


def placed(error: InputError | MemoryError, entry: AlgorithmEntry, where: str, smaller: str, file: str) -> InputError:
    """Return an error of a run of ``entry`` with its line; ``where`` tells the run, ``smaller`` how to need less."""
    too_large = f"the memory of this computer is too small for it; {smaller}"
    messages = [one.message for one in error.problems] if isinstance(error, InputError) else [too_large]
    before = f"{where}: " if where else ""
    return InputError([Problem(entry.place, f"{before}{message}", entry.line) for message in messages], file)


def flow_text(value: Any) -> str:
    """Return YAML data on one line, as a person would write it.

    >>> flow_text({"order": ["ring", {"rabenseifner": {"order": "far"}}], "message": "4 KiB", "rel": 0.5})
    '{order: [ring, {rabenseifner: {order: far}}], message: 4 KiB, rel: 0.5}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow_text(one) for one in value) + "]"
    if isinstance(value, str):
        plain = value.isprintable() and value == value.strip() and not set(value) & set("{}[],:#\"'")
        return value if plain and value else json.dumps(value, ensure_ascii=not value.isprintable())
    return f"{value:.15g}" if isinstance(value, float) else json.dumps(value)


def printable(text: str) -> str:
    """Return a text with the characters that do not print escaped: a message stays on its line, whatever it quotes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(value: Any) -> str:
    """Return a value for an error, cut short, as it is written in YAML.

    >>> print(shown({"ring": {}, "tree": [1, 2, 3, 4, 5, 6]}), shown("5 us"), shown(5))
    {ring: {}, tree: [1, 2, 3, 4, ...]} "5 us" 5
    """
    return flow_text(_shortened(value)) if isinstance(value, dict | list) else show_value(value)


def _shortened(value: Any, depth: int = 3) -> Any:
    """Return the first entries of mappings and lists, and of theirs."""
    if isinstance(value, dict | list) and value and depth == 0:
        return "..."
    if isinstance(value, dict):
        kept = {show_value(key)[1:-1]: _shortened(value[key], depth - 1) for key in list(value)[:_SHOWN_ENTRIES]}
        return kept if len(value) <= _SHOWN_ENTRIES else {**kept, "...": "..."}
    if isinstance(value, list):
        kept_items = [_shortened(item, depth - 1) for item in value[:_SHOWN_ENTRIES]]
        return kept_items if len(value) <= _SHOWN_ENTRIES else [*kept_items, "..."]
    return value if not isinstance(value, str) or len(value) <= _LONGEST_WORD else f"{value[:_LONGEST_WORD]}..."
