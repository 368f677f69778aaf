"""Max-min fair rates: the conditions that define them, and examples worked by hand."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.engines.filling import fair_rates

Network = tuple[list[list[int]], list[float], list[float]]


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Routes of up to three resources each, capacities and caps; small whole numbers make ties."""
    resources = draw(st.integers(1, 8))
    route = st.lists(st.integers(0, resources - 1), min_size=1, max_size=3, unique=True)
    routes = draw(st.lists(route, min_size=1, max_size=15))
    capacity = draw(st.lists(st.sampled_from([1.0, 2.0, 3.0, 7.0, 1e9]), min_size=resources, max_size=resources))
    limit = st.sampled_from([0.2, 0.5, 1.0, 3.0, inf]) if draw(st.booleans()) else st.just(inf)
    caps = draw(st.lists(limit, min_size=len(routes), max_size=len(routes)))
    return routes, capacity, caps


@given(networks())
def test_rates_are_max_min_fair(network: Network) -> None:
    """Feasible, and every flow is at its cap or has a bottleneck: a full resource on which no flow is faster."""
    routes, capacity, caps = network
    rates = fair_rates(routes, capacity, caps)
    assert min(rates) > 0
    assert all(rate <= cap * (1 + 1e-12) for rate, cap in zip(rates, caps, strict=True))
    on = [[rate for rate, route in zip(rates, routes, strict=True) if r in route] for r in range(len(capacity))]
    assert all(sum(found) <= limit * (1 + 1e-9) for found, limit in zip(on, capacity, strict=True))
    for rate, route, cap in zip(rates, routes, caps, strict=True):
        bottlenecks = [sum(on[r]) >= capacity[r] * (1 - 1e-9) and rate >= max(on[r]) * (1 - 1e-9) for r in route]
        assert rate >= cap * (1 - 1e-9) or any(bottlenecks)


@given(networks())
def test_order_of_flows_does_not_matter(network: Network) -> None:
    routes, capacity, caps = network
    rates = fair_rates(routes, capacity, caps)
    order = np.random.default_rng(len(routes)).permutation(len(routes))
    shuffled = fair_rates([routes[i] for i in order], capacity, [caps[i] for i in order])
    assert np.allclose(shuffled, [rates[i] for i in order], rtol=1e-12)


@given(networks())
def test_a_cap_is_a_resource_of_its_own(network: Network) -> None:
    routes, capacity, caps = network
    limited = [i for i, cap in enumerate(caps) if cap < inf]
    own = {i: len(capacity) + k for k, i in enumerate(limited)}
    longer = [[*route, own[i]] if i in own else route for i, route in enumerate(routes)]
    expected = fair_rates(longer, [*capacity, *(caps[i] for i in limited)])
    assert np.allclose(fair_rates(routes, capacity, caps), expected, rtol=1e-12)


def test_textbook_example() -> None:
    """A flow over both of two links of 1 and one over each of them, and a link of 2 with a fourth flow.

    Bertsekas and Gallager's rule by hand: link 0 serves flows 0 and 1 at 1/2, link 1 flows 0 and 2 at 1/2.
    """
    flows = [[0, 1], [0, 2], [1, 3], [2, 3]]
    # Link 2 has 2: flow 1 takes 1/2, flow 3 the rest, 3/2; link 3 is wide.
    assert fair_rates(flows, [1.0, 1.0, 2.0, 100.0]) == [0.5, 0.5, 0.5, 1.5]


@pytest.mark.parametrize(
    ("caps", "rates"),
    [
        ([inf, inf, inf], [4.0, 4.0, 4.0]),
        ([1.0, inf, inf], [1.0, 5.5, 5.5]),
        ([1.0, 5.0, inf], [1.0, 5.0, 6.0]),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
        ([4.0, 4.0, 4.0], [4.0, 4.0, 4.0]),
    ],
)
def test_what_capped_flows_leave_goes_to_the_others(caps: list[float], rates: list[float]) -> None:
    """Three flows on one link of 12 B/s."""
    assert fair_rates([[0], [0], [0]], [12.0], caps) == rates


def test_a_flow_that_shares_nothing_has_its_cap() -> None:
    assert fair_rates([[], [0], []], [2.0], [5.0, inf, inf]) == [5.0, 2.0, inf]


def test_no_flows() -> None:
    assert fair_rates([], [1.0, 1.0]) == []


def test_equal_flows_get_the_very_same_rate() -> None:
    """Three flows on 0.3 B/s and two on 0.2 B/s have 0.1 B/s each; in floats 0.3 / 3 is less than 0.2 / 2."""
    assert 0.3 / 3 < 0.2 / 2
    routes = [[0], [0], [0, 2], [1], [1], [2]]
    rates = fair_rates(routes, [0.3, 0.2, 5.0])
    assert len(set(rates[:5])) == 1
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.1, 4.9], rel=1e-12)
