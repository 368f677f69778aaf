"""Chrome traces, read by others: HolisticTraceAnalysis finds the numbers of the step, torch finds no fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simcollectives.cluster import Cluster
from simcollectives.interop.chrome_trace import trace_text
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.timeline import Span, total, union, without
from tests.training.steps import H100, INFINIBAND, NVLINK, every_kind, uniform_step, uniform_training, written_step

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")  # inside of HolisticTraceAnalysis
NODES = Cluster.two_level(2, 4, NVLINK, INFINIBAND, device=H100)


def straggling() -> Step:
    training = uniform_training(10**7, 4, 6, 2000, NODES, slow={0: 1.1, 3: 1.3})
    return simulate_step(training, "ddp", {"bucket_cap": 10**6})


STEPS: dict[str, Callable[[], Step]] = {
    "overlapping": lambda: uniform_step(options={"bucket_cap": 25e6}),
    "small buckets": lambda: uniform_step(options={"bucket_cap": 14e6}),
    "nothing overlaps": lambda: uniform_step("all_reduce_once", elements=10**8),
    "copies of buckets": lambda: uniform_step(options={"bucket_cap": 10**6}, elements=10**7, cluster=NODES),
    "accumulation": lambda: uniform_step(
        options={"bucket_cap": 10**6, "no_sync": False}, elements=10**7, layers=4, accumulation=3, cluster=NODES
    ),
    "recomputation": lambda: uniform_step(elements=10**8, layers=6, tensors=4, recompute=True, kept=1000),
    "one device": lambda: uniform_step(elements=10**7, layers=4, cluster=Cluster.flat(1, NVLINK)),
    "a straggler": straggling,
}


def seconds_of(spans: tuple[Span, ...], *kinds: str) -> list[tuple[float, float]]:
    return union((span.start, span.end) for span in spans if span.operation.kind in kinds)


def read(step: Step, rank: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    analysis = pytest.importorskip("hta.trace_analysis", reason="HolisticTraceAnalysis is not installed")
    (folder / "trace.json").write_text(trace_text(step, rank))
    return analysis.TraceAnalysis(trace_dir=str(folder))


def check(step: Step, rank: int, found: Any) -> None:
    """Compare with what follows from the spans of a rank; of rank 0, also with the step's own numbers.

    Its "compute" are our kernels, its "non compute" collectives and copies without a kernel beside them, its "idle" the
    rest between the first and the last of them; its overlap is the share of the collectives beside kernels.
    """
    spans = step.timeline.of_rank(rank)
    kernels = seconds_of(spans, "compute")
    collectives = seconds_of(spans, "collective")
    busy = seconds_of(spans, "compute", "collective", "copy")
    reach = busy[-1][1] - busy[0][0]
    row = found.get_temporal_breakdown(visualize=False).iloc[0]
    allowed = 1e-3 * len(spans)  # a nanosecond for each span
    assert row["rank"] == rank
    assert row["kernel_time(us)"] == pytest.approx(1e6 * reach, abs=allowed)
    assert row["compute_time(us)"] == pytest.approx(1e6 * total(kernels), abs=allowed)
    assert row["non_compute_time(us)"] == pytest.approx(1e6 * total(without(busy, kernels)), abs=allowed)
    assert row["idle_time(us)"] == pytest.approx(1e6 * (reach - total(busy)), abs=allowed)
    overlap = found.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
    if collectives:
        hidden = 1 - total(without(collectives, kernels)) / total(collectives)
        assert overlap == pytest.approx(100 * hidden, abs=0.005 + 100 * allowed / (1e6 * total(collectives)))
    if rank == 0 and not seconds_of(spans, "copy", "host"):
        assert row["kernel_time(us)"] == pytest.approx(1e6 * step.step_seconds, abs=allowed)
        assert row["compute_time(us)"] == pytest.approx(1e6 * step.compute_seconds, abs=allowed)
        assert row["non_compute_time(us)"] == pytest.approx(1e6 * step.exposed_seconds, abs=allowed)
        assert row["idle_time(us)"] == pytest.approx(1e6 * step.idle_seconds, abs=allowed)
        if step.overlap is not None:
            assert overlap == pytest.approx(100 * step.overlap, abs=0.01)


@pytest.mark.interop
@pytest.mark.parametrize("name", STEPS)
def test_holistic_trace_analysis_finds_the_same_numbers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = STEPS[name]()
    for rank in sorted({span.rank for span in step.timeline.spans}):
        folder = tmp_path / str(rank)
        folder.mkdir()
        check(step, rank, read(step, rank, folder, monkeypatch))


@pytest.mark.interop
def test_holistic_trace_analysis_tells_copies_from_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = written_step(monkeypatch, every_kind)
    found = read(step, 0, tmp_path, monkeypatch)
    check(step, 0, found)
    by_type = found.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)[0]
    assert set(by_type["kernel_type"]) >= {"COMPUTATION", "COMMUNICATION", "MEMORY"}


@pytest.mark.interop
def test_holistic_trace_analysis_links_kernels_to_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = STEPS["overlapping"]()
    launches = read(step, 0, tmp_path, monkeypatch).get_cuda_kernel_launch_stats(visualize=False)[0]
    spans = sorted(step.timeline.of_rank(0), key=lambda span: span.place)
    assert len(launches) == len(spans)
    by_launch = launches.sort_values("correlation")
    assert list(by_launch["gpu_duration"]) == pytest.approx([1e6 * span.seconds for span in spans], abs=1e-3)
    assert list(by_launch["launch_delay"]) == pytest.approx([1e6 * span.start for span in spans], abs=1e-3)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["small buckets", "a straggler"])
def test_torch_finds_no_fault(name: str, tmp_path: Path) -> None:
    """The rules that torch 2.13 holds its own traces to: kernels after their launches, collectives with their sizes."""
    validator = pytest.importorskip("torch.profiler._trace_validator", reason="torch 2.13 is not installed")
    path = tmp_path / "trace.json"
    path.write_text(trace_text(STEPS[name]()))
    passed, violations = validator.validate_trace(str(path))
    assert passed, violations


@pytest.mark.interop
def test_numbers_of_another_step_are_not_those_of_the_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read(STEPS["overlapping"](), 0, tmp_path, monkeypatch)
    with pytest.raises(AssertionError):
        check(STEPS["small buckets"](), 0, found)
