# ruff: noqa: E501  (a scenario and its problems each stand on one line)
"""Measured training steps beside predictions: traces, given numbers, what is wrong with them, and expectations."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simcollectives.errors import InputError
from simcollectives.interop.chrome_trace import chrome_trace, trace_text
from simcollectives.report.files import json_text, scenario_json
from simcollectives.report.plot_measured_steps import measured_steps_figure
from simcollectives.report.plots import figures, plot
from simcollectives.report.tables import result_tables, show
from simcollectives.scenario import AnyScenario, ScenarioResult, run_scenario
from tests.scenario.training_texts import BOTH, FLAT, NODES, UNIFORM, training
from tests.text_boxes import text_overlaps

Loader = Callable[[str], AnyScenario]
Refuser = Callable[[str], list[str]]

DDP = UNIFORM.replace("strategy: ddp", "strategy: {ddp: {bucket_cap: 1 MB}}")


def text_of(result: ScenarioResult) -> str:
    import io

    stream = io.StringIO()
    show(result_tables(result, 120), stream, 120)
    return stream.getvalue()


@pytest.fixture
def trace(load: Loader, tmp_path: Path) -> dict[str, Any]:
    """The trace of a step that is simulated, beside the scenarios."""
    step = run_scenario(load(training(DDP, cluster=NODES))).steps[0].step
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(trace_text(step).encode()))
    return chrome_trace(step)


def test_the_trace_of_a_simulated_step_differs_from_it_by_nothing(load: Loader, trace: dict[str, Any]) -> None:
    checks = [
        "expect:",
        "- {largest_error: {}, of: step_seconds, at_most: 0.01%}",
        "- {largest_error: {strategy: ddp}, of: communication_seconds, at_most: 0.01%}",
    ]
    result = run_scenario(load(training(DDP, "measured: {file: trace.json.gz}", *checks, cluster=NODES)))
    (one,) = result.measured_steps
    assert one.name == "trace.json.gz, ProfilerStep#0"
    for metric, value in one.measured.items():
        assert one.predicted[metric] == pytest.approx(value, abs=1e-3 if metric == "overlap" else 1e-7), (
            metric
        )  # whole ns
    assert sum(match.measured for match in one.collectives) == len(result.rows[0]["collectives"]) > 1
    assert all(match.measured == match.predicted for match in one.collectives)
    assert all(match.difference == pytest.approx(0, abs=1e-7) for match in one.collectives)
    assert result.passed


def test_the_parts_of_the_difference_sum_to_it_and_the_largest_is_named(load: Loader, trace: dict[str, Any]) -> None:
    slower = NODES.replace("bandwidth: 50 GB/s", "bandwidth: 1 GB/s")
    result = run_scenario(load(training(DDP, "measured: {file: trace.json.gz}", cluster=slower)))
    (one,) = result.measured_steps
    parts = [
        (one.predicted[f"{name}_seconds"] or 0) - one.measured[f"{name}_seconds"]
        for name in ("compute", "exposed", "idle")
    ]
    assert sum(parts) == pytest.approx((one.predicted["step_seconds"] or 0) - one.measured["step_seconds"], abs=1e-9)
    assert parts[1] > 0
    text = " ".join(text_of(result).split())
    assert "most of it is exposed, predicted" in text
    assert "longer" in text
    data = json.loads(json_text(scenario_json(result)))
    assert data["measured"] is None
    (written,) = data["measurements"]
    assert written["errors"]["step_seconds"] == pytest.approx(one.relative["step_seconds"])
    assert sum(match["predicted"] for match in written["collectives"]) == len(result.rows[0]["collectives"])
    made = dict(figures(result))
    assert not text_overlaps(made["measured"])
    assert plot(result, kind="measured").get_xlabel() == "step"


def test_collectives_that_only_one_side_has_are_said(load: Loader, tmp_path: Path, trace: dict[str, Any]) -> None:
    kernels = [event for event in trace["traceEvents"] if event.get("args", {}).get("Collective name") == "allreduce"]
    kernels[0]["args"] |= {"In msg nelems": 7, "Out msg nelems": 7, "dtype": "Float"}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    result = run_scenario(load(training(DDP, "measured: {file: trace.json, step: 'ProfilerStep#0'}", cluster=NODES)))
    text = text_of(result)
    assert "measured without a predicted one alike: 1 x all_reduce of 28 B" in text
    assert "predicted without a measured one alike: 1 x all_reduce of " in text


def test_a_trace_of_other_ranks_is_refused(load: Loader, tmp_path: Path, trace: dict[str, Any]) -> None:
    (tmp_path / "trace.json").write_text(json.dumps(trace | {"distributedInfo": {"world_size": 1}}))
    with pytest.raises(InputError, match="the trace is of 1 rank, the cluster has 8 there"):
        load(training(DDP, "measured: {file: trace.json}", cluster=NODES))


GIVEN = """\
measured:
- {strategy: ddp, devices: 2, step_seconds: 100 us, tokens_per_second: 2.56e6, source: a log}
- {strategy: ddp, devices: 8, step_seconds: 1 s, exposed_seconds: 0 s, source: a log}
- {strategy: all_reduce_once, devices: 8, step_seconds: 1 ms, peak_bytes: 1 GB, source: another}"""


@pytest.fixture
def given(load: Loader) -> ScenarioResult:
    checks = """\
