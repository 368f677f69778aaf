"""JSON of nccl-tests (``-J FILE``, one document a run) and rccl-tests (``-Z json``, one object a row), also as lines.

A document lists the first rank of every process only where a process has several GPUs, so its ranks are the processes
times their GPUs. Bools and NaN are texts there. Reference: NVIDIA/nccl-tests, src/util.cu, versions 1 to 3 of the file.
"""

import math
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, Any

from simcollectives.measured.logs.json_stream import MalformedError, json_parts
from simcollectives.measured.logs.nccl_text import version_text
from simcollectives.measured.logs.types import MAX_RANKS, MAX_TABLES, DeviceLine, Kind, Sample, Table, Tally

_PLACES = (("out_of_place", "out"), ("in_place", "in"))


def read_nccl_json(stream: IO[str], tally: Tally) -> list[Table]:
    """The tables of all documents, and those that rows standing alone make; lines count rows."""
    reader = RowReader(tally)
    try:
        for part in json_parts(stream, by_line=True):
            if part.key is None:
                reader.end(broken=part.value is not None)
            elif part.element and part.key in ("results", ""):
                reader.row(part.value, inside=part.key != "")
            else:
                reader.member(part.key, part.value, part.element)
    except MalformedError as error:
        tally.warn(f"{error}; what stands before it was read")
        reader.end(broken=True)
    return reader.tables


class RowReader:
    """Documents as they come: members of one in any order, rows among them."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.tables: list[Table] = []
        self.loose: dict[tuple[Any, ...], Table] = {}
        self._start()

    def _start(self) -> None:
        self.document = Table(self.tally.lines + 1)
        self.document.exponent = -6
        self.members: dict[str, Any] = {}

    def member(self, key: str, value: Any, element: bool) -> None:
        """A member that is no row."""
        if key == "args" and element:
            if not self.document.collective and isinstance(value, str):
                self.document.collective = PurePosixPath(value).name[:60]
                self.document.collective_from = "the log"
        elif not element:
            self.members[key] = value

    def row(self, row: Any, inside: bool = False) -> None:
        """One row: ``inside`` a document's results, or one that stands alone."""
        self.tally.lines += 1
        if not isinstance(row, dict):
            self.tally.skip("a result that is no object", self.tally.lines)
        elif "results" in row:  # documents in an array
            self._whole(row)
        elif inside and any(key in row for key, _ in _PLACES):
            self._halves(row, self.document)
        else:
            self._standing_alone(row)

    def _whole(self, document: dict[str, Any]) -> None:
        for key, value in document.items():
            if key in ("results", "args") and isinstance(value, list):
                for one in value:
                    self.row(one, inside=True) if key == "results" else self.member(key, one, True)
            else:
                self.member(key, value, False)
        self.end()

    def end(self, *, broken: bool = False) -> None:
        """The end of a document: what it says of its run belongs to its rows. Of a broken one, whole rows are kept."""
        if broken and not self.document.samples:
            self.tally.lines += 1
            self.tally.skip("a line or row that is no whole JSON", self.tally.lines)
        elif "size" in self.members:
            self.tally.lines += 1
            self._standing_alone(self.members)
        _take_config(self.document, self.members.get("config"))
        _take_version(self.document, self.members.get("nccl_version"))
        errors = self.members.get("errors")
        if isinstance(errors, list) and errors:
            self.document.failed = str(errors[0])[:120]
        if self.document.samples:
            self._keep(self.document)
        self._start()

    def _keep(self, table: Table) -> None:
        if len(self.tables) < MAX_TABLES:
            self.tables.append(table)
        else:
            self.tally.skip(f"beyond the first {MAX_TABLES} tables", table.line, table.count)

    def _halves(self, row: dict[str, Any], table: Table) -> None:
        size, count = _whole_number(row.get("size")), _whole_number(row.get("count"))
        if size is None:
            self.tally.skip("a result without a size", self.tally.lines)
            return
        for key, place in _PLACES:
            half = row.get(key)
            if not isinstance(half, dict):
                if key in row:
                    self.tally.skip(f"no {key} result", self.tally.lines)
                continue
            table.launch_only |= "cpu_time" in half
            wrong = (_number(half.get("nwrong")) or 0) > 0
            rates = _text(half.get("alg_bw")), _text(half.get("bus_bw"))
            time = _text(half.get("cpu_time", half.get("time")))
            if time is None:
                self.tally.skip("a result without a time", self.tally.lines)
            else:
                self.tally.keep(table, _kind(row), Sample(self.tally.lines, size, count, place, time, *rates, wrong))

    def _standing_alone(self, row: dict[str, Any]) -> None:
        """A row that may say the collective and the ranks itself, as those of rccl-tests do."""
        table = self._loose_table(row)
        if table is None:
            self.tally.skip(f"beyond the first {MAX_TABLES} tables", self.tally.lines)
        elif any(key in row for key, _ in _PLACES):
            self._halves(row, table)
        else:
            self._one_time(row, table)

    def _loose_table(self, row: dict[str, Any]) -> Table | None:
        name, ranks, nodes = str(row.get("name") or "")[:60], _whole_number(row.get("ranks")), row.get("nodes")
        key = (name, ranks, _whole_number(nodes))
        if key not in self.loose:
            if len(self.tables) >= MAX_TABLES:
                return None
            table = Table(self.tally.lines, collective=name, collective_from="the log" if name else "", exponent=-6)
            if ranks is not None:
                table.ranks = ranks * (_whole_number(row.get("gpusPerRank")) or 1)
                table.ranks_from = "the log's ranks"
            table.nodes = _whole_number(nodes)
            self.loose[key] = table
            self.tables.append(table)
        return self.loose[key]

    def _one_time(self, row: dict[str, Any], table: Table) -> None:
        size, time = _whole_number(row.get("size")), _text(row.get("time"))
        if size is None or time is None:
            self.tally.skip("an object without size and time", self.tally.lines)
            return
        place = "in" if str(row.get("inPlace", 0)).strip().lower() in ("1", "true") else "out"
        wrong = (_number(row.get("wrong")) or 0) > 0
        rates = _text(row.get("algBw")), _text(row.get("busBw"))
        self.tally.keep(table, _kind(row), Sample(self.tally.lines, size, None, place, time, *rates, wrong))


