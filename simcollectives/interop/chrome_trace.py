"""A training step as a Chrome trace with the names and arguments of PyTorch's profiler, for Perfetto and its kin.

One process a rank, one thread a stream and one for the host; times are microseconds, rounded to whole nanoseconds. A
kernel that waits for other ranks runs meanwhile, as NCCL's kernels do. The host takes no time to issue: its launches
stand where they are issued, with no length. What stands in memory is a counter.

Formats: pytorch/kineto, libkineto/src/output_json.cpp; names of collectives as in torch 2.13, ProcessGroupNCCL.cpp,
of kernels as in NCCL 2.23. A NCCL kernel is named by its protocol LL whichever protocol runs, and by the ring or the
tree; the algorithm that was priced stands in the arguments. HolisticTraceAnalysis takes one rank a file, and rounds
to whole microseconds unless HTA_DISABLE_NS_ROUNDING=1 is set.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, HOST, Call
from simcollectives.training.step import Step
from simcollectives.training.timeline import Span

Event = dict[str, Any]

HOST_THREAD = 1
FIRST_STREAM = 7
"""The thread of the compute stream; the other streams follow in the order in which they are first used."""

_LISTED_RANKS = 30
# Beyond 16 bits: HolisticTraceAnalysis 0.5 keeps positions of events in the smallest type that holds these numbers.
_FIRST_CORRELATION = 1 << 16
_COLLECTIVES: Mapping[str, tuple[str, str]] = {
    "all_reduce": ("allreduce", "AllReduce_Sum_{dtype}_{shape}_LL"),
    "all_gather": ("_allgather_base", "AllGather_{shape}_LL"),
    "reduce_scatter": ("_reduce_scatter_base", "ReduceScatter_Sum_{dtype}_{shape}_LL"),
    "broadcast": ("broadcast", "Broadcast_{shape}_LL"),
    "reduce": ("reduce", "Reduce_Sum_{dtype}_{shape}_LL"),
    "all_to_all": ("all_to_all", "SendRecv"),
}
_DTYPES: Mapping[str, tuple[str, str]] = {
    "float64": ("Double", "f64"),
    "float32": ("Float", "f32"),
    "float16": ("Half", "f16"),
    "bfloat16": ("BFloat16", "bf16"),
    "int64": ("Long", "i64"),
    "int32": ("Int", "i32"),
    "int8": ("Char", "i8"),
    "uint8": ("Byte", "u8"),
}
# Parts of names by which readers tell communication, copies and synchronisation from computation.
_MARKS_OF_OTHERS = re.compile(r"^nccl|^dma|Memcpy|Memset|Sync")


def chrome_trace(step: Step, rank: int | None = None) -> dict[str, Any]:
    """Return the trace of the ranks that were played, or of one of them.

    Raises:
        InputError: the rank was not played: another stands for it.
    """
    played = sorted({span.rank for span in step.timeline.spans})
    if rank is not None and rank not in played:
        names = ", ".join(map(str, played))
        rule = f"{show_value(rank)} was not played; ranks that are alike are played once, here as {names}"
        raise InputError([Problem("rank", rule)])
    ranks = played if rank is None else [rank]
    groups = _groups(step)
    events: list[Event] = []
    first = _FIRST_CORRELATION
    for one in ranks:
        spans = sorted(step.timeline.of_rank(one), key=lambda span: span.place)
        events += _rank_events(step, one, spans, groups, first)
        first += len(spans)
    if played[:1] == ranks[:1]:
        events += _memory_events(step, played[0])
    return {
        "schemaVersion": 1,
        "deviceProperties": [_device(step, one) for one in ranks],
        "distributedInfo": _distributed(step, ranks[0] if ranks else 0, groups),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "traceName": f"simcollectives: {step.strategy}",
        "traceEvents": events,
    }


def trace_text(step: Step, rank: int | None = None) -> str:
    """Return the trace as JSON text, an event a line; raises what ``chrome_trace`` does."""
    trace = chrome_trace(step, rank)
    events = trace.pop("traceEvents")
    head = json.dumps(trace, allow_nan=False)[:-1]
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    return f'{head}, "traceEvents": [\n{lines}\n]}}\n'


def nanoseconds(seconds: float) -> int:
    """Return whole nanoseconds; rounding start and end alike, work on a stream never overlaps by it."""
    return round(seconds * 1e9)


def _groups(step: Step) -> dict[str, str]:
    """Names of the process groups, as torch counts them: the default group is 0."""
    names = dict.fromkeys([WORLD, *(collective.group for collective in step.collectives)])
    return {name: str(number) for number, name in enumerate(names)}


def _device_number(step: Step, rank: int) -> int:
    cluster = step.training.cluster
    return int(cluster.device_of_rank[rank]) % cluster.gpus_per_node


def _device(step: Step, rank: int) -> dict[str, Any]:
    device = step.training.cluster.device
    found: dict[str, Any] = {"id": _device_number(step, rank), "name": device.name}
    if device.memory_bytes is not None:
        found["totalGlobalMem"] = int(device.memory_bytes)
    return found


def _distributed(step: Step, rank: int, groups: Mapping[str, str]) -> dict[str, Any]:
    sizes = {WORLD: step.training.world_size} | {one.group: one.group_size for one in step.collectives}
    configs = []
    for group, name in groups.items():
        config = {
            "pg_name": name,
            "pg_desc": _description(group),
            "backend_config": "cuda:nccl",
            "pg_size": sizes[group],
        }
        configs.append(config | ({"ranks": list(range(sizes[group]))} if group == WORLD else {}))
    return {
        "backend": "nccl",
        "rank": rank,
        "world_size": step.training.world_size,
        "pg_count": len(configs),
        "pg_config": configs,
    }


def _description(group: str) -> str:
    return "default_pg" if group == WORLD else group


def _rank_events(
    step: Step, rank: int, spans: Sequence[Span], groups: Mapping[str, str], first: int
) -> Iterator[Event]:
    """What happened on a rank; ``first`` is the number of its first launch."""
    threads = _threads(spans)
    yield from _names(rank, _device_number(step, rank), threads)
    end = max((nanoseconds(span.end) for span in spans), default=0)
    number = step.training.iteration or 0
    yield _complete("user_annotation", f"ProfilerStep#{number}", rank, HOST_THREAD, 0, end, {"External id": 0})
    yield from _phases(rank, spans, threads)
    issued = 0
    for span in spans:
        begin, end = nanoseconds(span.start), nanoseconds(span.end)
        if span.operation.stream == HOST:
            yield _complete("cpu_op", span.operation.name, rank, HOST_THREAD, begin, end, _place_args(span))
            issued = end
            continue
        yield from _launched(step, span, threads[span.operation.stream], issued, groups, first + span.place)


def _threads(spans: Sequence[Span]) -> dict[str, int]:
    used = dict.fromkeys(span.operation.stream for span in spans if span.operation.stream != HOST)
    streams = sorted(used, key=lambda stream: stream != COMPUTE)
    return {stream: FIRST_STREAM + number for number, stream in enumerate(streams)}


def _names(rank: int, device: int, threads: Mapping[str, int]) -> Iterator[Event]:
    yield _metadata("process_name", rank, 0, "name", f"rank {rank}")
    yield _metadata("process_labels", rank, 0, "labels", f"GPU {device}")
    yield _metadata("process_sort_index", rank, 0, "sort_index", rank)
    named = {HOST_THREAD: "host"} | {thread: f"stream {thread}: {stream}" for stream, thread in threads.items()}
    for thread, name in named.items():
        yield _metadata("thread_name", rank, thread, "name", name)
        yield _metadata("thread_sort_index", rank, thread, "sort_index", thread)


def _phases(rank: int, spans: Sequence[Span], threads: Mapping[str, int]) -> Iterator[Event]:
    """Forward, backward and optimizer, one micro-batch after another, above the kernels of the compute stream."""
    reach: dict[tuple[int, str], tuple[int, int]] = {}
    for span in spans:
        if span.operation.stream == COMPUTE:
            key = span.operation.micro_batch, span.operation.phase
            begin, end = reach.get(key, (nanoseconds(span.start), 0))
            reach[key] = begin, max(end, nanoseconds(span.end))
    for (micro_batch, phase), (begin, end) in reach.items():
        args = {"Micro-batch": micro_batch}
        yield _complete("gpu_user_annotation", phase, rank, threads[COMPUTE], begin, end, args)


def _launched(
    step: Step, span: Span, thread: int, issued: int, groups: Mapping[str, str], correlation: int
) -> Iterator[Event]:
    """A kernel or copy, its launch, and the flow from one to the other."""
    operation, rank = span.operation, span.rank
    begin, end = nanoseconds(span.start), nanoseconds(span.end)
    ids = {"External id": correlation, "correlation": correlation}
    copies = operation.kind == "copy"
    launch = "cudaMemcpyAsync" if copies else "cudaLaunchKernel"
    yield _complete("cuda_runtime", launch, rank, HOST_THREAD, issued, issued, ids)
    yield _flow("s", correlation, rank, HOST_THREAD, issued)
    args: dict[str, Any] = {
        "External id": correlation,
        "queued": 0,
        "device": _device_number(step, rank),
        "context": 1,
        "stream": thread,
        "correlation": correlation,
    }
    if operation.call is not None:
        args |= _collective_args(step, span, operation.call, groups)
    name = _kernel_name(span)
    category = "gpu_memcpy" if copies else "kernel"
    yield _complete(category, name, rank, thread, begin, end, args | _place_args(span))
    yield _flow("f", correlation, rank, thread, begin)


def _kernel_name(span: Span) -> str:
    operation, call = span.operation, span.operation.call
    if call is not None:
        shape = "TREE" if span.price is not None and span.price.algorithm.startswith("tree") else "RING"
        kernel = _COLLECTIVES[call.kind][1].format(dtype=_DTYPES[call.dtype][1], shape=shape)
        return f"ncclDevKernel_{kernel}(ncclDevKernelArgsStorage<(unsigned long)4096>)"
    if operation.kind == "copy":
        return f"Memcpy ({operation.name})"
    return _MARKS_OF_OTHERS.sub(lambda mark: mark[0].upper() if mark[0].islower() else mark[0].lower(), operation.name)


def _collective_args(step: Step, span: Span, call: Call, groups: Mapping[str, str]) -> dict[str, Any]:
    """What Kineto writes of a collective, then what the simulator knows beside it."""
    small = call.elements // call.group_size
    args: dict[str, Any] = {
        "Collective name": _COLLECTIVES[call.kind][0],
        "In msg nelems": small if call.kind == "all_gather" else call.elements,
        "Out msg nelems": small if call.kind == "reduce_scatter" else call.elements,
        "Group size": call.group_size,
        "dtype": _DTYPES[call.dtype][0],
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": groups[call.group],
        "Process Group Description": _description(call.group),
    }
    if call.group == WORLD:
        args["Process Group Ranks"] = _ranks_text(step.training.world_size)
    args["Bytes"] = call.bytes
    args["Waiting for ranks (us)"] = (nanoseconds(span.begins) - nanoseconds(span.start)) / 1000
    if span.price is not None:
        args |= {"Algorithm": span.price.algorithm, "Engine": span.price.engine}
    return args


def _ranks_text(ranks: int) -> str:
    """Ranks as Kineto writes them: of more than 30 the first 29 and the last.

    >>> _ranks_text(3)
    '[0, 1, 2]'
    """
    if ranks <= _LISTED_RANKS:
        return str(list(range(ranks)))
    first = ", ".join(map(str, range(_LISTED_RANKS - 1)))
    return f"[{first}, ..., {ranks - 1}]"


def _place_args(span: Span) -> dict[str, Any]:
    operation = span.operation
    return {"Operation": operation.name, "Phase": operation.phase, "Micro-batch": operation.micro_batch}


def _memory_events(step: Step, rank: int) -> Iterator[Event]:
    """The bytes of every item, at each change; changes of one instant stand in the order in which they happen."""
    held = dict.fromkeys((change.item for change in step.timeline.memory), 0)
    for change in step.timeline.memory:
        held[change.item] += change.bytes
        yield {
            "ph": "C",
            "cat": "memory",
            "name": "memory (bytes)",
            "pid": rank,
            "tid": 0,
            "ts": nanoseconds(change.time) / 1000,
            "args": dict(held),
        }


def _complete(
    category: str, name: str, process: int, thread: int, begin: int, end: int, args: Mapping[str, Any]
) -> Event:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": begin / 1000,
        "dur": (end - begin) / 1000,
        "args": dict(args),
    }


def _flow(kind: str, number: int, process: int, thread: int, at: int) -> Event:
    event = {
        "ph": kind,
        "id": number,
        "pid": process,
        "tid": thread,
        "ts": at / 1000,
        "cat": "ac2g",
        "name": "ac2g",
    }
    return event | ({"bp": "e"} if kind == "f" else {})


def _metadata(name: str, process: int, thread: int, key: str, value: Any) -> Event:
    return {"ph": "M", "name": name, "pid": process, "tid": thread, "ts": 0.0, "args": {key: value}}
