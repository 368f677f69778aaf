"""Schedules of known algorithms, round by round, as their references draw them."""

from __future__ import annotations

from typing import Any

import pytest

from simcollectives.algorithms import find_algorithm, placement_of, resolve_options
from simcollectives.algorithms.circulant import skips
from simcollectives.cluster import Cluster, Link

LINK = Link(1e-6, 1e9)


def rows(name: str, cluster: Cluster, collective: str = "all_reduce", **options: Any) -> list[list[tuple[Any, ...]]]:
    """[round]: (src, dst, chunks) in order."""
    algorithm = find_algorithm(collective, name)
    schedule = algorithm.schedule(placement_of(cluster), resolve_options(algorithm, options))
    return [
        sorted(
            (s, d, tuple(range(f, f + c * k, k)))
            for s, d, f, c, k in zip(*(x.tolist() for x in (r.src, r.dst, r.first, r.count, r.stride)), strict=True)
        )
        for r in schedule.rounds_of(0)
    ]


def test_ring_of_three() -> None:
    assert rows("ring", Cluster.flat(3, LINK)) == [
        [(0, 1, (2,)), (1, 2, (0,)), (2, 0, (1,))],
        [(0, 1, (1,)), (1, 2, (2,)), (2, 0, (0,))],
        [(0, 1, (0,)), (1, 2, (1,)), (2, 0, (2,))],
        [(0, 1, (2,)), (1, 2, (0,)), (2, 0, (1,))],
    ]


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
