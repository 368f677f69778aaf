"""Text logs of the OSU micro-benchmarks' blocking collectives, with MPI or NCCL.

A time is the average over the ranks, as every version prints it. The sizes of an all-gather and an all-to-all are those
of one rank's part, all others those of the whole message (osu_allgather.c, osu_alltoall.c, osu_reduce_scatter.c).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from simcollectives.measured.logs.prefixes import without_prefix
from simcollectives.measured.logs.streams import Line
from simcollectives.measured.logs.types import MAX_TABLES, Kind, Sample, Table, Tally

TITLE = re.compile(
    r"#\s*OSU\s+((?:MPI|[NR]CCL|XCCL|[A-Z]+)[\w\-]*)\s+(.{1,80}?)\s+(?:Latency\s+)?Test\b(?:\s+(v[\w.\-]+))?"
)
ON_HOSTS = "none: MPI between CPUs"
"""In the place of a GPU: titles of tests on GPUs name their library, as ``MPI-CUDA``."""

_HEADER = re.compile(r"#\s*Size\s{2,}(\S.*)")
_TYPE = re.compile(r"#\s*Datatype:\s*(\w+)")
_ROW = re.compile(r"[\s#>]*([0-9]{1,19})\s+(\S.*)")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_AVERAGE = re.compile(r"(?:Avg )?Latency ?\(us\)")
_NO_TIME = re.compile(r"[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|nan|inf)|N/A|-+", re.IGNORECASE)
_MPI_TYPES = {"MPI_CHAR": "int8", "MPI_INT": "int32", "MPI_FLOAT": "float"}


@dataclass
class _Reader:
    """The state of one log: the columns of the average and of the validation; None where a table has none."""

    tally: Tally
    tables: list[Table] = field(default_factory=list)
    column: int | None = None
    columns: int = 0
    check: int | None = None
    dtype: str = ""


def looks_like_osu_text(text: str) -> bool:
    """Whether a line is a title of these benchmarks."""
    return TITLE.search(text) is not None


def read_osu_text(lines: Iterable[Line], tally: Tally) -> list[Table]:
    """The tables of a log; rows of what is no collective, or of other times than an average, are counted."""
    reader = _Reader(tally)
    for line in tally.follow(lines):
        body = without_prefix(line.text)
        if title := TITLE.search(body):
            _begin(reader, line.number, title)
        elif kind := _TYPE.search(body):
            reader.dtype = _MPI_TYPES.get(kind.group(1), "")
        elif header := _HEADER.search(body):
            names = re.split(r"\s{2,}", header.group(1).strip())
            averages = [number for number, name in enumerate(names) if _AVERAGE.fullmatch(name)]
            reader.column, reader.columns = (averages[0] if averages else None), len(names)
            reader.check = names.index("Validation") if "Validation" in names else None
        elif reader.tables and (row := _ROW.fullmatch(body)):
            _take(reader, line.number, int(row.group(1)), row.group(2).split())
    return reader.tables


def _begin(reader: _Reader, line: int, title: re.Match[str]) -> None:
    library, name, version = title.groups()
    table = Table(line, collective=name, collective_from="the log", exponent=-6)
    table.per_rank = True
    table.gpu = ON_HOSTS if library == "MPI" else ""
    table.caveats = [f"OSU micro-benchmarks{f' {version}' if version else ''}, average over the ranks"]
    if len(reader.tables) > MAX_TABLES:
        reader.tables.pop()
    reader.tables.append(table)
    reader.column, reader.columns, reader.check, reader.dtype = None, 0, None, ""


def _take(reader: _Reader, line: int, size: int, cells: list[str]) -> None:
    if not _NO_TIME.fullmatch(cells[0]):
        return  # a sentence that begins with a number
    if len(reader.tables) > MAX_TABLES:
        reader.tally.skip(f"beyond the first {MAX_TABLES} tables", line)
    elif reader.column is None:
        reader.tally.skip("a row under a header without an average latency", line)
    elif len(cells) < reader.columns:
        reader.tally.skip("a row is cut off", line)
    elif not _NUMBER.fullmatch(cells[reader.column]):
        reader.tally.skip("no time that a collective takes", line)
    else:
        wrong = reader.check is not None and cells[reader.check].lower() == "fail"
        sample = Sample(line, size, None, "out", cells[reader.column], wrong=wrong)
        reader.tally.keep(reader.tables[-1], Kind(reader.dtype), sample)
