"""Max-min fair sharing: the conditions that define it, and shared time worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.engines.fair_sharing import FairNetwork, fair_rates


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[list[int]], list[float]]:
    """Flows over two different resources each, and capacities; small whole numbers make ties."""
    resources = draw(st.integers(2, 8))
    hop = st.lists(st.integers(0, resources - 1), min_size=2, max_size=2, unique=True)
    flows = draw(st.lists(hop, min_size=1, max_size=15))
    capacity = draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 7.0, 1e9]), min_size=resources, max_size=resources))
    return flows, capacity


@given(networks())
def test_rates_are_max_min_fair(network: tuple[list[list[int]], list[float]]) -> None:
    """Feasible, and every flow has a bottleneck: a full resource on which no flow is faster."""
    flows, capacity = network
    rates = fair_rates(np.array(flows), np.array(capacity))
    assert np.all(rates > 0)
    load = [sum(rate for rate, flow in zip(rates, flows, strict=True) if r in flow) for r in range(len(capacity))]
    fastest = [
        max((rate for rate, flow in zip(rates, flows, strict=True) if r in flow), default=0.0)
        for r in range(len(capacity))
    ]
    assert all(used <= limit * (1 + 1e-9) for used, limit in zip(load, capacity, strict=True))
    for rate, flow in zip(rates, flows, strict=True):
        assert any(load[r] >= capacity[r] * (1 - 1e-9) and rate >= fastest[r] * (1 - 1e-9) for r in flow)


@given(networks(), st.randoms(use_true_random=False))
def test_order_of_flows_does_not_matter(network: tuple[list[list[int]], list[float]], random: object) -> None:
    flows, capacity = network
    order = np.random.default_rng(len(flows)).permutation(len(flows))
    rates = fair_rates(np.array(flows), np.array(capacity))
    shuffled = fair_rates(np.array(flows)[order], np.array(capacity))
    assert np.allclose(shuffled, rates[order], rtol=1e-12)


def test_textbook_example() -> None:
    """A flow over both of two links of 1 and one over each of them, and a link of 2 with a fourth flow.

    Bertsekas and Gallager's rule by hand: link 0 serves flows 0 and 1 at 1/2, link 1 flows 0 and 2 at 1/2.
    """
    flows = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])
    # Link 2 has 2: flow 1 takes 1/2, flow 3 the rest, 3/2; link 3 is wide.
    assert fair_rates(flows, np.array([1.0, 1.0, 2.0, 100.0])).tolist() == [0.5, 0.5, 0.5, 1.5]


def test_no_flows() -> None:
    assert fair_rates(np.zeros((0, 2), dtype=np.int64), np.ones(3)).tolist() == []


def play(capacity: list[float], flows: list[tuple[float, list[int], float]]) -> list[tuple[str, float]]:
    """Start (instant, resources, bytes) flows; return who ends when, in order."""
    env = simpy.Environment()
    ends: list[tuple[str, float]] = []
    network = FairNetwork(env, np.array(capacity), lambda token: ends.append((token, env.now)))
    for i, (start, resources, size) in enumerate(flows):

        def begin(start: float = start, resources: list[int] = resources, size: float = size, name: str = "abcdef"[i]):  # type: ignore[no-untyped-def]
            yield env.timeout(start)
            network.start(resources, size, name)

        env.process(begin())
    env.run()
    return ends


def test_two_flows_share_and_the_rest_speeds_up() -> None:
    """10 and 30 bytes over one link of 10 B/s: 5 B/s each, so a ends at 2 s; b has 20 bytes left at 10 B/s: 4 s."""
    assert play([10.0, 10.0, 10.0], [(0.0, [0, 1], 10.0), (0.0, [0, 2], 30.0)]) == [("a", 2.0), ("b", 4.0)]


def test_a_late_flow_slows_an_early_one() -> None:
    """a has 10 of 20 bytes left when b arrives at 1 s, and ends at 3 s; b then has 5 of 15 left: 3.5 s."""
    assert play([10.0, 10.0, 10.0], [(0.0, [0, 1], 20.0), (1.0, [0, 2], 15.0)]) == [("a", 3.0), ("b", 3.5)]


def test_a_flow_that_is_held_up_elsewhere_leaves_room() -> None:
    """b is held to 2 B/s by its receiver, so a gets 8 B/s: 16 bytes in 2 s; b sends 10 bytes in 5 s."""
    assert play([10.0, 10.0, 2.0], [(0.0, [0, 1], 16.0), (0.0, [0, 2], 10.0)]) == [("a", 2.0), ("b", 5.0)]


def test_equal_flows_end_at_the_very_same_float() -> None:
    flows = [(0.1 * k, [0, 1 + k], 7.0) for k in (0, 0, 0)] + [(0.0, [0, 4], 0.3)]
    ends = dict(play([0.7, 0.7, 0.7, 0.7, 0.7], flows))
    assert ends["a"] == ends["b"] == ends["c"]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_work_is_conserved_on_one_link(count: int) -> None:
    """However flows come, a link of 1 B/s that is never idle passes all bytes in as many seconds."""
    flows = [(float(k), [0, 1 + k], 3.0 + k) for k in range(count)]
    total = sum(size for _, _, size in flows)
    assert play([1.0] * (count + 1), flows)[-1][1] == pytest.approx(total, rel=1e-12)
