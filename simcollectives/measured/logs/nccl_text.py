"""Text logs of nccl-tests and rccl-tests, of all years: tables with what stands around and between their lines.

NCCL's own messages may stand between any two lines and inside one: a row is then put together from its parts.

Reference: NVIDIA/nccl-tests, src/common.cu and src/util.cu, 2017 to 2026; ROCm/rccl-tests, src/common.cu.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from simcollectives.measured.logs.nccl_row import (
    HEADER,
    JOINED,
    ROW,
    Layout,
    ParsedRow,
    begins_row,
    count_numbers,
    goes_on,
    is_number,
    layout_of,
    parse_row,
)
from simcollectives.measured.logs.prefixes import label, without_prefix
from simcollectives.measured.logs.streams import Line
from simcollectives.measured.logs.types import MAX_RANKS, MAX_TABLES, DeviceLine, Table, Tally

_DEVICE = re.compile(
    r"(?:^|[#\s>])Rank\s+([0-9]{1,7})\s+(?:Group\s+([0-9]{1,7})\s+)?(?:Pid\s+([0-9]{1,9})\s+)?on\s+(\S+)\s+device\s+[0-9]+"
    r"(?:\s+\[[^\]]*\]?)?\s*(.*)"
)
_PARAMETERS = re.compile(r"(?:^|[#\s>])nThread\s+([0-9]+)\s+nGpus\s+([0-9]+)\b(.*)")
_STARTING = re.compile(r"#\s*Collective test starting:\s*(\w+)")
_FIRST_LINE = re.compile(r"#\s*(?:nccl-tests version|Collective test starting:|NCCL Tests compiled)")
_PROGRAM = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|sendrecv|gather|scatter|hypercube)_perf\b"
)
_VERSION = re.compile(r"\b[NR]CCL version\s*:?\s*([0-9][\w.+\-]*)|nccl-library=([0-9]+)")
# A name of a host may follow the last number of a row without a blank: neither 2e-07 nor N/A lends it letters.
_MESSAGE = re.compile(
    r"(?:\[[0-9]{4}-[^\]]*\] ?)?(?<!N/)(?!(?<=[0-9])e[-+][0-9])"
    r"[A-Za-z][\w.\-]*:[0-9]+:[0-9]+ \[-?[0-9]+\] (?:\S+ )?(?:NCCL|RCCL) [A-Z]+"
)
_NRANKS = re.compile(r"\bnranks ([0-9]{1,7})\b.*Init COMPLETE", re.IGNORECASE)
_FAILURE = re.compile(r"Test (?:NCCL|CUDA|HIP)? ?failure|Test timeout|: Test failure")
_OUT_OF_BOUNDS = re.compile(r"Out of bounds values\s*:\s*([0-9]+)")
_WORD_DUE = re.compile(r"(?:^|\s)[0-9]+\*?\s+(?:[0-9]+\*?|[a-z][a-z0-9_]*)\s+$")
_HINTS = (
    *("nThread", "Rank", "type", "ersion", "Collective test", "compiled with", "ailure", "timeout", "Out of bounds"),
    *("_perf", "(us)", "(ms)"),
)
"""What a line has in it, one or another, if it says anything: most lines of a long log are passed over by this."""

_FIRST_OF_ROWS = frozenset("0123456789.…")
_COLUMN_UNITS = re.compile(r"\((us|ms)\)")
_UNKNOWN_ROW = re.compile(
    r"^[\s#]*[0-9]+\s+[0-9]+\s+[A-Za-z]\w*\s+(?:[a-z]+\s+)?(?:-?[0-9]+\s+)?[0-9]+(?:\.[0-9]+)?\s+[0-9]+\.[0-9]+\s"
)
_RATES = re.compile(r"\s[0-9]+\.[0-9]+\s+[0-9]+\.[0-9]+(?:\s|$)")
_ELLIPSIS = re.compile(r"[\s#|]*(?:\.{2,}|…)[\s#|.…]*")
_LONGEST_ROW = 1000
_LISTED_WRITERS = 64
_ORPHAN_NUMBERS = 4
_TORN = "parts of a row that could not be put together"
_EXPONENTS = {"us": -6, "ms": -3}
_SETTING = re.compile(r"([a-z][a-z ]*?):?\s+([0-9]+)(?=\s|\(|$)")


@dataclass
class _Reader:
    """The state of one log being read."""

    tally: Tally
    tables: list[Table] = field(default_factory=list)
    layout: Layout = field(default_factory=Layout)
    above: str = ""
    pending: str = ""
    pending_line: int = 0
    program: tuple[str, str] = ("", "")

    @property
    def table(self) -> Table:
        return self.tables[-1]


def read_nccl_text(lines: Iterable[Line], tally: Tally) -> list[Table]:
    """The tables of a log, in order, those without rows too; what is not taken is counted."""
    reader = _Reader(tally)
    _begin(reader, 0)
    for line in tally.follow(lines):
        _take_line(reader, line.number, line.text)
    _flush(reader)
    return [table for table in reader.tables if table.samples or table.devices or table.headers or table.settings]


def looks_like_nccl_text(text: str) -> bool:
    """Whether a line could only stand in such a log."""
    return bool(_PARAMETERS.search(text) or (ROW.search(text) and parse_row(text, 0, Layout())) or HEADER.search(text))


def _begin(reader: _Reader, line: int) -> None:
    """Begin a table: what was said of the one before is not said of this one. The last place takes all further ones."""
    _flush(reader)
    if len(reader.tables) > MAX_TABLES:
        reader.tables.pop()
    reader.tables.append(Table(line))
    reader.layout = Layout()


def _take_line(reader: _Reader, number: int, text: str) -> None:
    message = _MESSAGE.search(text) if "CCL" in text else None
    tail = message is not None
    if message is not None:
        start = _start_of(message, text)
        _take_message(reader, text[start:])
        text = text[:start]
        if not text.strip():
            return
    if begins_row(text):
        _flush(reader)
        _take_row(reader, number, text, label(text))
        return
    body = without_prefix(text)
    torn = tail and bool(reader.table.headers or reader.table.samples)
    if (reader.pending or torn) and goes_on(body):
        first = number if not reader.pending else reader.pending_line
        _take_row(reader, first, reader.pending + body, "")
        return
    if reader.pending and not _is_foreign(body):
        _flush(reader)
    _take_fact(reader, number, body)


def _is_foreign(body: str) -> bool:
    """Whether a line may stand inside a row: messages that the library writes when it is first used."""
    return _VERSION.search(body) is not None or "# Testing " in body or not body.lstrip().startswith("#")


def _start_of(message: re.Match[str], text: str) -> int:
    """Where a message begins: the row before it may end in a word, to which the name of the host is joined."""
    start = message.start()
    joined = JOINED.match(text, start)
    if joined is not None and _WORD_DUE.search(text[:start]):
        return joined.end()
    return start


def _take_row(reader: _Reader, number: int, text: str, writer: str) -> None:
    """Take a row if it is whole; else keep it, for its rest may follow."""
    row = parse_row(text, number, reader.layout)
    if row is not None and (row.whole or row.garbled):
        reader.pending = ""
        _add(reader, row, number)
    elif len(text) > _LONGEST_ROW:
        reader.pending = ""
        reader.tally.skip(_TORN, number)
    else:
        reader.pending, reader.pending_line = _known_part(text), number
        _take_version(reader.table, text)
    if writer and len(reader.table.writers) < _LISTED_WRITERS:
        reader.table.writers.add(writer)


def _known_part(text: str) -> str:
    """A row from its size to where something else than its columns begins, such as NCCL's version."""
    found = ROW.search(text)
    if found is None:
        return text
    words = list(re.finditer(r"\S+", text[found.end() :]))
    end = found.end()
    for word in words:
        if not goes_on(word.group()) and word.group() != "*":
            return text[found.start() : end] + " "
        end = found.end() + word.end()
    return text[found.start() :]


