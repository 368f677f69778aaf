"""Tables as text: columns that say their unit once, tables that fit a width, printing without cutting anything."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import IO, TypeVar

from rich import box
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 120
"""Columns of output that goes to no terminal."""

_GAP = 2
_MOST_FOLD, _LEAST_FOLD = 60, 22
_NUMBER_WITH_UNIT = re.compile(
    r"(?P<number>[-+]?[0-9][0-9.]*(?:e[-+]?[0-9]+)?) ?(?P<unit>%|x|[A-Za-z]+(?:/[A-Za-z]+)?)"
)
_ZERO = re.compile(r"0 [A-Za-z/]+")

NOTHING = "-"
Part = TypeVar("Part")
_GONE = "the reader of the output has gone"


@dataclass(frozen=True)
class Column:
    """One column of a table: a header of one or more lines, and a text for every row."""

    header: str
    cells: Sequence[str]
    right: bool = True
    style: str = ""
    wrap_at: int | None = None


@dataclass(frozen=True)
class TextTable:
    """Columns of equal length; the first ``fixed`` ones are repeated where the table is broken into parts.

    ``styles`` has one entry a row, or none at all; ``headings`` stand over the rows with these numbers, as wide
    as the table.
    """

    columns: Sequence[Column]
    styles: Sequence[str] = ()
    fixed: int = 1
    headings: Mapping[int, str] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[tuple[str, ...], str]]:
        """The cells of each row, and its style."""
        cells = list(zip(*(column.cells for column in self.columns), strict=True))
        return list(zip(cells, self.styles or [""] * len(cells), strict=True))


Block = Text | TextTable
"""What reports are made of, for the terminal and for a notebook."""


def with_unit(header: str, cells: Sequence[str]) -> Column:
    """Return a column of quantities, with the unit in the header where all have the same.

    >>> with_unit("time", ["5 us", "70.02 us", "-"])
    Column(header='time\\n(us)', cells=['5', '70.02', '-'], right=True, style='', wrap_at=None)
    >>> with_unit("time", ["5 us", "1 ms"]).cells
    ['5 us', '1 ms']
    """
    matches = [_NUMBER_WITH_UNIT.fullmatch(cell) for cell in cells]
    kept = [(cell, match) for cell, match in zip(cells, matches, strict=True) if cell and cell != NOTHING]
    units = {match["unit"] if match else None for cell, match in kept if not _ZERO.fullmatch(cell)}
    unit = units.pop() if len(units) == 1 else None
    if unit is None or unit == "x":
        return Column(header, list(cells))
    return Column(
        f"{header}\n({unit})", [match["number"] if match else cell for cell, match in zip(cells, matches, strict=True)]
    )


def rendered(blocks: Iterable[Block], width: int) -> list[RenderableType]:
    """Return blocks for a terminal of this width: texts as they are, tables fitted."""
    found: list[RenderableType] = []
    for block in blocks:
        found += fitted(block, width) if isinstance(block, TextTable) else [block]
    return found


def fitted(table: TextTable, width: int) -> list[RenderableType]:
    """Return a table that is no wider than ``width``: long texts are folded, or columns go below one another."""
    tries = [_parts(table, width, fold) for fold in range(_MOST_FOLD, _LEAST_FOLD - 1, -2)]
    return spaced(_rich_tables(replace(table, columns=part)) for part in min(tries, key=len))


def _parts(table: TextTable, width: int, fold: int) -> list[list[Column]]:
    """Columns that fit side by side, part for part, with texts folded at ``fold`` characters or less."""
    columns = [
        column if column.wrap_at is None else replace(column, wrap_at=min(column.wrap_at, fold))
        for column in table.columns
    ]
    fixed = columns[: table.fixed]
    parts: list[list[Column]] = [list(fixed)]
    for column in columns[table.fixed :]:
        used = sum(_width(other) + _GAP for other in parts[-1])
        if len(parts[-1]) > len(fixed) and used + _width(column) > width:
            parts.append(list(fixed))
        parts[-1].append(column)
    return parts


def _width(column: Column) -> int:
    header = max(len(line) for line in column.header.split("\n"))
    cells = max((len(line) for cell in column.cells for line in cell.split("\n")), default=0)
    return max(header, cells if column.wrap_at is None else min(cells, column.wrap_at))


def _rich_tables(table: TextTable) -> list[RenderableType]:
    """The table; or its head, and after it each heading with its rows, an empty line between them."""
    starts = sorted({0, *table.headings})
    if not table.headings:
        return [_rich_table(table.columns, table.rows)]
    groups: list[list[RenderableType]] = []
    for start, end in itertools.pairwise([*starts, len(table.rows)]):
        name = [heading(table.headings[start])] if start in table.headings else []
        groups.append([*name, _rich_table(table.columns, table.rows[start:end], head=False)])
    return [_rich_table(table.columns, ()), *spaced(groups)]


def _rich_table(columns: Sequence[Column], rows: Sequence[tuple[Sequence[str], str]], *, head: bool = True) -> Table:
    """These rows, in columns as wide as all cells of ``columns`` need."""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, _GAP - 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        show_header=head,
        header_style="bold",
    )
    for column in columns:
        table.add_column(
            Text(column.header),
            justify="right" if column.right else "left",
            style=column.style,
            no_wrap=column.wrap_at is None,
            overflow="fold",
            vertical="top",
            min_width=_width(column),
            max_width=column.wrap_at,
        )
    for cells, style in rows:
        table.add_row(*(Text(cell) for cell in cells), style=style or None)
    return table


def heading(text: str) -> Text:
    """Return a heading over a table."""
    return Text(text, style="bold")


def caption(text: str) -> Text:
    """Return a remark below a table."""
    return Text(text, style="dim")


def spaced(blocks: Iterable[Sequence[Part]]) -> list[Part | Text]:
    """Return the parts of all blocks, with an empty line between the blocks."""
    found: list[Part | Text] = []
    for block in blocks:
        found += [Text(""), *block] if found else block
    return found


class _Console(Console):
    """A console that leaves it to its caller what happens when the reader (head, less) has gone."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError; rich itself would exit with 1."""
        raise BrokenPipeError(_GONE)


