"""Rows, checks and what else a run gives."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from simcollectives.errors import InputError, ScheduleError
from simcollectives.scenario import Plan, Scenario, ScenarioResult, Standing, evaluation, run_scenario
from simcollectives.scenario.results import ROW_KEYS

Loader = Callable[[str], Scenario]

FLAT = "title: t\ncluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}\n"
LECTURE = FLAT + (
    "collective: {name: all_reduce, algorithms: [naive, ring, tree, butterfly, {rabenseifner: {order: far}}]}\n"
    "sweep: {message: [4 KiB, 1 MiB, 64 MiB]}\n"
)


@pytest.fixture
def run(load: Loader) -> Callable[[str], ScenarioResult]:
    return lambda text: run_scenario(load(text))


Runner = Callable[[str], ScenarioResult]


def test_rows_have_the_keys_of_the_contract_and_plain_numbers(run: Runner) -> None:
    result = run(LECTURE)
    assert len(result.rows) == 15
    for row in result.rows:
        assert tuple(row) == ROW_KEYS
        parts = row["latency_seconds"] + row["bandwidth_seconds"] + row["reduction_seconds"]
        assert parts == pytest.approx(row["seconds"], rel=1e-12)
        assert row["seconds"] >= row["lower_bound_seconds"]
        assert row["closed_form_seconds"] == pytest.approx(row["seconds"], rel=1e-12)
        assert row["point"] == {"message": row["message_bytes"]}
        assert row["algbw"] == row["message_bytes"] / row["seconds"]
        assert row["busbw"] == pytest.approx(row["algbw"] * 2 * 7 / 8)
    assert json.loads(json.dumps(result.to_json(), allow_nan=False))["rows"][0]["algorithm"] == "naive"
    ring = result.rows[1]
    assert (ring["label"], ring["rounds"], ring["world_size"], ring["engine"]) == (
        "ring",
        14,
        8,
        result.rows[0]["engine"],
    )
    assert ring["seconds"] == pytest.approx(14 * (5e-6 + 4096 / 8 / 450e9))
    assert ring["bytes_sent_max_inter"] is None
    assert result.rows[4]["options"] == {"order": "far"}
    assert result.notes
    assert not result.interrupted


def test_rows_come_point_by_point_and_none_twice(run: Runner) -> None:
    text = FLAT + (
        "collective: {name: all_reduce, message: 1 KiB, algorithms: [ring, parameter_server]}\n"
        "sweep: [{parameter_server.servers: [1, 2], devices: [2, 4]}, {devices: [4, 8]}]\n"
    )
    assert [(row["label"], row["point"]) for row in run(text).rows] == [
        ("ring", {"devices": 2}),
        ("parameter_server", {"parameter_server.servers": 1, "devices": 2}),
        ("ring", {"devices": 4}),
        ("parameter_server", {"parameter_server.servers": 1, "devices": 4}),
        ("parameter_server (servers: 2)", {"parameter_server.servers": 2, "devices": 2}),
        ("parameter_server (servers: 2)", {"parameter_server.servers": 2, "devices": 4}),
        ("parameter_server", {"devices": 4}),
        ("ring", {"devices": 8}),
        ("parameter_server", {"devices": 8}),
    ]


def test_one_rank_takes_no_time_and_has_no_rates(run: Runner) -> None:
    text = FLAT.replace("8", "1", 1) + "collective: {name: all_reduce, message: 1 MiB, algorithms: [ring, naive]}\n"
    for row in run(text + "expect: [{busbw: {algorithm: ring}, at_least: 1 GB/s}]").rows:
        assert (row["seconds"], row["rounds"], row["algbw"], row["busbw"]) == (0, 0, None, None)


def test_verify_executes_small_runs_unless_told_otherwise(run: Runner) -> None:
    text = (
        FLAT
        + "collective: {name: all_reduce, algorithms: [ring]}\nsweep: {message: [4 KiB, 2 MiB], devices: [4, 65]}\n"
    )
    found = {
        verify: [row["verified"] for row in run(text + f"verify: {verify}\n").rows] for verify in ("auto", "never")
    }
    assert found == {"auto": [True, None, None, None], "never": [None] * 4}
    assert [row["verified"] for row in run(text.replace(", 65", "") + "verify: always\n").rows] == [True, True]


def test_a_run_is_verified_once_whatever_its_links(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(evaluation, "verify_job", calls.append)
    text = FLAT + "collective: {name: all_reduce, message: 1 KiB, algorithms: [ring]}\n"
    rows = run(text + "sweep: {link.alpha: [1 us, 2 us, 3 us], devices: [2, 4]}\n").rows
    assert all(row["verified"] for row in rows)
    assert len(calls) == 2


def test_a_wrong_schedule_is_no_result(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(_job: object) -> None:
        raise ScheduleError("rank 0 has a wrong value")

    monkeypatch.setattr(evaluation, "verify_job", wrong)
    with pytest.raises(ScheduleError):
        run_scenario(load(LECTURE))


def test_progress_counts_rows_and_checks(load: Loader) -> None:
    seen: list[Standing] = []
    text = LECTURE + "expect: [{rounds: {algorithm: ring, message: 4 KiB}, equals: 14, abs: 0}]\n"
    run_scenario(load(text), seen.append)
    assert list(dict.fromkeys((one.done, one.total) for one in seen)) == [(i, 16) for i in range(1, 17)]
    seconds = [one.seconds_done for one in seen]
    assert seconds == sorted(seconds)
    assert seconds[-1] == pytest.approx(seen[-1].seconds)


def test_progress_moves_inside_a_run_by_its_cost(load: Loader) -> None:
    seen: list[Standing] = []
    text = FLAT + "collective: {name: all_reduce, message: 1 KiB, algorithms: [ring, tree]}\nengine: event\n"
    run_scenario(load(text + "sweep: {devices: [64]}\nverify: never\n"), seen.append)
    inside = [one.seconds_done for one in seen if one.done == 0]
    ring, tree = (min(one.seconds_done for one in seen if one.done == done) for done in (1, 2))
    assert len(set(inside)) > 5
    assert 0 <= min(inside) < max(inside) <= ring
    assert inside == sorted(inside)
    assert ring > 3 * (tree - ring), "8,064 messages and 126"


def test_progress_of_seeds_is_that_of_all_their_runs(load: Loader) -> None:
    seen: list[Standing] = []
    text = FLAT + "collective: {name: all_reduce, message: 1 KiB, algorithms: [ring]}\njitter: {alpha: {gamma: 10%}}\n"
    run_scenario(load(text + "seeds: 9\nverify: never\n"), seen.append)
    inside = [one.seconds_done for one in seen if one.done == 0]
    assert len(inside) == 10 * 14, "ten runs of 14 rounds"
    assert inside == sorted(inside)
    assert inside[len(inside) // 2 - 1] == pytest.approx(seen[-1].seconds / 2)


def test_an_interrupt_keeps_the_finished_rows(load: Loader) -> None:
    def stop(standing: Standing) -> None:
        if standing.done == 4:
            raise KeyboardInterrupt

    result = run_scenario(load(LECTURE), stop)
    assert result.interrupted
    assert len(result.rows) == 4
    assert result.checks == ()


def test_an_interrupt_inside_a_run_keeps_the_rows_before_it(load: Loader) -> None:
    def stop(standing: Standing) -> None:
        if standing.done == 2:
            raise KeyboardInterrupt

    text = LECTURE.replace("{message: [4 KiB, 1 MiB, 64 MiB]}", "{message: [4 KiB, 1 MiB]}")
    result = run_scenario(load(text + "engine: event\nverify: never\n"), stop)
    assert result.interrupted
    assert [row["label"] for row in result.rows] == ["naive", "ring"]


def test_a_plan_is_announced_before_anything_runs(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    simulate = evaluation.simulate_job
    monkeypatch.setattr(evaluation, "simulate_job", lambda *a, **k: (events.append("run"), simulate(*a, **k))[1])
    run_scenario(load(LECTURE), announce=events.append)
    assert isinstance(events[0], Plan)
    assert events[1:] == ["run"] * 15


@pytest.mark.parametrize("skipping", ["true", "false"])
def test_skipping_can_be_switched_off(load: Loader, monkeypatch: pytest.MonkeyPatch, skipping: str) -> None:
    asked: list[Any] = []
    simulate = evaluation.simulate_job
    monkeypatch.setattr(evaluation, "simulate_job", lambda *a, **k: (asked.append(k["skipping"]), simulate(*a, **k))[1])
    check = "expect: [{crossover: [ring, butterfly], along: message, from: 1 MiB, to: 64 MiB, at_least: 1 B}]\n"
    scenario = load(LECTURE + check + f"skipping: {skipping}\n")
    result = run_scenario(scenario)
    assert set(asked) == {scenario.skipping} == {skipping == "true"}
    assert (len(asked) > 15) == (not scenario.skipping), "a crossover then asks the engine, not the closed form"
    for row in result.rows:
        assert row["seconds"] == pytest.approx(row["closed_form_seconds"], rel=1e-12)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("skipping: 3", "$.skipping (line 5): 3 is not true or false; write one of the two"),
        ("skipping: off", '$.skipping (line 5): "off" is not true or false; write one of the two'),
        ("skiping: false", '$.skiping (line 5): unknown key; did you mean "skipping"?'),
        ("skipping: false\nengine: closed_form", "$.skipping (line 5): closed_form plays no rounds at all; leave"),
    ],
)
def test_wrong_skipping(refuse: Callable[[str], list[str]], text: str, problem: str) -> None:
    (found,) = refuse(LECTURE + text + "\n")
    assert found.startswith(problem)


def test_timelines_and_contributions(run: Runner) -> None:
    text = FLAT + "collective: {name: all_reduce, message: 1 KiB, algorithms: [ring]}\n"
    result = run(text + "timeline: [{algorithm: ring, devices: 2}]\ncontributions: {algorithm: ring, devices: 4}\n")
    ((title, timeline),) = result.timelines
    assert title == "ring, devices: 2"
    assert len(timeline) == 2 * 2 * 2  # two ranks, two rounds, a row for each end
    assert "0+1+2+3" in result.contributions[0]


def test_measured_times_are_laid_beside_predictions(run: Runner) -> None:
    text = FLAT + "collective: {name: all_reduce, message: 1 KiB, algorithms: [ring]}\n"
    result = run(text + "measured: {set: h100_1n8_aws_p5_allreduce_auto, algorithm: ring, min: 1 KiB, max: 1 GiB}\n")
    (measured,) = result.measured
    fit = measured.fit
    assert fit.errors.median < fit.given_errors.median
    assert min(measured.sweep.message_bytes) >= 1024
    assert max(measured.sweep.message_bytes) <= 2**30
    assert len(fit.predicted) == len(measured.sweep.seconds)


def test_messages_without_a_closed_form_are_left_out_and_named(load: Loader, tmp_path: Any) -> None:
    """Below 16 ranks x 4 B not every chunk of the rotated rings holds an element."""
    nodes = "title: x\ncluster: {machine: dgx-h100, nodes: 2}\n"
    text = nodes + "collective: {name: all_reduce, message: 1 KiB, algorithms: [rotated_rings]}\n"
    rows = [(8, 30.0), (16, 30.0), (2**16, 60.0), (2**20, 90.0), (2**24, 400.0)]
    mine = "set,size_bytes,time_us,place\n" + "".join(f"mine,{size},{time},out\n" for size, time in rows)
    (tmp_path / "mine.csv").write_text(mine)
    result = run_scenario(load(text + "measured: {file: mine.csv, algorithm: rotated_rings}\n"))
    (one,) = result.measured
    assert one.sweep.message_bytes == (2**16, 2**20, 2**24)
    (told,) = [text for text in result.warnings if "left out" in text]
    assert told == "mine: 2 of 5 points left out: rotated_rings has no exact closed form there, at 8 B, 16 B"
    (tmp_path / "mine.csv").write_text(mine.rsplit("mine,", 1)[0])
    with pytest.raises(InputError, match=r"at 8 B, 16 B; it leaves out 2 of 4 points, a fit needs 3: take another"):
        load(text + "measured: {file: mine.csv, algorithm: rotated_rings}\n")


def test_a_measured_file_is_found_beside_the_scenario(load: Loader, tmp_path: Any) -> None:
    rows = "".join(f"mine,{size},{10 + size / 1e4},out\n" for size in (1024, 4096, 65536, 2**20))
    (tmp_path / "mine.csv").write_text("set,size_bytes,time_us,place\n" + rows)
    text = FLAT + "collective: {name: all_reduce, message: 1 KiB, algorithms: [ring]}\n"
    result = run_scenario(load(text + "measured: {file: mine.csv, algorithm: ring, devices: 4}\n"))
    (measured,) = result.measured
    assert measured.fit.cluster.world_size == 4
    assert math.isfinite(measured.fit.alpha)


MINE = "set,size_bytes,time_us,place\n" + "".join(
    f"{name},{size},{time},out\n"
    for name, times in (("four", (50, 60, 10_000)), ("eight", (100, 120, 20_000)))
    for size, time in zip((1000, 100_000, 10_000_000), times, strict=True)
)
# A ring of N takes 2 (N - 1) (alpha + (message / N) / bandwidth): with alpha 5 us and 1 GB/s, on 4 ranks 31.5 us,
# 180 us and 15.03 ms; on 8 ranks 71.75 us, 245 us and 17.57 ms.
ERRORS = {4: (31.5 / 50 - 1, 180 / 60 - 1, 15030 / 10_000 - 1), 8: (71.75 / 100 - 1, 245 / 120 - 1, 17570 / 20_000 - 1)}
TWO = """
measured:
  - {file: mine.csv, set: four, algorithm: ring, devices: 4}
  - {file: mine.csv, set: eight, algorithm: ring}
