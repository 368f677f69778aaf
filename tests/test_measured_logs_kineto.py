"""Traces of PyTorch's profiler: the figures of a step by hand, and of this project's own traces to a nanosecond."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from simcollectives.cluster import Cluster
from simcollectives.errors import InputError
from simcollectives.interop.chrome_trace import trace_text
from simcollectives.measured.logs import MeasuredStep, ReadLog, read_log
from simcollectives.training.step import Step, simulate_step
from tests.training.steps import H100, INFINIBAND, NVLINK, every_kind, uniform_step, uniform_training, written_step

NODES = Cluster.two_level(2, 4, NVLINK, INFINIBAND, device=H100)
NANOSECOND = 1e-9
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


def read(tmp_path: Path, content: str | bytes) -> ReadLog:
    path = tmp_path / "trace.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_log(path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", ["step", "written", "stragglers"])
def test_own_traces_read_back_to_the_same_figures(
    tmp_path: Path, name: str, packed: bool, request: pytest.FixtureRequest
) -> None:
    step: Step = request.getfixturevalue(name)
    text = trace_text(step)
    log = read(tmp_path, gzip.compress(text.encode()) if packed else text)
    (found,) = log.steps
    assert found.rank == 0
    spans = len(step.timeline.of_rank(0))  # the ends of each are rounded to half a nanosecond
    for key in ("step", "compute", "communication", "exposed", "waiting", "idle"):
        wanted = getattr(step, f"{key}_seconds")
        assert getattr(found, f"{key}_seconds") == pytest.approx(wanted, abs=(spans + 1) * NANOSECOND), key
    assert len(found.collectives) == len(step.collectives) > 0
    for one, issued in zip(found.collectives, step.collectives, strict=True):
        for key in ("kind", "name", "group", "group_size", "elements", "dtype", "bytes", "micro_batch", "phase"):
            assert getattr(one, key) == getattr(issued, key)
        assert one.start == pytest.approx(issued.start, abs=1.5 * NANOSECOND)
        assert one.end == pytest.approx(issued.end, abs=1.5 * NANOSECOND)
    if step.overlap is not None:
        assert found.overlap == pytest.approx(step.overlap, abs=1e-4)


@pytest.mark.parametrize("name", ["step", "written", "stragglers"])
def test_own_traces_are_sweeps(tmp_path: Path, name: str, request: pytest.FixtureRequest) -> None:
    step: Step = request.getfixturevalue(name)
    log = read(tmp_path, trace_text(step))
    wanted = sorted(
        (one.kind, one.group_size, one.bytes, one.end - one.start) for one in step.collectives if one.group_size > 1
    )
    found = sorted(
        (sweep.collective, sweep.world_size, size, seconds)
        for sweep in log.measured
        for size, seconds in zip(sweep.message_bytes, sweep.seconds, strict=True)
    )
    assert [row[:3] for row in found] == [row[:3] for row in wanted]
    assert [row[3] for row in found] == pytest.approx([row[3] for row in wanted], abs=1.5 * NANOSECOND)
    assert log.skipped == ()


def test_steps_exposed_by_collective_sum_to_the_step_s_where_they_do_not_overlap(tmp_path: Path, step: Step) -> None:
    (found,) = read(tmp_path, trace_text(step)).steps
    assert sum(one.exposed for one in found.collectives) == pytest.approx(found.exposed_seconds, abs=1e-12)


# A trace as torch writes one: launches on the host run ahead of the kernels; times are microseconds.
def event(category: str, name: str, start: float, duration: float, tid: int, **args: Any) -> Event:
    process = 4242 if category in ("user_annotation", "cuda_runtime", "cpu_op") else 3
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": process,
        "tid": tid,
        "ts": start,
        "dur": duration,
        "args": args,
    }


class Trace:
    """Kernels with their launches."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def mark(self, number: int, start: float, end: float) -> None:
        self.events.append(event("user_annotation", f"ProfilerStep#{number}", start, end - start, 4242))

    def kernel(
        self, launched: float, start: float, end: float, name: str = "gemm", category: str = "kernel", **args: Any
    ) -> None:
        number = len(self.events)
        self.events.append(event("cuda_runtime", "cudaLaunchKernel", launched, 1, 4242, correlation=number))
        self.events.append(event(category, name, start, end - start, 7, correlation=number, stream=7, **args))

    def collective(self, launched: float, start: float, end: float, word: str = "allreduce", **more: Any) -> None:
        args = {
            "Collective name": word,
            "In msg nelems": 1000,
            "Out msg nelems": 1000,
            "Group size": 8,
            "dtype": "BFloat16",
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": "0",
            "Process Group Description": "default_pg",
        } | more
        self.kernel(
            launched, start, end, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", **args
        )

    def text(self, **head: Any) -> str:
        info = {"backend": "nccl", "rank": 5, "world_size": 8}
        whole = {"schemaVersion": 1, "deviceProperties": [{"id": 3, "name": "GPU H"}], "distributedInfo": info} | head
        return json.dumps({**whole, "traceEvents": self.events, "traceName": "x"})


def two_steps() -> Trace:
    """By hand: step 1 from 0 to 200, step 2 from there to 330."""
    trace = Trace()
    trace.mark(1, 0, 100)
    trace.kernel(10, 20, 60)
    trace.collective(20, 40, 90)  # exposed from 60 to 80
    trace.kernel(30, 80, 150)
    trace.kernel(40, 150, 160, "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy")
    trace.kernel(45, 160, 170, "Memcpy DtoD (Device -> Device)", "gpu_memcpy")
    trace.kernel(50, 180, 200, "adam")
    trace.mark(2, 100, 180)
    trace.kernel(110, 210, 250)
    trace.collective(
        120, 220, 330, "_allgather_base", **{"Out msg nelems": 8000, "Process Group Description": "mesh_dp"}
    )
    return trace


