"""One line of a table of nccl-tests or rccl-tests: where its columns are, and the samples of one row.

A row is ``size count type [redop] [root]``, then one or two halves of ``time algbw busbw [check]`` and perhaps four
columns of single iterations, or one of their spread. Whatever stands before the first ``size count type`` of a line is
a prefix of a launcher.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

from simcollectives.measured.logs.types import Kind, Sample

ITEM_BYTES: dict[str, int] = {
    "int8": 1,
    "char": 1,
    "uint8": 1,
    "int32": 4,
    "int": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "half": 2,
    "float16": 2,
    "fp16": 2,
    "float": 4,
    "float32": 4,
    "fp32": 4,
    "double": 8,
    "float64": 8,
    "bfloat16": 2,
    "bf16": 2,
    "f8e4m3": 1,
    "f8e5m2": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}
"""Bytes of one element of every type that a table names."""

_TYPES = "|".join(sorted(ITEM_BYTES, key=len, reverse=True))
ROW = re.compile(rf"(?:^|(?<=[\s:>|#\]]))([0-9]{{1,19}})(\*?)\s+([0-9]{{1,19}})(\*?)\s+({_TYPES})(?=\s|$)", re.ASCII)
HEADER = re.compile(r"\b(size|bytes)\S*\s+(count|N)\S*\s+type\b.*\b(time|cputime)", re.ASCII)
_TYPE_HINTS = ("float", "half", "int", "double", "char", "f8e", "fp", "bf16")
_NUMBER = re.compile(r"([-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|N/A|[-+]?(?:nan|inf))(\*?)", re.ASCII)
REDOPS = {"sum", "prod", "min", "max", "avg", "mulsum", "all", "none"}
JOINED = re.compile(rf"(?:{_TYPES}|{'|'.join(sorted(REDOPS))})(?=[A-Za-z])")
"""A type or an operation with a word joined to it."""

# The largest error for each type that the old tests took for rounding, for each rank beyond the first.
_LARGEST_ERROR = {"half": 1e-2, "float": 1e-5, "double": 1e-12, "bfloat16": 1e-2}
_ROUNDING_RANKS = 1000
_MOST_ROOTS = 10_000

Check = Literal["wrong", "error", ""]


@dataclass(frozen=True)
class Layout:
    """The columns of a table. ``root`` is None where no header says whether there is one; ``places`` are the halves."""

    places: tuple[str, ...] = ("out", "in")
    columns: int = 4
    root: bool | None = None
    check: Check = ""
    stated: bool = False

    @property
    def numbers(self) -> int:
        """Numbers of a whole row behind the root."""
        return len(self.places) * self.columns


@dataclass(frozen=True)
class ParsedRow:
    """The samples of a row. ``missing`` are halves that are cut off, ``whole`` tells that nothing is."""

    kind: Kind
    samples: tuple[Sample, ...]
    missing: int
    garbled: bool = False

    @property
    def whole(self) -> bool:
        """Whether every column is there."""
        return self.missing == 0 and not self.garbled


def layout_of(header: str, above: str) -> Layout:
    """The layout that a header line says; ``above`` is the line over it, which names the halves."""
    words = header.split()
    times = sum(word in ("time", "cputime") or word.startswith("time(") for word in words)
    places: tuple[str, ...] = ("out", "in")
    if times < 2:
        places = ("in",) if "in-place" in above and "out-of-place" not in above else ("out",)
    check: Check = "wrong" if "#wrong" in words else "error" if {"error", "res"} & set(words) else ""
    columns = (8 if "i_min" in words else 4 if check else 3) + ("spread" in words)
    return Layout(places, columns, "root" in words, check, stated=True)


def parse_row(text: str, line: int, layout: Layout) -> ParsedRow | None:
    """The row that begins in a text, None where none does; without a header, the layout is read off the row itself."""
    found = ROW.search(text)
    if found is None:
        return None
    size, size_mark, count, count_mark, dtype = found.groups()
    words = _join_marks(text[found.end() :].split())
    redop = words.pop(0) if words and words[0] in REDOPS else ""
    numbers = []
    for word in words:
        if _NUMBER.fullmatch(word) is None:
            break
        numbers.append(word)
    root, numbers, layout = _split(numbers, layout)
    kind = Kind(dtype, "" if redop == "none" else redop, root)
    if len(numbers) > layout.numbers:
        return ParsedRow(kind, (), len(layout.places), garbled=True)
    marked = bool(size_mark or count_mark)
    samples = []
    for number, place in enumerate(layout.places):
        half = numbers[number * layout.columns : (number + 1) * layout.columns]
        if len(half) == layout.columns:
            wrong = marked or (layout.columns > 3 and _is_wrong(half[3], dtype, layout.check))
            time, *rates = (word.rstrip("*") for word in half[:3])
            # A table without a check is one of nccom-test, whose rates count bytes by 2^30.
            algbw, busbw = rates if layout.columns > 3 else (None, None)
            samples.append(Sample(line, int(size), int(count), place, time, algbw, busbw, wrong))
    return ParsedRow(kind, tuple(samples), len(layout.places) - len(samples))


def begins_row(text: str) -> bool:
    """Whether size, count and type stand in a text."""
    return any(hint in text for hint in _TYPE_HINTS) and ROW.search(text) is not None


def goes_on(text: str) -> bool:
    """Whether a text could be the rest of a row: numbers, perhaps after the type or the operation, and no sentence."""
    words = text.split(maxsplit=2)[:2]
    return bool(words) and all(
        word in REDOPS or word in ITEM_BYTES or word == "*" or _NUMBER.fullmatch(word) for word in words
    )


def is_number(word: str) -> bool:
    """Whether a word could be a number of a row."""
    return _NUMBER.fullmatch(word) is not None


def count_numbers(text: str) -> int:
    """How many words a text has, if all are numbers; else 0."""
    words = _join_marks(text.split())
    return len(words) if all(map(is_number, words)) else 0


def _join_marks(words: list[str]) -> list[str]:
    """An asterisk that stands alone belongs to the number before it."""
    joined: list[str] = []
    for word in words:
        if word == "*" and joined:
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _split(numbers: list[str], layout: Layout) -> tuple[int | None, list[str], Layout]:
    """Root, numbers behind it, and the layout, with what the row shows where no header was there."""
    known = layout
    if not layout.stated and len(numbers) in (4, 5):
        known = Layout(("out",), 4, layout.root, layout.check)
    elif not layout.stated and len(numbers) in (16, 17):
        known = Layout(layout.places, 8, layout.root, layout.check)
    # A root is a small whole number; a time without decimals is ten thousand or more.
    first = numbers[0] if numbers else ""
    small = first.lstrip("-").isdigit() and len(first) < 8 and int(first) < _MOST_ROOTS
    rooted = small if layout.root is not False or len(numbers) > known.numbers else False
    if not rooted:
        return None, numbers, known
    return (int(first) if int(first) >= 0 else None), numbers[1:], known


def _is_wrong(text: str, dtype: str, check: Check) -> bool:
    """Whether the check of a result failed: elements that are wrong, or an error too large for rounding."""
    if text.endswith("*"):
        return True
    try:
        value = abs(float(text))
    except ValueError:
        return False  # N/A: not checked
    counts = check == "wrong" or (check == "" and text.isdigit())
    if math.isnan(value):
        return True
    return value > 0 if counts else value > _LARGEST_ERROR.get(dtype, 0.0) * _ROUNDING_RANKS
