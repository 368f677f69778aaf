"""Logs of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=TUNING: the tables of latency and bandwidth, and what was picked.

Layouts, by era: up to 2.17 one line of ``Latency/AlgBw | Tree/ LL | ..`` heads all columns (2.5 without blanks before
the bars); from 2.18 blocks of three algorithms with the lines ``Algorithm |`` and ``Protocol |``. From 2.23 each call
is one line ``AllReduce: 8 Bytes -> Algo ..``, with numbers (2.23) or names and channels (later). INIT lines say how
many ranks, nodes and channels there are, GRAPH lines (``Pattern 4, ..``) what channels were searched. Lines of several
writers may be mixed; what is kept is bounded.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from simcollectives.cluster.nccl_graph import ChannelGraph, span_of
from simcollectives.errors import InputError, counted
from simcollectives.measured.logs.prefixes import label, without_prefix
from simcollectives.measured.logs.streams import Line, Source
from simcollectives.measured.nccl.constants import ALGORITHMS, PROTOCOLS

FUNCTIONS: Mapping[str, str] = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "allreduce": "all_reduce",
}
_NAMES: Mapping[str, str] = {
    **{name.replace("_", ""): name for name in ALGORITHMS},
    "collnet": "collnet_direct",
}
_PROTOCOLS: Mapping[str, str] = {protocol.casefold(): protocol for protocol in PROTOCOLS}

_TELLING = ("|", "Bytes ->", "nRanks", "nranks", "Pattern", "coll channels", "NCCL version")

MAX_TABLES, MAX_WRITERS, MAX_CALLS = 256, 10_000, 10_000
_LONGEST = 4096

_MARK = re.compile(r"NCCL (?:INFO|TRACE|WARN) ")
_HEAD = re.compile(r"\s*(Latency/AlgBw|Algorithm|Protocol)\s*\|(.*)")
_ROW = re.compile(r"\s*(Broadcast|Reduce|AllGather|ReduceScatter|AllReduce)\s*\|(.*)")
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_CELL = re.compile(rf"\s*({_NUMBER})\s*/\s*({_NUMBER})\s*")
_RANKS = re.compile(r"\bcomm \S+ rank \d+ nRanks (\d{1,7}) nNodes (\d{1,7})\b")
_RANKS_ONLY = re.compile(r"\bcomm \S+ rank \d+ nranks (\d{1,7})\b")
_PATTERN = re.compile(
    rf"\s*Pattern ([1-6]), crossNic \d, nChannels (\d{{1,3}}), (?:bw|speed) ({_NUMBER})/({_NUMBER}), type \S+, "
    r"sameChannels ([01])"
)
_PATTERN_NAMES = {1: "tree", 2: "tree", 3: "tree", 4: "ring", 5: "nvls", 6: "collnet_direct"}
_PLAIN_TREE = 3
_CHANNELS = re.compile(r"\s*(\d{1,4}) coll channels\b")
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_CALL = re.compile(r"(?:(\w{1,20}): )?(\d{1,19}) Bytes -> Algo (\w{1,20}) proto (\w{1,20})( channel\{Lo\.\.Hi\})?")


@dataclass(frozen=True)
class TuningTable:
    """One table as printed: (collective, algorithm, protocol) -> (seconds, B/s), 0 B/s where NCCL cannot take it.

    ``ranks``, ``nodes`` and ``channels`` are None where the log does not say them. ``lines`` are where equal tables
    begin.
    """

    entries: tuple[tuple[tuple[str, str, str], tuple[float, float]], ...]
    ranks: int | None
    nodes: int | None
    channels: int | None
    lines: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """What NCCL picked for a message, and how often. ``per_rank`` tells that the bytes are of one rank's part."""

    collective: str
    message_bytes: int
    label: str
    per_rank: bool
    count: int = 1


@dataclass(frozen=True)
class TuningLog:
    """The tables of a log, each once, the calls it lists, and what was skipped.

    ``searched`` are the channels that GRAPH lines say, by span (one_node, several_nodes) and pattern.
    """

    source: str
    version: str
    tables: tuple[TuningTable, ...]
    calls: tuple[Call, ...]
    warnings: tuple[str, ...]
    searched: Mapping[str, Mapping[str, ChannelGraph]] = field(default_factory=dict)


@dataclass
class _Writer:
    """What one process and thread has written: its communicator, and the table it is in."""

    ranks: int | None = None
    nodes: int | None = None
    table: "_Open | None" = None
    blocks: list[str] = field(default_factory=list)
    searched: dict[str, ChannelGraph] = field(default_factory=dict)


@dataclass
class _Open:
    line: int
    ranks: int | None
    nodes: int | None
    columns: list[tuple[str, str]] = field(default_factory=list)
    entries: dict[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)
    channels: int | None = None


