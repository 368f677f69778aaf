"""Rings over all network ports: figures for 4 nodes of 8 GPUs, for slow paths between two nodes, for opposite rings.

4 x 8: alpha 5 us and 450 GB/s inside nodes, 10 us and 50 GB/s for each GPU between them (CMU 15-779, lecture 12), 1 GB.
"""

from __future__ import annotations

from typing import Any

import pytest

from simcollectives.cluster import Cluster, Link, Uplink
from simcollectives.engines import simulate

GB = 10**9
NVLINK, INFINIBAND = Link(5e-6, 450e9), Link(10e-6, 50e9)
FOUR_BY_EIGHT = Cluster.two_level(4, 8, NVLINK, INFINIBAND)


def seconds(name: str, cluster: Cluster, message: float, engine: str = "event", **options: Any) -> float:
    return simulate("all_reduce", name, cluster, message, engine, options).seconds


@pytest.mark.parametrize("engine", ["event", "lockstep"])
@pytest.mark.parametrize(("name", "milliseconds"), [("ring", 39.37), ("rotated_rings", 5.46), ("hierarchical", 7.77)])
def test_one_gigabyte_on_four_nodes_of_eight(name: str, milliseconds: float, engine: str) -> None:
    """A hierarchy beats one ring five times, and is beaten by as many rings as there are network ports."""
    assert seconds(name, FOUR_BY_EIGHT, GB, engine) * 1e3 == pytest.approx(milliseconds, abs=0.005)


def test_rotated_rings_by_hand() -> None:
    """62 rounds of 10 us and M/256 at 50 GB/s; the seven messages inside take 5 us and 7 M/256 at 450 GB/s, less."""
    message = 256 * 4 * 10**6
    by_hand = 62 * (10e-6 + max(message / 256 / 50e9, 7 * message / 256 / 450e9))
    assert seconds("rotated_rings", FOUR_BY_EIGHT, message) == pytest.approx(by_hand, rel=1e-12)
    # Links inside of 300 GB/s are the slower ones: 7 M/256 at 300 GB/s.
    inside = FOUR_BY_EIGHT.with_link("intra", Link(5e-6, 300e9))
    by_hand = 62 * (5e-6 + 7 * message / 256 / 300e9)
    assert seconds("rotated_rings", inside, message) == pytest.approx(by_hand, rel=1e-12)


def test_one_port_for_both_kinds_of_links() -> None:
    """9.23 ms where a device has one port, busy with each message at its link's pace: 7/450 + 1/50 GB/s a chunk.

    Ports are of one link class here, so that stands as one port that passes eight chunks in this time: 225 GB/s.
    A round is then 10 us and 8 M/256 at 225 GB/s. Without barriers latencies pass while others have the port: 8.61 ms
    for the bytes alone, and no more than with barriers.
    """
    port = 8 / (7 / 450e9 + 1 / 50e9)
    assert port == pytest.approx(225e9)
    cluster = FOUR_BY_EIGHT.with_uplinks(Uplink("port", "intra", port, devices=1))
    assert seconds("rotated_rings", cluster, GB, "lockstep") * 1e3 == pytest.approx(9.23, abs=0.005)
    assert 62 * GB / 32 / port <= seconds("rotated_rings", cluster, GB) <= 9.2312e-3


def test_the_hierarchy_wins_where_latency_counts() -> None:
    """1 MiB: 0.138 ms in 20 rounds against 0.625 ms in 62."""
    assert seconds("hierarchical", FOUR_BY_EIGHT, 2**20) * 1e3 == pytest.approx(0.138, abs=0.0005)
    assert seconds("rotated_rings", FOUR_BY_EIGHT, 2**20) * 1e3 == pytest.approx(0.625, abs=0.0005)


