"""Plans: which runs are made and what they cost, what is said of it, and which engine is advised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from simcollectives.engines import make_job
from simcollectives.engines.estimate import rough
from simcollectives.scenario import Plan, Scenario, advice, plan_scenario, planning, run_scenario
from simcollectives.scenario.advice import cost_line, free_memory_bytes
from simcollectives.scenario.build import build_cluster

Loader = Callable[[str], Scenario]
FLAT = "title: t\ncluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}\n"
RING = FLAT + "collective: {name: all_reduce, message: 1 KiB, algorithms: [ring]}\nverify: never\n"
ONE_CARD = """\
title: t
cluster:
  {nodes: 4, gpus_per_node: 8, intra: {alpha: 5 us, bandwidth: 450 GB/s}, inter: {alpha: 10 us, bandwidth: 50 GB/s},
   nics_per_node: 1}
collective: {name: all_reduce, message: 1 KiB, algorithms: [ring]}
verify: never
"""


def counts(plan: Plan) -> list[list[tuple[str, int, int]]]:
    return [[(run.entry.label, run.times, run.estimate.messages) for run in item] for item in plan.items]


def slow(plan: Plan, seconds: float = 1e4, memory_bytes: int = 0) -> Plan:
    """The same plan on a slower computer."""
    items = tuple(
        tuple(replace(run, estimate=replace(run.estimate, seconds=seconds, memory_bytes=memory_bytes)) for run in item)
        for item in plan.items
    )
    return replace(plan, items=items)


def test_rows_are_planned_as_they_run(load: Loader) -> None:
    scenario = load(RING.replace("[ring]", "[ring, tree]") + "sweep: {devices: [4, 8]}\n")
    plan = plan_scenario(scenario)
    assert counts(plan) == [[("ring", 1, 24)], [("tree", 1, 6)], [("ring", 1, 112)], [("tree", 1, 14)]]
    assert plan.messages == 24 + 6 + 112 + 14
    assert plan.seconds == pytest.approx(sum(run.seconds for run in plan.runs))
    assert len(plan.items) == len(run_scenario(scenario).rows)
    cluster = build_cluster(scenario.cluster, {"devices": 4})
    assert plan.items[0][0].estimate == rough(make_job("all_reduce", "ring", cluster, 1024))


def test_seeds_are_so_many_runs_and_the_median_once_more(load: Loader) -> None:
    plan = plan_scenario(load(RING + "jitter: {alpha: {gamma: 10%}}\nseeds: 9\n"))
    assert counts(plan) == [[("ring", 10, 112)]]
    assert plan.messages == 1120
    assert plan.seconds == 10 * plan.items[0][0].estimate.seconds


def test_checks_cost_what_rows_have_not_run(load: Loader) -> None:
    text = """\
expect:
  - {seconds: {algorithm: ring}, at_least: 1 us}
  - {seconds: {algorithm: ring, devices: 16}, at_least: 1 us}
  - {ratio: [{algorithm: ring, devices: 16}, {algorithm: ring, devices: 4}], at_least: 1}
  - {order: [ring, tree], devices: 2}
