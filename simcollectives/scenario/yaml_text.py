"""YAML text to plain Python data, with the line of everything in it.

Scalars are those of the YAML 1.2 core schema: ``1e9`` is a number; ``on``, ``yes``, ``2024-01-01``, ``1:30`` are text.
What makes YAML surprising or dangerous is refused: duplicate keys, anchors, aliases, merge keys, tags, infinities.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.scenario.places import Path, place_text
from simcollectives.scenario.source_file import read_source
from simcollectives.scenario.yaml_syntax import syntax_problem

MAX_LINES = 30_000
MAX_WORDS = 60_000
MAX_CHARACTERS = 300_000
MAX_LINE_CHARACTERS = 50_000
MAX_VALUES = 12_000
MAX_DEPTH = 50
MAX_SPACES = 300_000
MAX_PROBLEMS = 100
"""Bounds that keep the reading of any file under 1 MiB well below 2 s."""

_NULL = re.compile(r"null|Null|NULL|~|")
_BOOL = re.compile(r"(?P<true>true|True|TRUE)|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN")
_NOT_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_LONGEST_INTEGER = 400
_NUMBERED = {("skew", "ranks"), ("training", "slow")}  # whose keys are ranks
_NO_KEY = "\0"  # stands in paths for a key that is not kept; no real key holds it


@dataclass(frozen=True)
class Document:
    """One YAML mapping: its data, the line of each path, and the problems that did not stop the reading.

    ``unusable`` are the paths whose values are not what the file says, because of those problems.
    """

    data: dict[str, Any]
    lines: Mapping[Path, int]
    source: str
    problems: tuple[Problem, ...] = ()
    unusable: frozenset[Path] = frozenset()

    def line(self, path: Path) -> int | None:
        """Line of a path, or of what it would stand in."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None


def read_document(path: str | os.PathLike[str]) -> Document:
    """Read a YAML file.

    Raises:
        InputError: the file cannot be read, or is not one YAML mapping; all problems up to the first syntax error.
    """
    return parse_document(read_source(path), os.fspath(path))


def parse_document(text: str, source: str) -> Document:
    """Read YAML text; ``source`` names it in errors.

    Raises:
        InputError: the text is not one YAML mapping; all problems up to the first syntax error.
    """
    _check_size(text, source)
    builder = _Builder()
    try:
        data = builder.build(_events(text))
    except YAMLError as error:
        problem = syntax_problem(error, text.splitlines(), quoted=builder.is_mapping)
        raise InputError([*builder.problems, problem], source) from None
    except (ValueError, OverflowError):  # from the reader's own conversion of an escape that is no character
        no_character = Problem("$", "an escape in quotes is no character; mend it")
        raise InputError([*builder.problems, no_character], source) from None
    except _StoppedError as stop:
        raise InputError([*builder.problems, stop.problem], source) from None
    if not isinstance(data, dict):
        raise InputError([*builder.problems, _not_a_mapping(data, builder)], source)
    return Document(data, builder.lines, source, tuple(builder.problems), frozenset(builder.unusable))


def resolve_scalar(text: str) -> str | int | float | bool | None:
    """Return what a scalar without quotes means in the YAML 1.2 core schema.

    Raises ValueError with the rule where it is a number that this program does not take.

    >>> [resolve_scalar(text) for text in ("1e9", "0x10", "on", "1:30", "~", "true")]
    [1000000000.0, 16, 'on', '1:30', None, True]
    """
    if _NULL.fullmatch(text):
        return None
    if match := _BOOL.fullmatch(text):
        return match["true"] is not None
    if _INT.fullmatch(text):
        if len(text) > _LONGEST_INTEGER:
            raise ValueError(f"a number of {len(text)} digits is too long; write it with an exponent, such as 1e9")
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"{text} is not a finite number; write a number")
    if _FLOAT.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise ValueError(f"{show_value(text)} is larger than any number here; write a smaller one")
        return number
    return text


class _StoppedError(Exception):
    """Reading cannot go on."""

    def __init__(self, message: str, line: int | None = None, place: str = "$") -> None:
        super().__init__(message)
        self.problem = Problem(place, message, line)


def _check_size(text: str, source: str) -> None:
    lines = text.splitlines()
    words = len(text.split())
    longest = max(range(len(lines)), key=lambda i: len(lines[i]), default=0)
    counts = (
        (len(lines), MAX_LINES, "lines", None),
        (words, MAX_WORDS, "words", None),
        (text.count(" "), MAX_SPACES, "spaces", None),
        (_count_characters(lines), MAX_CHARACTERS, "characters without comments", None),
        (len(lines[longest]) if lines else 0, MAX_LINE_CHARACTERS, "characters in one line", longest + 1),
    )
    for count, bound, what, line in counts:
        if count > bound:
            message = f"{count} {what}; a scenario file has at most {bound}: is this the right file?"
            raise InputError([Problem("", message, line)], source)


def _count_characters(lines: list[str]) -> int:
    """Count what stands in the lines that are not only a comment, blanks at their ends aside."""
    stripped = (line.strip() for line in lines)
    return sum(len(line) for line in stripped if not line.startswith("#"))


