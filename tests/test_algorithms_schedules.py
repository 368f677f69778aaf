"""Schedules of known algorithms, round by round, as their references draw them."""

from __future__ import annotations

from typing import Any

import pytest

from simcollectives.algorithms import find_algorithm, placement_of, resolve_options
from simcollectives.algorithms.circulant import skips
from simcollectives.cluster import Cluster, Link
from simcollectives.schedule import Schedule

LINK = Link(1e-6, 1e9)


def rows(name: str, cluster: Cluster, collective: str = "all_reduce", **options: Any) -> list[list[tuple[Any, ...]]]:
    """[round]: (src, dst, chunks) in order, of the only channel."""
    (only,) = channels(name, cluster, collective, **options)
    return only


def channels(
    name: str, cluster: Cluster, collective: str = "all_reduce", **options: Any
) -> list[list[list[tuple[Any, ...]]]]:
    """[channel][round]: (src, dst, chunks) in order."""
    algorithm = find_algorithm(collective, name)
    schedule = algorithm.schedule(placement_of(cluster), resolve_options(algorithm, options))
    return [rounds_of(schedule, channel) for channel in range(len(schedule.channels))]


def rounds_of(schedule: Schedule, channel: int) -> list[list[tuple[Any, ...]]]:
    return [
        sorted(
            (s, d, tuple(range(f, f + c * k, k)))
            for s, d, f, c, k in zip(*(x.tolist() for x in (r.src, r.dst, r.first, r.count, r.stride)), strict=True)
        )
        for r in schedule.rounds_of(channel)
    ]


def test_ring_of_three() -> None:
    assert rows("ring", Cluster.flat(3, LINK)) == [
        [(0, 1, (2,)), (1, 2, (0,)), (2, 0, (1,))],
        [(0, 1, (1,)), (1, 2, (2,)), (2, 0, (0,))],
        [(0, 1, (0,)), (1, 2, (1,)), (2, 0, (2,))],
        [(0, 1, (2,)), (1, 2, (0,)), (2, 0, (1,))],
    ]


def test_rotated_rings_on_two_nodes_of_two() -> None:
    """Ring 0 is 0 1 2 3; ring 1 is 1 0 3 2 and leaves the nodes by ranks 0 and 2. Chunks 2 i and 2 i + 1 are part i."""
    first, second = channels("rotated_rings", Cluster.two_level(2, 2, LINK, LINK), "all_gather")
    assert first == [
        [(0, 1, (0,)), (1, 2, (2,)), (2, 3, (4,)), (3, 0, (6,))],
        [(0, 1, (6,)), (1, 2, (0,)), (2, 3, (2,)), (3, 0, (4,))],
        [(0, 1, (4,)), (1, 2, (6,)), (2, 3, (0,)), (3, 0, (2,))],
    ]
    assert second == [
        [(0, 3, (1,)), (1, 0, (3,)), (2, 1, (5,)), (3, 2, (7,))],
        [(0, 3, (3,)), (1, 0, (5,)), (2, 1, (7,)), (3, 2, (1,))],
        [(0, 3, (5,)), (1, 0, (7,)), (2, 1, (1,)), (3, 2, (3,))],
    ]


def test_rings_start_evenly_spread_over_the_devices_of_a_node() -> None:
    """Where each ring first leaves node 0 of 2 x 4: the device before the one that it enters by."""
    for count, leaving in ((1, [3]), (2, [3, 1]), (4, [3, 0, 1, 2]), (8, [3, 3, 0, 0, 1, 1, 2, 2])):
        found = channels("rotated_rings", Cluster.two_level(2, 4, LINK, LINK), "all_gather", channels=count)
        assert [[src for src, dst, _ in rounds[0] if src < 4 <= dst] for rounds in found] == [[x] for x in leaving]


def test_one_ring_on_one_node_is_the_ring() -> None:
    for collective in ("all_reduce", "reduce_scatter", "all_gather"):
        assert rows("rotated_rings", Cluster.flat(5, LINK), collective) == rows(
            "ring", Cluster.flat(5, LINK), collective
        )


def test_opposite_rings_of_three() -> None:
    up, down = channels("bidirectional_ring", Cluster.flat(3, LINK), "reduce_scatter")
    assert up == [[(0, 1, (4,)), (1, 2, (0,)), (2, 0, (2,))], [(0, 1, (2,)), (1, 2, (4,)), (2, 0, (0,))]]
    assert down == [[(0, 2, (3,)), (1, 0, (5,)), (2, 1, (1,))], [(0, 2, (5,)), (1, 0, (1,)), (2, 1, (3,))]]


def test_binomial_tree_of_six_from_root_two() -> None:
    """Distances 4, 2, 1; ranks counted from the root."""
    assert rows("tree", Cluster.flat(6, LINK), "broadcast", root=2) == [
        [(2, 0, (0,))],
        [(2, 4, (0,))],
        [(0, 1, (0,)), (2, 3, (0,)), (4, 5, (0,))],
    ]


@pytest.mark.parametrize(("order", "distances"), [("near", [1, 2, 4]), ("far", [4, 2, 1])])
def test_halving_distances(order: str, distances: list[int]) -> None:
    rounds = rows("butterfly", Cluster.flat(8, LINK), "reduce_scatter", order=order)
    assert [{src ^ dst for src, dst, _ in r} for r in rounds] == [{distance} for distance in distances]
    assert [{len(chunks) for _, _, chunks in r} for r in rounds] == [{4}, {2}, {1}]
    gathering = rows("butterfly", Cluster.flat(8, LINK), "all_gather", order=order)
    assert [{src ^ dst for src, dst, _ in r} for r in gathering] == [{distance} for distance in distances]
    assert [{len(chunks) for _, _, chunks in r} for r in gathering] == [{1}, {2}, {4}]


def test_rabenseifner_mirrors_its_halving() -> None:
    for order in ("near", "far"):
        rounds = rows("rabenseifner", Cluster.flat(8, LINK), order=order)
        there = [[(s, d, c) for s, d, c in r] for r in rounds[:3]]
        back = [sorted((d, s, c) for s, d, c in r) for r in reversed(rounds[3:])]
        assert there == back


@pytest.mark.parametrize(("n", "expected"), [(1, [1]), (2, [1, 2]), (9, [1, 2, 3, 5, 9]), (16, [1, 2, 4, 8, 16])])
def test_circulant_skips(n: int, expected: list[int]) -> None:
    assert skips(n) == expected


def test_hierarchical_stays_on_its_rails() -> None:
    """Inside a node first, then member j only with the members j of other nodes, then inside again."""
    cluster = Cluster.two_level(2, 2, LINK, LINK, rank_order="round_robin")
    rounds = rows("hierarchical", cluster)
    pairs = [{(s, d) for s, d, _ in r} for r in rounds]
    inside, between = {(0, 2), (2, 0), (1, 3), (3, 1)}, {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert pairs == [inside, between, between, inside]
