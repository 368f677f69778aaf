"""Sharded training on simulated devices: bytes counted by hand, and the arrays that each device really holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.training.numerics import (
    STRATEGIES,
    History,
    Network,
    train,
)
from simcollectives.training.numerics.compare import same_bits
from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.loop import start, train_step
from simcollectives.training.numerics.network import initial_parameters
from tests.training.sharded_runs import FULLY, ITEM, PARAMETERS, PLAN, planned, row, trained

# --- the account


def scattered(elements: int, ranks: int) -> int:
    """Bytes that a rank sends of so many elements, filled up, in a reduce-scatter or an all-gather."""
    assert elements % ranks == 0
    return ITEM * elements // ranks * (ranks - 1)


FILLED = {
    # Flat: 212 in one piece. Elements: 128, 16, 64, 4 each. Rows: 16 x 8, 16, 4 x 16, 4 along the first dimension.
    3: (213, 129 + 18 + 66 + 6, 18 * 8 + 18 + 6 * 16 + 6),
    4: (212, 212, 212),
    8: (216, 128 + 16 + 64 + 8, 128 + 16 + 8 * 16 + 8),
}


@pytest.mark.parametrize("ranks", FILLED)
def test_bytes_sent_in_a_step(ranks: int) -> None:
    """ZeRO-1 and 2 send once each way; ZeRO-3 and FSDP gather twice; kept units are gathered once."""
    flat, elements, rows = (scattered(filled, ranks) for filled in FILLED[ranks])
    kept = {"reshard_after_forward": False}
    cases: list[tuple[str, dict[str, Any], int, int]] = [
        ("zero1", {}, flat, flat),
        ("zero2", {}, flat, flat),
        ("zero3", {}, elements, 2 * elements),
        ("fsdp2", {}, rows, 2 * rows),
        ("fsdp2", kept, rows, rows),
    ]
    for strategy, options, scatter, gather in cases:
        found = row(strategy=strategy, strategy_options=options, algorithm="direct", world_size=ranks)
        assert found.sent_bytes == {"reduce_scatter": scatter, "all_gather": gather}
        assert found.bytes_sent_max == scatter + gather
        assert found.bytes_sent_total == ranks * (scatter + gather)


@pytest.mark.parametrize(("ranks", "size"), [(4, 2), (8, 4), (8, 2)])
def test_bytes_of_hybrid_sharding(ranks: int, size: int) -> None:
    """A reduce-scatter and two all-gathers in the group, an all-reduce of the shard over the groups."""
    network = Network(classes=8)
    options = {"shard_size": size}
    found = row(strategy="hsdp", strategy_options=options, algorithm="ring", world_size=ranks, network=network)
    elements = 8 * 16 + 16 + 16 * 8 + 8
    inside, between = scattered(elements, size), 2 * scattered(elements // size, ranks // size)
    assert found.sent_bytes == {"reduce_scatter": inside, "all_gather": 2 * inside, "all_reduce": between}


@pytest.mark.parametrize("strategy", ["fsdp2", "hsdp"])
@pytest.mark.parametrize("network", [Network(), Network(inputs=3, hidden=5, classes=7)], ids=["even", "uneven"])
def test_traffic_does_not_depend_on_how_it_is_cut_in_time(strategy: str, network: Network) -> None:
    """One unit of the whole model and a unit for each layer send the same; only one holds the whole model at once."""
    layers, model = (row(strategy=strategy, strategy_options={"units": u}, network=network) for u in ("layer", "model"))
    assert layers.sent_bytes == model.sent_bytes
    assert model.same_bits_as_ddp
    whole = ITEM * sum(parameter.elements for parameter in network.parameters)
    largest = ITEM * max(sum(p.elements for p in layer.module.parameters) for layer in network.layers)
    assert (layers.unsharded_bytes, model.unsharded_bytes) == (largest, whole)


def test_memory_of_model_states() -> None:
    """With Adam, of 4 ranks: parameters, gradients, and twice as many states (Rajbhandari et al. 2020, figure 1)."""
    whole, part = ITEM * PARAMETERS, ITEM * PARAMETERS // 4
    expected = {
        "ddp": (whole, whole, 2 * whole),
        "zero1": (whole, whole, 2 * part),
        "zero2": (whole, part, 2 * part),
        "zero3": (part, part, 2 * part),
        "fsdp2": (part, part, 2 * part),
        "hsdp": (2 * part, 2 * part, 4 * part),
    }
    assert expected.keys() == STRATEGIES.keys()
    for strategy, sizes in expected.items():
        found = row(strategy=strategy)
        assert (found.parameter_bytes, found.gradient_bytes, found.optimizer_bytes) == sizes
        assert found.model_state_bytes == sum(sizes)
        assert found.peak_bytes == sum(found.memory.values()) >= sum(sizes) - found.gradient_bytes


def test_zero2_holds_whole_gradients_of_one_bucket_at_a_time() -> None:
    most = row(strategy="zero2", bucket_bytes=500).most_held
    assert most["unsharded gradients"] == most["reduce-scatter buffers"] == ITEM * (8 * 16 + 16)


def test_gradients_that_are_not_synchronised_are_whole() -> None:
    synchronised, not_yet = (
        row(strategy="fsdp2", strategy_options={"gradient_sync": sync}, accumulation=2).most_held
        for sync in ("every", "last")
    )
    assert synchronised["unsharded gradients"] == ITEM * (8 * 16 + 16)
    assert not_yet["unsharded gradients"] == ITEM * PARAMETERS


# --- the arrays


def arrays_in(value: Any) -> Iterator[npt.NDArray[Any]]:
    """All arrays that can be reached from a value, those that views are of in place of the views."""
    if isinstance(value, np.ndarray):
        while value.base is not None:
            value = value.base
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from arrays_in(inner)
    elif isinstance(value, list | tuple | set):
        for inner in value:
            yield from arrays_in(inner)


def distinct(arrays: Iterator[npt.NDArray[Any]]) -> dict[int, npt.NDArray[Any]]:
    return {id(array): array for array in arrays}


HELD: list[tuple[str, int, int, int]] = [
    # Strategy, ranks, and elements that one rank holds of the parameters and of the gradients (and of each state).
    ("ddp", 4, PARAMETERS, PARAMETERS),
    ("zero1", 4, PARAMETERS, PARAMETERS // 4),
    ("zero2", 4, PARAMETERS, PARAMETERS // 4),
    ("zero3", 4, PARAMETERS // 4, PARAMETERS // 4),
    ("fsdp2", 4, PARAMETERS // 4, PARAMETERS // 4),
    ("hsdp", 4, PARAMETERS // 2, PARAMETERS // 2),
    ("zero1", 3, PARAMETERS, FILLED[3][0] // 3),
    ("zero2", 3, PARAMETERS, FILLED[3][0] // 3),
    ("zero3", 3, FILLED[3][1] // 3, FILLED[3][1] // 3),
    ("fsdp2", 3, FILLED[3][2] // 3, FILLED[3][2] // 3),
]


@pytest.mark.parametrize(("strategy", "ranks", "parameters", "gradients"), HELD)
def test_between_steps_a_device_holds_its_part_and_nothing_else(
    strategy: str, ranks: int, parameters: int, gradients: int
) -> None:
    """All that can be reached from a strategy, before and after steps, is counted, and is what the account says."""
    states = PARAMETERS if strategy == "ddp" else gradients
    plan = planned(strategy=strategy, world_size=ranks, algorithm="direct")
    group = Group(Cluster.flat(ranks, Link(0.0, 1.0)), plan.algorithm, plan.options)
    running = start(plan, group)
    for step in range(3):
        if step:
            train_step(plan, running, group, step)
        elements = {"parameters": parameters, "optimizer states": 2 * states} | (
            {"gradients": gradients} if step else {}
        )
        for standing in group.standing:
            assert {item: sum(array.size for array in own) for item, own in standing.items()} == elements
        held = {name: value for name, value in vars(running).items() if name not in ("plan", "group")}
        found = distinct(arrays_in(held))
        assert found.keys() == distinct(arrays_in(list(group.standing))).keys()
        # Before the first step all ranks of a strategy with whole parameters share the initial ones.
        if step or parameters < PARAMETERS:
            assert sum(array.size for array in found.values()) == ranks * sum(elements.values())


@pytest.mark.parametrize("strategy", FULLY)
def test_no_device_shares_an_array_with_another(strategy: str) -> None:
    held = [distinct(arrays_in(own)).keys() for own in train(planned(strategy=strategy)).standing]
    assert len(frozenset().union(*held)) == sum(map(len, held))


def on_three(strategy: str) -> History:
    return trained(replace(PLAN, strategy=strategy, algorithm="direct", world_size=3))


def test_shards_of_rows_are_those_of_fully_shard() -> None:
    """Rank r of 3 holds rows 6 r to 6 r + 5 of 16, and 2 r, 2 r + 1 of 4; zeros stand for rows that are not there."""
    history = on_three("fsdp2")
    whole = history.snapshots[0].parameters[0]
    for rank, standing in enumerate(history.standing):
        hidden, output = standing["parameters"]
        assert (hidden.size, output.size) == (6 * 8 + 6, 2 * 16 + 2)
        kept = [whole["hidden.weight"][6 * rank : 6 * rank + 6], whole["hidden.bias"][6 * rank : 6 * rank + 6]]
        rows = len(kept[1])
        np.testing.assert_array_equal(hidden[: 8 * rows], kept[0].reshape(-1))
        np.testing.assert_array_equal(hidden[8 * rows : 48], 0)
        np.testing.assert_array_equal(hidden[48 : 48 + rows], kept[1])
        np.testing.assert_array_equal(hidden[48 + rows :], 0)
    np.testing.assert_array_equal(history.standing[2]["parameters"][1], 0)


def test_shards_of_zero3_are_flat_parts_of_each_parameter() -> None:
    history = on_three("zero3")
    whole = history.snapshots[0].parameters[0]
    flat = np.append(whole["hidden.weight"].reshape(-1), 0)
    bias = np.append(whole["hidden.bias"], [0, 0])
    for rank, standing in enumerate(history.standing):
        hidden = standing["parameters"][0]
        np.testing.assert_array_equal(hidden[:43], flat[43 * rank : 43 * rank + 43])
        np.testing.assert_array_equal(hidden[43:], bias[6 * rank : 6 * rank + 6])


def test_snapshots_are_put_together_from_what_stands() -> None:
    """A shard that is changed shows: no copy is kept aside."""
    plan = replace(PLAN, strategy="fsdp2")
    group = Group(Cluster.flat(4, Link(0.0, 1.0)), plan.algorithm, plan.options)
    running = start(plan, group)
    assert same_bits([initial_parameters(plan.network, plan.seed), *running.whole_parameters()])
    group.standing[3]["parameters"][1][-1] += 1
    changed = running.whole_parameters()[0]["output.bias"] - initial_parameters(plan.network, plan.seed)["output.bias"]
    assert changed.tolist() == [0, 0, 0, 1]