"""
    plan = plan_scenario(load(RING.replace("[ring]", "[ring, tree]") + text))
    assert counts(plan)[2:] == [[], [("ring", 1, 480)], [("ring", 1, 24)], [("ring", 1, 4), ("tree", 1, 2)]]


def test_a_crossover_runs_where_no_closed_form_gives_the_time(load: Loader) -> None:
    check = "expect: [{crossover: [ring, tree], along: message, from: 64 B, to: 1 MiB, at_least: 1 B}]\n"
    text = RING.replace("[ring]", "[ring, tree]") + check
    assert counts(plan_scenario(load(text)))[2] == []
    played = counts(plan_scenario(load(text + "skipping: false\n")))[2]
    ring = [(times, messages) for label, times, messages in played if label == "ring"]
    assert len(ring) > 3
    assert ring[0] == (1, 112)
    assert ring[-1] == (planning.ROOT_RUNS, 112)


def test_timelines_are_runs_of_the_event_engine(load: Loader) -> None:
    plan = plan_scenario(load(RING + "timeline: {algorithm: ring, devices: 4}\n"))
    (row,), (drawn,) = plan.items
    assert (row.estimate.engine, drawn.estimate.engine) == ("vectorized", "event")
    assert drawn.timeline
    assert drawn.point == {"devices": 4}


def test_executing_on_arrays_is_counted_once_for_a_shape(load: Loader) -> None:
    text = (
        RING.replace("verify: never", "verify: auto") + "sweep: {message: [1 MiB, 2 MiB], link.alpha: [1 us, 2 us]}\n"
    )
    plan = plan_scenario(load(text))
    seconds = [run.verify_seconds for run in plan.runs]
    assert [cost > 0 for cost in seconds] == [True, False, False, False]
    assert plan.memory_bytes == 3 * 8 * (1 << 20)
    assert plan.seconds > sum(run.estimate.seconds for run in plan.runs)


def test_what_is_refused_costs_nothing(load: Loader) -> None:
    text = ONE_CARD.replace("[ring]", "[direct]") + "sweep: {nodes: [2, 1024]}\nengine: event\n"
    assert counts(plan_scenario(load(text))) == [[("direct", 1, 480)], []]


def test_estimates_are_shared_by_messages_that_cut_alike(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(planning, "rough", lambda job, *rest: (asked.append(job.layout.even), rough(job, *rest))[1])
    plan_scenario(load(RING + "sweep: {message: [32 B, 36 B, 64 B, 68 B, 96 B], link.alpha: [1 us, 2 us]}\n"))
    assert asked == [True, False]


def test_a_long_plan_is_timed_in_part_and_scaled(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "measured", lambda _job, found, *_rest, **_more: replace(found, seconds=1.0))
    scenario = load(RING + "sweep: {devices: [8, 512]}\nengine: event\n")
    small, large = (run.estimate.seconds for run in plan_scenario(scenario).runs)
    monkeypatch.setattr(planning, "ROUGH_SECONDS", 1e9)
    rough_small, rough_large = (run.estimate.seconds for run in plan_scenario(scenario).runs)
    assert large == 1.0
    assert small == pytest.approx(rough_small / rough_large)


def test_small_costs_are_not_spoken_of(load: Loader) -> None:
    plan = plan_scenario(load(RING))
    assert cost_line(plan, 10**9) is None
    assert advice.advice(plan, 10**9) == []
    assert advice.advice(plan, None) == []


def test_a_cost_is_said_from_ten_seconds_on_and_advice_given_after_minutes(load: Loader) -> None:
    plan = plan_scenario(load(RING))
    assert cost_line(slow(plan, 11.0, 3 * 10**8), None) == "112 messages, about 11 s, 300 MB"
    assert advice.advice(slow(plan, 11.0), 10**9) == []
    assert advice.advice(slow(plan, 200.0), 10**9) != []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            RING + "engine: event\n",
            "ring takes about 3 h; vectorized is exact there, too, in about 0.1 s: write engine: auto",
        ),
        (
            RING.replace("1 KiB", "1028 B").replace("[ring]", "[direct]"),
            "direct takes about 3 h; closed_form is exact there, too, in about 0.1 s: write engine: closed_form",
        ),
        (RING + "skipping: false\n", "ring takes about 3 h; without skipping: false about 0.1 s, to the same time"),
        (
            RING + "engine: event\nskipping: false\n",
            "ring takes about 3 h; vectorized is exact there, too, in about 0.1 s: "
            "write engine: auto, and leave skipping: false out",
        ),
        (
            RING + "time: one_port\nskipping: false\n",
            "ring takes about 3 h; closed_form is exact there, too, in about 0.1 s: "
            "write engine: closed_form, and leave skipping: false out",
        ),
        (ONE_CARD, "ring takes about 3 h; no cheaper engine is exact there: take fewer devices"),
        (
            ONE_CARD + "sweep: {nodes: [8]}\njitter: {alpha: {gamma: 10%}}\nseeds: 4\n",
            "ring at nodes: 8 takes about 14 h (5 runs of 3 h); no cheaper engine is exact there: "
            "take fewer seeds or fewer points or fewer devices",
        ),
        (
            RING + "time: one_port\n",
            "ring takes about 3 h; closed_form is exact there, too, in about 0.1 s: write engine: closed_form",
        ),
    ],
)
def test_advice_names_an_engine_only_where_it_is_exact(load: Loader, text: str, expected: str) -> None:
    scenario = load(text)
    assert advice.advice(slow(plan_scenario(scenario)), None) == [expected]
    for engine in ("vectorized", "closed_form"):
        if f"{engine} is exact" in expected:
            assert run_scenario(replace(scenario, engine=engine, skipping=True)).rows[0]["seconds"] == pytest.approx(
                run_scenario(replace(scenario, engine="event")).rows[0]["seconds"], rel=1e-12
            )


def test_advice_names_the_runs_that_cost_most(load: Loader) -> None:
    plan = plan_scenario(
        load(RING.replace("[ring]", "[ring, tree]") + "sweep: {devices: [4, 8, 16, 32]}\nengine: event\n")
    )
    long = {("ring", 32): 1000.0, ("ring", 16): 400.0, ("tree", 32): 1.0}
    items = tuple(
        tuple(
            replace(run, estimate=replace(run.estimate, seconds=long.get((run.entry.label, run.point["devices"]), 0.1)))
            for run in item
        )
        for item in plan.items
    )
    found = advice.advice(replace(plan, items=items), None)
    assert [text.partition(" takes")[0] for text in found] == ["ring at devices: 32", "ring at devices: 16"]


def test_advice_on_memory(load: Loader) -> None:
    plan = slow(plan_scenario(load(RING)), 1.0, 6 * 10**9)
    assert advice.advice(plan, 13 * 10**9) == []
    assert advice.advice(plan, 11 * 10**9) == ["ring holds about 6 GB, and 11 GB are free; take fewer devices"]
    assert cost_line(plan, 11 * 10**9) == "112 messages, about 1 s, 6 GB"


def test_advice_on_executing(load: Loader) -> None:
    plan = plan_scenario(load(RING.replace("verify: never", "verify: always")))
    items = tuple(tuple(replace(run, verify_seconds=1e3) for run in item) for item in plan.items)
    (found,) = advice.advice(replace(plan, items=items), None)
    assert found.endswith("most of it is executing it on arrays: write verify: never, or take a smaller message")


def test_free_memory_is_less_than_a_petabyte_where_it_is_known() -> None:
    free = free_memory_bytes()
    assert free is None or 1 << 20 < free < 1 << 50
