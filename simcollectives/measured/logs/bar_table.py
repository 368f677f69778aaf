"""Tables whose cells stand between bars: hccl_test (``data_size | avg_time | alg_bandwidth | check_result``) and the
Markdown of all_reduce_bench.py in stas00/ml-engineering (``payload | busbw | algbw``, with units in the cells).

The second gives rates alone, with two decimals: a time is the message over its rate, where that is known to 5 %. Up to
January 2025 (before its commit 45de4d5) it printed sizes as KB, which are KiB, and GBps, which are GiB/s.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from simcollectives.errors import UnitError
from simcollectives.measured.logs.checks import printed
from simcollectives.measured.logs.streams import Line
from simcollectives.measured.logs.types import MAX_TABLES, Kind, Sample, Table, Tally
from simcollectives.units import parse_bytes

LEAST_RATE_GBPS = 0.1
"""0.10 stands for 0.095 to 0.105; times of smaller rates would say little."""

_WORDS: Mapping[str, str] = {
    "size": r"(?:data_?size|payload|size)\b",
    "time": r"(?:avg|aveg)_?time\b",
    "algbw": r"(?:alg_bandwidth|algbw)\b",
    "busbw": r"busbw\b",
    "check": r"check_?result\b",
}
_COLUMNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in _WORDS.items()}
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:GBps|GB/s)?")
_TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(?:us)?")
_RULE = re.compile(r"[\s|:+\-]*")
_OLD_SIZE = re.compile(r"([0-9]{1,6})\s*([KMGT])B")
_OLD_GBPS = 2**30 / 1e9
_OLD = "KB, MB and GB are taken as powers of 1024, as this benchmark means them"
_PROGRAM = re.compile(r"\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|reduce)_(?:test|bench)\b")


@dataclass
class _Reader:
    tally: Tally
    tables: list[Table] = field(default_factory=list)
    columns: dict[str, int] = field(default_factory=dict)
    width: int = 0
    program: str = ""


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text.strip().strip("|").split("|")]


def _columns(text: str) -> dict[str, int]:
    """Where the columns of a header are; empty where a line is none."""
    if "|" not in text:
        return {}
    cells = _cells(text)
    found: dict[str, int] = {}
    for at, cell in enumerate(cells):
        for name, pattern in _COLUMNS.items():
            if pattern.match(cell):
                found.setdefault(name, at)
    return found if "size" in found and "algbw" in found and ({"time", "busbw"} & set(found)) else {}


def looks_like_bar_table(text: str) -> bool:
    """Whether a line is the header of such a table."""
    return bool(_columns(text))


def read_bar_tables(lines: Iterable[Line], tally: Tally) -> list[Table]:
    """The tables of a log; rows that say no time are counted."""
    reader = _Reader(tally)
    for line in tally.follow(lines):
        if program := _PROGRAM.search(line.text):
            reader.program = program.group(1)
        if found := _columns(line.text):
            reader.columns, reader.width = found, len(_cells(line.text))
            _begin(reader, line.number)
        elif "|" not in line.text:
            reader.columns = {}
        elif reader.columns and not _RULE.fullmatch(line.text):
            _take(reader, line.number, _cells(line.text))
    return reader.tables


def _begin(reader: _Reader, line: int) -> None:
    table = Table(line, collective=reader.program, exponent=-6)
    table.collective_from = "the command in the log" if reader.program else ""
    if "time" not in reader.columns:
        table.caveats = ["times from rates with two decimals"]
    if len(reader.tables) > MAX_TABLES:
        reader.tables.pop()
    reader.tables.append(table)


def _take(reader: _Reader, line: int, cells: list[str]) -> None:
    tally = reader.tally
    if len(cells) != reader.width:
        tally.skip("a row is cut off", line)
        return
    if len(reader.tables) > MAX_TABLES:
        tally.skip(f"beyond the first {MAX_TABLES} tables", line)
        return
    row = {name: cells[at] for name, at in reader.columns.items()}
    size, algbw, busbw = _size(row["size"]), _number(_RATE, row["algbw"]), _number(_RATE, row.get("busbw", ""))
    time = _number(_TIME, row["time"]) if "time" in row else _time_of_rate(size, algbw)
    if "time" not in row and (old := _OLD_SIZE.fullmatch(row["size"])):
        size = int(old[1]) * 1024 ** ("KMGT".index(old[2]) + 1)
        time = _time_of_rate(size, algbw, _OLD_GBPS)
        algbw, busbw = _in_gb(algbw), _in_gb(busbw)
        if _OLD not in reader.tables[-1].caveats:
            reader.tables[-1].caveats.append(_OLD)
    if size is None:
        tally.skip("a row whose size is none", line)
    elif time is None and "time" not in row and algbw is not None:
        tally.skip(f"a rate under {LEAST_RATE_GBPS} GB/s has too few digits for a time", line)
    elif time is None:
        tally.skip("no time that a collective takes", line)
    else:
        wrong = row.get("check", "").lower() in ("failed", "fail")
        tally.keep(reader.tables[-1], Kind(), Sample(line, size, None, "out", time, algbw, busbw, wrong))


def _size(text: str) -> int | None:
    """Whole bytes of a number without a unit, or of one with it."""
    if re.fullmatch("[0-9]{1,19}", text):
        return int(text)
    try:
        found = parse_bytes(text)
    except UnitError:
        return None
    return int(found) if found.is_integer() else None


def _number(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.fullmatch(text)
    return None if found is None else found.group(1)


def _in_gb(rate: str | None) -> str | None:
    """A rate that was printed in GiB/s; with a digit less, as the others would not be known."""
    return None if rate is None else f"{float(rate) * _OLD_GBPS:.1f}"


def _time_of_rate(size: int | None, rate: str | None, unit: float = 1.0) -> str | None:
    """Microseconds of a message at a printed rate, in ``unit`` of 1 GB/s."""
    known = printed(rate)
    if size is None or rate is None or known is None or float(rate) < LEAST_RATE_GBPS:
        return None
    return f"{size / (float(rate) * unit) / 1e3:.3f}"
