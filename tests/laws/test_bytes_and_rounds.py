"""Law: rounds, and the bytes that every rank sends, are those of the textbook formula, for even and uneven chunks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.algorithms import ALGORITHMS
from simcollectives.cluster import Cluster
from simcollectives.engines import DTYPES, simulate
from simcollectives.engines.bytes_sent import count_bytes_sent
from tests.laws.cases import (
    FLAT_VARIANTS,
    PLACED_VARIANTS,
    VARIANTS,
    WORLD_SIZES,
    Variant,
    chunk_sizes,
    each_of,
    fits,
    flat,
    job_of,
    messages,
    two_level_clusters,
)
from tests.laws.formulas import ROUNDS, SENT, SENT_BY_GROUPS


def expected_sent(variant: Variant, cluster: Cluster, sizes: list[int]) -> list[int]:
    """Elements sent by each rank, then by each dedicated server."""
    by_groups = SENT_BY_GROUPS.get((variant.collective, variant.name))
    if by_groups is not None:
        node = [int(device) // cluster.gpus_per_node for device in cluster.device_of_rank]
        groups = [[rank for rank in range(cluster.world_size) if node[rank] == n] for n in range(cluster.nodes)]
        return by_groups(groups, sizes, dict(variant.options))
    return SENT[variant.collective, variant.name](cluster.world_size, sizes, dict(variant.options))


def check(variant: Variant, cluster: Cluster, elements: int, dtype: str) -> None:
    job = job_of(variant, cluster, elements, dtype)
    n = cluster.world_size
    sizes = chunk_sizes(variant.collective, n, elements, job.schedule.chunks)
    expected = [count * DTYPES[dtype] for count in expected_sent(variant, cluster, sizes)]
    where = f"{variant}, {cluster.nodes} x {cluster.gpus_per_node}, {elements} {dtype}"
    assert count_bytes_sent(job).sum(axis=0).tolist() == expected, where
    formula = ROUNDS[variant.collective, variant.name]
    assert job.schedule.rounds == formula(cluster.nodes, cluster.gpus_per_node, dict(variant.options)), where


def test_every_algorithm_has_its_formulas_here() -> None:
    table = {(a.collective, a.name) for a in ALGORITHMS}
    assert table == set(ROUNDS)
    assert table == set(SENT) | set(SENT_BY_GROUPS)


@pytest.mark.parametrize("variant", FLAT_VARIANTS, ids=str)
def test_flat_cluster(variant: Variant) -> None:
    for n in WORLD_SIZES:
        if fits(variant, flat(n)):
            for elements in messages(n):
                check(variant, flat(n), elements, "float32")


@each_of(PLACED_VARIANTS)
def test_two_level_cluster(variant: Variant) -> None:
    for cluster in two_level_clusters():
        if fits(variant, cluster):
            check(variant, cluster, 5 * cluster.world_size + 3, "int64")


@settings(max_examples=40)
@given(st.sampled_from(VARIANTS), st.integers(1, 40), st.integers(0, 300), st.sampled_from(list(DTYPES)))
def test_any_size_and_message(variant: Variant, world_size: int, elements: int, dtype: str) -> None:
    if fits(variant, flat(world_size)):
        check(variant, flat(world_size), elements, dtype)


@pytest.mark.parametrize("variant", FLAT_VARIANTS, ids=str)
@pytest.mark.parametrize("world_size", [1, 4, 7])
def test_every_engine_counts_the_same_bytes(variant: Variant, world_size: int) -> None:
    cluster, message = flat(world_size), (5 * world_size + 3) * 4
    if not fits(variant, cluster):
        return
    runs = [
        simulate(variant.collective, variant.name, cluster, message, engine, dict(variant.options))
        for engine in ("event", "lockstep")
    ]
    assert runs[0].bytes_sent.tolist() == runs[1].bytes_sent.tolist()
    assert runs[0].bytes_sent.tolist() == count_bytes_sent(job_of(variant, cluster, message // 4)).sum(axis=0).tolist()
    assert runs[0].bytes_sent_max == max(runs[0].bytes_sent)
    assert runs[0].bytes_sent_total == sum(runs[0].bytes_sent)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
def test_totals_of_the_lecture(n: int) -> None:
    """With an even message of M bytes: CMU 15-779, lecture 12; totals of all ranks, and the rank that sends most."""
    message = 4 * n * 64
    q = n.bit_length() - 1
    expected = {
        "naive": (n * (n - 1) * message, (n - 1) * message),
        "ring": (2 * (n - 1) * message, 2 * (n - 1) * message // n),
        "direct": (2 * (n - 1) * message, 2 * (n - 1) * message // n),
        "tree": (2 * (n - 1) * message, q * message),
        "butterfly": (n * q * message, q * message),
        "rabenseifner": (2 * (n - 1) * message, 2 * (n - 1) * message // n),
        "circulant": (2 * (n - 1) * message, 2 * (n - 1) * message // n),
    }
    for name, (total, most) in expected.items():
        run = simulate("all_reduce", name, flat(n), message, "lockstep")
        assert (run.bytes_sent_total, run.bytes_sent_max) == (total, most), name
