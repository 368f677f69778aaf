"""The event engine: what it computes once, and what it refuses to call a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from simcollectives.cluster import Cluster, Link, Uplink
from simcollectives.cluster.network import Network
from simcollectives.engines import Job, fair_sharing, make_job
from simcollectives.engines.critical_path import critical_path
from simcollectives.engines.event import event
from simcollectives.engines.fair_sharing import FairNetwork
from simcollectives.engines.filling import rates_of
from simcollectives.engines.run import Parts
from simcollectives.errors import ScheduleError

LINK = Link(alpha=5e-6, bandwidth=50e9)


def one_card_a_node(algorithm: str, rank_order: str = "node_major") -> Job:
    cluster = Cluster.two_level(8, 8, Link(2e-6, 450e9), LINK, rank_order=rank_order)
    shared = cluster.with_uplinks(Uplink("nic", "inter", LINK.bandwidth, devices=8))
    return make_job("all_reduce", algorithm, shared, 4 << 20)


def moved(monkeypatch: pytest.MonkeyPatch, job: Job) -> list[int]:
    """Number of flows of each component whose rates the engine computes."""
    sizes: list[int] = []

    def counted(flows: Sequence[Any], *rest: Any) -> list[float]:
        sizes.append(len(flows))
        return rates_of(flows, *rest)

    monkeypatch.setattr(fair_sharing, "rates_of", counted)
    event(job)
    return sizes


@pytest.mark.parametrize(
    ("algorithm", "rank_order", "rounds"), [("ring", "round_robin", 126), ("hierarchical", "node_major", 14)]
)
def test_equal_messages_on_a_card_get_their_rates_once(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, rank_order: str, rounds: int
) -> None:
    """In every round between nodes eight times eight messages from one card to another; each starts and ends as one."""
    assert moved(monkeypatch, one_card_a_node(algorithm, rank_order)) == [8] * 8 * rounds


def test_unequal_cards_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every card different nothing but the messages between two cards is ever computed together."""
    job = one_card_a_node("hierarchical")
    network = job.full_cluster.network
    network.capacity = network.capacity * np.random.default_rng(1).uniform(0.2, 1.0, len(network.capacity))
    sizes = moved(monkeypatch, job)
    assert max(sizes) <= 8
    assert len(sizes) > 8 * 14


def test_routes_are_made_once_while_pairs_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    routes = Network.routes

    def counted(self: Network, *pairs: Any) -> Any:
        made.append(pairs)
        return routes(self, *pairs)

    monkeypatch.setattr(Network, "routes", counted)
    event(make_job("all_reduce", "ring", Cluster.flat(8, LINK), 800))
    assert len(made) == 1
    event(make_job("all_reduce", "butterfly", Cluster.flat(8, LINK), 800))
    assert len(made) == 1 + 3


def test_ranks_that_wait_for_ever_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flows that get lost leave an empty queue and 64 ranks in their first round between nodes."""
    monkeypatch.setattr(FairNetwork, "start", lambda _self, _flows: None)
    with pytest.raises(ScheduleError, match="hierarchical: 64 ranks never finished"):
        event(one_card_a_node("hierarchical"))


def test_what_rounding_leaves_goes_to_the_largest_bandwidth() -> None:
    parts = Parts.of_path(["intra", "inter"], 10.0 + 5e-9, [1.0, 2.0], [2.0, 4.0], 1.0)
    assert parts == Parts(("intra", "inter"), (1.0, 2.0), (2.0, pytest.approx(4.0 + 5e-9, rel=1e-15)), 1.0)
    assert Parts.of_path(["link"], 1.0, [1.0], [0.0], 0.0) == Parts(("link",), (1.0,), (0.0,), 0.0)


@pytest.mark.parametrize("seconds", [10.0 + 2e-8, 10.0 - 2e-8, math.inf, math.nan])
def test_a_path_that_does_not_explain_the_seconds_is_an_error(seconds: float) -> None:
    with pytest.raises(ScheduleError, match=r"the critical path explains .* s of .* s"):
        Parts.of_path(["intra", "inter"], seconds, [1.0, 2.0], [2.0, 4.0], 1.0)


def test_the_walk_back_of_a_vectorized_run_is_checked() -> None:
    job = make_job("all_reduce", "ring", Cluster.flat(4, LINK), 800)
    with pytest.raises(ScheduleError, match=r"the critical path explains 0\.0 s of 1\.0 s"):
        critical_path(job, [], np.array([1.0, 1.0, 1.0, 1.0]), 1.0)