def _flush(reader: _Reader) -> None:
    """Take what there is of a row whose rest never came."""
    if reader.pending:
        text, line = reader.pending, reader.pending_line
        reader.pending = ""
        row = parse_row(text, line, reader.layout)
        if row is None:
            reader.tally.skip(_TORN, line)
        else:
            _add(reader, row, line)


def _add(reader: _Reader, row: ParsedRow, line: int) -> None:
    tally, table = reader.tally, reader.table
    if row.garbled:
        tally.skip("a row with more numbers than its table has columns", line)
    elif row.missing and row.samples:
        tally.skip("the second half of a row is cut off", line)
    elif row.missing:
        tally.skip("a row is cut off before its first time is whole", line)
    if len(reader.tables) > MAX_TABLES:
        tally.skip(f"beyond the first {MAX_TABLES} tables", line, len(row.samples))
        return
    if row.whole and not reader.layout.stated and reader.layout.root is None:
        reader.layout = replace(reader.layout, root=row.kind.root is not None or None)
    table.line = table.line or line
    for sample in row.samples:
        tally.keep(table, row.kind, sample)
    if not table.collective and row.samples:
        table.collective, table.collective_from = reader.program
        reader.program = "", ""


def _take_message(reader: _Reader, text: str) -> None:
    """A message of NCCL itself: how many ranks there are, and which version."""
    ranks = _NRANKS.search(text) if "nranks" in text else None
    if ranks is not None and len(reader.table.communicators) < _LISTED_WRITERS:
        reader.table.communicators.add(int(ranks.group(1)))
    _take_version(reader.table, text)


