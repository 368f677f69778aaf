"""Data parallelism equals one device up to summation order; three silent mistakes, and local BatchNorm, do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.training.numerics import (
    MISTAKES,
    OPTIMIZERS,
    History,
    Network,
    NumericsPlan,
    NumericsRow,
    compare,
    one_device,
    run_numerics,
    train,
)
from simcollectives.training.numerics.compare import same_bits
from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.layers import Array, Layer, Parameters
from simcollectives.training.numerics.network import initial_parameters, make_batch, propagate, split
from tests.laws.cases import FLAT_VARIANTS, PLACED_VARIANTS, Variant, fits, flat, two_level

RECORD = (1, 10, 50, 200)
UNEQUAL = (100, 60, 60, 36)
NONE = 1e-14
"""What summation order may do: a few times 2^-52 for parameters and gradients of order one."""


@pytest.fixture(scope="module")
def reference() -> History:
    """The lecture's run on one device: 200 steps."""
    return train(one_device(NumericsPlan()), RECORD)


def last(plan: NumericsPlan, **changed: Any) -> NumericsRow:
    (row,) = run_numerics(replace(plan, **changed))
    return row


# --- exact: k devices equal one


def test_200_steps_of_plain_descent(reference: History) -> None:
    """Four devices by a ring: all replicas the same bits, one device's numbers, at every recorded step."""
    rows = compare(train(NumericsPlan(), RECORD), reference)
    assert [row.step for row in rows] == list(RECORD)
    for row in rows:
        assert row.bit_identical
        assert row.difference_between_replicas == 0
        assert row.difference_from_one_device < NONE
        assert row.gradient_difference < NONE
        assert row.loss == pytest.approx(row.loss_of_one_device, abs=NONE)
    assert rows[-1].loss < 0.05 * rows[0].loss


@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS if name != "sgd"])
def test_steps_with_states(optimizer: str) -> None:
    row = last(NumericsPlan(steps=60, optimizer=optimizer, algorithm="butterfly"))
    assert row.bit_identical
    assert row.difference_from_one_device < NONE


SHORT = NumericsPlan(steps=2, samples=24, optimizer="momentum", learning_rate=0.1)
SHORT_ON_ONE = train(one_device(SHORT))
ALL_REDUCES = [v for v in FLAT_VARIANTS if v.collective == "all_reduce"]
PLACED = [v for v in PLACED_VARIANTS if v.collective == "all_reduce"]


def check_exact(variant: Variant, cluster: Cluster) -> None:
    options = dict(variant.options)
    plan = replace(SHORT, world_size=cluster.world_size, algorithm=variant.name, options=options)
    (row,) = compare(train(plan, cluster=cluster), SHORT_ON_ONE)
    assert row.difference_from_one_device < NONE
    assert row.difference_between_replicas < NONE
    if variant.algorithm.same_bits(options):
        assert row.bit_identical


@pytest.mark.parametrize("variant", ALL_REDUCES, ids=str)
def test_every_all_reduce_is_exact(variant: Variant) -> None:
    """Replicas have the same bits wherever the algorithm promises them."""
    for world_size in (1, 3, 4):
        if fits(variant, flat(world_size)):
            check_exact(variant, flat(world_size))


@pytest.mark.parametrize("variant", PLACED, ids=str)
def test_every_all_reduce_over_nodes_is_exact(variant: Variant) -> None:
    if fits(variant, two_level(2, 2, "node_major")):
        check_exact(variant, two_level(2, 2, "node_major"))


def test_naive_replicas_part_by_their_last_bits() -> None:
    """Every rank adds in its own order: (a + b) + c is not (c + a) + b."""
    row = last(NumericsPlan(algorithm="naive", steps=20))
    assert not row.bit_identical
    assert 0 < row.difference_between_replicas < NONE
    assert row.difference_from_one_device < NONE


def test_the_same_plan_gives_the_same_bits() -> None:
    runs = [train(NumericsPlan(steps=5, algorithm="tree")) for _ in range(2)]
    assert same_bits([run.snapshots[0].parameters[3] for run in runs])
    other = train(NumericsPlan(steps=5, algorithm="tree", seed=1))
    assert not same_bits([runs[0].snapshots[0].parameters[0], other.snapshots[0].parameters[0]])


