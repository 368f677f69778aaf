"""Sharded training on simulated devices gives the numbers of data parallelism; plans that do not fit."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.engines import execute
from simcollectives.errors import InputError
from simcollectives.training.numerics import (
    OPTIMIZERS,
    Network,
    compare,
    one_device,
    plain,
    train,
)
from simcollectives.training.numerics.compare import same_bits
from tests.training.sharded_runs import PLAN, SHARDED, row

# --- the numbers


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("strategy", SHARDED)
def test_bit_for_bit_data_parallelism(strategy: str, optimizer: str) -> None:
    """On unequal shards of samples; and so within rounding what one device does."""
    shards = (9, 6, 5, 4)
    found = row(strategy=strategy, optimizer=optimizer, shards=shards)
    assert found.same_bits_as_ddp
    assert found.difference_from_ddp == 0
    assert found.bit_identical
    assert found.difference_from_one_device < 1e-14


ALIKE: list[tuple[str, dict[str, Any], int]] = [
    ("butterfly", {}, 2),
    ("butterfly", {}, 8),
    ("rabenseifner", {}, 4),
    ("rabenseifner", {"order": "far"}, 8),
    ("direct", {}, 1),
    ("direct", {}, 3),
    ("direct", {}, 4),
    ("direct", {}, 6),
]


@pytest.mark.parametrize("strategy", [name for name in SHARDED if name != "hsdp"])
@pytest.mark.parametrize(("algorithm", "options", "ranks"), ALIKE, ids=str)
def test_bit_for_bit_by_every_algorithm_that_adds_all_elements_alike(
    algorithm: str, options: dict[str, Any], ranks: int, strategy: str
) -> None:
    """Also where 16 and 4 rows are no multiple of the ranks, and are filled up."""
    found = row(strategy=strategy, algorithm=algorithm, options=options, world_size=ranks)
    assert found.same_bits_as_ddp
    assert found.bit_identical


@pytest.mark.parametrize(("ranks", "size"), [(4, 1), (4, 2), (4, 4), (6, 2), (8, 2), (8, 4)])
@pytest.mark.parametrize("algorithm", ["butterfly", "rabenseifner"])
def test_hybrid_sharding_bit_for_bit(algorithm: str, ranks: int, size: int) -> None:
    """Neighbours meet first in both: pairs in the group, then groups. Six ranks fold their extra pairs in."""
    options = {"shard_size": size}
    found = row(strategy="hsdp", strategy_options=options, algorithm=algorithm, world_size=ranks)
    assert found.same_bits_as_ddp


@pytest.mark.parametrize("part", ["direct", "butterfly"])
def test_hybrid_sharding_is_data_parallelism_with_a_hierarchical_all_reduce(part: str) -> None:
    """Bit for bit: a sum in each node, where shards are by default, then over nodes; not the one over all in order."""
    plan = replace(PLAN, world_size=8, algorithm=part)
    cluster = Cluster.two_level(2, 4, Link(0.0, 2.0), Link(0.0, 1.0))
    hybrid = train(replace(plan, strategy="hsdp"), cluster=cluster)
    nodes = train(replace(plan, algorithm="hierarchical", options={"intra": part, "inter": part}), cluster=cluster)
    assert same_bits([hybrid.snapshots[0].parameters[0], *nodes.snapshots[0].parameters])
    assert same_bits([hybrid.snapshots[0].parameters[0], train(plan).snapshots[0].parameters[0]]) == (part != "direct")


@pytest.mark.parametrize("ranks", [3, 4, 6])
@pytest.mark.parametrize("strategy", SHARDED)
def test_by_a_ring_only_up_to_rounding(strategy: str, ranks: int) -> None:
    """A chunk is added from its own rank on. Where parts are cut as the all-reduce cuts its chunks, bits are the same:
    212 elements on 3 or 4 ranks in one piece; not on 6, where the parts are 36 and the chunks 36, 36, 35, ..
    """
    options = {"shard_size": ranks if ranks % 2 else 2} if strategy == "hsdp" else {}
    found = row(strategy=strategy, strategy_options=options, algorithm="ring", world_size=ranks, steps=5)
    assert found.difference_from_ddp < 1e-12
    assert found.bit_identical
    assert found.same_bits_as_ddp == (strategy in ("zero1", "zero2") and ranks in (3, 4))


def rolled(algorithm: str, options: dict[str, Any], ranks: int, shift: int) -> npt.NDArray[np.float64]:
    """The sum that the first rank gets, of a message turned by so many elements and turned back."""
    inputs = np.random.default_rng(1).standard_normal((ranks, 45))
    return np.roll(execute("all_reduce", algorithm, list(np.roll(inputs, shift, axis=1)), options)[0], -shift)


@pytest.mark.parametrize("ranks", [3, 4, 7, 8])
@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("butterfly", {}),
        ("rabenseifner", {}),
        ("rabenseifner", {"order": "far"}),
        ("direct", {}),
        ("tree", {}),
        ("parameter_server", {}),
        ("parameter_server", {"servers": 5}),
        ("ring", {}),
    ],
    ids=str,
)
def test_whether_the_order_of_addition_depends_on_the_chunk(
    algorithm: str, options: dict[str, Any], ranks: int
) -> None:
    sums = {rolled(algorithm, options, ranks, shift).tobytes() for shift in (0, 7, 20)}
    assert (len(sums) == 1) == (algorithm != "ring")


@pytest.mark.parametrize("algorithm", ["direct", "parameter_server"])
def test_direct_adds_in_the_order_of_ranks(algorithm: str) -> None:
    inputs = list(np.random.default_rng(2).standard_normal((5, 23)))
    expected = reduce(np.add, inputs)
    assert all(output.tobytes() == expected.tobytes() for output in execute("all_reduce", algorithm, inputs))


# --- accumulation, narrow gradients, statistics, a mistake


@pytest.mark.parametrize(
    ("strategy", "options", "scatters", "same"),
    [
        ("zero1", {}, 1, True),
        ("zero2", {}, 3, False),
        ("zero3", {}, 3, False),
        ("fsdp2", {}, 3, False),
        ("fsdp2", {"gradient_sync": "last"}, 1, True),
        ("hsdp", {"gradient_sync": "last"}, 1, True),
    ],
)
def test_accumulation(strategy: str, options: dict[str, Any], scatters: int, same: bool) -> None:
    """Who reduces in every micro-batch adds ranks before micro-batches, and data parallelism the other way round."""
    changed = {"strategy": strategy, "strategy_options": options, "steps": 4}
    found, once = row(accumulation=3, **changed), row(**changed)
    assert found.reduce_scatter_bytes == scatters * once.reduce_scatter_bytes > 0
    assert found.all_gather_bytes == once.all_gather_bytes * (1 if strategy in ("zero1", "zero2") else 3)
    assert found.difference_from_ddp < 1e-12
    assert found.same_bits_as_ddp == same
    assert found.difference_from_one_device < 1e-12


@pytest.mark.parametrize("strategy", SHARDED)
def test_gradients_in_fewer_bits_and_synchronised_statistics(strategy: str) -> None:
    """Same bits as data parallelism with the same; half the bytes of gradients, whole ones of parameters."""
    network = Network(batch_norm="synchronised")
    narrow, wide = (row(strategy=strategy, network=network, gradient_dtype=d) for d in ("float32", "float64"))
    assert narrow.same_bits_as_ddp
    assert wide.same_bits_as_ddp
    assert 2 * narrow.reduce_scatter_bytes == wide.reduce_scatter_bytes
    assert narrow.all_gather_bytes == wide.all_gather_bytes
    assert 1e-11 < narrow.difference_from_one_device < 1e-4
    assert wide.difference_from_one_device < 1e-14


@pytest.mark.parametrize("strategy", SHARDED)
def test_the_mean_of_local_means_is_as_wrong_as_in_data_parallelism(strategy: str) -> None:
    found = row(strategy=strategy, mistake="mean_of_means", shards=(12, 6, 4, 2))
    assert found.same_bits_as_ddp
    assert found.difference_from_one_device > 1e-3


# --- what does not fit


@pytest.mark.parametrize(
    ("changed", "place", "text"),
    [
        ({"strategy": "zero4"}, "strategy", 'did you mean "zero3"?'),
        ({"strategy": "zero1", "strategy_options": {"shard_size": 2}}, "strategy", 'zero1 has no option "shard_size"'),
        ({"strategy": "hsdp", "strategy_options": {"shard_sise": 2}}, "strategy", 'did you mean "shard_size"?'),
        ({"strategy": "hsdp", "strategy_options": {"shard_size": 0}}, "strategy", "0 is not a number of ranks"),
        ({"strategy": "hsdp", "strategy_options": {"shard_size": 3}}, "strategy", "take a divisor of 4"),
        ({"strategy": "fsdp2", "strategy_options": {"gradient_sync": True}}, "strategy", "every"),
        ({"strategy": "fsdp2", "bucket_bytes": 100}, "bucket_bytes", "unit by unit"),
        ({"strategy": "zero1", "mistake": "no_all_reduce"}, "mistake", "write strategy ddp"),
        ({"strategy": "zero3", "algorithm": "tree"}, "algorithm", 'reduce_scatter has no algorithm "tree"'),
        ({"strategy": "zero3", "world_size": 3}, "algorithm", "power of two of ranks, not 3"),
    ],
)
def test_bad_plans(changed: dict[str, Any], place: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        train(replace(PLAN, **changed))
    (problem,) = caught.value.problems
    assert problem.place == place
    assert text in problem.message


def test_a_sharded_run_is_not_its_own_data_parallelism() -> None:
    plan = replace(PLAN, strategy="zero1")
    history, one = train(plan), train(one_device(plan))
    with pytest.raises(ValueError, match="give its run, too"):
        compare(history, one)
    assert compare(history, one, train(plain(plan)))[0].same_bits_as_ddp
