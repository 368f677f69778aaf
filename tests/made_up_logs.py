"""Logs made up in the layouts that nccl-tests and rccl-tests have printed over the years, with the times they hold.

Every number follows from ``time_us`` by the tests' own formulas, printed as the era prints it; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
}
CUT = ("all_gather", "reduce_scatter", "alltoall")
REDUCING = ("all_reduce", "reduce_scatter", "reduce")
ROOTED = ("broadcast", "reduce")
OURS = {name: name for name in FACTORS} | {"alltoall": "all_to_all"}
SIZES = tuple(2**power for power in range(10, 31, 2))


def time_us(size: int, place: str = "out") -> float:
    """Microseconds of a message, in place a little less."""
    return (20.0 + size / 150e3) * (1.0 if place == "out" else 0.96)


@dataclass(frozen=True)
class Era:
    """How one generation prints: its header, its numbers, the columns it has."""

    name: str
    header: tuple[str, ...]
    time: Callable[[float], str]
    check: str
    root: bool
    redop: str
    milliseconds: bool = False
    parts_sent: bool = False
    rank_line: str = "#   Rank {rank:2d} Pid {pid:6d} on {host:>10s} device {device:2d} [0x{bus:02x}] {gpu}"
    parameters: str = (
        "# nThread {threads} nGpus {gpus} minBytes 1024 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 "
        "validation: 1 "
    )
    rate: Callable[[float], str] = lambda rate: f"{rate:6.2f}"


def short_time(microseconds: float) -> str:
    """Two decimals below 100 us, one below 10 ms, none above."""
    decimals = 0 if microseconds >= 1e4 else 1 if microseconds >= 100 else 2
    return f"{microseconds:7.{decimals}f}"


def wide_time(microseconds: float) -> str:
    """Two decimals as long as they fit into seven characters."""
    return next(text for decimals in (2, 1, 0) if len(text := f"{microseconds:7.{decimals}f}") <= 7)


_NEW_RANK = "#  Rank {rank:2d} Group {group:2d} Pid {pid:6d} on {host:>10s} device {device:2d} [{bus:#04x}] {gpu}"
_NEWEST_RANK = _NEW_RANK.replace("{bus:#04x}", "0000:{bus:02x}:00")
_OLD_HEADER = ("size", "count", "type", "redop", "time", "algbw", "busbw", "error")
_NEW_HEADER = ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong")
_VERSION = "# nccl-tests version 2.99.0 nccl-headers=29999 nccl-library=22304\n# Collective test starting: {program}\n"
_AGG = Era.parameters.replace("validation: 1 ", "agg iters: 1 validation: 1 graph: 0")

ERAS: dict[str, Era] = {
    "2.0": Era(
        "2.0",
        ("bytes", "N", "type", "op", "time", "algbw", "busbw", "res"),
        lambda microseconds: f"{microseconds / 1000:7.3f}",
        "  0e+00",
        root=False,
        redop="",
        milliseconds=True,
        parts_sent=True,
        rank_line="#   Rank {rank:2d} on {host:>10s} device {device:2d} [0x{bus:02x}] {gpu}",
        parameters="# NCCL Tests compiled with NCCL 2.3",
    ),
    "2019": Era("2019", _OLD_HEADER, short_time, "  2e-07", False, "", parts_sent=True),
    "2021": Era("2021", _OLD_HEADER, short_time, "  0e+00", False, ""),
    "2023": Era(
        "2023",
        _NEW_HEADER,
        short_time,
        "      0",
        True,
        "none",
        rank_line=_NEW_RANK,
        parameters=_AGG,
    ),
    "2025": Era(
        "2025",
        _NEW_HEADER,
        wide_time,
        "       0",
        True,
        "none",
        rank_line=_NEWEST_RANK,
        parameters=_VERSION + _AGG + " unalign: 0",
    ),
}  # fmt: skip


def row(
    era: Era, collective: str, size: int, ranks: int, dtype: str = "float", item: int = 4, check: str | None = None
) -> str:
    """One line of a table, without what a launcher writes before it."""
    parts = ranks if collective in CUT else 1
    reduced = "sum" if collective in REDUCING else era.redop
    rooted = ["0" if collective in ROOTED else "-1"] if era.root else []
    if not era.root and collective in ROOTED:
        rooted = ["0"]
    cells = [
        f"{size:12d}",
        f"{size // item // parts:12d}",
        f"{dtype:>8s}",
        f"{reduced:>6s}",
        *(f"{r:>6s}" for r in rooted),
    ]
    for place in ("out", "in"):
        time = time_us(size, place)
        rate = size / time / 1e3
        if era.parts_sent and collective in ("all_gather", "reduce_scatter"):
            rate *= (ranks - 1) / ranks
            bus = rate
        else:
            bus = rate * FACTORS[collective](ranks)
        shown = check or era.check
        if collective == "alltoall" and place == "in":
            shown = "    N/A"
        cells += [era.time(time), era.rate(rate), era.rate(bus), shown]
    return "  ".join(cells)


def printed_seconds(era: Era, size: int, place: str = "out") -> float:
    """The time that a reader finds: what is printed, in seconds."""
    text = era.time(time_us(size, place)).strip()
    return float(f"{text}e-3" if era.milliseconds else f"{text}e-6")


def header(era: Era, collective: str = "all_reduce") -> list[str]:
    words = list(era.header)
    if collective in ROOTED and "root" not in words:
        words.insert(words.index("time"), "root")
    second = words[words.index("time") :]
    rates = "(us)  (GB/s)  (GB/s)"
    units = [] if era.milliseconds else [f"#        (B)    (elements)                     {rates}            {rates}"]
    return [
        "#" + " " * 61 + "out-of-place" + " " * 23 + "in-place          ",
        "# " + "  ".join(f"{word:>8s}" for word in [*words, *second]),
        *units,
    ]


def devices(era: Era, ranks: int, per_host: int = 8, host: str = "host", pid: int = 1000) -> list[str]:
    return [
        era.rank_line.format(
            rank=rank, group=0, pid=pid + rank, host=f"{host}{rank // per_host}", device=rank % per_host,
            bus=16 + rank % per_host, gpu="GPU H",
        )
        for rank in range(ranks)
    ]  # fmt: skip


def log(
    era: Era,
    collective: str = "all_reduce",
    ranks: int = 16,
    sizes: Sequence[int] = SIZES,
    *,
    listed: bool = True,
    head: bool = True,
    **more: Any,
) -> list[str]:
    """The lines of a whole run."""
    lines = []
    if head:
        lines += era.parameters.format(threads=1, gpus=1, program=f"{collective}_perf").split("\n")
        lines += ["#", "# Using devices"]
    if listed:
        lines += devices(era, ranks)
    lines += ["#", *header(era, collective), *(row(era, collective, size, ranks, **more) for size in sizes)]
    return [*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 66.4839 ", "#"]


def nccl_document(
    collective: str = "all_reduce", ranks: int = 16, gpus: int = 1, sizes: Sequence[int] = SIZES
) -> dict[str, Any]:
    """What nccl-tests writes with -J: of a process with several GPUs it lists the first one only."""
    results = []
    for size in sizes:
        halves = {}
        for key, place in (("out_of_place", "out"), ("in_place", "in")):
            rate = size / time_us(size, place) / 1e3
            halves[key] = {
                "time": round(time_us(size, place), 6),
                "alg_bw": round(rate, 6),
                "bus_bw": round(rate * FACTORS[collective](ranks), 6),
                "nwrong": 0.0,
            }
        count = size // 4 // (ranks if collective in CUT else 1)
        op = "sum" if collective in REDUCING else "none"
        results.append({"size": size, "count": count, "type": "float", "redop": op, "root": "    -1", **halves})
    listed = [
        {
            "rank": rank,
            "group": 0,
            "pid": 7 + rank,
            "hostname": f"host{rank // 8}",
            "device": rank % 8,
            "device_info": "GPU H",
        }
        for rank in range(0, ranks, gpus)
    ]
    config = {"nthreads": 1, "ngpus": gpus, "aggregated_iterations": 1, "graph": 0, "devices": listed}
    args = [f"/opt/build/{collective}_perf", "-b", "1K"]
    return {"version": 3, "start_time": "2030-01-01 10:00:00", "args": args, "env": ["A=b"], "nccl_version": 22304,
            "config": config, "results": results, "errors": [], "end_time": "2030-01-01 10:01:00"}  # fmt: skip


def rccl_rows(collective: str = "AllReduce", ranks: int = 16, sizes: Sequence[int] = SIZES) -> list[dict[str, Any]]:
    """Rows of rccl-tests, one place each."""
    rows = []
    for size in sizes:
        for place in ("out", "in"):
            rate = size / time_us(size, place) / 1e3
            row = {"numCycle": 0, "name": collective, "nodes": 2, "ranks": ranks, "ranksPerNode": ranks // 2}
            row |= {"gpusPerRank": 1, "size": size, "type": "float", "redop": "sum", "inPlace": int(place == "in")}
            row |= {"time": round(time_us(size, place), 4), "algBw": round(rate, 4)}
            rows.append(row | {"busBw": round(rate * 2 * (ranks - 1) / ranks, 4), "wrong": "0"})
    return rows


def osu(title: str = "Allreduce", sizes: Sequence[int] = SIZES, columns: int = 4) -> list[str]:
    """The full output of an OSU collective, or its short one of two columns."""
    names = ["Avg Latency(us)", "Min Latency(us)", "Max Latency(us)", "Iterations"][: columns if columns > 1 else 1]
    lines = ["", f"# OSU MPI {title} Latency Test v7.9", "# Datatype: MPI_CHAR.", "# Size       " + "   ".join(names)]
    for size in sizes:
        time = time_us(size)
        cells = [f"{time:.2f}", f"{time * 0.9:.2f}", f"{time * 1.1:.2f}", "1000"][: columns if columns > 1 else 1]
        lines.append(f"{size:<10d}" + "".join(f"{cell:>20s}" for cell in cells))
    return lines