@dataclass
class _Reading:
    writers: dict[str, _Writer] = field(default_factory=dict)
    tables: list[_Open] = field(default_factory=list)
    calls: dict[tuple[str, int, str, bool], int] = field(default_factory=dict)
    version: str = ""
    skipped: dict[str, list[int]] = field(default_factory=dict)
    searched: dict[str, dict[str, ChannelGraph]] = field(default_factory=dict)

    def skip(self, reason: str, line: int) -> None:
        """Count a line that is not taken; the first is shown."""
        self.skipped.setdefault(reason, [line, 0])[1] += 1


def read_tuning_log(path: Path | str) -> TuningLog:
    """Return every different table of a log, the channels and the calls it lists.

    Raises:
        InputError: the file cannot be read, or has neither a whole table nor channels.
    """
    reading = _Reading()
    with Source(Path(path)) as source:
        for line in source.lines():
            _read_line(reading, line)
        damage = source.damage
    tables = _distinct(reading.tables)
    warnings = [
        f"{counted(count, 'line')} skipped: {reason} (first: line {line})"
        for reason, (line, count) in reading.skipped.items()
    ]
    if damage:
        warnings.append(f"{damage}; what stands before was read")
    if not tables and not reading.searched:
        why = f" ({'; '.join(warnings)})" if warnings else ""
        rule = "it has no table of NCCL's latencies and bandwidths"
        remedy = "run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING and keep the output of rank 0"
        raise InputError(f"{rule}{why}; {remedy}", str(path))
    calls = tuple(Call(*key, count) for key, count in reading.calls.items())
    return TuningLog(str(path), reading.version, tables, calls, tuple(warnings), reading.searched)


def _read_line(reading: _Reading, line: Line) -> None:
    text = line.text
    if not any(word in text for word in _TELLING):  # quickly, as of most lines
        return
    mark = _MARK.search(text[:_LONGEST])
    writer = text[: mark.start()].strip() if mark else label(text)
    message = text[mark.end() :] if mark else without_prefix(text)
    if mark is None and not reading.version and (found := _VERSION.search(text[:_LONGEST])):
        reading.version = found[1]
    if head := _HEAD.match(message):
        _read_head(reading, _writer(reading, writer), line, head[1], head[2])
    elif row := _ROW.match(message):
        _read_row(reading, _writer(reading, writer), line, FUNCTIONS[row[1].casefold()], row[2])
    elif found := _RANKS.search(message[:_LONGEST]):
        mine = _writer(reading, writer)
        mine.ranks, mine.nodes = int(found[1]), int(found[2])
        _keep_searched(reading, mine)
    elif found := _RANKS_ONLY.search(message[:_LONGEST]):
        _read_ranks(_writer(reading, writer), int(found[1]))
    elif found := _PATTERN.match(message):
        _read_pattern(_writer(reading, writer), found)
    elif found := _CHANNELS.match(message):
        mine = _writer(reading, writer)
        if mine.table is not None:
            mine.table.channels = int(found[1])
    elif found := _CALL.match(message):
        _read_call(reading, line, found)


def _writer(reading: _Reading, name: str) -> _Writer:
    if name not in reading.writers and len(reading.writers) >= MAX_WRITERS:
        reading.writers.pop(next(iter(reading.writers)))
    return reading.writers.setdefault(name, _Writer())


def _read_ranks(writer: _Writer, ranks: int) -> None:
    """What older versions say: the ranks without the nodes, at the end of the initialisation."""
    if writer.table is not None and writer.table.ranks is None:
        writer.table.ranks = ranks
    if writer.ranks != ranks:
        writer.ranks, writer.nodes = ranks, None


def _read_pattern(writer: _Writer, found: re.Match[str]) -> None:
    """One searched graph; the ring is searched first, and of two plain trees the second is CollNet's chain."""
    number, channels = int(found[1]), int(found[2])
    pattern = _PATTERN_NAMES[number]
    if pattern == "ring":
        writer.searched = {}
    if pattern == "tree" and pattern in writer.searched:
        pattern = "collnet_chain"
    if channels:
        intra, inter, same = float(found[3]) * 1e9, float(found[4]) * 1e9, found[5] == "1"
        plain = pattern == "tree" and number == _PLAIN_TREE
        writer.searched[pattern] = ChannelGraph(channels, intra, inter, same, plain)


def _keep_searched(reading: _Reading, writer: _Writer) -> None:
    """Of all ranks the fewest channels and the least bandwidths count, as for NCCL."""
    kept = reading.searched.setdefault(span_of(writer.nodes or 1), {})
    for pattern, one in writer.searched.items():
        other = kept.get(pattern, one)
        least = {name: min(getattr(one, name), getattr(other, name)) for name in ("channels", "intra", "inter")}
        same, plain = one.same_channels and other.same_channels, one.plain_tree or other.plain_tree
        kept[pattern] = replace(one, **least, same_channels=same, plain_tree=plain)
    writer.searched = {}
    reading.searched = {span: some for span, some in reading.searched.items() if some}


