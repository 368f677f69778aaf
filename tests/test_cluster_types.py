# ruff: noqa: E501  (a case and its message each stand on one line)
"""Clusters: rank orders, routes and ports, what is refused and how it is said."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.cluster import Change, Cluster, Device, Level, Link, Uplink
from simcollectives.engines import simulate
from simcollectives.errors import ClusterError

INTRA, INTER = Link(5e-6, 450e9, 1e-7), Link(10e-6, 50e9, 2e-7)


def problems(error: pytest.ExceptionInfo[ClusterError]) -> dict[str, str]:
    return {problem.place: problem.message for problem in error.value.problems}


def test_flat() -> None:
    cluster = Cluster.flat(8, INTRA)
    assert (cluster.world_size, cluster.nodes, cluster.gpus_per_node) == (8, 1, 8)
    assert [level.name for level in cluster.levels] == ["link"]
    assert cluster.uniform_link == INTRA
    assert cluster.cuts == ()
    assert set(cluster.port_bandwidths.tolist()) == {450e9}
    assert cluster.groups.tolist() == [list(range(8))]


def test_two_level() -> None:
    cluster = Cluster.two_level(nodes=4, gpus_per_node=8, intra=INTRA, inter=INTER)
    assert cluster.world_size == 32
    assert [level.name for level in cluster.levels] == ["intra", "inter"]
    assert cluster.uniform_link is None
    assert set(cluster.port_bandwidths.tolist()) == {500e9}
    assert cluster.cuts == ((8, 400e9),)
    assert cluster.level("inter").link == INTER


def test_levels_that_no_message_can_cross_are_left_out() -> None:
    one_node = Cluster.two_level(1, 8, INTRA, None)
    one_each = Cluster.two_level(8, 1, None, INTER)
    assert ([x.name for x in one_node.levels], one_node.uniform_link) == (["intra"], INTRA)
    assert ([x.name for x in one_each.levels], one_each.uniform_link) == (["inter"], INTER)
    assert [x.name for x in Cluster.two_level(1, 8, INTRA, INTER).levels] == ["intra"]
    assert Cluster.two_level(1, 1, None, None).world_size == 1


@pytest.mark.parametrize(
    ("order", "devices", "groups"),
    [
        ("node_major", [0, 1, 2, 3, 4, 5], [[0, 1, 2], [3, 4, 5]]),
        # Rank 0 on node 0, rank 1 on node 1, rank 2 on node 0, ...
        ("round_robin", [0, 3, 1, 4, 2, 5], [[0, 2, 4], [1, 3, 5]]),
        ((5, 0, 4, 1, 3, 2), [5, 0, 4, 1, 3, 2], [[1, 3, 5], [0, 2, 4]]),
    ],
)
def test_rank_orders(order: Any, devices: list[int], groups: list[list[int]]) -> None:
    cluster = Cluster.two_level(2, 3, INTRA, INTER, rank_order=order)
    assert cluster.device_of_rank.tolist() == devices
    assert cluster.groups.tolist() == groups


def test_routes_cross_ports_of_the_outermost_level() -> None:
    cluster = Cluster.two_level(2, 2, INTRA, INTER, rank_order="round_robin")
    # Ranks 0 and 2 share node 0, ranks 1 and 3 node 1.
    routes = cluster.routes(np.array([0, 0, 1, 2]), np.array([2, 1, 0, 0]))
    assert routes.level.tolist() == [0, 1, 1, 0]
    assert routes.alpha.tolist() == [5e-6, 10e-6, 10e-6, 5e-6]
    assert routes.overhead.tolist() == [1e-7, 2e-7, 2e-7, 1e-7]
    assert routes.bandwidth.tolist() == [450e9, 50e9, 50e9, 450e9]
    ports = routes.resources.tolist()
    assert ports[0][0] != ports[1][0], "NVLink and NIC are separate ports"
    assert ports[0] != ports[3], "one direction is not the other"
    network = cluster.network
    assert network.capacity[:-1].tolist() == [[450e9, 50e9][level] for level in network.level_of[:-1]]
    assert network.owned.all()


@given(st.integers(1, 5), st.integers(1, 5), st.data())
def test_every_device_has_its_own_ports(nodes: int, members: int, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(nodes * members))))
    cluster = Cluster.two_level(nodes, members, INTRA, INTER, rank_order=order)
    n = cluster.world_size
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    if not pairs:
        return
    src, dst = (np.array(column) for column in zip(*pairs, strict=True))
    routes = cluster.routes(src, dst)
    node = {rank: k for k, group in enumerate(cluster.groups.tolist()) for rank in group}
    owner: dict[int, tuple[int, str, bool]] = {}
    for (i, j), (out, into), level in zip(pairs, routes.resources.tolist(), routes.level.tolist(), strict=True):
        name = cluster.levels[level].name
        assert name == ("intra" if node[i] == node[j] else "inter")
        for port, port_owner in ((out, (i, name, True)), (into, (j, name, False))):
            assert owner.setdefault(port, port_owner) == port_owner
            assert 0 <= port < cluster.network.count
    assert len(set(owner.values())) == len(owner)


def test_with_servers_adds_devices_on_the_same_link() -> None:
    cluster = Cluster.flat(3, INTRA, rank_order=(2, 0, 1))
    more = cluster.with_servers(2)
    assert more.world_size == 5
    assert more.device_of_rank.tolist() == [2, 0, 1, 3, 4]
    assert [level.link for level in more.levels] == [level.link for level in cluster.levels]
    assert cluster.with_servers(0) is cluster
    with pytest.raises(ClusterError, match="need a flat cluster"):
        Cluster.two_level(1, 3, INTRA, None).with_servers(1)


def test_with_link() -> None:
    cluster = Cluster.two_level(2, 2, INTRA, INTER)
    faster = cluster.with_link("inter", INTRA)
    assert [level.link for level in faster.levels] == [INTRA, INTRA]
    assert [level.link for level in cluster.levels] == [INTRA, INTER]
    with pytest.raises(ClusterError, match='"link" is not a level of this cluster; it has: intra, inter'):
        cluster.with_link("link", INTRA)


# --- refusals


def test_link_reports_all_its_problems() -> None:
    with pytest.raises(ClusterError) as error:
        Link(alpha=-1e-6, bandwidth=0.0, overhead=math.nan)
    found = problems(error)
    assert set(found) == {"alpha", "bandwidth", "overhead"}
    assert "-1e-06 s" in found["alpha"]
    assert "0 or more" in found["alpha"]
    assert "0 B/s" in found["bandwidth"]
    assert "more than 0" in found["bandwidth"]


@pytest.mark.parametrize("value", [math.inf, math.nan, -1.0, "450 GB/s", None, True])
def test_link_takes_finite_numbers_only(value: Any) -> None:
    for field in ("alpha", "bandwidth", "overhead"):
        with pytest.raises(ClusterError):
            Link(**{"alpha": 1e-6, "bandwidth": 1e9, field: value})


@pytest.mark.parametrize("value", [math.inf, math.nan, -1e-12, "2 ps/B"])
def test_gamma_is_checked(value: Any) -> None:
    with pytest.raises(ClusterError) as error:
        Device(reduction_seconds_per_byte=value)
    assert set(problems(error)) == {"gamma"}


@pytest.mark.parametrize("value", [0, -3, 2.5, "8", True, None])
def test_counts_are_whole_and_positive(value: Any) -> None:
    with pytest.raises(ClusterError) as error:
        Cluster.flat(value, INTRA)
    assert set(problems(error)) == {"devices"}
    with pytest.raises(ClusterError) as error:
        Cluster.two_level(value, value, INTRA, INTER)
    assert set(problems(error)) == {"nodes", "gpus_per_node"}


def test_too_many_devices_are_refused_before_anything_is_made() -> None:
    with pytest.raises(ClusterError, match="not supported"):
        Cluster.two_level(10**9, 10**9, INTRA, INTER)


def test_unreachable_ranks() -> None:
    with pytest.raises(ClusterError) as error:
        Cluster.two_level(2, 8, None, None)
    found = problems(error)
    assert "ranks 0 and 1 cannot reach each other" in found["intra"]
    assert "ranks 0 and 8 cannot reach each other" in found["inter"]


def test_rank_order_names_every_wrong_device() -> None:
    with pytest.raises(ClusterError) as error:
        Cluster.two_level(2, 2, INTRA, INTER, rank_order=[0, 0, 9, 2])
    text = str(error.value)
    assert "9 is not a device; devices are 0 to 3" in text
    assert "device 0 has two ranks" in text
    assert "device 1, 3 has no rank and is unreachable" in text
    assert {problem.place for problem in error.value.problems} == {"rank_order"}


@pytest.mark.parametrize("order", ["node-major", [0, 1, 2], [0, 1, 2, 3, 3], [0, 1, 2, True], [0, 1, 2, 3.0], []])
def test_rank_order_is_a_word_or_a_permutation(order: Any) -> None:
    with pytest.raises(ClusterError) as error:
        Cluster.two_level(2, 2, INTRA, INTER, rank_order=order)
    assert {problem.place for problem in error.value.problems} == {"rank_order"}


def test_a_level_on_the_ports_of_another_leaves_nodes_by_these() -> None:
    """Two leaves of four: a leaf is left by its four devices' ports, and by what they share of the spine."""
    levels = [Level("leaf", INTRA, 4), Level("spine", INTER, 2, ports_of="leaf")]
    assert Cluster.layered(levels).cuts == ((4, 4 * 450e9), (4, 50e9))
    assert simulate("all_reduce", "ring", Cluster.layered(levels), 8e6, engine="event").lower_bound_seconds > 0


