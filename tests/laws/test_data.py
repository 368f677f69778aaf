"""Law: executing any algorithm on arrays gives the collective's result, with every contribution counted exactly once.

The expected result and the conditions are written here from the definition of each collective, not taken from the
package. Integers are exact; floats are within (N - 1) eps sum|x|; ranks that hold the same data hold the same bits,
except where the algorithm declares otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Cluster
from simcollectives.engines import Job, execute
from simcollectives.engines.contributions import counted
from simcollectives.engines.data import ARRAY_DTYPES
from tests.laws.cases import (
    FLAT_VARIANTS,
    PLACED_VARIANTS,
    VARIANTS,
    Variant,
    describe,
    each_of,
    fits,
    flat,
    in_sizes,
    job_of,
    messages,
    rank_orders,
    sizes_of,
    two_level,
)

SHAPES = ((1, 4), (2, 2), (3, 1), (2, 3), (3, 2), (3, 4))
Array = np.ndarray[Any, np.dtype[Any]]


def inputs_of(collective: str, world_size: int, elements: int, dtype: str) -> list[Array]:
    """One array a rank: floats of very different sizes, integers that overflow int8 when summed."""
    random = np.random.default_rng(elements * 64 + world_size)
    parts = sizes_of(elements, world_size) if collective == "all_gather" else [elements] * world_size
    if dtype.startswith("float"):
        most = 2 if dtype == "float16" else 3  # float16 ends at 65504
        return [(random.standard_normal(n) * 10.0 ** random.integers(-3, most + 1, n)).astype(dtype) for n in parts]
    return [random.integers(-128, 128, n).astype(dtype) for n in parts]


def expected_of(variant: Variant, inputs: list[Array]) -> list[tuple[list[Array], bool]]:
    """For each rank, the arrays whose sum it must hold, and whether a sum is taken at all."""
    n, elements, collective = len(inputs), len(inputs[0]), variant.collective
    root = dict(variant.options).get("root", 0)
    bounds = np.concatenate([[0], np.cumsum(sizes_of(elements, n))])
    parts = [slice(int(bounds[i]), int(bounds[i + 1])) for i in range(n)]
    if collective == "all_reduce":
        return [(inputs, True)] * n
    if collective == "reduce":
        return [(inputs, True) if rank == root else ([inputs[rank]], False) for rank in range(n)]
    if collective == "reduce_scatter":
        return [([x[parts[rank]] for x in inputs], True) for rank in range(n)]
    if collective == "all_gather":
        return [([np.concatenate(inputs)], False)] * n  # the same list n times, compared once
    if collective == "all_to_all":
        return [([np.concatenate([x[parts[rank]] for x in inputs])], False) for rank in range(n)]
    return [([inputs[root]], False)] * n


def check_execution(variant: Variant, cluster: Cluster, elements: int, dtype: str) -> None:
    n, options = cluster.world_size, dict(variant.options)
    inputs = inputs_of(variant.collective, n, elements, dtype)
    before = [array.copy() for array in inputs]
    outputs = execute(variant.collective, variant.name, inputs, options, cluster)
    where = f"{variant}, {n} ranks, {elements} {dtype}"
    assert all(np.array_equal(x, y) for x, y in zip(inputs, before, strict=True)), f"{where}: inputs changed"
    sums: dict[int, tuple[Array, Array]] = {}
    for rank, (output, (terms, summed)) in enumerate(zip(outputs, expected_of(variant, inputs), strict=True)):
        assert output.dtype == np.dtype(dtype)
        assert output.shape == terms[0].shape, f"{where}: rank {rank}"
        if id(terms) not in sums:
            sums[id(terms)] = exact_and_bound(terms, n if summed else 1)
        exact, bound = sums[id(terms)]
        assert np.all(np.abs(output - exact) <= bound), f"{where}: rank {rank}"


def exact_and_bound(terms: list[Array], count: int) -> tuple[Array, Array]:
    """The sum, and how far from it a result may be: nothing for integers, which wrap around in any order alike."""
    stacked = np.stack(terms)
    if not np.issubdtype(stacked.dtype, np.floating):
        return stacked.sum(axis=0, dtype=stacked.dtype), np.zeros(1, dtype=stacked.dtype)
    exact = stacked.astype(np.longdouble)
    return exact.sum(axis=0), (count - 1) * np.finfo(stacked.dtype).eps * np.abs(exact).sum(axis=0)


def check_contributions(job: Job) -> None:
    """At the end every chunk that a rank must hold counts each rank that must be in it once, and no other."""
    n, collective, root = job.schedule.world_size, job.schedule.collective, job.schedule.root
    chunks = job.schedule.chunks
    final = counted(job)[-1]
    part = chunks // n if collective in ("reduce_scatter", "all_gather", "all_to_all") else 0
    for rank in range(n):
        if collective == "reduce_scatter":
            wanted = {c: np.ones(n) for c in range(rank * part, (rank + 1) * part)}
        elif collective == "reduce":
            wanted = {c: np.ones(n) for c in range(chunks)} if rank == root else {}
        elif collective == "all_to_all":
            wanted = {c: np.eye(n)[c // n] for c in range(chunks) if c % n == rank}
        elif collective == "all_gather":
            wanted = {c: np.eye(n)[c // part] for c in range(chunks)}
        else:
            ends = np.ones(n) if collective == "all_reduce" else np.eye(n)[root]
            wanted = dict.fromkeys(range(chunks), ends)
        for chunk, counts in wanted.items():
            assert chunk in final[rank], f"{describe(job)}: rank {rank} lacks chunk {chunk}"
            assert np.array_equal(final[rank][chunk], counts), f"{describe(job)}: rank {rank} chunk {chunk}"


def check_everything(variant: Variant, cluster: Cluster) -> None:
    n = cluster.world_size
    check_contributions(job_of(variant, cluster, 8 * n))
    dtypes = ARRAY_DTYPES
    for i, elements in enumerate(messages(n)):
        # All dtypes where it is cheap; elsewhere each message has another one.
        chosen = dtypes if n <= 4 else [dtypes[i % len(dtypes)]]
        for dtype in chosen:
            check_execution(variant, cluster, elements, dtype)


@in_sizes
@pytest.mark.parametrize("variant", FLAT_VARIANTS, ids=str)
def test_flat_cluster(variant: Variant, world_sizes: Sequence[int]) -> None:
    for n in world_sizes:
        if fits(variant, flat(n)):
            check_everything(variant, flat(n))


@each_of(PLACED_VARIANTS)
def test_two_level_cluster(variant: Variant) -> None:
    """Algorithms that look at the nodes, for all three rank orders."""
    for shape in SHAPES:
        for order in rank_orders(*shape):
            cluster = two_level(*shape, order)
            if fits(variant, cluster):
                check_contributions(job_of(variant, cluster, 8 * cluster.world_size))
                check_execution(variant, cluster, 5 * cluster.world_size + 3, "int64")
                check_execution(variant, cluster, cluster.world_size - 1, "float32")


def alike(variant: Variant) -> bool:
    shared = variant.collective in ("all_reduce", "all_gather", "broadcast")
    return shared and variant.algorithm.same_bits(dict(variant.options))


@each_of([v for v in VARIANTS if alike(v)])
def test_same_bits_on_every_rank(variant: Variant) -> None:
    clusters = [flat(n) for n in (2, 3, 5, 8, 13, 16)] + [two_level(*shape, "node_major") for shape in SHAPES]
    for cluster in clusters:
        if fits(variant, cluster):
            inputs = inputs_of(variant.collective, cluster.world_size, 5 * cluster.world_size + 3, "float32")
            outputs = execute(variant.collective, variant.name, inputs, dict(variant.options), cluster)
            assert len({output.tobytes() for output in outputs}) == 1, f"{variant}, {cluster.world_size} ranks"


def test_few_are_declared_to_differ() -> None:
    """Naive, and what uses it between nodes: else the law above would be about nothing."""
    different = {(v.name, dict(v.options).get("inter")) for v in VARIANTS if not v.algorithm.same_bits(dict(v.options))}
    assert different == {("naive", None), ("hierarchical", "naive")}


def test_naive_is_rightly_declared_to_differ() -> None:
    """Every rank adds in its own order: (a + b) + c against a + (b + c)."""
    outputs = execute("all_reduce", "naive", [np.array([2.0**-53]), np.array([2.0**-53]), np.array([1.0])])
    assert len({output.tobytes() for output in outputs}) == 2


@settings(max_examples=25)
@given(data=st.data(), variant=st.sampled_from(VARIANTS), dtype=st.sampled_from(ARRAY_DTYPES))
def test_any_size_and_message(data: st.DataObject, variant: Variant, dtype: str) -> None:
    n = data.draw(st.integers(1, 20), label="world size")
    elements = data.draw(st.integers(0, 200), label="elements")
    cluster = flat(n)
    if fits(variant, cluster):
        check_execution(variant, cluster, elements, dtype)
        check_contributions(job_of(variant, cluster, elements, dtype))