def _cells(text: str) -> list[str]:
    return [cell.strip() for cell in text[:_LONGEST].split("|")][:-1] if text.rstrip().endswith("|") else []


def _read_head(reading: _Reading, writer: _Writer, line: Line, kind: str, text: str) -> None:
    cells = _cells(text)
    if not cells:
        reading.skip("a heading that is cut", line.number)
        writer.blocks, writer.table = [], None
        return
    if kind == "Algorithm":
        writer.blocks = [_NAMES.get(cell.casefold().replace("_", ""), cell) for cell in cells]
        return
    if kind == "Protocol":
        names = [_PROTOCOLS.get(cell.casefold(), cell) for cell in cells]
        each = list(dict.fromkeys(names))
        # NCCL writes the protocols of three algorithms also over a block that has fewer.
        if (
            not writer.blocks
            or len(names) < len(each) * len(writer.blocks)
            or names != each * (len(names) // len(each))
        ):
            reading.skip("a heading that does not fit its algorithms", line.number)
            writer.table = None
            return
        columns = [(algorithm, protocol) for algorithm in writer.blocks for protocol in each]
    else:
        pairs = [cell.partition("/") for cell in cells]
        columns = [
            (_NAMES.get(a.strip().casefold().replace("_", ""), a.strip()), _PROTOCOLS.get(p.strip().casefold(), p))
            for a, _, p in pairs
        ]
    _open(reading, writer, line, columns)


def _open(reading: _Reading, writer: _Writer, line: Line, columns: list[tuple[str, str]]) -> None:
    """Go on with the writer's table where these columns are new to it; else begin another."""
    table = writer.table
    known = {(algorithm, protocol) for _, algorithm, protocol in table.entries} if table else set()
    if table is None or not known or known & set(columns):
        if len(reading.tables) >= MAX_TABLES:
            reading.skip(f"beyond the first {MAX_TABLES} tables", line.number)
            writer.table = None
            return
        table = writer.table = _Open(line.number, writer.ranks, writer.nodes)
        reading.tables.append(table)
    table.columns = columns


def _read_row(reading: _Reading, writer: _Writer, line: Line, collective: str, text: str) -> None:
    table, cells = writer.table, _cells(text)
    if table is None:
        if _CELL.fullmatch(text.partition("|")[0]):
            reading.skip("a row without its heading", line.number)
        return
    numbers = [_CELL.fullmatch(cell) for cell in cells]
    if len(cells) != len(table.columns) or None in numbers:
        reading.skip("a row that is cut or does not fit its heading", line.number)
        return
    for (algorithm, protocol), found in zip(table.columns, numbers, strict=True):
        if found is None or algorithm not in ALGORITHMS or protocol not in PROTOCOLS:
            continue
        latency, rate = float(found[1]) * 1e-6, float(found[2]) * 1e9
        if math.isfinite(latency) and math.isfinite(rate):
            table.entries[collective, algorithm, protocol] = (latency, rate)


def _read_call(reading: _Reading, line: Line, found: re.Match[str]) -> None:
    function, size, algorithm, protocol, channels = found.groups()
    collective = FUNCTIONS.get((function or "").casefold())
    named = _by_name_or_number(algorithm, _NAMES, ALGORITHMS), _by_name_or_number(protocol, _PROTOCOLS, PROTOCOLS)
    if collective is None or None in named:
        reading.skip("a call of which it is not said what, or by what algorithm", line.number)
        return
    # With channels the bytes are the count of the call, which is a rank's part where ranks gather or scatter.
    per_rank = channels is not None and collective in ("all_gather", "reduce_scatter")
    key = (collective, int(size), f"{named[0]}/{named[1]}", per_rank)
    if key not in reading.calls and len(reading.calls) >= MAX_CALLS:
        reading.skip(f"beyond the first {MAX_CALLS} different calls", line.number)
        return
    reading.calls[key] = reading.calls.get(key, 0) + 1


def _by_name_or_number(text: str, names: Mapping[str, str], ordered: tuple[str, ...]) -> str | None:
    if text.isascii() and text.isdigit():
        return ordered[int(text)] if int(text) < len(ordered) else None
    return names.get(text.casefold().replace("_", ""))


def _distinct(tables: list[_Open]) -> tuple[TuningTable, ...]:
    """Each different table once, with the lines where it begins."""
    found: dict[TuningTable, list[int]] = {}
    for table in tables:
        if table.entries:
            key = TuningTable(tuple(table.entries.items()), table.ranks, table.nodes, table.channels, ())
            found.setdefault(key, []).append(table.line)
    return tuple(replace(table, lines=tuple(lines)) for table, lines in found.items())
