"""Uplinks, changes and graphs: which resources a message crosses, and what they carry."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.cluster import Change, Cluster, FullMesh, Level, Link, Torus, Uplink, Wiring
from simcollectives.engines import simulate
from simcollectives.errors import ClusterError

INTRA = Link(alpha=5e-6, bandwidth=450e9)
INTER = Link(alpha=10e-6, bandwidth=50e9)
FREE = Link(alpha=0.0, bandwidth=450e9)
SLOW = Link(alpha=0.0, bandwidth=50e9)


def one_card(order: str | tuple[int, ...] = "node_major") -> Cluster:
    """4 x 8 on one 50 GB/s network interface a node, no latencies."""
    cluster = Cluster.two_level(4, 8, FREE, SLOW, rank_order=order)
    return cluster.with_uplinks(Uplink("nic", "inter", 50e9, devices=8))


# By hand: 2 (N - 1) rounds of M/32 through one card are 62 / 32 s at 50 GB/s; crossing each card twice, or eight times,
# costs as many times that; the hierarchy adds 2 x 7/8 M inside at 450 GB/s to 2 x 3/4 M out of a node.
TWICE = tuple(8 * node + 4 * half + i for half in (0, 1) for node in range(4) for i in range(4))


@pytest.mark.parametrize(
    ("algorithm", "order", "milliseconds"),
    [
        ("ring", "node_major", 38.75),
        ("ring", TWICE, 77.5),
        ("ring", "round_robin", 310.0),
        ("hierarchical", "node_major", 33.8889),
        ("direct", "node_major", 240.0),
    ],
)
def test_one_gigabyte_on_one_shared_card_a_node(
    algorithm: str, order: str | tuple[int, ...], milliseconds: float
) -> None:
    run = simulate("all_reduce", algorithm, one_card(order), 1.024e9)
    assert run.seconds * 1e3 / 1.024 == pytest.approx(milliseconds, rel=1e-5)
    assert run.engine == "event"
    assert run.closed_form_seconds is None
    assert run.seconds >= run.lower_bound_seconds


def test_leaf_and_rails() -> None:
    cluster = Cluster.two_level(4, 2, INTRA, INTER)
    leaf = cluster.with_uplinks(Uplink("leaf", "inter", 25e9, devices=4))
    rails = cluster.with_uplinks(Uplink("leaf", "inter", 25e9, rails=2))
    src, dst = np.array([0, 0, 0]), np.array([2, 4, 5])
    assert leaf.routes(src, dst).bandwidth.tolist() == [50e9, 25e9, 25e9], "nodes 0 and 1 share a leaf"
    assert rails.routes(src, dst).bandwidth.tolist() == [50e9, 50e9, 25e9], "the same place is on the same leaf"


def test_full_mesh_uses_a_link_a_pair() -> None:
    # Direct: each of 7 links carries M/8 twice. A ring uses one link in each round.
    mesh = Cluster.full_mesh(8, Link(0.0, 64e9))
    assert simulate("all_reduce", "direct", mesh, 1.024e9).seconds == pytest.approx(2 * 1.024e9 / 8 / 64e9)
    assert simulate("all_reduce", "ring", mesh, 1.024e9).seconds == pytest.approx(14 * 1.024e9 / 8 / 64e9)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.booleans())
def test_torus_routes_lead_from_source_to_destination(sizes: list[int], wraps: bool) -> None:
    torus = Torus(tuple(sizes), wraps)
    ends = torus.ends()
    device = np.arange(torus.devices)
    src, dst = (a.reshape(-1) for a in np.meshgrid(device, device, indexing="ij"))
    for start, end, hops in zip(src.tolist(), dst.tolist(), torus.hops(src, dst).tolist(), strict=True):
        here = start
        for edge in (e for e in hops if e >= 0):
            assert ends[edge][0] == here
            here = int(ends[edge][1])
        assert here == end


def test_wiring_takes_the_widest_shortest_path() -> None:
    wiring = Wiring(4, ((0, 1, 1), (1, 3, 2), (0, 2, 2), (2, 3, 2)))
    edges = [edge for edge in wiring.hops(np.array([0]), np.array([3]))[0].tolist() if edge >= 0]
    assert [wiring.ends()[edge].tolist() for edge in edges] == [[0, 2], [2, 3]]
    with pytest.raises(ClusterError, match="device 2 is unreachable"):
        Wiring(3, ((0, 1, 1),))


def test_changes_make_ranks_and_links_unequal() -> None:
    cluster = Cluster.flat(4, Link(1e-6, 100e9)).with_changes(
        Change(rank=1, bandwidth=0.5, alpha=3.0), Change(link=(2, 3), bandwidth=0.1, alpha=2.0)
    )
    routes = cluster.routes(np.array([0, 0, 2, 3]), np.array([1, 2, 3, 2]))
    assert routes.bandwidth.tolist() == [50e9, 100e9, 10e9, 100e9]
    assert routes.alpha.tolist() == pytest.approx([3e-6, 1e-6, 2e-6, 1e-6])
    assert cluster.uniform_link is None


def test_levels_cross_outwards() -> None:
    cluster = Cluster.layered(
        [Level("nvlink", INTRA, 2), Level("rail", INTER, 2), Level("spine", Link(20e-6, 50e9), 2, ports_of="rail")]
    )
    routes = cluster.routes(np.array([0, 0, 0]), np.array([1, 2, 4]))
    assert routes.level.tolist() == [0, 1, 2]
    assert routes.alpha.tolist() == [5e-6, 10e-6, 20e-6]
    assert routes.resources[1, 0] == routes.resources[2, 0], "the spine has no ports of its own"


def test_devices_of_a_unit_share_the_bandwidth_of_a_level_without_ports() -> None:
    """Leaves of four under a spine of twice a port: the way out of a leaf, and what one pair may have of it."""
    levels = [Level("leaf", SLOW, 4), Level("spine", Link(0.0, 2 * 50e9), 2, ports_of="leaf")]
    cluster = Cluster.layered(levels)
    # All exchange all: 4 x 4 of M/8 leave a leaf over 100 GB/s.
    run = simulate("all_to_all", "direct", cluster, 0.8e9)
    assert run.seconds == pytest.approx(16 * 0.1e9 / 100e9)
    faster = cluster.with_link("spine", Link(0.0, 4 * 50e9))
    assert simulate("all_to_all", "direct", faster, 0.8e9).seconds == pytest.approx(7 * 0.1e9 / 50e9), "ports bind"
    slow = cluster.with_changes(Change(link=(0, 4), bandwidth=0.6))
    assert slow.routes(np.array([0, 1]), np.array([4, 4])).bandwidth.tolist() == [30e9, 50e9]


def test_what_does_not_fit_is_refused_at_once() -> None:
    cluster = Cluster.two_level(2, 4, INTRA, INTER)
    with pytest.raises(ClusterError) as refused:
        cluster.with_uplinks(Uplink("a", "outer", 1e9, devices=4), Uplink("b", "inter", 0.0, devices=4, rails=2))
    assert [problem.place for problem in refused.value.problems] == ["uplinks[0]", "uplinks[1]", "uplinks[1]"]
    with pytest.raises(ClusterError) as refused:
        cluster.with_changes(Change(rank=8), Change(link=(1, 1)), Change(), Change(rank=0, bandwidth=0.0))
    assert len(refused.value.problems) == 4
    with pytest.raises(ClusterError, match=r"2 is more than 1 \(100%\); a link is no faster"):
        cluster.with_changes(Change(link=(0, 1), bandwidth=2.0))
    with pytest.raises(ClusterError, match="innermost"):
        Cluster.layered([Level("a", INTRA, 2), Level("b", INTER, 2, FullMesh(2))])
