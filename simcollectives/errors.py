"""The exception tree: bad input (exit code 2) against a bug of this program (exit code 3).

Every message shows the value, the rule that it breaks and a remedy; several problems of one input are reported at once.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

Value = TypeVar("Value")

SHOWN_CHARACTERS = 60
_SHOWN_SOURCE = 200
_LONGEST_WORD = 60  # difflib's time grows with the product of both lengths
_MOST_WORDS = 1000
_LONGEST_LIST = 24


class SimcollectivesError(Exception):
    """Any error that this package raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong with an input.

    `place` is a path such as ``$.cluster.link.bandwidth`` (empty when the input has no places), `message` holds the
    value, the rule and the remedy, `line` counts from 1.

    >>> print(Problem("$.cluster.link.bandwidth", '450 has no unit; write "450 GB/s"', line=2))
    $.cluster.link.bandwidth (line 2): 450 has no unit; write "450 GB/s"
    """

    place: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        """Return ``place (line n): message``, leaving out what is not known."""
        line = "" if self.line is None else f"line {self.line}"
        where = f"{self.place} ({line})" if self.place and line else self.place or line
        return f"{where}: {self.message}" if where else self.message


class InputError(SimcollectivesError):
    """The input is wrong, not the program: exit code 2.

    `problems` is a sequence of `Problem`, or one message without a place; `source` is the name of the file, if any.
    Raises ValueError when there is no problem to report.

    >>> print(InputError([Problem("$.engine", '"fast" is not an engine; write "auto"', 7)], source="ring.yaml"))
    ring.yaml: $.engine (line 7): "fast" is not an engine; write "auto"
    """

    problems: tuple[Problem, ...]
    source: str | None

    def __init__(self, problems: Sequence[Problem] | str, source: str | None = None) -> None:
        found = (Problem("", problems),) if isinstance(problems, str) else tuple(problems)
        if not found:
            raise ValueError("an InputError needs at least one problem")
        super().__init__(found, source)  # the arguments of __init__, so that the error survives pickling
        self.problems = found
        self.source = source

    def __str__(self) -> str:
        """Return one problem a line, each after the name of the source when it is known."""
        prefix = "" if self.source is None else f"{_source_text(self.source)}: "
        return "\n".join(f"{prefix}{problem}" for problem in self.problems)


class UnitError(InputError):
    """A quantity without a unit, with an unknown one, or out of its range."""


class ClusterError(InputError):
    """A cluster that cannot exist, such as one with no devices."""


class AlgorithmError(InputError):
    """An unknown algorithm or option, or one that does not fit the cluster."""


class NoClosedFormError(AlgorithmError):
    """No closed form is exact for this algorithm on this cluster."""


class ScheduleError(SimcollectivesError):
    """A schedule with a wrong result, or one that never ends: a bug, exit code 3."""


@dataclass
class Gathered:
    """The errors of several independent readings of one input, to be raised together."""

    errors: list[InputError] = field(default_factory=list)

    def take(self, read: Callable[[], Value]) -> Value | None:
        """Return what ``read`` returns; where it raises InputError, keep that and return None."""
        try:
            return read()
        except InputError as error:
            self.errors.append(error)
        return None

    def finish(self) -> None:
        """Raise all problems as one error, of the class that all errors have, if there are any."""
        if self.errors:
            kinds = {type(error) for error in self.errors}
            kind = kinds.pop() if len(kinds) == 1 else InputError
            raise kind([problem for error in self.errors for problem in error.problems])


def show_value(value: object, limit: int = SHOWN_CHARACTERS) -> str:
    r"""Return a value on one line of at most about `limit` characters, spelled as in a YAML or JSON file.

    >>> print(show_value("450 GBs"), show_value(None), show_value(True), show_value(450.0), show_value([1, "a"]))
    "450 GBs" null true 450 [1, 'a']
    >>> print(show_value("two\nlines"), show_value("x" * 100, limit=10))
    "two\nlines" "xxxxxxxxxx..."
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f'"{_one_line(value, limit)}"'
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    short = _ShortRepr()
    short.maxstring = short.maxother = limit
    return _one_line(short.repr(value), limit)


def _source_text(name: str) -> str:
    """Return a file's name on one line; of a very long one the end."""
    short = name if len(name) <= _SHOWN_SOURCE else f"...{name[-_SHOWN_SOURCE:]}"
    return _one_line(short, len(short))


def nearest(word: object, known: Iterable[str], likeness: float = 0.65, *, fold: bool = True) -> str | None:
    """Return the known word that is spelled most like `word`, if any is near: a ratio of `difflib` of `likeness`.

    With ``fold`` neither case nor the kind of dash matters.

    >>> nearest("Bandwith", ["alpha", "bandwidth"]), nearest("x", ["alpha", "bandwidth"])
    ('bandwidth', None)
    """
    if not isinstance(word, str) or len(word) > _LONGEST_WORD:
        return None
    words = {_folded(name) if fold else name: name for name in islice(known, _MOST_WORDS)}
    close = difflib.get_close_matches(_folded(word) if fold else word, words, n=1, cutoff=likeness)
    return words[close[0]] if close else None


def _folded(word: str) -> str:
    return word.casefold().replace("-", "_").replace(" ", "_")


def listing(names: Sequence[str], limit: int = _LONGEST_LIST) -> str:
    """Return the names joined by commas, and how many more there are after the first `limit`.

    >>> listing(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    shown = ", ".join(_one_line(name, SHOWN_CHARACTERS) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(3, "entry", "entries")
    ('1 row', '3 entries')
    """
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def suggestion(word: object, known: Sequence[str], what: str = "known", *, whole: bool = False) -> str:
    """Return the remedy for an unknown word: the nearest spelling, else all known words; with ``whole`` both.

    >>> suggestion("rign", ["ring", "tree"])
    'did you mean "ring"?'
    >>> suggestion("x", ["ring", "tree"])
    'known: ring, tree'
    """
    near = nearest(word, known)
    all_known = f"{what}: {listing(known)}" if known else f"{what}: none"
    if near is None:
        return all_known
    return f"did you mean {show_value(near)}?{f' {all_known}' if whole else ''}"


class _ShortRepr(reprlib.Repr):
    """A short `repr` that does not print the digits of huge numbers, which Python refuses to do."""

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= 200 else f"a whole number of {x.bit_length()} bits"


def _one_line(text: str, limit: int) -> str:
    """Return `text` cut to `limit` characters, with the characters that do not print escaped."""
    shown = text if len(text) <= limit else f"{text[:limit]}..."
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)