def make_console(stream: IO[str], width: int | None = None) -> Console:
    """Return a console for a stream: plain text, wide enough for tables, where the stream is no terminal."""
    console = _Console(file=stream, width=width, highlight=False, markup=False, emoji=False, force_jupyter=False)
    if width is None and not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def show(renderables: Iterable[RenderableType], stream: IO[str], width: int | None = None) -> None:
    """Print tables and texts. What is wider than the terminal is not cut but runs on.

    Raises:
        BrokenPipeError: the reader of the stream has gone. It has no error number: typer would exit with 1 at EPIPE.
    """
    try:
        _show(renderables, stream, width)
        stream.flush()
    except BrokenPipeError as error:
        raise BrokenPipeError(_GONE) from error


def _show(renderables: Iterable[RenderableType], stream: IO[str], width: int | None) -> None:
    console = make_console(stream, width)
    own = console.width
    for renderable in renderables:
        console.width = max(own, _needed_width(console, renderable))
        if console.is_terminal:
            console.print(renderable)
        else:
            with console.capture() as captured:
                console.print(renderable)
            stream.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
        console.width = own


def _needed_width(console: Console, renderable: RenderableType) -> int:
    """Columns below which something would be cut: none for texts that may be broken anywhere."""
    needed = Measurement.get(console, console.options.update(max_width=10_000), renderable)
    if isinstance(renderable, Text):
        return needed.maximum if renderable.no_wrap else 0
    return needed.minimum if isinstance(renderable, Table) else 0


def html(blocks: Iterable[Block]) -> str:
    """Return blocks as HTML that takes its colours from the page."""
    return "\n".join(_html_table(block) if isinstance(block, TextTable) else _html_text(block) for block in blocks)


def _html_text(text: Text) -> str:
    tag = "b" if "bold" in str(text.style) or any("bold" in str(span.style) for span in text.spans) else "span"
    return f'<div style="white-space: pre-wrap"><{tag}>{escape(text.plain)}</{tag}></div>'


def _html_table(table: TextTable) -> str:
    head = "".join(f"<th>{_html_cell(column.header)}</th>" for column in table.columns)
    body = []
    for number, (cells, style) in enumerate(table.rows):
        if number in table.headings:
            spanning = f'colspan="{len(table.columns)}" style="text-align: left"'
            body.append(f"<tr><th {spanning}>{_html_cell(table.headings[number])}</th></tr>")
        tag = "th" if "bold" in style else "td"
        aligned = [
            f'<{tag} style="text-align: {"right" if column.right else "left"}">{_html_cell(cell)}</{tag}>'
            for column, cell in zip(table.columns, cells, strict=True)
        ]
        body.append(f"<tr>{''.join(aligned)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _html_cell(text: str) -> str:
    return escape(text).replace("\n", "<br>")