@pytest.mark.parametrize("shards", [None, (9, 7, 4)], ids=["equal", "unequal"])
@pytest.mark.parametrize("accumulation", [2, 3, 4])
def test_accumulation_equals_the_large_batch(accumulation: int, shards: tuple[int, ...] | None) -> None:
    """On one device and on three, also where micro-batches are unequal (20 in 3), and in buckets."""
    plan = NumericsPlan(steps=5, samples=20, accumulation=accumulation, algorithm="tree")
    assert last(plan, world_size=1).difference_from_one_device < NONE
    for bucket_bytes in (None, 200):
        row = last(plan, world_size=3, shards=shards, bucket_bytes=bucket_bytes)
        assert row.difference_from_one_device < NONE
        assert row.bit_identical


@pytest.mark.parametrize("algorithm", ["ring", "butterfly", "tree", "naive"])
def test_buckets_change_nothing_but_summation_order(algorithm: str) -> None:
    """Not even that where every element is summed in one order: whole vectors, not chunks, are sent."""
    plan = NumericsPlan(steps=5, algorithm=algorithm)
    whole, *cut = (train(replace(plan, bucket_bytes=limit)) for limit in (None, 1, 200, 700))
    for run in cut:
        (row,) = compare(run, train(one_device(plan)))
        assert row.difference_from_one_device < NONE
        assert row.bit_identical or algorithm == "naive"
        if algorithm in ("butterfly", "tree"):
            assert same_bits([run.snapshots[0].parameters[0], whole.snapshots[0].parameters[0]])


@pytest.mark.parametrize(("dtype", "least", "most"), [("float32", 1e-11, 1e-6), ("float16", 1e-7, 1e-2)])
def test_gradients_sent_in_fewer_bits(dtype: str, least: float, most: float) -> None:
    """Off by about the rounding of the type (2^-24, 2^-11) times the gradients; still one set of bits on all ranks."""
    row = last(NumericsPlan(steps=10, gradient_dtype=dtype))
    assert least < row.difference_from_one_device < most
    assert row.bit_identical


# --- mistake 1: local means over unequal shards


def shard_gradients(shards: Sequence[int]) -> list[dict[str, Array]]:
    """The gradient of each shard's own mean loss at the first step."""
    plan = NumericsPlan(shards=tuple(shards), world_size=len(shards))
    group = Group(Cluster.flat(1, Link(0.0, 1.0)), "ring", {})
    parameters = initial_parameters(plan.network, plan.seed)
    found: list[dict[str, Array]] = []
    for batch in split(make_batch(plan.network, plan.samples, plan.seed, 1), shards):
        found.append({})

        def collect(_layer: Layer, gradients: Sequence[Parameters]) -> None:
            found[-1].update(gradients[0])

        propagate(plan.network.layers, lambda _: [parameters], collect, [batch], [1.0], group)
    return found


def test_the_mean_of_local_means_is_off_by_what_the_weights_are_off() -> None:
    """For [100, 60, 60, 36]: the sum of (1/4 - n/256) x each shard's mean gradient. Weights by samples repair it."""
    plan = NumericsPlan(shards=UNEQUAL, steps=1)
    wrong, right = (train(replace(plan, mistake=mistake)) for mistake in ("mean_of_means", None))
    off = [1 / 4 - n / 256 for n in UNEQUAL]
    for name, gradient in right.snapshots[0].gradients[0].items():
        expected = sum(o * g[name] for o, g in zip(off, shard_gradients(UNEQUAL), strict=True))
        found = wrong.snapshots[0].gradients[0][name] - gradient
        np.testing.assert_allclose(found, expected, rtol=0, atol=NONE)
    one = train(one_device(plan))
    assert compare(wrong, one)[0].gradient_difference > 1e-2
    assert compare(right, one)[0].gradient_difference < NONE


def test_the_mean_of_local_means_parts_no_replicas() -> None:
    """So that nothing on the devices themselves could tell."""
    plan = NumericsPlan(steps=50, shards=UNEQUAL, algorithm="tree")
    one = train(one_device(plan), (1, 10, 50))
    rows = compare(train(replace(plan, mistake="mean_of_means"), (1, 10, 50)), one)
    assert all(row.bit_identical and row.difference_from_one_device > 1e-3 for row in rows)
    rows = compare(train(plan, (1, 10, 50)), one)
    assert all(row.bit_identical and row.difference_from_one_device < NONE for row in rows)