def _events(text: str) -> Iterator[Event]:
    events: Iterator[Event] = YAML(typ="safe", pure=True).parse(text)
    return events


def _line(event: Event) -> int:
    return int(event.start_mark.line) + 1


@dataclass
class _Builder:
    """Builds the data from events, noting problems and lines on the way."""

    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    unusable: set[Path] = field(default_factory=set)
    values: int = 0
    is_mapping: bool = False

    def build(self, events: Iterator[Event]) -> Any:
        """Return the data of the only document."""
        data: Any = None
        documents = 0
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _StoppedError("a second document begins here; keep one scenario in a file", _line(event))
                if event.version not in (None, (1, 2)):
                    raise _StoppedError('only YAML 1.2 is read; leave the "%YAML" line out', _line(event))
            elif isinstance(event, NodeEvent):
                self.lines[()] = _line(event)
                self.is_mapping = isinstance(event, MappingStartEvent)
                data = self._node(event, events, ())
            elif isinstance(event, StreamEndEvent):
                break
        return data

    def _note(self, path: Path, message: str, line: int, *, unusable: bool = True) -> None:
        kept = path[: path.index(_NO_KEY)] if _NO_KEY in path else path
        self.problems.append(Problem(place_text(kept), message, line))
        if unusable:
            self.unusable.add(path)
        if len(self.problems) >= MAX_PROBLEMS:
            raise _StoppedError(f"reading stopped after {MAX_PROBLEMS} problems; mend these first", line)

    def _node(self, event: Event, events: Iterator[Event], path: Path) -> Any:
        self.values += 1
        line = _line(event)
        if self.values > MAX_VALUES:
            raise _StoppedError(f"more than {MAX_VALUES} values; shorten the lists: is this the right file?", line)
        if len(path) > MAX_DEPTH:
            raise _StoppedError(f"nested deeper than {MAX_DEPTH} levels; is this the right file?", line)
        if isinstance(event, AliasEvent):
            self._note(path, f"the alias *{show_value(event.anchor)[1:-1]} is not allowed; write the value out", line)
            return None
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._note(
                path, f"the anchor &{show_value(anchor)[1:-1]} is not allowed; leave it out", line, unusable=False
            )
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._note(path, f"the tag {show_value(tag)} is not allowed; leave it out", line)
        if isinstance(event, ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(events, path)
        return self._mapping(events, path)

    def _scalar(self, event: ScalarEvent, path: Path) -> Any:
        text = str(event.value)
        if (found := _NOT_TEXT.search(text)) is not None:
            what = f"the character U+{ord(found.group()):04X}"
            self._note(path, f"{what} cannot stand in a text; take it out", _line(event))
            return None
        if event.style:
            return text
        try:
            return resolve_scalar(text)
        except ValueError as error:
            self._note(path, str(error), _line(event))
            return None

    def _sequence(self, events: Iterator[Event], path: Path) -> list[Any]:
        items: list[Any] = []
        for event in events:
            if isinstance(event, SequenceEndEvent):
                break
            here = (*path, len(items))
            self.lines[here] = _line(event)
            items.append(self._node(event, events, here))
        return items

    def _mapping(self, events: Iterator[Event], path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for event in events:
            if isinstance(event, MappingEndEvent):
                break
            line = _line(event)
            key = self._key(event, events, path)
            if key in data:
                first = self.lines[(*path, str(key))]
                where = f"twice in line {line}" if first == line else f"in line {first} and again in line {line}"
                self._note((*path, str(key)), f"the key stands {where}; keep one", line, unusable=False)
                key = None
            here = (*path, _NO_KEY if key is None else key)
            self.lines[here] = line
            value = self._node(next(events), events, here)
            if key is not None:
                data[key] = value
        return data

    def _key(self, event: Event, events: Iterator[Event], path: Path) -> str | None:
        """Return a key, or None when it is not a text."""
        line = _line(event)
        if isinstance(event, ScalarEvent) and not event.style and event.value == "<<":
            self._note(path, 'the merge key "<<" is not allowed; write the keys out', line, unusable=False)
            return None
        key = self._node(event, events, (*path, _NO_KEY))
        if isinstance(key, str):
            return key
        if path in _NUMBERED and isinstance(key, int) and not isinstance(key, bool):
            return str(key)
        message = 'a key must be text; write "key: value"'
        if isinstance(event, ScalarEvent):
            rule = f"a key must be text, and {show_value(event.value)[1:-1]} is not; put it in quotes"
            message = rule if event.value else "a key is missing before the colon; write it"
        self._note(path, message, line, unusable=False)
        return None


def _not_a_mapping(data: Any, builder: _Builder) -> Problem:
    remedy = 'a scenario is a mapping such as "title: Ring on 8 GPUs"'
    if data is None:
        return Problem("$", f"the file is empty; {remedy}")
    kind = "a list" if isinstance(data, list) else "only a text" if isinstance(data, str) else "only one value"
    if isinstance(data, str) and ":" in data:
        remedy = f"write a space after the colon; {remedy}"
    return Problem("$", f"the file holds {kind}; {remedy}", builder.lines.get(()))
