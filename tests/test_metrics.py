"""Bandwidths and bounds: worked by hand, and the properties that make them bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Link
from simcollectives.engines import make_job
from simcollectives.metrics import (
    COLLECTIVES,
    algbw,
    bandwidth_lower_bound,
    bus_factor,
    busbw,
    latency_lower_bound,
    required_bytes,
)
from simcollectives.schedule import COLLECTIVES as SCHEDULED


def test_collectives_are_those_that_have_conditions() -> None:
    assert set(COLLECTIVES) == set(SCHEDULED)


@pytest.mark.parametrize(
    ("collective", "factor"),
    # nccl-tests, doc/PERFORMANCE.md, for 8 ranks: 2 (n - 1)/n; (n - 1)/n; 1.
    [
        ("all_reduce", 1.75),
        ("reduce_scatter", 0.875),
        ("all_gather", 0.875),
        ("all_to_all", 0.875),
        ("broadcast", 1.0),
        ("reduce", 1.0),
    ],
)
def test_bus_factor(collective: str, factor: float) -> None:
    assert bus_factor(collective, 8) == factor
    assert busbw(collective, 8, 1e9, 0.01) == factor * 1e11
    assert bus_factor(collective, 1) == (1.0 if collective in ("broadcast", "reduce") else 0.0)


def test_rates_of_no_time_are_none() -> None:
    assert algbw(1e9, 0.0) is None
    assert busbw("all_reduce", 8, 1e9, 0.0) is None
    assert algbw(0, 1.0) == 0.0


@pytest.mark.parametrize(
    ("collective", "device", "node"),
    # 4 nodes x 8, in units of the message: what the busiest of 32 devices, or of 4 nodes, must send or receive.
    [
        ("all_reduce", 2 * 31 / 32, 2 * 3 / 4),
        ("reduce_scatter", 31 / 32, 3 / 4),
        ("all_gather", 31 / 32, 3 / 4),
        ("all_to_all", 31 / 32, 8 * 3 / 4),
        ("broadcast", 1, 1),
        ("reduce", 1, 1),
    ],
)
def test_required_bytes(collective: str, device: float, node: float) -> None:
    assert required_bytes(collective, 32, 1e6) == pytest.approx(device * 1e6, rel=1e-15)
    assert required_bytes(collective, 32, 1e6, group_size=8) == pytest.approx(node * 1e6, rel=1e-15)
    assert required_bytes(collective, 8, 1e6, group_size=8) == 0
    assert required_bytes(collective, 1, 1e6) == 0


def test_latency_bound_is_one_latency() -> None:
    assert latency_lower_bound(2, 5e-6) == latency_lower_bound(1024, 5e-6) == 5e-6
    assert latency_lower_bound(1, 5e-6) == 0


def test_bandwidth_bound_is_the_larger_of_device_and_node() -> None:
    # 1 GB on 4 x 8: a device sends 1.9375 GB over 500 GB/s of ports, a node 1.5 GB over 400 GB/s of NICs.
    assert bandwidth_lower_bound("all_reduce", 32, 1e9, 500e9) == pytest.approx(3.875e-3, rel=1e-12)
    assert bandwidth_lower_bound("all_reduce", 32, 1e9, 500e9, 8, 400e9) == pytest.approx(3.875e-3, rel=1e-12)
    assert bandwidth_lower_bound("all_reduce", 32, 1e9, 500e9, 8, 100e9) == pytest.approx(15e-3, rel=1e-12)


def test_bound_of_a_job() -> None:
    intra, inter = Link(5e-6, 450e9), Link(10e-6, 50e9)
    cluster = Cluster.two_level(nodes=4, gpus_per_node=8, intra=intra, inter=inter)
    # Devices: 1.9375 GB through 450 + 50 GB/s = 3.875 ms. Nodes: 1.5 GB through 8 x 50 GB/s = 3.75 ms.
    assert make_job("all_reduce", "ring", cluster, 1e9).lower_bound_seconds == pytest.approx(3.875e-3, rel=1e-12)
    # All-to-all: 0.969 GB through 500 GB/s = 1.94 ms; a node must send 6 GB through 400 GB/s = 15 ms.
    assert make_job("all_to_all", "direct", cluster, 1e9).lower_bound_seconds == pytest.approx(15e-3, rel=1e-12)
    # Small messages: the smaller latency.
    assert make_job("all_reduce", "ring", cluster, 4).lower_bound_seconds == 5e-6
    assert make_job("all_reduce", "ring", Cluster.flat(1, intra), 1e9).lower_bound_seconds == 0


@given(
    st.sampled_from(COLLECTIVES),
    st.integers(1, 2000),
    st.just(0.0) | st.floats(1, 1e15),
    st.floats(1e3, 1e13),
    st.floats(1e-9, 1e6),
)
def test_bounds_are_never_negative_and_grow(
    collective: str, n: int, message: float, bandwidth: float, seconds: float
) -> None:
    bound = bandwidth_lower_bound(collective, n, message, bandwidth)
    assert 0 <= bound <= bandwidth_lower_bound(collective, n + 1, message, bandwidth)
    assert bound <= bandwidth_lower_bound(collective, n, 2 * message, bandwidth)
    rate = busbw(collective, n, message, seconds)
    assert rate is not None
    # busbw is what a port carries where no schedule sends less: the bound at that rate is the time.
    if n > 1 and rate > 0 and math.isfinite(message / rate):
        assert bandwidth_lower_bound(collective, n, message, rate) == pytest.approx(seconds, rel=1e-9)