def test_the_mean_of_local_means_is_no_mistake_where_shards_are_equal() -> None:
    assert last(NumericsPlan(steps=5), mistake="mean_of_means").difference_from_one_device < NONE


# --- mistakes 2 and 3: no all-reduce, or not of all


def test_without_all_reduce_every_rank_is_a_device_of_its_own() -> None:
    """Bit for bit what plain descent on the rank's own shard gives."""
    plan = NumericsPlan(steps=5, shards=UNEQUAL, mistake="no_all_reduce")
    run = train(plan)
    assert run.traffic == ()
    group = Group(Cluster.flat(1, Link(0.0, 1.0)), "ring", {})
    for rank, replica in enumerate(run.snapshots[0].parameters):
        alone = initial_parameters(plan.network, plan.seed)
        for step in range(1, 6):
            batch = split(make_batch(plan.network, plan.samples, plan.seed, step), UNEQUAL)[rank]
            gradients: dict[str, Array] = {}
            propagate(
                plan.network.layers,
                lambda _, held=alone: [held],
                lambda _, new, held=gradients: held.update(new[0]),
                [batch],
                [1.0],
                group,
            )
            alone = {name: p - 0.1 * gradients[name] for name, p in alone.items()}
        for name, p in alone.items():
            np.testing.assert_allclose(replica[name], p, rtol=0, atol=NONE)


@pytest.mark.parametrize("mistake", ["no_all_reduce", "left_out_parameter"])
def test_replicas_part_at_once_and_do_not_meet_again(mistake: str, reference: History) -> None:
    """Hundredths, from the first step to the last, as in the lecture (0.041, 0.033, 0.025 on its own data).

    It is silent: the loss stays that of one device within a few per cent.
    """
    rows = compare(train(NumericsPlan(mistake=mistake, algorithm="tree"), RECORD), reference)
    for row in rows:
        assert not row.bit_identical
        assert 1e-2 < row.difference_between_replicas < 1e-1
        assert 5e-3 < row.difference_from_one_device < 1e-1
        assert row.loss == pytest.approx(row.loss_of_one_device, rel=0.05)


def test_only_the_left_out_parameter_parts_but_all_are_wrong() -> None:
    """The others get one sum on all ranks; it is the sum of gradients at different places."""
    plan = NumericsPlan(steps=20, algorithm="tree", mistake="left_out_parameter", left_out="output.bias")
    replicas = train(plan).snapshots[0].parameters
    one = train(one_device(plan)).snapshots[0].parameters[0]
    for name in one:
        column = [{name: replica[name]} for replica in replicas]
        assert same_bits(column) == (name != "output.bias")
        assert np.abs(replicas[0][name] - one[name]).max() > 1e-6


def test_every_mistake_is_off_and_is_named() -> None:
    for mistake in MISTAKES:
        row = last(NumericsPlan(steps=5, shards=UNEQUAL, algorithm="tree"), mistake=mistake)
        assert row.mistake == mistake
        assert row.difference_from_one_device > 1e-3


# --- BatchNorm


@pytest.mark.parametrize("shards", [None, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_synchronised_statistics_are_exact(optimizer: str, shards: tuple[int, ...] | None) -> None:
    plan = NumericsPlan(steps=15, optimizer=optimizer, shards=shards, algorithm="butterfly")
    row = last(plan, network=Network(batch_norm="synchronised"))
    assert row.bit_identical
    assert row.difference_from_one_device < NONE


def test_local_statistics_are_not_though_replicas_agree() -> None:
    row = last(NumericsPlan(steps=30, algorithm="butterfly"), network=Network(batch_norm="local"))
    assert row.bit_identical
    assert row.difference_from_one_device > 1e-3


def test_synchronised_statistics_do_not_reach_over_micro_batches() -> None:
    """Ranks share them, micro-batches do not: accumulation with BatchNorm is not the large batch."""
    row = last(NumericsPlan(steps=5, algorithm="tree"), network=Network(batch_norm="synchronised"), accumulation=4)
    assert row.difference_from_one_device > 1e-3
