"""Chrome traces: every span is there, to a nanosecond, as PyTorch's profiler writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from simcollectives.algorithms import ALGORITHMS
from simcollectives.cluster import Cluster
from simcollectives.engines.job import DTYPES
from simcollectives.errors import InputError
from simcollectives.interop.chrome_trace import chrome_trace, trace_text
from simcollectives.training.program import HOST, Builder, Call
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.timeline import Span, total, union, without
from tests.training.steps import H100, INFINIBAND, NVLINK, every_kind, uniform_step, uniform_training, written_step

NODES = Cluster.two_level(2, 4, NVLINK, INFINIBAND, device=H100)
Event = dict[str, Any]


@pytest.fixture
def step() -> Step:
    return uniform_step(
        options={"bucket_cap": 10**7}, elements=10**7, layers=4, tensors=6, tokens=2000, cluster=NODES, kept=1000
    )


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Step:
    return written_step(monkeypatch, every_kind)


@pytest.fixture
def stragglers() -> Step:
    training = uniform_training(10**6, 3, 2, 2000, NODES, slow={2: 1.5, 5: 2.0})
    return simulate_step(training, "ddp", {"bucket_cap": 10**5})


def work_of(events: Sequence[Event]) -> list[Event]:
    """Kernels, copies and work of the host: what spans become."""
    return [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "cpu_op")]


def spans_of(step: Step) -> list[Span]:
    return sorted(step.timeline.spans, key=lambda span: (span.rank, span.place))


@pytest.mark.parametrize("name", ["step", "written", "stragglers"])
def test_every_span_is_there_to_a_nanosecond(name: str, request: pytest.FixtureRequest) -> None:
    step = request.getfixturevalue(name)
    work = work_of(chrome_trace(step)["traceEvents"])
    spans = spans_of(step)
    assert len(work) == len(spans) > 0
    for event, span in zip(work, spans, strict=True):
        assert event["pid"] == span.rank
        assert event["args"]["Operation"] == span.operation.name
        assert event["args"]["Phase"] == span.operation.phase
        assert event["ts"] / 1e6 == pytest.approx(span.start, abs=0.5001e-9)
        assert (event["ts"] + event["dur"]) / 1e6 == pytest.approx(span.end, abs=0.5001e-9)
        assert event["ts"] == round(event["ts"], 3)
        assert event["dur"] == round(event["dur"], 3) >= 0
        category = {"copy": "gpu_memcpy", "host": "cpu_op"}.get(span.operation.kind, "kernel")
        assert event["cat"] == category


@pytest.mark.parametrize("name", ["step", "written", "stragglers"])
def test_one_process_a_rank_and_one_thread_a_stream(name: str, request: pytest.FixtureRequest) -> None:
    step = request.getfixturevalue(name)
    events = chrome_trace(step)["traceEvents"]
    named = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event.get("name") == "thread_name"
    }
    for event, span in zip(work_of(events), spans_of(step), strict=True):
        shown = named[event["pid"], event["tid"]]
        stream = span.operation.stream
        assert shown == ("host" if stream == HOST else f"stream {event['tid']}: {stream}")
        if stream != HOST:
            assert event["args"]["stream"] == event["tid"] >= 7
            assert event["args"]["device"] == span.rank % step.training.cluster.gpus_per_node
    processes = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
    assert processes == {rank: f"rank {rank}" for rank in {span.rank for span in step.timeline.spans}}


@pytest.mark.parametrize("name", ["step", "written", "stragglers"])
def test_work_of_a_thread_does_not_overlap(name: str, request: pytest.FixtureRequest) -> None:
    threads: dict[tuple[int, int], list[Event]] = {}
    for event in work_of(chrome_trace(request.getfixturevalue(name))["traceEvents"]):
        threads.setdefault((event["pid"], event["tid"]), []).append(event)
    for events in threads.values():
        for before, after in pairwise(events):
            assert round(before["ts"] + before["dur"], 3) <= after["ts"]


@pytest.mark.parametrize("name", ["step", "written", "stragglers"])
def test_every_kernel_has_one_launch_and_one_flow(name: str, request: pytest.FixtureRequest) -> None:
    events = chrome_trace(request.getfixturevalue(name))["traceEvents"]
    kernels = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("kernel", "gpu_memcpy")}
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert set(kernels) == set(launches) == set(starts) == set(ends)
    assert sum(event.get("cat") in ("kernel", "gpu_memcpy") for event in events) == len(kernels)
    for number, kernel in kernels.items():
        launch = launches[number]
        assert kernel["args"]["External id"] == launch["args"]["External id"] == number
        assert launch["ts"] <= kernel["ts"]
        assert launch["pid"] == kernel["pid"]
        assert (starts[number]["pid"], starts[number]["tid"], starts[number]["ts"]) == (
            launch["pid"],
            launch["tid"],
            launch["ts"],
        )
        assert (ends[number]["pid"], ends[number]["tid"], ends[number]["ts"]) == (
            kernel["pid"],
            kernel["tid"],
            kernel["ts"],
        )
        expected = "cudaMemcpyAsync" if kernel["cat"] == "gpu_memcpy" else "cudaLaunchKernel"
        assert launch["name"] == expected


def test_launches_stand_where_the_host_issues_them(written: Step) -> None:
    events = chrome_trace(written)["traceEvents"]
    waits = next(event for event in events if event["name"] == "Adam on the host")
    after = [event for event in events if event.get("cat") == "cuda_runtime"][-2:]
    before = [event for event in events if event.get("cat") == "cuda_runtime"][:-2]
    assert {event["ts"] for event in before} == {0.0}
    assert {event["ts"] for event in after} == {round(waits["ts"] + waits["dur"], 3)}


def test_arguments_of_collectives(written: Step) -> None:
    """Elements in and out as torch counts them: of its buffers, whatever the algorithm sends."""
    events = chrome_trace(written)["traceEvents"]
    found = {}
    for event in events:
        if "Collective name" in event.get("args", {}):
            args = event["args"]
            found[args["Collective name"]] = (
                event["name"].partition("(")[0],
                *(
                    args[key]
                    for key in ("In msg nelems", "Out msg nelems", "dtype", "Group size", "Process Group Name")
                ),
            )
    assert found == {
        "_allgather_base": ("ncclDevKernel_AllGather_RING_LL", 1000, 4000, "BFloat16", 4, "1"),
        "_reduce_scatter_base": ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", 4000, 1000, "Float", 4, "1"),
        "allreduce": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 8000, 8000, "Float", 8, "0"),
        "all_to_all": ("ncclDevKernel_SendRecv", 800, 800, "Long", 8, "0"),
        "reduce": ("ncclDevKernel_Reduce_Sum_f16_RING_LL", 8, 8, "Half", 8, "0"),
        "broadcast": ("ncclDevKernel_Broadcast_RING_LL", 80, 80, "Char", 8, "0"),
    }


def test_groups(written: Step) -> None:
    trace = chrome_trace(written)
    configs = trace["distributedInfo"]["pg_config"]
    assert [(one["pg_name"], one["pg_desc"], one["pg_size"]) for one in configs] == [
        ("0", "default_pg", 8),
        ("1", "shard", 4),
    ]
    of_world = {
        event["args"]["Process Group Ranks"]
        for event in trace["traceEvents"]
        if event.get("args", {}).get("Process Group Description") == "default_pg"
    }
    assert of_world == {"[0, 1, 2, 3, 4, 5, 6, 7]"}


def test_long_lists_of_ranks_are_cut_as_kineto_cuts_them() -> None:
    step = uniform_step(elements=10**6, layers=1, tensors=1)
    ranks = next(
        event["args"]["Process Group Ranks"]
        for event in chrome_trace(step)["traceEvents"]
        if "Collective name" in event.get("args", {})
    )
    assert ranks.startswith("[0, 1, 2, ")
    assert ranks.endswith(" 27, 28, ..., 63]")


def test_a_tree_is_named_so() -> None:
    training = uniform_training(10**6, 1, 1, cluster=Cluster.flat(4, NVLINK))
    step = simulate_step(training, "all_reduce_once", choices={"all_reduce": ("tree", {})})
    kernel = next(e for e in chrome_trace(step)["traceEvents"] if "Collective name" in e.get("args", {}))
    assert kernel["name"].startswith("ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(")
    assert kernel["args"]["Algorithm"] == "tree"
    assert kernel["args"]["Engine"] == "closed_form"


def test_every_collective_and_dtype_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {algorithm.collective for algorithm in ALGORITHMS}

    def write(builder: Builder) -> None:
        for kind in sorted(kinds):
            for dtype in DTYPES:
                builder.collective(f"{kind} {dtype}", Call(kind, "world", 8, 64, dtype))

    work = work_of(chrome_trace(written_step(monkeypatch, write))["traceEvents"])
    assert len({(e["args"]["Collective name"], e["args"]["dtype"]) for e in work}) == len(kinds) * len(DTYPES)
    assert all(re.match("nccl.*Kernel", event["name"]) for event in work)


def test_kernels_are_not_taken_for_communication_or_copies(written: Step) -> None:
    """By the expressions of HolisticTraceAnalysis 0.5, hta/utils/utils.py."""
    for event in work_of(chrome_trace(written)["traceEvents"]):
        communicates = re.match("nccl.*Kernel", event["name"]) is not None
        copies = re.match("Memcpy|Memset|dma", event["name"]) is not None
        computes = re.match("nccl.*Kernel|.*Memcpy|Memset|.*Sync", event["name"]) is None
        if event["cat"] == "kernel":
            assert communicates == ("Collective name" in event["args"])
            assert computes != communicates
        assert copies == (event["cat"] == "gpu_memcpy")


def test_the_counter_is_the_memory(step: Step) -> None:
    counters = [event for event in chrome_trace(step)["traceEvents"] if event["ph"] == "C"]
    assert max(sum(event["args"].values()) for event in counters) == step.peak_bytes
    peak = next(event for event in counters if sum(event["args"].values()) == step.peak_bytes)
    assert {item: size for item, size in peak["args"].items() if size} == step.memory
    assert peak["ts"] / 1e6 == pytest.approx(step.peak_seconds, abs=1e-9)
    assert [event["ts"] for event in counters] == sorted(event["ts"] for event in counters)


def test_kernels_waiting_for_ranks_run(stragglers: Step) -> None:
    waited = [
        event["args"]["Waiting for ranks (us)"]
        for event in chrome_trace(stragglers, 0)["traceEvents"]
        if "Collective name" in event.get("args", {})
    ]
    collectives = [span for span in stragglers.timeline.of_rank(0) if span.operation.kind == "collective"]
    expected = [1e6 * (s.begins - s.start) for s in sorted(collectives, key=lambda span: span.place)]
    assert waited == pytest.approx(expected, abs=1e-3)
    assert max(waited) > 0


def test_the_seconds_of_a_step_can_be_read_from_its_trace(stragglers: Step) -> None:
    events = [event for event in chrome_trace(stragglers, 0)["traceEvents"] if event.get("cat") == "kernel"]
    kernels = {
        communicates: union(
            (event["ts"], round(event["ts"] + event["dur"], 3))
            for event in events
            if ("Collective name" in event["args"]) == communicates
        )
        for communicates in (False, True)
    }
    allowed = 1e-3 * len(events)
    assert total(kernels[False]) == pytest.approx(1e6 * stragglers.compute_seconds, abs=allowed)
    assert total(kernels[True]) == pytest.approx(1e6 * stragglers.communication_seconds, abs=allowed)
    exposed = total(without(kernels[True], kernels[False]))
    assert exposed == pytest.approx(1e6 * stragglers.exposed_seconds, abs=allowed)


def test_phases_and_the_step_stand_above_the_kernels(step: Step) -> None:
    events = chrome_trace(step)["traceEvents"]
    phases = [event for event in events if event.get("cat") == "gpu_user_annotation"]
    assert [event["name"] for event in phases] == ["forward", "backward", "optimizer"]
    for before, after in pairwise(phases):
        assert round(before["ts"] + before["dur"], 3) <= after["ts"]
    whole = next(event for event in events if event["name"] == "ProfilerStep#0")
    assert whole["dur"] == pytest.approx(1e6 * step.step_seconds, abs=1e-3)
    computed = [event for event in events if event.get("cat") == "kernel" and event["tid"] == 7]
    for event in computed:
        phase = next(one for one in phases if one["name"] == event["args"]["Phase"])
        assert phase["ts"] <= event["ts"]
        assert event["ts"] + event["dur"] <= phase["ts"] + phase["dur"] + 1e-6


def test_accumulation_has_its_phases_for_each_micro_batch() -> None:
    step = uniform_step(elements=10**6, layers=2, tensors=1, accumulation=3)
    phases = [event for event in chrome_trace(step)["traceEvents"] if event.get("cat") == "gpu_user_annotation"]
    assert [(event["name"], event["args"]["Micro-batch"]) for event in phases] == [
        *((phase, number) for number in range(3) for phase in ("forward", "backward")),
        ("optimizer", 2),
    ]


def test_the_text_is_the_trace(stragglers: Step) -> None:
    text = trace_text(stragglers)
    assert json.loads(text) == chrome_trace(stragglers)
    assert re.search(r'"rank":\s+0', text.splitlines()[0])
    assert json.loads(trace_text(stragglers, 2))["distributedInfo"]["rank"] == 2
    assert len(text.splitlines()) == len(chrome_trace(stragglers)["traceEvents"]) + 2


def test_one_rank(stragglers: Step) -> None:
    events = chrome_trace(stragglers, 5)["traceEvents"]
    assert {event["pid"] for event in events} == {5}
    assert not any(event["ph"] == "C" for event in events), "the memory is that of rank 0"
    with pytest.raises(InputError, match=r"3 was not played.*0, 2, 5"):
        chrome_trace(stragglers, 3)


def test_the_device(step: Step) -> None:
    assert chrome_trace(step)["deviceProperties"] == [{"id": 0, "name": "H100", "totalGlobalMem": 80_000_000_000}]
