"""Every rank played, with kernels that last a random time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Link
from simcollectives.engines.conditions import Jitter, kernel_factors
from simcollectives.training.plain import uniform_model
from simcollectives.training.setup import ModuleSeconds, Training
from simcollectives.training.step import simulate_step
from simcollectives.training.strategies.table import STRATEGIES
from tests.laws.training_cases import drawn


def training(cluster: Cluster, **more: object) -> Training:
    model = uniform_model(1200, 3, 2)
    seconds = {module.name: ModuleSeconds(1.0, 2.0) for layer in model.layers for module in layer.modules}
    return replace(Training(model, cluster, 1, 1, seconds), **more)  # type: ignore[arg-type]


def test_a_step_waits_for_the_slowest_rank() -> None:
    """First step of one all-reduce after the backward: the largest sum of kernels, the ring, then its own optimizer."""
    link, ranks = Link(0.5, 100.0), 4
    cluster = Cluster.flat(ranks, link)
    jitter = Jitter("lognormal", 0.3)
    step = simulate_step(training(cluster, iteration=0, jitter=jitter, seed=7), "all_reduce_once")
    plain = simulate_step(training(cluster, iteration=0), "all_reduce_once")
    kernels = [span.operation for span in plain.timeline.of_rank(0)]
    place = np.arange(len(kernels), dtype=np.int64)
    lasting = [
        sum(one.seconds * f for one, f in zip(kernels, kernel_factors(jitter, 7, 0, rank, place), strict=True))
        for rank in range(ranks)
    ]
    ring = 2 * (ranks - 1) * (0.5 + 1200 * 2 / ranks / 100)
    assert step.step_seconds == pytest.approx(max(lasting) + ring, rel=1e-12)
    assert step.waiting_seconds == pytest.approx(max(lasting) - lasting[0], rel=1e-12)
    assert max(lasting) > lasting[0]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
@settings(max_examples=6)
@given(st.data())
def test_every_rank_played_alike_is_one_rank_played(strategy, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    """A spread that is too small to be seen: all ranks meet in all groups at the times of one that stands for them."""
    one, chosen = drawn(data, strategy, slow=False)
    every = replace(one, jitter=Jitter("gamma", 1e-7))
    expected, found = (simulate_step(x, strategy.name, chosen) for x in (one, every))
    assert found.step_seconds == pytest.approx(expected.step_seconds, rel=1e-5)
    assert found.exposed_seconds == pytest.approx(expected.exposed_seconds, rel=1e-5, abs=1e-5 * expected.step_seconds)
    assert [(c.kind, c.name, c.elements) for c in found.collectives] == [
        (c.kind, c.name, c.elements) for c in expected.collectives
    ]


def test_more_ranks_than_are_recorded_end_when_they_should() -> None:
    """Forty ranks, of which one is recorded; the sum of what the others do is played in fewer pieces."""
    cluster = Cluster.flat(40, Link(0.5, 100.0))
    jittered = training(cluster, jitter=Jitter("gamma", 0.1), iteration=0)
    step = simulate_step(jittered, "ddp")
    assert {span.rank for span in step.timeline.spans} == {0}
    assert len(step.timeline.ends) == 40
    place = np.arange(len(step.timeline.spans), dtype=np.int64)
    base = [
        span.operation
        for span in sorted(
            simulate_step(training(cluster, iteration=0), "ddp").timeline.spans, key=lambda span: span.place
        )
    ]
    for rank in (5, 39):
        factors = kernel_factors(Jitter("gamma", 0.1), 0, 0, rank, place)
        after = [one.seconds * f for one, f in zip(base, factors, strict=True) if one.phase == "optimizer"]
        last = max(span.end for span in step.timeline.spans if span.price is not None)
        assert step.timeline.end_of(rank) == pytest.approx(last + sum(after), rel=1e-9)


def test_seeds_differ_and_repeat() -> None:
    cluster = Cluster.flat(4, Link(0.0, 100.0))
    jitter = Jitter("lognormal", 0.2)
    seconds = [simulate_step(training(cluster, jitter=jitter, seed=seed), "ddp").step_seconds for seed in (1, 1, 2)]
    assert seconds[0] == seconds[1] != seconds[2]