def test_all_rings_through_one_card_are_no_faster_than_one() -> None:
    """Every card passes 2 x 31/32 M, of one ring or of eight: 38.75 ms."""
    cluster = Cluster.two_level(4, 8, Link(0.0, 450e9), Link(0.0, 50e9)).with_uplinks(
        Uplink("nic", "inter", 50e9, devices=8)
    )
    for name in ("ring", "rotated_rings"):
        assert seconds(name, cluster, 1.024e9) / 1.024 * 1e3 == pytest.approx(38.75, rel=1e-9)


@pytest.mark.parametrize("channels", [1, 2, 4, 8, 16, 3, 5])
def test_network_ports_in_use(channels: int) -> None:
    """Bytes over the busiest network port: ceil(c/8) rings of the c have M/c each, 62/32 times."""
    message = 32 * 240 * 4000
    run = simulate("all_reduce", "rotated_rings", FOUR_BY_EIGHT, message, "event", {"channels": channels})
    assert run.bytes_sent_max_inter == -(-channels // 8) * message // channels * 62 // 32
    assert run.bytes_sent_max_node == message * 62 // 32


@pytest.mark.parametrize(("gpus", "milliseconds"), [(1, 270), (2, 202.5), (4, 118)])
def test_slow_paths_between_two_nodes(gpus: int, milliseconds: float) -> None:
    """1 GB, a path of 3.70 GB/s a GPU: 2 (N - 1)/N M over all paths, N = 2 g. Printed: 0.27, 0.2025, 0.118 s."""
    cluster = Cluster.two_level(2, gpus, Link(0.0, 1e15), Link(0.0, 3.7e9))
    n = 2 * gpus
    found = seconds("rotated_rings", cluster, GB)
    assert found == pytest.approx(2 * (n - 1) / n * GB / (gpus * 3.7e9), rel=1e-6)
    assert found * 1e3 == pytest.approx(milliseconds, rel=3e-3)


# --- opposite rings

LINK = Link(5e-6, 100e9)
CYCLE = (0, 1, 2, 3, 7, 6, 5, 9, 10, 11, 15, 14, 13, 12, 8, 4)
"""Devices of a 4 x 4 grid, each the neighbour of the next, and the last of the first."""


@pytest.mark.parametrize("collective", ["all_reduce", "reduce_scatter", "all_gather"])
@pytest.mark.parametrize(
    ("cluster", "half"),
    [
        (Cluster.torus([8], LINK), True),
        (Cluster.torus([5], LINK), True),
        (Cluster.torus([4, 4], LINK, rank_order=CYCLE), True),
        (Cluster.torus([4, 4], LINK, wraps=False, rank_order=CYCLE), True),
        (Cluster.full_mesh(8, LINK), True),
        (Cluster.flat(8, LINK), False),
        # Two devices are joined by one link: both directions round the ring are the same one.
        (Cluster.torus([2], LINK), False),
    ],
    ids=["ring 8", "ring 5", "torus", "mesh", "full mesh", "switch", "ring 2"],
)
def test_opposite_rings_halve_the_bandwidth_term_on_separate_links(
    collective: str, cluster: Cluster, half: bool
) -> None:
    n = cluster.world_size
    message = 80 * n * 4000
    rounds = (2 if collective == "all_reduce" else 1) * (n - 1)
    one, two = (simulate(collective, name, cluster, message, "event") for name in ("ring", "bidirectional_ring"))
    assert one.seconds == pytest.approx(rounds * (5e-6 + message / n / 100e9), rel=1e-12)
    assert two.seconds == pytest.approx(rounds * (5e-6 + message / n / 100e9 / (2 if half else 1)), rel=1e-12)
    assert two.bytes_sent.tolist() == one.bytes_sent.tolist()


def test_opposite_rings_leave_a_node_by_two_ports() -> None:
    """4 x 8 in node order: up from the last GPU of a node, down from the first; 62 (10 us + M/64 at 50 GB/s)."""
    message = 64 * 4 * 10**6
    by_hand = 62 * (10e-6 + message / 64 / 50e9)
    assert seconds("bidirectional_ring", FOUR_BY_EIGHT, message) == pytest.approx(by_hand, rel=1e-12)
