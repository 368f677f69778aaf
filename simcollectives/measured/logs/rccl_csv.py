"""CSV of rccl-tests (``-Z csv``): one time a line, with the columns that its JSON has as keys."""

import csv
from collections.abc import Iterable, Iterator

from simcollectives.measured.logs.nccl_json import RowReader
from simcollectives.measured.logs.streams import Line
from simcollectives.measured.logs.types import Table, Tally

_KEYS = ("name", "size", "type", "redop", "inPlace", "time", "algBw", "busBw", "wrong", "ranks", "nodes", "gpusPerRank")
_COLUMNS = {key.lower(): key for key in _KEYS}
_REQUIRED = {"size", "time", "inplace"}


def looks_like_rccl_csv(text: str) -> bool:
    """Whether a line is the header of such a file."""
    return {cell.strip().lower() for cell in text.split(",")} >= _REQUIRED


def read_rccl_csv(lines: Iterable[Line], tally: Tally) -> list[Table]:
    """The tables that the rows make; lines that are no row are counted."""
    reader = RowReader(tally)
    header: list[str] = []
    for number, cells in _cells(lines, tally):
        if not header:
            header = [_COLUMNS.get(cell.strip().lower().lstrip("#"), cell) for cell in cells]
        elif len(cells) != len(header):
            tally.skip("a line with more or fewer cells than columns", number)
        else:
            tally.lines = number - 1  # the reader counts the row that it takes
            reader.row({key: cell.strip() for key, cell in zip(header, cells, strict=True)})
    return reader.tables


def _cells(lines: Iterable[Line], tally: Tally) -> Iterator[tuple[int, list[str]]]:
    for line in lines:
        try:
            cells = next(csv.reader([line.text], strict=True), [])
        except csv.Error:
            tally.skip("a line that is no CSV", line.number)
            continue
        if any(cell.strip() for cell in cells):
            yield line.number, cells
        tally.lines = line.number
