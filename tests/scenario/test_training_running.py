"""Training scenarios run: rows by the contract, sweeps against formulas, expectations, files, and what users hold."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simcollectives.errors import InputError
from simcollectives.report import Result
from simcollectives.scenario import ScenarioResult, Standing, load_scenario, run_scenario
from simcollectives.scenario.training.evaluation import TRAINING_ROW_KEYS
from tests.conftest import Done
from tests.scenario.training_texts import BOTH, FLAT, NODES, UNIFORM, training

Runner = Callable[..., ScenarioResult]
RATE = 0.45 * 989e12
CONTRACT = {
    "strategy", "options", "step_seconds", "compute_seconds", "communication_seconds", "exposed_seconds",
    "waiting_seconds", "idle_seconds", "overlap", "mfu", "peak_bytes", "memory", "sent_bytes", "collectives", "point",
}  # fmt: skip
OF_A_COLLECTIVE = {
    "kind", "name", "group", "group_size", "elements", "dtype", "bytes", "micro_batch", "phase", "start", "end",
}  # fmt: skip
ONCE = UNIFORM.replace("strategy: ddp", "strategy: all_reduce_once")
LEAF = NODES.replace("device:", "leaf: {nodes: 1, oversubscription: 1}, device:")


@pytest.fixture
def run(load: Any) -> Runner:
    def run_text(text: str) -> ScenarioResult:
        return run_scenario(load(text))

    return run_text


def ring(devices: int, size: float, alpha: float = 5e-6, bandwidth: float = 50e9) -> float:
    """Seconds of a ring all-reduce: 2 (N - 1) (alpha + m / (N B))."""
    return 2 * (devices - 1) * (alpha + size / (devices * bandwidth))


def assert_sound(result: ScenarioResult) -> None:
    """What holds for every row of every training scenario."""
    assert result.rows
    assert not result.problems
    json.dumps(result.to_json(), allow_nan=False)
    for row in result.rows:
        assert tuple(row) == TRAINING_ROW_KEYS
        assert {*row} >= CONTRACT
        parts = [row[f"{part}_seconds"] for part in ("compute", "exposed", "idle")]
        assert min(parts) >= 0
        assert row["step_seconds"] == pytest.approx(sum(parts), rel=1e-12)
        assert 0 <= row["waiting_seconds"] <= row["exposed_seconds"] <= row["communication_seconds"] * (1 + 1e-12)
        assert sum(row["memory"].values()) == row["peak_bytes"]
        assert row["collective_count"] == len(row["collectives"])
        assert sum(row["sent_bytes"].values()) == row["sent_bytes_total"]
        for one in row["collectives"]:
            assert {*one} >= OF_A_COLLECTIVE
            assert 0 <= one["start"] <= one["end"] <= row["step_seconds"]


# Every key that may be swept, with the strategies and clusters that have it.
SWEEPS = {
    "ddp.bucket_cap: {from: 64 kB, to: 4 MB, factor: 4}": FLAT,
    "ddp.bucket_cap: [64 kB, 1 MB], ddp.no_sync: [true, false], accumulation: [1, 3]": FLAT,
    "ddp.hook: [none, fp16, bf16, powersgd]": FLAT,
    "sequence: {from: 1, to: 4096, factor: 4}": FLAT,
    "micro_batch: [1, 2, 16], mfu: [10%, 100%]": FLAT,
    "devices: [1, 2, 3, 8]": FLAT,
    "link.alpha: [0 s, 5 us], link.bandwidth: [1 GB/s, 450 GB/s]": FLAT,
    "device.peak.bfloat16: [100 TFLOP/s, 989 TFLOP/s], device.memory: [1 MB, 80 GB]": FLAT,
    "nodes: [1, 2, 5], gpus_per_node: [1, 3]": NODES,
    "inter.bandwidth: {from: 1 GB/s, to: 400 GB/s, factor: 3}": NODES,
    "leaf.oversubscription: [1, 2, 4]": LEAF,
    "recomputation: [none, full]": FLAT,
}


@pytest.mark.parametrize(("sweep", "cluster"), SWEEPS.items(), ids=lambda value: str(value)[:30])
def test_every_row_of_a_sweep_is_sound(run: Runner, sweep: str, cluster: str) -> None:
    result = run(training(BOTH, f"sweep: {{{sweep}}}", cluster=cluster))
    assert_sound(result)
    swept = {key.split(":")[0].strip() for key in sweep.split(", ") if ": [" in key or ": {" in key}
    points = [row["point"] for row in result.rows if row["strategy"] == "ddp"]
    assert all({*point} == swept for point in points)
    assert len({json.dumps(point) for point in points}) == len(points)
    once = [row for row in result.rows if row["strategy"] == "all_reduce_once"]
    assert all(not any(key.startswith("ddp.") for key in row["point"]) for row in once)


def test_compute_is_six_flops_a_parameter_and_token(run: Runner) -> None:
    result = run(
        training(UNIFORM, "sweep: {sequence: [1, 100], micro_batch: [1, 3], accumulation: [1, 2], mfu: [45%, 90%]}")
    )
    for row in result.rows:
        point = row["point"]
        tokens = point["sequence"] * point["micro_batch"] * point["accumulation"]
        assert row["compute_seconds"] == pytest.approx(6e6 * tokens / (989e12 * point["mfu"]), rel=1e-12)
        assert row["mfu"] == pytest.approx(point["mfu"] * row["efficiency"], rel=1e-12)
        assert row["tokens_per_second"] == pytest.approx(8 * tokens / row["step_seconds"], rel=1e-12)


def test_one_all_reduce_costs_what_its_ring_does(run: Runner) -> None:
    result = run(training(ONCE, "sweep: {devices: [2, 5, 8], link.bandwidth: [50 GB/s, 1 GB/s]}"))
    for row in result.rows:
        point = row["point"]
        seconds = ring(point["devices"], 2e6, bandwidth=point["link.bandwidth"])
        assert row["exposed_seconds"] == pytest.approx(seconds, rel=1e-6)
        assert row["step_seconds"] == pytest.approx(6e6 * 128 / RATE + seconds, rel=1e-6)


def test_a_slower_network_between_nodes_only_lengthens_that_part(run: Runner) -> None:
    # in two steps: reduce-scatter and all-gather among 4, and an all-reduce of a quarter between 2 nodes
    def seconds(bandwidth: float) -> float:
        return 2 * 3 * (5e-6 + 0.5e6 / 450e9) + 2 * (10e-6 + 0.25e6 / bandwidth)

    result = run(training(ONCE, "sweep: {inter.bandwidth: [50 GB/s, 1 GB/s]}", cluster=NODES))
    found = [row["exposed_seconds"] for row in result.rows]
    assert found == pytest.approx([seconds(50e9), seconds(1e9)], rel=1e-6)


def test_leaves_that_are_oversubscribed_divide_the_bandwidth_between_nodes(run: Runner) -> None:
    body = ONCE.replace("1e6", "1e9")
    result = run(training(body, "sweep: {leaf.oversubscription: [1, 4]}", cluster=LEAF))
    one, four = (row["exposed_seconds"] for row in result.rows)
    # each rank has two rounds of an eighth of 2e9 bytes over its card of 50 GB/s, or over a quarter of that
    assert four - one == pytest.approx(2 * 0.25e9 * (1 / 12.5e9 - 1 / 50e9), rel=1e-6)


def test_accumulation_reduces_once_or_every_time(run: Runner) -> None:
    strategies = "strategies: [ddp, {ddp: {no_sync: false}}]"
    result = run(training(UNIFORM.replace("strategy: ddp", strategies), "sweep: {accumulation: [1, 4]}"))
    counts = {(row["label"], row["accumulation"]): row["collective_count"] for row in result.rows}
    once = counts["ddp", 1]
    assert counts == {
        ("ddp", 1): once,
        ("ddp (no_sync: false)", 1): once,
        ("ddp", 4): once,
        ("ddp (no_sync: false)", 4): 4 * once,
    }


def test_one_device_communicates_nothing(run: Runner) -> None:
    result = run(
        training(BOTH, "expect: [{overlap: {strategy: ddp}, at_most: 100%}]", cluster=FLAT.replace("8", "1", 1))
    )
    assert_sound(result)
    for row in result.rows:
        assert (row["communication_seconds"], row["sent_bytes_total"], row["overlap"]) == (0, 0, None)
        assert row["efficiency"] == 1
    assert not result.checks[0].passed
    assert "not defined, since nothing is communicated" in result.checks[0].found


def test_measured_seconds_are_the_compute(run: Runner) -> None:
    body = UNIFORM.replace("mfu: 45%", "layer_seconds: {block: {forward: 1 ms, backward: 2 ms}}")
    (row,) = run(training(body, cluster="cluster: {devices: 2, link: {alpha: 5 us, bandwidth: 1 GB/s}}")).rows
    assert row["compute_seconds"] == pytest.approx(4 * 3e-3, rel=1e-12)
    assert row["mfu"] is None
    assert row["fits"] is None


def test_a_slow_rank_is_waited_for(run: Runner) -> None:
    (row,) = run(training(ONCE + ", slow: {3: 150%}")).rows
    assert row["waiting_seconds"] == pytest.approx(0.5 * 6e6 * 128 / RATE, rel=1e-12)
    assert row["compute_seconds"] == pytest.approx(6e6 * 128 / RATE, rel=1e-12)


def test_the_first_step_overlaps_nothing(run: Runner) -> None:
    # PyTorch has one bucket a dtype then; model as large as several buckets
    body = "model: gpt2, strategy: ddp, sequence: 128, mfu: 45%"
    first, steady = (run(training(f"{body}, step: {step}")).rows[0] for step in ("first", "steady"))
    assert (first["collective_count"], first["overlap"]) == (1, 0)
    assert steady["collective_count"] > 1
    assert steady["overlap"] > 0


def test_a_bucket_larger_than_the_model_is_told(run: Runner) -> None:
    (warning,) = run(training(UNIFORM, "sweep: {ddp.bucket_cap: [1 MB, 3 MB]}")).warnings
    assert warning == (
        "the gradients of uniform (2 MB) are smaller than bucket_cap (3 MB): one bucket holds them all, and is reduced "
        "after the backward pass: nothing overlaps"
    )


def test_what_does_not_fit_is_told(run: Runner) -> None:
    body = "model: llama-3-8b, strategy: all_reduce_once, sequence: 128, mfu: 45%"
    result = run(training(body))
    assert result.rows[0]["fits"] is False
    assert result.rows[0]["model_state_bytes"] == 16 * 8_030_261_248
    assert "does not fit" in result.warnings[0]
    assert "more than the device's 80 GB" in result.warnings[0]


def test_buffers_are_broadcast_before_the_step(run: Runner) -> None:
    # torchvision's ResNet-18 has 20 BatchNorms; their statistics, 2 x 4,800 numbers, and 20 counters
    (row,) = run(training("model: resnet-18, strategy: ddp, mfu: 45%, dtype: float32")).rows
    sent = [one["elements"] for one in row["collectives"] if one["kind"] == "broadcast"]
    assert sorted(sent) == [20, 9600]


def test_expectations_of_every_form(run: Runner) -> None:
    """A crossing by hand: two buckets of two equal layers hide b / 2 of the backward b, and cost one latency L more.

    b = 4 P T / R and L = 2 (N - 1) alpha = 70 us, so that the steps are equal at T = 2 L R / (4 P) = 155.8 tokens.
    """
    body = (
        "model: {parameters: 1e8, layers: 2}, strategies: [{ddp: {bucket_cap: 1 MB}}, all_reduce_once], "
        "sequence: 1024, mfu: 45%"
    )
    ddp = "{ddp: {bucket_cap: 1 MB}}"
    both = f"[{{strategy: {ddp}}}, {{strategy: all_reduce_once}}]"
    expect = [
        "expect:",
        f"- {{crossover: [{ddp}, all_reduce_once], along: sequence, from: 16, to: 1024, between: [155, 157]}}",
        f"- {{crossover: [{ddp}, all_reduce_once], along: sequence, from: 300, to: 1024, at_most: 1024}}",
        f"- {{order: [{ddp}, all_reduce_once], sequence: 1024}}",
        f"- {{order: [all_reduce_once, {ddp}], sequence: 100}}",
        f"- {{order: [{ddp}, all_reduce_once], sequence: 100}}",
        f"- {{ratio: {both}, of: sent_bytes_total, equals: 1, rel: 0.001%}}",
        f"- {{ratio: {both}, of: waiting_seconds, at_most: 2}}",
        "- {collective_count: {strategy: all_reduce_once}, equals: 1, abs: 0, because: all at once}",
        "- {peak_bytes: {strategy: all_reduce_once}, equals: 1.6 GB, rel: 0.001%}",
        "- {step_seconds: {strategy: all_reduce_once, devices: 4, mfu: 90%}, at_least: 1 s, because: it is not}",
    ]
    result = run(training(body, *expect))
    assert [check.passed for check in result.checks] == [
        True, False, True, True, False, True, False, True, True, False,
    ]  # fmt: skip
    assert result.checks[0].value == pytest.approx(2 * 70e-6 * RATE / 4e8, abs=1)
    assert "because" not in result.checks[-2].expected
    assert "it is not" in result.checks[-1].expected


def test_the_advice_of_a_sweep_names_both_sides(run: Runner) -> None:
    # the last of n buckets is exposed: fewer cost more bytes at the end, more cost a latency each
    result = run(training(UNIFORM.replace("1e6", "1e9"), "sweep: {ddp.bucket_cap: [250 MB, 500 MB, 2 GB]}"))
    (one,) = result.advice
    assert one.key == "ddp.bucket_cap"
    assert {one.advice.reason_below, one.advice.reason_above} <= {
        "latency", "tail", "late start", "end of sweep", "flat",
    }  # fmt: skip
    assert "ddp.bucket_cap" in str(Result.of(result))
    assert run(training(UNIFORM, "sweep: {sequence: [1, 2, 3]}")).advice == ()


def test_a_sweep_of_500_points_is_whole(run: Runner) -> None:
    result = run(training(UNIFORM, "sweep: {sequence: {from: 1, to: 500, step: 1}}"))
    assert [row["sequence"] for row in result.rows] == list(range(1, 501))
    assert_sound(result)
    assert len(str(Result.of(result)).splitlines()) < 120


def test_progress_counts_rows_and_checks(load: Any) -> None:
    seen: list[Standing] = []
    text = training(
        BOTH, "sweep: {sequence: [1, 2]}", "expect: [{step_seconds: {strategy: ddp, sequence: 1}, at_least: 1 us}]"
    )
    run_scenario(load(text), seen.append)
    assert list(dict.fromkeys((one.done, one.total) for one in seen)) == [(i, 5) for i in range(1, 6)]


def test_an_interrupt_keeps_the_finished_rows(load: Any) -> None:
    def stop(standing: Standing) -> None:
        if standing.done == 3:
            raise KeyboardInterrupt

    result = run_scenario(load(training(UNIFORM, "sweep: {sequence: [1, 2, 3, 4, 5]}")), stop)
    assert result.interrupted
    assert [row["sequence"] for row in result.rows] == [1, 2, 3]
    assert "sequence 3" in str(Result.of(result))


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Result:
    path = tmp_path_factory.mktemp("scenarios") / "steps.yaml"
    path.write_text(training(BOTH, "sweep: {sequence: [64, 128]}", "timeline: {strategy: ddp, sequence: 99}"))
    return Result.of(run_scenario(load_scenario(path)))


def test_a_result_is_shown_and_drawn(held: Result) -> None:
    assert "Steps of rank 0" in str(held)
    assert "ddp, sequence 64" in str(held)
    page = held._repr_html_()
    assert "<table>" in page
    assert 'src="data:image/png;base64,' in page
    for kind in ("time", "efficiency", "timeline", "memory"):
        axes = Figure().add_subplot()
        assert held.plot(ax=axes, kind=kind) is axes
        assert axes.has_data()
    assert isinstance(held.plot(), Axes)
    with pytest.raises(InputError, match="no kind of plot of training steps; write one of time, efficiency"):
        held.plot(kind="busbw")


def test_a_frame_has_the_point_as_columns(held: Result) -> None:
    pytest.importorskip("pandas")
    frame = held.to_frame()
    assert list(frame["sequence"]) == [64, 64, 128, 128]
    assert "point" not in frame.columns


def test_a_timeline_is_drawn_of_a_step_that_is_no_row(held: Result) -> None:
    (drawn,) = held.drawn
    assert drawn.point == {"sequence": 99}
    assert 99 not in [row["sequence"] for row in held.rows]


def reject(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def test_the_command_line_writes_everything(tmp_path: Path, call: Callable[..., Done]) -> None:
    (tmp_path / "step.yaml").write_text(training(UNIFORM, "expect: [{step_seconds: {}, at_least: 1 us}]"))
    done = call("run", "step.yaml", "-o", "out", "--json")
    assert done.returncode == 0, done.stderr
    (scenario,) = json.loads(done.stdout, parse_constant=reject)["scenarios"]
    assert (len(scenario["rows"]), scenario["checks"][0]["passed"]) == (1, True)
    folder = tmp_path / "out" / "step"
    assert {path.name for path in folder.iterdir()} == {
        "rows.csv", "result.json", "trace.json", "steps.png", "timeline.png", "memory.png",
    }  # fmt: skip
    for picture in folder.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
    (row,) = csv.DictReader((folder / "rows.csv").open(encoding="utf-8"))
    assert float(row["step_seconds"]) == scenario["rows"][0]["step_seconds"]
    assert math.isfinite(float(row["peak_bytes"]))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = [event["args"]["Collective name"] for event in events if "Collective name" in event.get("args", {})]
    assert names == ["allreduce"] * scenario["rows"][0]["collective_count"]


def test_exit_codes(tmp_path: Path, call: Callable[..., Done]) -> None:
    (tmp_path / "wrong.yaml").write_text(training(UNIFORM, "expect: [{step_seconds: {}, at_least: 1 s}]"))
    (tmp_path / "bad.yaml").write_text(training(UNIFORM.replace("ddp", "dpp")))
    assert call("check", "wrong.yaml").returncode == 1
    bad = call("check", "bad.yaml", "wrong.yaml")
    assert bad.returncode == 2
    assert 'did you mean "ddp"?' in bad.stderr
    assert "Traceback" not in bad.stderr


def test_the_plugin_collects_expectations(tmp_path: Path) -> None:
    expect = "expect: [{step_seconds: {}, at_least: 1 us}, {step_seconds: {}, at_least: 1 s, because: it is not}]"
    (tmp_path / "steps.yaml").write_text(training(UNIFORM, expect))
    (tmp_path / "misspelt.yaml").write_text(training(UNIFORM, expect.replace("expect", "expects")))
    (tmp_path / "numerics.yaml").write_text(training(UNIFORM, "expcet: []").replace("training: ", "numerics: "))
    others = [
        part for name in ("cacheprovider", "nbmake", "hypothesispytest", "xdist") for part in ("-p", f"no:{name}")
    ]
    command = [sys.executable, "-m", "pytest", "--simcollectives", "-q", *others, "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert "3 failed, 1 passed" in done.stdout
    assert "it is not" in done.stdout
    assert 'did you mean "expect"?' in done.stdout


def test_algorithms_of_collectives_that_no_step_issues_are_warned_of(run: Runner) -> None:
    body = UNIFORM + ", collectives: {all_reduce: ring, all_to_all: direct}"
    assert run(training(body)).warnings == (
        "collectives: all_to_all is not used: no step issues all_to_all; steps issue all_reduce",
    )
    server = UNIFORM.replace("strategy: ddp", "strategy: parameter_server") + ", collectives: {all_reduce: ring}"
    assert run(training(server)).warnings == (
        "collectives: all_reduce is not used: the strategy itself decides its algorithm; steps issue all_reduce",
    )