def figures(step: MeasuredStep) -> tuple[float, ...]:
    names = ("step", "compute", "communication", "exposed", "idle")
    return tuple(round(getattr(step, f"{name}_seconds") * 1e6, 6) for name in names)


def test_steps_by_hand(tmp_path: Path) -> None:
    log = read(tmp_path, two_steps().text())
    first, second = log.steps
    # compute 20-60, 80-150, 160-170, 180-200; communication 40-90, alone 60-80; nothing 0-20, 150-160, 170-180
    assert figures(first) == (200, 140, 50, 20, 40)
    # compute 210-250; communication 220-330, alone 250-330; nothing 200-210
    assert figures(second) == (130, 40, 110, 80, 10)
    assert (first.name, first.rank, first.waiting_seconds) == ("ProfilerStep#1", 5, None)
    (one,) = second.collectives
    assert (one.kind, one.group, one.group_size, one.elements, one.bytes) == ("all_gather", "mesh_dp", 8, 8000, 16000)
    assert (round(one.start * 1e6, 6), round(one.end * 1e6, 6), round(one.exposed * 1e6, 6)) == (20, 130, 80)
    assert first.overlap == pytest.approx(0.6)
    reduce, gather = log.measured
    assert (reduce.name, reduce.place, reduce.message_bytes, reduce.gpu) == (
        "trace_all_reduce_world",
        "in",
        (2000,),
        "GPU H",
    )
    assert (gather.name, gather.place, gather.seconds) == ("trace_all_gather_mesh_dp", "out", (0.00011,))
    assert "with the wait for other ranks" in gather.caveats


def test_times_of_a_real_clock_keep_their_nanoseconds(tmp_path: Path) -> None:
    trace = two_steps()
    for one in trace.events:
        one["ts"] = 9999
    text = trace.text()
    for one in two_steps().events:
        text = text.replace('"ts": 9999', f'"ts": {1893456000000000 + int(one["ts"])}.125', 1)
    first, second = read(tmp_path, text).steps
    assert figures(first) == (200, 140, 50, 20, 40)
    assert figures(second) == (130, 40, 110, 80, 10)


def test_without_marks_everything_is_one_step(tmp_path: Path) -> None:
    trace = two_steps()
    trace.events = [one for one in trace.events if one["cat"] != "user_annotation"]
    log = read(tmp_path, trace.text())
    assert [figures(one) for one in log.steps] == [(310, 180, 160, 100, 30)]
    assert any("no ProfilerStep" in text for text in log.warnings)


def test_what_is_no_sweep_is_counted(tmp_path: Path) -> None:
    trace = two_steps()
    trace.collective(130, 400, 410, "send")
    trace.collective(131, 410, 420, "all_to_allv", **{"In split size": "[1, 2, 3]"})
    trace.collective(132, 420, 430, "all_to_allv", **{"In split size": "[2, 2, 2]"})
    trace.collective(133, 430, 440, "barrier")
    trace.collective(134, 440, 450, **{"Group size": 1})
    trace.kernel(135, 450, 460, "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)")
    log = read(tmp_path, trace.text())
    assert {one.reason: one.count for one in log.skipped} == {
        "send is no collective of this project": 1,
        "barrier is no collective of this project": 1,
        "an all-to-all with unequal parts": 1,
        "a group of one rank, in which nothing moves": 1,
        "a kernel of all_reduce whose size the trace does not say": 1,
    }
    assert [sweep.collective for sweep in log.measured] == ["all_reduce", "all_gather", "all_to_all"]
    assert len(log.steps[1].collectives) == 7
    assert any("have no sizes" in text for text in log.warnings)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.99])
def test_a_trace_that_was_cut(tmp_path: Path, share: float) -> None:
    text = two_steps().text()
    log = read(tmp_path, text[: int(len(text) * share)])
    assert any("ends early" in warning for warning in log.warnings)
    assert log.steps


def test_a_trace_without_kernels_is_refused(tmp_path: Path) -> None:
    trace = Trace()
    trace.mark(1, 0, 10)
    trace.events.append(event("cpu_op", "aten::mm", 1, 2, 4242))
    with pytest.raises(InputError, match=r"no kernel of a device; profile with ProfilerActivity\.CUDA"):
        read(tmp_path, trace.text())


def test_events_that_are_broken_are_passed_over(tmp_path: Path) -> None:
    trace = two_steps()
    for value in (None, "soon", 1e300, True, [1]):
        trace.events.append({**trace.events[2], "ts": value})
    trace.events += [
        {},
        {"ph": "X"},
        {"ph": "X", "cat": "kernel", "name": 3},
        {"ph": "M", "name": "process_name", "pid": 3},
    ]
    log = read(tmp_path, trace.text())
    assert figures(log.steps[0]) == (200, 140, 50, 20, 40)
    assert {one.reason: one.count for one in log.skipped} == {"a kernel without a time": 5}


def test_more_kernels_than_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcollectives.measured.logs.kineto.MAX_KERNELS", 4)
    with pytest.raises(InputError, match="more than 4 kernels; profile fewer steps"):
        read(tmp_path, two_steps().text())
