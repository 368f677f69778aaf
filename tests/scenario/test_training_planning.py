"""Plans of training scenarios: which steps are simulated, what they cost beside each other, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from simcollectives.scenario import Standing, StepPlan, TrainingScenario, run_scenario
from simcollectives.scenario.advice import advice, cost_line
from simcollectives.scenario.training import planning
from simcollectives.scenario.training.evaluation import TrainingEvaluator
from simcollectives.scenario.training.planning import plan_steps
from tests.scenario.training_texts import BOTH, NODES, UNIFORM, training

Loader = Callable[[str], TrainingScenario]
ONE_CARD = NODES.replace("nodes: 2,", "nodes: 2, nics_per_node: 1,")


def plan(load: Loader, text: str) -> StepPlan:
    scenario = load(text)
    return plan_steps(scenario, TrainingEvaluator(scenario))


def test_every_step_is_counted_once(load: Loader) -> None:
    found = plan(
        load,
        training(
            BOTH,
            "sweep: {sequence: [64, 128]}",
            "expect:",
            "- {step_seconds: {strategy: ddp, sequence: 64}, at_least: 0 s}",
            "- {ratio: [{strategy: ddp}, {strategy: all_reduce_once}], sequence: 256, at_least: 0}",
            "timeline: {strategy: ddp, sequence: 64}",
        ),
    )
    assert found.steps == 4 + 0 + 2 + 1
    assert len(found.costs) == 4 + 2 + 1
    assert found.costs[4] == 0
    assert found.seconds == pytest.approx(7 * found.costs[0])


def test_a_crossover_costs_its_grid_and_a_search(load: Loader) -> None:
    check = "{crossover: [ddp, all_reduce_once], along: sequence, from: 1, to: 1024, at_most: 1024}"
    found = plan(load, training(BOTH, f"expect: [{check}]"))
    (grid,) = (len(one.grid) for one in load(training(BOTH, f"expect: [{check}]")).expectations)  # type: ignore[attr-defined]
    assert found.costs[2] == pytest.approx((grid + planning.ROOT_RUNS) * 2 * found.costs[0])


def test_the_cost_grows_with_what_is_played(load: Loader) -> None:
    one, two, three = plan(load, training(UNIFORM, "sweep: {accumulation: [1, 2, 3]}")).costs
    assert three - two == pytest.approx(two - one)
    (steady,) = plan(load, training(UNIFORM + ", slow: {3: 120%}")).costs
    (first,) = plan(load, training(UNIFORM + ", slow: {3: 120%}, step: first")).costs
    assert first - one == pytest.approx(two - one), "ranks of two speeds"
    assert steady - one == pytest.approx(5 * (two - one)), "three times"
    (random,) = plan(load, training(UNIFORM + ", jitter: {lognormal: 1%}, step: first")).costs
    assert random - one == pytest.approx(7 * (two - one)), "each of eight ranks"


def test_prices_cost_where_no_closed_form_gives_them_and_once(load: Loader) -> None:
    by_form, by_event = (plan(load, training(UNIFORM, cluster=cluster)).seconds for cluster in (NODES, ONE_CARD))
    assert by_event > by_form == plan(load, training(UNIFORM)).seconds
    costs = plan(load, training(BOTH, "sweep: {inter.bandwidth: [50 GB/s, 40 GB/s]}", cluster=ONE_CARD)).costs
    assert costs[0] == costs[2] > costs[1] == costs[3], "the second strategy asks for the prices of the first"


def test_a_long_plan_is_timed_in_part_and_scaled(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    text = training(UNIFORM, "sweep: {accumulation: [1, 100]}")
    rough = plan(load, text)
    monkeypatch.setattr(planning, "_LITTLE_SECONDS", 0.0)
    monkeypatch.setattr(planning, "_LITTLE_SHARE", 0.5)
    seconds = count()
    monkeypatch.setattr(planning, "perf_counter", lambda: float(next(seconds)))
    small, large = plan(load, text).costs
    assert small == 1.0
    assert large == pytest.approx(rough.costs[1] / rough.costs[0])


def test_it_is_said_before_the_first_step_and_followed(load: Loader) -> None:
    scenario = load(training(UNIFORM, "sweep: {accumulation: [1, 4]}", "timeline: {accumulation: 2}"))
    told: list[StepPlan | Standing] = []
    run_scenario(scenario, told.append, told.append)  # type: ignore[arg-type]
    announced, *standings = told
    assert isinstance(announced, StepPlan)
    assert [one.done for one in standings if isinstance(one, Standing)] == [1, 2, 3]
    assert standings[-1] == Standing(3, 3, pytest.approx(announced.seconds), pytest.approx(announced.seconds))


def test_only_a_long_one_is_spoken_of() -> None:
    assert cost_line(StepPlan((4.0, 5.0), 2), None) is None
    assert cost_line(StepPlan((60.0, 61.0), 1200), None) == "1,200 training steps, about 2 min"
    assert cost_line(StepPlan((11.0,), 1), None) == "1 training step, about 11 s"
    assert advice(StepPlan((1e4,), 1), None) == []