def _take_version(table: Table, text: str) -> None:
    version = None if table.nccl_version else _VERSION.search(text)
    if version is not None:
        number = version.group(1)
        table.nccl_version = number or version_text(int(version.group(2)[:8]))


def version_text(code: int) -> str:
    """NCCL's version from its number.

    >>> version_text(22304), version_text(2708)
    ('2.23.4', '2.7.8')
    """
    major, rest = (code // 10000, code % 10000) if code >= 10000 else (code // 1000, code % 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _take_fact(reader: _Reader, number: int, body: str) -> None:
    """Any other line: of a run, of its ranks, of its columns, of how it ended."""
    if not any(hint in body for hint in _HINTS):
        _take_rest(reader, number, body)
    elif parameters := _PARAMETERS.search(body):
        if reader.table.settings or reader.table.samples or reader.table.headers:
            _begin(reader, number)
        _take_parameters(reader.table, parameters)
    elif device := _DEVICE.search(body):
        _take_device(reader, number, device)
    elif HEADER.search(body):
        _take_header(reader, number, body)
    elif _FIRST_LINE.search(body):
        if reader.table.samples or reader.table.headers or reader.table.settings:
            _begin(reader, number)
        _take_version(reader.table, body)
        if starting := _STARTING.search(body):
            reader.table.collective, reader.table.collective_from = starting.group(1), "the log"
    elif _FAILURE.search(body):
        reader.table.failed = reader.table.failed or body.strip()[:120]
    elif bounds := _OUT_OF_BOUNDS.search(body):
        reader.table.failed_rows += int(bounds.group(1)[:9])
        reader.table.footers += 1
    else:
        _take_other(reader, number, body)
    reader.above = body if body.strip(" #") else reader.above


def _take_other(reader: _Reader, number: int, body: str) -> None:
    """A line that is none of these: a version, a command, units below the header."""
    table = reader.table
    _take_version(table, body)
    program = _PROGRAM.search(body)
    if program is not None and "Collective test concluded" not in body:
        reader.program = program.group(1), "the command in the log"
    if table.headers and not table.samples and (unit := _COLUMN_UNITS.search(body)):
        table.exponent = _EXPONENTS[unit.group(1)]
    else:
        _take_rest(reader, number, body)


def _take_rest(reader: _Reader, number: int, body: str) -> None:
    """A line that says nothing, unless it once was a row."""
    if not (reader.table.headers or reader.table.samples):
        return
    if body.lstrip(" \t#|")[:1] in _FIRST_OF_ROWS:
        if _UNKNOWN_ROW.match(body):
            reader.tally.skip("a row whose element type is not known", number)
            return
        if count_numbers(body) >= _ORPHAN_NUMBERS:
            reader.tally.skip("numbers that belong to no row", number)
            return
        if _ELLIPSIS.fullmatch(body):
            reader.tally.warn(f"rows were taken out of the log by hand (line {number})")
            return
    if not reader.table.footers and _is_broken_row(body):
        reader.tally.skip("a line with the rates of a row that is none", number)


def _is_broken_row(body: str) -> bool:
    """Whether a line has the rates of a row and four numbers or more, and yet no row could be read."""
    return "." in body and _RATES.search(body) is not None and sum(map(is_number, body.split())) >= _ORPHAN_NUMBERS


def _take_parameters(table: Table, found: re.Match[str]) -> None:
    settings = {"nThread": found.group(1), "nGpus": found.group(2)}
    settings |= {name.strip(): value for name, value in _SETTING.findall(found.group(3)[:400])}
    table.settings = settings


def _take_device(reader: _Reader, number: int, found: re.Match[str]) -> None:
    rank, group, process, host, gpu = found.groups()
    if reader.table.samples:
        _begin(reader, number)
    devices = reader.table.devices
    if int(rank) >= MAX_RANKS or len(devices) >= MAX_RANKS:
        reader.tally.skip("a device line beyond the ranks that can be", number)
        return
    devices.append(DeviceLine(int(rank), int(group or 0), process or "", host, gpu.strip()[:80]))


def _take_header(reader: _Reader, number: int, body: str) -> None:
    if reader.table.samples:
        _begin(reader, number)
    table = reader.table
    table.line = table.line or number
    table.headers += 1
    words = body.split()
    table.launch_only = "cputime" in words
    if "bytes" in words and "N" in words:
        table.exponent = -3
    elif unit := _COLUMN_UNITS.search(body):
        table.exponent = _EXPONENTS[unit.group(1)]
    reader.layout = layout_of(body, reader.above)
