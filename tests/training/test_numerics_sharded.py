"""Sharded training on simulated devices: the numbers of data parallelism, bytes and arrays counted by hand."""

from __future__ import annotations

from collections.abc import Iterator
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
    STRATEGIES,
    History,
    Network,
    NumericsPlan,
    NumericsRow,
    compare,
    one_device,
    plain,
    train,
)
from simcollectives.training.numerics.compare import same_bits
from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.loop import start, train_step
from simcollectives.training.numerics.network import initial_parameters

PLAN = NumericsPlan(steps=2, samples=24, optimizer="adam", algorithm="butterfly")
SHARDED = [name for name in STRATEGIES if name != "ddp"]
FULLY = ["zero3", "fsdp2", "hsdp"]
PARAMETERS = 8 * 16 + 16 + 16 * 4 + 4
ITEM = 8


RUNS: dict[str, History] = {}


def trained(plan: NumericsPlan) -> History:
    """Train each plan once: what runs are compared with is often the same."""
    if repr(plan) not in RUNS:
        RUNS[repr(plan)] = train(plan)
    return RUNS[repr(plan)]


def planned(**changed: Any) -> NumericsPlan:
    """The plan, changed; hybrid sharding is over pairs of ranks, if nothing is said."""
    plan = replace(PLAN, **changed)
    pairs = {"shard_size": 2} if plan.strategy == "hsdp" else {}
    return replace(plan, strategy_options={**pairs, **plan.strategy_options})


def row(**changed: Any) -> NumericsRow:
    plan = planned(**changed)
    (found,) = compare(trained(plan), trained(one_device(plan)), trained(plain(plan)))
    return found


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
