"""The table: names, options, what each algorithm takes, and errors that name all that is wrong."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import pytest

from simcollectives.algorithms import ALGORITHMS, Algorithm, check_fits, find_algorithm, label, resolve_options
from simcollectives.cluster import Cluster, Link
from simcollectives.errors import AlgorithmError
from simcollectives.metrics import COLLECTIVES
from simcollectives.schedule import Schedule

LINK = Link(1e-6, 1e9)

EXPECTED = {
    "all_reduce": {
        "naive", "direct", "ring", "tree", "butterfly", "rabenseifner", "circulant", "hierarchical",
        "parameter_server", "rotated_rings", "bidirectional_ring",
    },
    "reduce_scatter": {"ring", "direct", "butterfly", "circulant", "rotated_rings", "bidirectional_ring"},
    "all_gather": {"ring", "direct", "butterfly", "circulant", "rotated_rings", "bidirectional_ring"},
    "broadcast": {"tree", "direct"},
    "reduce": {"tree", "direct"},
    "all_to_all": {"direct", "pairwise"},
}  # fmt: skip


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_has_its_algorithms(collective: str) -> None:
    assert EXPECTED[collective] <= {a.name for a in ALGORITHMS if a.collective == collective}


def test_names_are_unique() -> None:
    names = [(a.collective, a.name) for a in ALGORITHMS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: f"{a.collective}-{a.name}")
def test_every_algorithm_says_what_it_is(algorithm: Algorithm) -> None:
    assert algorithm.summary
    assert "alpha" in algorithm.formula or "T_" in algorithm.formula
    assert algorithm.reference
    module = sys.modules[f"simcollectives.algorithms.{algorithm.name}"]
    assert "Reference:" in inspect.getdoc(module), "the module's docstring is its formula and its reference"
    for option in algorithm.options:
        assert option.summary
        assert option.check(option.default) == option.default
        assert all(option.check(choice) == choice for choice in option.choices)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: f"{a.collective}-{a.name}")
def test_defaults_run_on_eight_ranks_and_on_one(algorithm: Algorithm) -> None:
    options = resolve_options(algorithm, None)
    check_fits(algorithm, Cluster.flat(8, LINK), options)
    check_fits(algorithm, Cluster.flat(1, LINK), options)


@pytest.mark.parametrize("world_size", range(1, 20))
def test_all_reduces_take_any_world_size(world_size: int) -> None:
    for algorithm in ALGORITHMS:
        if algorithm.collective == "all_reduce":
            check_fits(algorithm, Cluster.flat(world_size, LINK), resolve_options(algorithm, {}))


def test_unknown_algorithm_names_the_nearest_or_all() -> None:
    with pytest.raises(AlgorithmError) as error:
        find_algorithm("all_gather", "rings")
    assert str(error.value) == 'all_gather has no algorithm "rings"; did you mean "ring"?'
    with pytest.raises(AlgorithmError) as error:
        find_algorithm("all_gather", "x")
    known = "direct, ring, butterfly, circulant, rotated_rings, bidirectional_ring"
    assert str(error.value) == f'all_gather has no algorithm "x"; it has: {known}'
    with pytest.raises(AlgorithmError, match='has no algorithm "pairwise"'):
        find_algorithm("all_reduce", "pairwise")
    with pytest.raises(AlgorithmError, match='"all-reduce" is not a collective; did you mean "all_reduce"'):
        find_algorithm("all-reduce", "ring")


def test_options_report_all_problems() -> None:
    algorithm = find_algorithm("all_reduce", "hierarchical")
    with pytest.raises(AlgorithmError) as error:
        resolve_options(algorithm, {"intra": "rng", "inner": "ring", "inter": {"rabenseifner": {"order": "fra"}}})
    found = {problem.place: problem.message for problem in error.value.problems}
    assert set(found) == {"intra", "inner", "inter"}
    assert '"rng" does not fit intra; did you mean "ring"?' in found["intra"]
    assert 'no option "inner"; did you mean "int' in found["inner"]
    assert '"fra" is not a choice; did you mean "far"?' in found["inter"]


@pytest.mark.parametrize(
    ("collective", "name", "options"),
    [
        ("all_reduce", "ring", {"order": "near"}),
        ("all_reduce", "rabenseifner", {"order": 1}),
        ("all_reduce", "rabenseifner", {"order": None}),
        ("all_reduce", "parameter_server", {"servers": 0}),
        ("all_reduce", "parameter_server", {"servers": True}),
        ("all_reduce", "parameter_server", {"servers": 1.5}),
        ("all_reduce", "parameter_server", {"servers": "colocated"}),
        ("all_reduce", "parameter_server", {"servers": 10**9}),
        ("all_reduce", "rotated_rings", {"channels": 0}),
        ("all_reduce", "rotated_rings", {"channels": "all"}),
        ("broadcast", "tree", {"root": -1}),
        ("broadcast", "tree", {"root": "0"}),
        ("all_reduce", "hierarchical", {"intra": "tree"}),
        ("all_reduce", "hierarchical", {"inter": "pairwise"}),
        ("all_reduce", "hierarchical", {"inter": {"ring": {}, "tree": {}}}),
        ("all_reduce", "hierarchical", {"inter": {"rabenseifner": "far"}}),
        ("all_reduce", "hierarchical", {"inter": ["ring"]}),
        ("all_reduce", "hierarchical", {"inter": {3: {}}}),
    ],
)
def test_wrong_options_are_refused(collective: str, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(AlgorithmError):
        resolve_options(find_algorithm(collective, name), options)


def test_resolved_options_are_complete() -> None:
    assert resolve_options(find_algorithm("all_reduce", "rabenseifner"), {}) == {"order": "near"}
    assert resolve_options(find_algorithm("all_reduce", "ring"), None) == {}
    hierarchical = find_algorithm("all_reduce", "hierarchical")
    assert resolve_options(hierarchical, {"inter": {"rabenseifner": {"order": "far"}}}) == {
        "intra": "ring",
        "inter": {"rabenseifner": {"order": "far"}},
    }
    assert resolve_options(hierarchical, {"inter": {"rabenseifner": {}}})["inter"] == "rabenseifner"


def test_label_shows_what_is_not_default() -> None:
    hierarchical = find_algorithm("all_reduce", "hierarchical")
    assert label(find_algorithm("all_reduce", "ring"), {}) == "ring"
    assert label(hierarchical, {"intra": "ring", "inter": "ring"}) == "hierarchical"
    nested = {"intra": "direct", "inter": {"rabenseifner": {"order": "far"}}}
    assert label(hierarchical, nested) == "hierarchical (intra: direct, inter: rabenseifner (order: far))"


@pytest.mark.parametrize(
    ("collective", "name", "cluster", "options", "reason"),
    [
        ("all_gather", "butterfly", Cluster.flat(6, LINK), {}, "needs a power of two of ranks, not 6"),
        ("broadcast", "tree", Cluster.flat(4, LINK), {"root": 4}, "root 4 is unreachable; ranks are 0 to 3"),
        (
            "all_reduce", "parameter_server", Cluster.two_level(2, 2, LINK, LINK), {"servers": 2},
            "dedicated servers need a flat cluster",
        ),
        (
            "all_reduce", "hierarchical", Cluster.two_level(2, 3, LINK, LINK), {"intra": "butterfly"},
            "intra butterfly: needs a power of two of ranks, not 3",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(
    collective: str, name: str, cluster: Cluster, options: dict[str, Any], reason: str
) -> None:
    algorithm = find_algorithm(collective, name)
    with pytest.raises(AlgorithmError, match=reason):
        check_fits(algorithm, cluster, resolve_options(algorithm, options))


def test_co_located_servers_are_the_direct_all_reduce() -> None:
    """Every rank a server of 1/N: the same rounds, row by row (CMU 15-779, lecture 12)."""
    cluster = Cluster.flat(6, LINK)

    def rounds_of(name: str, options: dict[str, Any]) -> list[list[list[Any]]]:
        from simcollectives.algorithms import placement_of

        schedule: Schedule = find_algorithm("all_reduce", name).schedule(placement_of(cluster), options)
        return [[getattr(r, f).tolist() for f in ("src", "dst", "first", "count")] for r in schedule.rounds_of(0)]

    assert rounds_of("parameter_server", {"servers": "co_located"}) == rounds_of("direct", {})