def _kind(row: dict[str, Any]) -> Kind:
    redop = str(row.get("redop", "")).strip()[:20]
    root = _whole_number(row.get("root"))
    return Kind(str(row.get("type", "")).strip()[:20], "" if redop == "none" else redop, root)


def _take_config(table: Table, config: Any) -> None:
    if not isinstance(config, dict):
        return
    names = {"nthreads": "nThread", "ngpus": "nGpus", "aggregated_iterations": "agg iters", "graph": "graph"}
    counts = {name: _whole_number(config.get(key)) for key, name in names.items()}
    table.settings = {name: str(value) for name, value in counts.items() if value is not None}
    devices = config.get("devices")
    listed = [_device(one) for one in devices if isinstance(one, dict)] if isinstance(devices, list) else []
    table.devices = list(_all_ranks(listed, (counts["nThread"] or 1) * (counts["nGpus"] or 1)))


def _device(one: dict[str, Any]) -> DeviceLine:
    rank, group = _whole_number(one.get("rank")), _whole_number(one.get("group"))
    texts = (str(one.get(key, ""))[:80] for key in ("pid", "hostname", "device_info"))
    return DeviceLine(-1 if rank is None else rank, group or 0, *texts)


def _all_ranks(listed: list[DeviceLine], each: int) -> Iterator[DeviceLine]:
    """All ranks, where a process of ``each`` ranks is listed by its first one only."""
    first_only = each > 1 and all(device.rank % each == 0 for device in listed)
    if not first_only or len(listed) * each > MAX_RANKS:
        yield from listed
        return
    for device in listed:
        for more in range(each):
            yield DeviceLine(device.rank + more, device.group, device.process, device.host, device.gpu)


def _take_version(table: Table, code: Any) -> None:
    number = _whole_number(code)
    if number:
        table.nccl_version = version_text(number)


def _whole_number(value: Any) -> int | None:
    """A whole number from 0, which may stand in a text."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 30:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def _text(value: Any) -> str | None:
    """A number as a text that shows all its digits; None where it is none."""
    if _number(value) is None:
        return None
    return value.strip() if isinstance(value, str) else repr(value)
