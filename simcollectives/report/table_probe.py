"""What a probe prints: of collectives, tables as nccl-tests has them, which ``read`` reads; and those of a device."""

from collections.abc import Sequence
from math import floor, log10
from typing import Any

from rich.text import Text

from simcollectives.errors import counted
from simcollectives.measured.probe import Copied, LeftOut, Multiplied, Plan, Row, Started, System, Times
from simcollectives.measured.probe.local import MEMORY, SQUARE
from simcollectives.measured.probe.plan import PLACES_OF, REDUCING, ROOTED
from simcollectives.metrics import algbw, busbw
from simcollectives.report.text import Block, Column, TextTable, caption, heading, with_unit
from simcollectives.units import (
    format_bandwidth,
    format_bytes,
    format_flops_per_second,
    format_ratio,
    format_seconds,
)

_HALF = ("time", "algbw", "busbw", "#wrong", "spread")
_UNITS = ("(us)", "(GB/s)", "(GB/s)", "", "(%)")
_WIDTHS = (8, 7, 7, 6, 6)
_KEY = "{:>10} {:>10} {:>8} {:>5} {:>4}"
_PLACE_WORDS = {"out": "out-of-place", "in": "in-place"}


def first_lines(system: System, version: str) -> list[str]:
    """What ran, and how it was timed: printed once."""
    where = f"{counted(len(system.ranks), 'rank')} on {counted(system.nodes, 'node')}"
    return [
        f"# simcollectives probe {version}: {where}, {system.backend}, torch {system.torch_version}, {system.date}",
        f"# time: {system.timing}",
        "# spread: from the 10th to the 90th percentile of the calls, over the median",
        "",
    ]


def head_lines(system: System, plan: Plan, collective: str) -> list[str]:
    """What stands over the rows of a collective: its name, every rank, and the columns."""
    sizes = f"minBytes {plan.sizes[0]} maxBytes {plan.sizes[-1]}"
    return [
        f"# Collective test starting: {collective}",
        f"# nThread 1 nGpus 1 {sizes} warmup iters: {plan.warmup} iters: {plan.iterations} validation: 1",
        *([f"# NCCL version {system.nccl_version}"] if system.nccl_version else []),
        *map(_rank_line, system.ranks),
        "#",
        *_column_lines(PLACES_OF[collective]),
    ]


def _rank_line(one: Started) -> str:
    where = f"on {one.host} device {one.device:2d} {one.device_name}"
    return f"#  Rank {one.rank:2d} Group  0 Pid {one.process:6d} {where}"


def _column_lines(places: Sequence[str]) -> list[str]:
    over = "".join(f"{_PLACE_WORDS[place]:^{sum(_WIDTHS) + len(_WIDTHS)}}" for place in places)
    indent = len(_KEY.format("", "", "", "", ""))
    return [
        f"#{'':{indent}}{over}".rstrip(),
        f"#{_line(('size', 'count', 'type', 'redop', 'root'), _HALF * len(places))}",
        f"#{_line(('(B)', '(elements)', '', '', ''), _UNITS * len(places))}",
    ]