def test_numbers_of_numpy_are_numbers() -> None:
    link = Link(np.float64(5e-6), np.float64(450e9))
    cluster = Cluster.flat(np.int64(4), link, rank_order=np.array([3, 2, 1, 0]))  # type: ignore[arg-type]
    assert cluster == Cluster.flat(4, Link(5e-6, 450e9), rank_order=(3, 2, 1, 0))
    with pytest.raises(ClusterError):
        Cluster.flat(True, link)
    with pytest.raises(ValueError, match="read-only"):
        cluster.device_of_rank[0] = 1


FLAT = Cluster.flat(4, INTRA)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Cluster.flat(4, None), "link: null is no Link; write Link(alpha=5e-6, bandwidth=450e9)"),
        (lambda: Cluster.flat(4, INTRA, device=5), "device: 5 is no Device; write Device("),
        (lambda: Cluster.flat(4, INTRA, rank_order=5), "rank_order: 5 is not a rank order; write node_major"),
        (lambda: Cluster.two_level(2, 2, INTRA, 5), "inter: 5 is no Link; write"),
        (lambda: Cluster.layered(5), "levels: 5 is not a list of levels; write [Level("),
        (lambda: Cluster.layered([5]), 'levels[0]: 5 is no Level; write Level("rail", Link('),
        (lambda: Cluster.layered([Level("a", 5, 2)]), "levels[0].link: 5 is no Link; write"),
        (lambda: Cluster.torus(5, INTRA), "sizes: 5 is not a list of sizes; write [4, 4]"),
        (lambda: Cluster.full_mesh(4, 5), "link: 5 is no Link; write"),
        (lambda: Cluster.machine(["dgx-2"]), "['dgx-2'] is not a known machine; known: dgx-1v, "),
        (lambda: FLAT.with_link("link", 5), "link: 5 is no Link; write"),
        (lambda: FLAT.with_uplinks(5), "uplinks[0]: 5 is no Uplink; write Uplink("),
        (lambda: FLAT.with_changes(5), "changes[0]: 5 is no Change; write Change("),
        (lambda: FLAT.with_changes(Change(rank="3")), 'changes[0]: rank "3" is unreachable; ranks are 0 to 3'),
        (lambda: FLAT.with_changes(Change(link=5)), "changes[0]: 5 is not a link; give two ranks, (0, 1)"),
        (lambda: FLAT.with_uplinks(Uplink("nic", "link", 1e9, devices=2.5)), "uplinks[0]: an uplink has units of devices"),
        (lambda: FLAT.level(["link"]), "['link'] is not a level of this cluster; it has: link"),
        (lambda: Device(reduction_seconds_per_byte=10**400), "a whole number of 1329 bits s/B is not a reduction time; it must be 0 or more, at most 1e+09 s/B"),
        (lambda: FLAT.with_changes(Change(rank=1, alpha=10**400)), "changes[0].alpha: a whole number of 1329 bits is not a factor"),
        (lambda: FLAT.with_uplinks(Uplink("nic", "link", 10**400, devices=2)), "uplinks[0]: a whole number of 1329 bits B/s is not a bandwidth"),
    ],
)  # fmt: skip
def test_what_has_the_wrong_type_or_size_is_said(make: Any, text: str) -> None:
    with pytest.raises(ClusterError, match=re.escape(text)):
        make()


def test_what_has_the_wrong_type_is_said_at_once() -> None:
    with pytest.raises(ClusterError) as error:
        Cluster.flat("4", 5, device=6)  # type: ignore[arg-type]
    assert set(problems(error)) == {"devices", "link", "device"}