"""


def test_several_sweeps_are_laid_beside_predictions_at_points_of_their_own(load: Loader, tmp_path: Any) -> None:
    (tmp_path / "mine.csv").write_text(MINE)
    checks = """
expect:
  - {median_error: {devices: 4}, equals: 50.3%, abs: 0.1%}
  - {median_error: {devices: 8, set: eight}, equals: 28.25%, abs: 0.01%}
  - {p90_error: {algorithm: ring, messages: middle}, equals: 190.4167%, abs: 0.001%}
  - {largest_error: {algorithm: ring}, equals: 200%, abs: 1e-9}
  - {largest_error: {messages: small, devices: 8}, at_most: 28%, because: no}
"""
    text = (
        FLAT.replace("450 GB/s", "1 GB/s")
        + "collective: {name: all_reduce, dtype: int8, message: 1 kB, algorithms: [ring]}\n"
    )
    result = run_scenario(load(text + TWO + checks))
    assert [one.world_size for one in result.measured] == [4, 8]
    for one in result.measured:
        assert one.relative == pytest.approx(ERRORS[one.world_size], rel=1e-9)
    assert [check.passed for check in result.checks] == [True] * 4 + [False]
    words = (
        "largest error of devices: 8, messages below 64 KiB is 28.2% (of 1 point, the worst 28.2% too fast at 1 kB on"
    )
    assert words in result.checks[4].message
    assert result.checks[4].value == pytest.approx(0.2825)