def _line(key: Sequence[object], cells: Sequence[str]) -> str:
    widths = _WIDTHS * (len(cells) // len(_WIDTHS))
    return _KEY.format(*key) + "".join(f" {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def row_line(row: Row, world_size: int) -> str:
    """One size: its time, rates, wrong elements and spread in every place."""
    redop = "sum" if row.collective in REDUCING else "none"
    root = "0" if row.collective in ROOTED else "-1"
    key = (row.message_bytes, row.counted_elements(world_size), row.dtype, redop, root)
    cells: list[str] = []
    for half in row.halves:
        seconds = half.times.seconds
        rates = (
            algbw(row.message_bytes, seconds) or 0.0,
            busbw(row.collective, world_size, row.message_bytes, seconds) or 0.0,
        )
        spread = f"{100 * half.times.spread:.0f}"
        cells += [_digits(seconds * 1e6), *(_digits(rate / 1e9) for rate in rates), str(half.wrong), spread]
    return f" {_line(key, cells)}"


def _digits(value: float) -> str:
    """A number with four digits, or as many as there are in five decimals.

    >>> _digits(34.8123), _digits(0.0123456), _digits(15984.26), _digits(0.0004567), _digits(0)
    ('34.81', '0.01235', '15984', '0.00046', '0.00')
    """
    if value <= 0:
        return "0.00"
    return f"{value:.{min(5, max(0, 3 - floor(log10(value))))}f}"


def foot_line(rows: Sequence[Row]) -> str:
    """What stands below the rows of a collective."""
    wrong = sum(half.wrong > 0 for row in rows for half in row.halves)
    return f"# Out of bounds values : {wrong} {'FAILED' if wrong else 'OK'}"


def device_blocks(multiplied: Sequence[Multiplied], copied: Sequence[Copied]) -> list[Block]:
    """Tables of matrix products and copies, each with how a scenario says what was found."""
    blocks: list[Block] = []
    for dtype in dict.fromkeys(one.dtype for one in multiplied):
        blocks += [Text(""), *_matmul_blocks([one for one in multiplied if one.dtype == dtype], dtype)]
    if copied:
        blocks += [Text(""), *_copy_blocks(copied)]
    return blocks


def _matmul_blocks(multiplied: Sequence[Multiplied], dtype: str) -> list[Block]:
    best = max(one.flops_per_second for one in multiplied)
    columns = [
        Column("product", [one.use for one in multiplied], right=False),
        Column("rows x inner x columns", [f"{one.rows}x{one.inner}x{one.columns}" for one in multiplied]),
        with_unit("time", [format_seconds(one.times.seconds) for one in multiplied]),
        _spread([one.times for one in multiplied]),
        with_unit("rate", [format_flops_per_second(one.flops_per_second) for one in multiplied]),
        Column("of the\nbest (%)", [f"{100 * one.flops_per_second / best:.1f}" for one in multiplied]),
    ]
    title = f"Matrix products in {dtype}, of each rank while all multiply"
    return [heading(title), TextTable(columns), caption(matmul_line(multiplied, dtype))]


def matmul_line(multiplied: Sequence[Multiplied], dtype: str) -> str:
    """How a scenario says what was reached: the best rate as the peak, and a layer's products over it as the MFU."""
    best = max(one.flops_per_second for one in multiplied)
    peak = f"device: {{peak: {{{dtype}: {format_flops_per_second(best)}}}}}"
    layer = [one for one in multiplied if one.use != SQUARE]
    seconds = sum(one.times.seconds for one in layer)
    if not layer or not seconds:
        return f"in a scenario's cluster: {peak}"
    rate = sum(one.flops_per_second * one.times.seconds for one in layer) / seconds
    mfu = format_ratio(rate / best, 3)
    return (
        f"in a scenario: {peak} in cluster, and mfu: {mfu} in training; the layer's four products reach "
        f"{format_flops_per_second(rate)} together: over the peak of a data sheet, that is the mfu"
    )


def _copy_blocks(copied: Sequence[Copied]) -> list[Block]:
    columns = [
        Column("copy", [one.kind for one in copied], right=False),
        Column("size", [format_bytes(one.message_bytes) for one in copied]),
        with_unit("time", [format_seconds(one.times.seconds) for one in copied]),
        _spread([one.times for one in copied]),
        with_unit("rate", [format_bandwidth(one.bandwidth) for one in copied]),
    ]
    return [heading("Copies, of each rank while all copy"), TextTable(columns), caption(copy_line(copied))]


def copy_line(copied: Sequence[Copied]) -> str:
    """How a scenario says what the link to the host does; of CPUs, what was copied instead."""
    if any(one.kind == MEMORY for one in copied):
        return "no GPU: copies from memory to memory instead, each byte of which is read and written"
    largest = max(one.message_bytes for one in copied)
    pinned = [one.bandwidth for one in copied if one.message_bytes == largest and "pinned" in one.kind]
    if not pinned:
        return "copies from pinned memory, by which a scenario's host_link goes, are missing"
    return f"in a scenario's cluster: device: {{host_link: {format_bandwidth(min(pinned))}}} (the slower way, pinned)"


def _spread(times: Sequence[Times]) -> Column:
    return Column("spread\n(%)", [f"{100 * one.spread:.0f}" for one in times])


def probe_json(
    system: System | None,
    rows: Sequence[Row],
    multiplied: Sequence[Multiplied],
    copied: Sequence[Copied],
    left_out: Sequence[LeftOut],
) -> dict[str, Any]:
    """Return everything that was found, in SI units."""
    return {
        "system": None if system is None else _system_json(system),
        "rows": [entry for row in rows for entry in _row_json(row, len(system.ranks) if system else 1)],
        "matmul": [
            {
                **{key: getattr(one, key) for key in ("use", "dtype", "rows", "inner", "columns", "flops_per_second")},
                **_times_json(one.times),
            }
            for one in multiplied
        ],
        "copies": [
            {
                **{key: getattr(one, key) for key in ("kind", "message_bytes", "bandwidth")},
                **_times_json(one.times),
            }
            for one in copied
        ],
        "left_out": [{"what": one.what, "why": one.why} for one in left_out],
    }


def _system_json(system: System) -> dict[str, Any]:
    facts = ("backend", "torch_version", "nccl_version", "date", "timing", "nodes")
    keys = ("rank", "host", "process", "device", "device_name")
    ranks = [{key: getattr(one, key) for key in keys} for one in system.ranks]
    return {**{fact: getattr(system, fact) for fact in facts}, "world_size": len(ranks), "ranks": ranks}


def _row_json(row: Row, world_size: int) -> list[dict[str, Any]]:
    return [
        {
            "collective": row.collective,
            "dtype": row.dtype,
            "place": half.place,
            "world_size": world_size,
            "message_bytes": row.message_bytes,
            **_times_json(half.times),
            "wrong": half.wrong,
            "algbw": algbw(row.message_bytes, half.times.seconds),
            "busbw": busbw(row.collective, world_size, row.message_bytes, half.times.seconds),
        }
        for half in row.halves
    ]


def _times_json(times: Times) -> dict[str, Any]:
    return {
        "seconds": times.seconds,
        "seconds_p10": times.p10,
        "seconds_p90": times.p90,
        "calls": times.calls,
    }
