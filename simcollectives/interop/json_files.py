"""JSON files of other tools, refused whole where they are not one JSON object."""

import json
import os
import re
import stat
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from simcollectives.errors import InputError, Problem, show_value

MAX_FILE_BYTES = 1 << 20
"""A larger file is no config."""

_STRING = r'"(?:[^"\\]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)


def read_object(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        InputError: there is no such file, it is too large, not UTF-8, not JSON or no object, or a key is there twice.
    """
    return parse_object(read_text(path), os.fspath(path))


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file.

    Raises:
        InputError: there is no such file, it is too large, or not UTF-8.
    """
    source = os.fspath(path)
    try:
        if stat.S_ISFIFO(Path(path).stat().st_mode):
            raise InputError("this is a pipe, not a file; save the config as a file first", source)
        with Path(path).open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"the file cannot be read ({reason}); check the path", source) from None
    if len(content) > MAX_FILE_BYTES:
        raise InputError(f"the file is larger than {MAX_FILE_BYTES} bytes (1 MiB): is it the right one?", source)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("the file is not UTF-8 text; save it as UTF-8", source) from None


def parse_object(text: str, source: str) -> dict[str, Any]:
    """Return the object in JSON text; ``source`` names it in errors.

    Raises:
        InputError: it is not JSON or no object, or a key is there twice.
    """
    try:
        data = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise InputError([Problem("", f"this is not JSON: {error.msg}; mend it", error.lineno)], source) from None
    except (_TwiceError, RecursionError, ValueError) as error:
        message = str(error) if isinstance(error, _TwiceError) else "this JSON is nested too deeply or has huge numbers"
        raise InputError(message, source) from None
    if not isinstance(data, dict):
        raise InputError([Problem("$", f"the file holds {show_value(data)}; it must hold an object, {{...}}")], source)
    return data


def without_comments(text: str) -> tuple[str, tuple[str, ...]]:
    """Return JSON text without comments and trailing commas, line for line, and what was taken out, with its line.

    >>> without_comments('{"a": 1, // one\\n}')
    ('{"a": 1        \\n}', ('line 1: a comment', 'line 1: a trailing comma'))
    """
    found: list[tuple[int, str]] = []
    newlines = [place for place, character in enumerate(text) if character == "\n"]
    for pattern, what in ((_COMMENT, "a comment"), (_TRAILING, "a trailing comma")):
        text = pattern.sub(partial(_blank, what, found, newlines), text)
    return text, tuple(f"line {line}: {what}" for line, what in sorted(set(found)))


def _blank(what: str, found: list[tuple[int, str]], newlines: Sequence[int], match: re.Match[str]) -> str:
    if match[0].startswith('"'):
        return match[0]
    found.append((bisect_left(newlines, match.start()) + 1, what))
    return re.sub(r"[^\n]", " ", match[0])


class _TwiceError(ValueError):
    """A key is there twice."""


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _TwiceError(f"the key {show_value(key)} is there twice in one object; keep one")
        found[key] = value
    return found