expect:
- {largest_error: {strategy: ddp, devices: 8}, between: [99%, 100%]}
- {median_error: {devices: 8}, of: exposed_seconds, at_most: 1%}
- {p90_error: {strategy: all_reduce_once}, of: peak_bytes, at_least: 90%}"""
    return run_scenario(load(training(BOTH, "sweep: {devices: [2, 8]}", GIVEN, checks)))


def test_given_numbers_are_laid_beside_the_points_they_name(given: ScenarioResult) -> None:
    rows = {(row["label"], row["point"]["devices"]): row for row in given.rows}
    for one in given.measured_steps:
        row = rows[one.label, one.point["devices"]]
        assert one.predicted == {metric: row[metric] for metric in one.measured}
        for metric, error in one.relative.items():
            assert error == row[metric] / one.measured[metric] - 1
    assert "exposed_seconds" not in given.measured_steps[1].relative  # nothing is relative to 0
    assert [check.passed for check in given.checks] == [True, False, True]
    assert "is not defined: 0 and no value have no error" in given.checks[1].message
    assert "too low at all_reduce_once, devices: 8" in given.checks[2].message


def test_the_tables_and_the_picture_say_where(given: ScenarioResult) -> None:
    text = text_of(given)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    first, second, third = (one.relative["step_seconds"] for one in given.measured_steps)
    assert "ddp, devices 2: a log" in lines
    assert any(line.startswith("step 2 100 us") for line in lines)
    assert any(line.startswith("exposed 8 0 s") and line.endswith(" -") for line in lines)
    assert any(line.startswith("step devices 8 2 ") for line in lines)
    assert any(line.startswith("step strategy ddp 2 ") for line in lines)
    worst = max((first, second, third), key=abs)
    assert any(line.startswith("the worst: step ") and f"{100 * worst:+.3g}%" in line for line in lines)
    (errors,) = [
        one for one in scenario_json(given)["measured_errors"] if (one["metric"], one["by"]) == ("step_seconds", "all")
    ]
    assert (errors["points"], errors["median"]) == (3, sorted(map(abs, (first, second, third)))[1])
    figure = measured_steps_figure(given.measured_steps, "A title")
    assert figure is not None
    assert not text_overlaps(figure)
    assert plot(given, kind="measured").get_xlabel() == "devices"


def case(*lines: str, body: str = UNIFORM) -> str:
    return training(body, *lines, cluster=FLAT)


CASES = {
    case("measured: {}"): [
        "$.measured (line 4): nothing is measured here; write one of step_seconds, compute_seconds, communication_seconds"
    ],
    case("measured: []"): [
        "$.measured (line 4): an empty list measures nothing; write {strategy: ddp, step_seconds: 112 ms}"
    ],
    case("measured: [112 ms]"): [
        '$.measured[0] (line 4): "112 ms" is not a mapping; write {strategy: ddp, step_seconds'
    ],
    case("measured: {step_seconds: 112}"): ['$.measured.step_seconds (line 4): 112 has no unit; write "112 us"'],
    case("measured: {step_seconds: 0 s}"): ["$.measured.step_seconds (line 4): 0 leaves no relative error"],
    case("measured: {step_second: 1 s}"): [
        '$.measured.step_second (line 4): unknown key; did you mean "step_seconds"?'
    ],
    case("measured: {strategy: fsdp2, step_seconds: 1 s, step: 'ProfilerStep#3'}"): [
        '$.measured (line 4): "fsdp2" is no strategy of this scenario; it has: ddp',
        "$.measured.step (line 4): a step is one of a trace; name it by file: trace.json.gz, or leave step: out",
    ],
    case("measured: {step_seconds: 1 s}", body=BOTH): [
        "$.measured (line 4): nothing says which strategy is meant; write"
    ],
    case("sweep: {devices: [4, 8]}", "measured: {step_seconds: 1 s}"): [
        "$.measured (line 5): the scenario sweeps devices (4, 8); name one value here, swept or not"
    ],
    case("measured: {step_seconds: 10 ms, compute_seconds: 11 ms}"): [
        "$.measured.compute_seconds (line 4): 11 ms are more than the 10 ms that they are a part of"
    ],
    case("measured: {step_seconds: 10 ms, compute_seconds: 8 ms, exposed_seconds: 1 ms, idle_seconds: 0 s}"): [
        "$.measured.step_seconds (line 4): compute + exposed + idle are 8 ms + 1 ms + 0 s = 9 ms, the step 10 ms; they must"
    ],
    case("measured: [{step_seconds: 1 s}, {step_seconds: 1000 ms, devices: 8}]"): [
        "$.measured[1] (line 4): the same as $.measured[0]; leave one of them out"
    ],
    case("measured: {step_seconds: 1e-320 s, tokens_per_second: 1e308, peak_bytes: 1e-300 B, overlap: 150%}"): [
        "$.measured.overlap (line 4): 150% is not from 0.0001% to 100%, or 0; write what was measured",
        "$.measured.peak_bytes (line 4): 1e-300 B is not from 1 B to ",
        "$.measured.step_seconds (line 4): 1e-308 ps is not from 1 ps to ",
        "$.measured.tokens_per_second (line 4): 1e+308 is not from 1e-06 to ",
    ],
    case("measured: {step_seconds: .nan}"): ["$.measured.step_seconds (line 4): .nan is not a finite number; write"],
    case("measured: {step_seconds: 1 s, idle_seconds: 2 s, communication_seconds: 0 s, exposed_seconds: 1 ms}"): [
        "$.measured.exposed_seconds (line 4): 1 ms are more than the 0 s that they are a part of",
        "$.measured.idle_seconds (line 4): 2 s are more than the 1 s that they are a part of",
    ],
    case("measured: {step_seconds: 1 ms, tokens_per_second: 128000}"): [  # of one rank: 128 tokens of each of 8
        "$.measured.tokens_per_second (line 4): 128000 x 1 ms are 128 tokens, and a step of 8 ranks has 1024 there; write"
    ],
    case("measured: {step_seconds: 1 s, waiting_seconds: 2 ms, exposed_seconds: 1 ms}"): [
        "$.measured.waiting_seconds (line 4): 2 ms are more than the 1 ms that they are a part of"
    ],
    case("measured: {step_seconds: 1 s, compute_seconds: 600 ms, exposed_seconds: 500 ms}"): [
        "$.measured.step_seconds (line 4): compute + exposed are 600 ms + 500 ms = 1.1 s, the step 1 s; step = compute"
    ],
    case(
        "measured: {step_seconds: 1 s, compute_seconds: 500 ms, efficiency: 90%, "
        "communication_seconds: 10 ms, exposed_seconds: 9 ms, overlap: 50%}"
    ): [
        "$.measured.efficiency (line 4): 90%, and the times say 50%, compute over step; leave one of them out",
        "$.measured.overlap (line 4): 50%, and the times say 10%, 1 less exposed over communication; leave one",
    ],
    case("measured: [{file: none.json, devices: 4}, {file: none.json, devices: 2}]"): [
        "$.measured[0].file (line 4): none.json: there is no such file; mend the path"
    ],
    case("measured: {file: trace.json.gz, step_seconds: 1 s}"): [
        "$.measured (line 4): a trace says step_seconds itself; leave file: out, or the numbers"
    ],
    case("measured: {file: trace.json.gz, step: 'ProfilerStep#7'}"): [
        '$.measured.step (line 4): no step "ProfilerStep#7" in the trace; did you mean "ProfilerStep#0"?'
    ],
    case("measured: {file: trace.json.gz, devices: 4}"): [
        "$.measured.file (line 4): the trace is of 8 ranks, the cluster has 4 there; write the point of the trace"
    ],
    case("measured: {file: mine.csv}"): [
        "$.measured.file (line 4): mine.csv is a CSV of this project and has no steps; "
    ],
    case("measured: {file: notes.txt}"): ["$.measured.file (line 4): notes.txt: "],
    case("expect: [{median_error: {}, at_most: 1%}]"): [
        "$.expect[0].median_error (line 4): nothing is measured, so that there are no errors; write measured: in the"
    ],
    case("measured: {peak_bytes: 1 GB}", "expect: [{median_error: {}, at_most: 1%}]"): [
        "$.expect[0].median_error (line 5): step_seconds is not measured there; write of: peak_bytes"
    ],
    case("measured: {step_seconds: 1 s}", "expect: [{median_error: {messages: small}, of: speed, at_most: 1%}]"): [
        "$.expect[0].median_error.messages (line 5): unknown key; ",
        '$.expect[0].of (line 5): "speed" is unknown; known: step_seconds, ',
    ],
    case("measured: {step_seconds: 1 s}", "expect: [{median_error: {devices: 4}, at_most: 1%}]"): [
        "$.expect[0].median_error (line 5): none of what is measured is there; measured: has ddp at the point as written"
    ],
}


def test_what_has_no_error_is_not_drawn(load: Loader) -> None:
    result = run_scenario(load(case("measured: {exposed_seconds: 0 s}")))
    with pytest.raises(InputError, match="nothing that was measured has an error"):
        plot(result, kind="measured")


def test_two_sources_may_say_the_same_number(load: Loader) -> None:
    same = "measured: [{step_seconds: 1 s, source: a log}, {step_seconds: 1 s, source: another}]"
    assert [one.name for one in run_scenario(load(case(same))).measured_steps] == ["a log", "another"]


@pytest.mark.parametrize("text", CASES, ids=lambda text: CASES[text][0][:70])
def test_each_problem_has_place_line_rule_and_remedy(
    refuse: Refuser, tmp_path: Path, trace: dict[str, Any], text: str
) -> None:
    (tmp_path / "mine.csv").write_text("set,size_bytes,time_us,place\nmine,8,1,out\n")
    (tmp_path / "notes.txt").write_text("a step took long\n")
    found = refuse(text)
    assert len(found) == len(CASES[text]), found
    for problem, beginning in zip(found, CASES[text], strict=True):
        assert problem[: len(beginning)] == beginning
