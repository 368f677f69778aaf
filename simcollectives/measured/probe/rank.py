"""What every rank of a probe does; it reports what it finds, one thing after another, which only rank 0 passes on."""

import os
import platform
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from simcollectives.engines.job import DTYPES
from simcollectives.measured.probe import local
from simcollectives.measured.probe.collectives import Operation, make_operation
from simcollectives.measured.probe.group import CPU_TIMING, GPU_TIMING, Group, joined
from simcollectives.measured.probe.launch import Placement
from simcollectives.measured.probe.plan import PLACES_OF, SPLIT, Plan, check_same, message_sizes, smallest_bytes
from simcollectives.measured.probe.results import Event, Half, LeftOut, Row, Started, System
from simcollectives.units import format_bytes

Report = Callable[[Event], None]


def run_rank(plan: Plan, placement: Placement, report: Report) -> None:
    """Measure everything planned as one of all ranks, which all call this at once.

    Raises:
        InputError: the backend or this rank's GPU is not there, or other ranks have other plans.
        RuntimeError: torch.distributed failed, or another rank did not answer in time.
    """
    with joined(plan, placement) as group:
        check_same(_of_all(group, plan))
        report(_system(group))
        for collective in plan.collectives:
            for dtype in plan.dtypes:
                for event in _measure(group, plan, collective, dtype):
                    report(event)
        for dtype in plan.fractional if plan.matmul else ():
            for event in local.multiply(group, plan, dtype):
                report(event)
        for event in local.copy(group, plan) if plan.copies else ():
            report(event)
        group.meet()


def _system(group: Group) -> System:
    torch = group.torch
    index = group.placement.local_rank
    name = torch.cuda.get_device_name(group.device) if group.on_gpu else f"none: {cpu_name()}"
    mine = Started(group.placement.rank, socket.gethostname(), os.getpid(), index, name)
    return System(
        backend="nccl" if group.on_gpu else "gloo",
        torch_version=str(torch.__version__),
        nccl_version=".".join(map(str, torch.cuda.nccl.version())) if group.on_gpu else "",
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        timing=GPU_TIMING if group.on_gpu else CPU_TIMING,
        ranks=tuple(_of_all(group, mine)),
    )


def _of_all(group: Group, mine: Any) -> list[Any]:
    """What each rank gives, in their order."""
    found: list[Any] = [None] * group.world_size
    group.torch.distributed.all_gather_object(found, mine)
    return found


def cpu_name() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, names), platform.processor() or platform.machine() or "CPU")


def _measure(group: Group, plan: Plan, collective: str, dtype: str) -> Iterator[Event]:
    """Every size of a collective, the smallest first; the first that cannot be measured ends it."""
    sizes = message_sizes(plan, collective, dtype, group.world_size)
    what = f"{collective} in {dtype}"
    least = smallest_bytes(collective, dtype, group.world_size)
    if plan.sizes[0] < least:
        unit = "an element for every rank" if collective in SPLIT else "an element"
        yield LeftOut(f"{what} below {format_bytes(least)}", f"a message has at least {unit}")
    for size in sizes:
        elements = size // DTYPES[dtype]
        halves = []
        for place in PLACES_OF[collective]:
            # In two steps: memory may be short on one rank only, which then must not leave the others alone in a call.
            operation, reason = group.attempt(partial(_prepared, group, collective, place, elements, dtype))
            wrong = None
            if operation is not None:
                wrong, reason = group.attempt(partial(_wrong, operation))
            if operation is None or wrong is None:
                yield LeftOut(f"{what} from {format_bytes(size)} on", reason)
                return
            operation.clear()
            halves.append(Half(place, group.time(operation.call, plan), group.total(wrong)))
            del operation
        yield Row(collective, dtype, size, elements, tuple(halves))


def _prepared(group: Group, collective: str, place: str, elements: int, dtype: str) -> Operation:
    operation = make_operation(group, collective, place, elements, dtype)
    operation.prepare()
    return operation


def _wrong(operation: Operation) -> int:
    """How many elements of this rank are wrong after the first call."""
    operation.call()
    return operation.wrong()
