"""Traces of PyTorch's profiler (Kineto), in Chrome's format: one rank's kernels, the collectives among them, its steps.

Of the millions of events of a trace only kernels and copies, their launches and the marks of steps are kept, as
numbers. Where several ranks are in one file, as this project writes them, the first one is read.

Format: pytorch/kineto, libkineto/src/output_json.cpp.
"""

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import IO, Any

from simcollectives.errors import InputError
from simcollectives.measured.logs.json_stream import MalformedError, json_parts
from simcollectives.measured.logs.kineto_names import Collective, is_communication, is_device_copy, read_collective
from simcollectives.measured.logs.kineto_steps import Kernel, Mark, Work, measured_steps
from simcollectives.measured.logs.types import MAX_SAMPLES, Kind, MeasuredStep, Sample, Table, Tally

MAX_KERNELS = 5_000_000
"""Kernels and copies of one rank that are held; more are refused."""

_STEP = re.compile(r"ProfilerStep#[0-9]+")
_RANK = re.compile(r"rank ([0-9]{1,7})")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime")
_IN_PLACE = ("all_reduce", "broadcast", "reduce")
_LARGEST_MICROSECONDS = (1 << 62) // 1000


@dataclass
class _Process:
    """What one process of a trace did on its device."""

    compute: Work = field(default_factory=Work)
    others: Work = field(default_factory=Work)
    kernels: list[Kernel] = field(default_factory=list)


@dataclass
class _Reader:
    tally: Tally
    processes: dict[Any, _Process] = field(default_factory=dict)
    marks: list[tuple[Any, Mark]] = field(default_factory=list)
    launches: tuple["array[int]", "array[int]"] = field(default_factory=lambda: (array("q"), array("q")))
    names: dict[Any, str] = field(default_factory=dict)
    gpus: dict[Any, str] = field(default_factory=dict)
    distributed: Mapping[str, Any] = field(default_factory=dict)
    held: int = 0


def read_kineto(stream: IO[str], tally: Tally) -> tuple[list[Table], tuple[MeasuredStep, ...]]:
    """The collectives of a trace as tables, one for each kind, group and element type, and its steps.

    Raises:
        InputError: no kernel is in the trace, or more than are held.
    """
    reader = _Reader(tally)
    try:
        for part in json_parts(stream, Decimal):
            if part.element and part.key in ("traceEvents", "") and isinstance(part.value, dict):
                tally.lines += 1
                _take(reader, part.value)
            elif part.element and part.key == "deviceProperties" and isinstance(part.value, dict):
                if isinstance(part.value.get("id"), int):
                    reader.gpus[part.value["id"]] = str(part.value.get("name", ""))[:80]
            elif part.key == "distributedInfo" and isinstance(part.value, dict):
                reader.distributed = part.value
    except MalformedError as error:
        tally.warn(f"{error}; what stands before it was read")
    if not reader.processes:
        ended = "".join(f" ({text})" for text in tally.warnings)
        rule = f"the trace holds no kernel of a device{ended}"
        raise InputError(f"{rule}; profile with ProfilerActivity.CUDA, on devices, while a step runs")
    return _results(reader)


def _take(reader: _Reader, event: dict[str, Any]) -> None:
    category, name, phase = event.get("cat"), event.get("name"), event.get("ph")
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    process = event.get("pid")
    if not isinstance(name, str) or not isinstance(process, int | str):
        return
    if phase == "M" and name == "process_name":
        reader.names[process] = str(args.get("name", ""))[:80]
    if phase != "X" or category not in ("kernel", "gpu_memcpy", "gpu_memset", "user_annotation", *_LAUNCHES):
        return
    start, duration = _nanoseconds(event.get("ts")), _nanoseconds(event.get("dur", 0))
    if start is None or duration is None or duration < 0:
        if category in ("kernel", "gpu_memcpy", "gpu_memset"):
            reader.tally.skip("a kernel without a time", reader.tally.lines)
        return
    correlation = args.get("correlation")
    correlation = correlation if isinstance(correlation, int) and 0 <= correlation < 1 << 62 else -1
    if category == "user_annotation":
        if _STEP.fullmatch(name):
            reader.marks.append((process, Mark(name, start, start + duration)))
    elif category in _LAUNCHES:
        if correlation >= 0:
            reader.launches[0].append(correlation)
            reader.launches[1].append(start)
    else:
        _take_work(reader, process, category, name, args, (start, start + duration, correlation))


