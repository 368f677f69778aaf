"""Reading a comma-separated table line by line, collecting every problem instead of stopping at the first."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simcollectives.errors import InputError, Problem, listing, nearest, show_value

PROBLEM_LIMIT = 100
"""Reading stops after so many problems: a file with more is the wrong kind of file."""


def quoted(names: Sequence[str], limit: int = 10) -> str:
    """Names of a table in quotes, the first ``limit`` of them and how many more there are."""
    return listing([show_value(name) for name in names], limit)


@dataclass
class Problems:
    """The problems found so far in one file."""

    found: list[Problem] = field(default_factory=list)

    def add(self, place: str, message: str, line: int | None = None) -> None:
        """Note one problem."""
        self.found.append(Problem(place, message, line))

    @property
    def full(self) -> bool:
        """Whether there are so many problems that reading on is of no use."""
        return len(self.found) >= PROBLEM_LIMIT

    def raise_if_any(self, source: str) -> None:
        """Raise :class:`InputError` with all problems, where there are any."""
        if self.full:
            self.add("", f"more than {PROBLEM_LIMIT} problems, so reading stopped here; mend these first")
        if self.found:
            raise InputError(self.found, source)


class Row(NamedTuple):
    """One line of a table: its number (the header is line 1), its cells, where each column is, and the table's name."""

    line: int
    cells: list[str]
    columns: dict[str, int]
    table: str

    def get(self, column: str) -> str:
        """The cell without surrounding blanks; empty where the table has no such column."""
        position = self.columns.get(column)
        return "" if position is None else self.cells[position].strip()

    def place(self, column: str) -> str:
        """Where a cell stands, as a problem says it."""
        return f"{self.table} {column}".strip()


def read_rows(stream: Iterable[bytes], required: Sequence[str], table: str, problems: Problems) -> Iterator[Row]:
    """The rows of a CSV file with a header, in order; ``table`` names the file in problems.

    Columns may stand in any order, and others than ``required`` are allowed. Empty lines are skipped. What cannot be
    read (not UTF-8, binary, a broken quote, a missing column, too few cells) goes into ``problems``.
    """
    reader = csv.reader(_text_lines(stream, table, problems), strict=True)
    header: list[str] | None = None
    columns: dict[str, int] = {}
    try:
        for cells in reader:
            if problems.full:
                return
            if not cells:
                continue
            if header is None:
                header = [cell.strip() for cell in cells]
                if not _header_is_right(header, required, table, reader.line_num, problems):
                    return
                columns = {name: position for position, name in enumerate(header)}
            elif len(cells) != len(header):
                message = f"{len(cells)} cells where the header names {len(header)} columns; give every column one cell"
                problems.add(table, message, reader.line_num)
            else:
                yield Row(reader.line_num, cells, columns, table)
    except csv.Error as error:
        problems.add(table, f"not a comma-separated table ({error}); quote a cell that holds a comma", reader.line_num)
        return
    if header is None and not problems.found:
        problems.add(table, f"the file is empty; its first line must name the columns {','.join(required)}")


def _text_lines(stream: Iterable[bytes], table: str, problems: Problems) -> Iterator[str]:
    """Lines as text; stops at the first line that is no text, for the rest of such a file says nothing."""
    for number, raw in enumerate(stream, start=1):
        if b"\0" in raw:
            problems.add(table, "a binary file (it holds a zero byte); give comma-separated text", number)
            return
        try:
            yield raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            bad = error.object[error.start]
            problems.add(table, f"byte 0x{bad:02x} is not UTF-8 text; save the file with encoding UTF-8", number)
            return


def _header_is_right(header: list[str], required: Sequence[str], table: str, line: int, problems: Problems) -> bool:
    missing = [column for column in required if column not in header]
    repeated = [column for column in required if header.count(column) > 1]
    if missing:
        known = len(missing) < len(required)  # else it may be any file, whose content is nobody's business
        rule = f"{quoted(header) if known else 'the first line'} names no {quoted(missing)}"
        others = [name for name in header if name not in required]
        pairs = [(nearest(name, others, 0.55), name) for name in missing]
        renames = [f"rename {show_value(near)} to {show_value(name)}" for near, name in pairs if near is not None]
        remedy = ", ".join(renames) or "is this the right file?"
        problems.add(table, f"{rule}; the first line must name the columns {','.join(required)}: {remedy}", line)
    if repeated:
        problems.add(table, f"column {quoted(repeated)} stands more than once; name each column once", line)
    return not missing and not repeated