def _take_work(
    reader: _Reader, process: Any, category: str, name: str, args: Mapping[str, Any], span: tuple[int, int, int]
) -> None:
    reader.held += 1
    if reader.held > MAX_KERNELS:
        raise InputError(f"the trace holds more than {MAX_KERNELS} kernels; profile fewer steps")
    mine = reader.processes.setdefault(process, _Process())
    if category == "kernel" and is_communication(name, args):
        mine.kernels.append(Kernel(*span, read_collective(name, args)))
    elif category == "kernel" or is_device_copy(name):
        mine.compute.add(*span)
    else:
        mine.others.add(*span)


def _nanoseconds(value: Any) -> int | None:
    """Whole nanoseconds of microseconds; None where it is no such number."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if not -_LARGEST_MICROSECONDS < value < _LARGEST_MICROSECONDS:
        return None
    return round(value * 1000)


def _results(reader: _Reader) -> tuple[list[Table], tuple[MeasuredStep, ...]]:
    with_collectives = [process for process, mine in reader.processes.items() if mine.kernels]
    chosen = min(
        with_collectives or reader.processes,
        key=lambda process: (isinstance(process, str), process if isinstance(process, int) else 0, str(process)),
    )
    mine = reader.processes[chosen]
    if len(reader.processes) > 1:
        reader.tally.warn(f"{len(reader.processes)} devices or ranks are in the trace; process {chosen} is read")
    marks = [mark for process, mark in reader.marks if process == chosen] or [mark for _, mark in reader.marks]
    if not marks:
        reader.tally.warn("no ProfilerStep is marked: everything is taken as one step; call profiler.step() after each")
    rank = _rank(reader, chosen)
    steps = measured_steps(mine.compute, mine.others, mine.kernels, marks, reader.launches, rank)
    steps = tuple(replace(step, world_size=_world_size(reader, step)) for step in steps)
    for step in steps:
        if any(collective.bytes is None for collective in step.collectives):
            reader.tally.warn("some collectives have no sizes: PyTorch before 2.2 does not write them")
    return _tables(reader, mine, str(reader.gpus.get(chosen) or next(iter(reader.gpus.values()), ""))), steps


def _world_size(reader: _Reader, step: MeasuredStep) -> int | None:
    """The ranks that the trace states, else those of the default group."""
    stated = reader.distributed.get("world_size")
    if isinstance(stated, int) and not isinstance(stated, bool) and stated >= 1:
        return stated
    return next((one.group_size for one in step.collectives if one.group == "world"), None)


def _rank(reader: _Reader, process: Any) -> int | None:
    named = _RANK.fullmatch(reader.names.get(process, ""))
    if named is not None:
        return int(named.group(1))
    rank = reader.distributed.get("rank")
    return rank if isinstance(rank, int) and not isinstance(rank, bool) else None


def _tables(reader: _Reader, mine: _Process, gpu: str) -> list[Table]:
    """One table for each kind, group and size of group; what is no whole collective of this project is counted."""
    tables: dict[tuple[str, str, int | None], Table] = {}
    version = str(reader.distributed.get("nccl_version", ""))[:20]
    for number, kernel in enumerate(mine.kernels, start=1):
        reason = _unusable(kernel.collective)
        if reason or number > MAX_SAMPLES:
            reader.tally.skip(reason or f"beyond the first {MAX_SAMPLES} collectives")
            continue
        one = kernel.collective
        table = tables.get((one.kind, one.group, one.group_size))
        if table is None:
            names = [one.kind, re.sub(r"\W+", "_", one.group)]
            table = Table(0, name="_".join(filter(None, names)), collective=one.kind, exponent=-9)
            table.collective_from = table.ranks_from = "the trace"
            table.ranks, table.gpu = one.group_size, gpu
            table.nccl_version = version if version != "unknown" else ""
            tables[one.kind, one.group, one.group_size] = table
            waits = (
                "waiting for other ranks left out" if one.waiting_us is not None else "with the wait for other ranks"
            )
            table.caveats = [f"kernels of one rank in a profiled run, {waits}"]
        seconds = str(kernel.end - kernel.begins)
        place = "in" if one.kind in _IN_PLACE else "out"
        table.add(Kind(one.dtype), Sample(number, one.bytes or 0, None, place, seconds))
    return list(tables.values())


def _unusable(one: Collective) -> str:
    if not one.kind:
        return f"{one.word} is no collective of this project"
    if one.bytes is None:
        return f"a kernel of {one.kind} whose size the trace does not say"
    if one.uneven:
        return "an all-to-all with unequal parts"
    if one.group_size == 1:
        return "a group of one rank, in which nothing moves"
    return ""
