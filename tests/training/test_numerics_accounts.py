"""The account of bytes and memory, counted by hand; and plans that cannot be trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.errors import InputError
from simcollectives.training.numerics import Network, NumericsPlan, problems_of, run_numerics, train
from simcollectives.training.numerics.strategies.ddp import buckets_of

PLAN = NumericsPlan(steps=2)
PARAMETERS = 8 * 16 + 16 + 16 * 4 + 4
BYTES = 8 * PARAMETERS


@pytest.mark.parametrize(
    ("algorithm", "most", "total"),
    [
        ("naive", 3 * BYTES, 4 * 3 * BYTES),
        ("ring", 2 * 3 * BYTES // 4, 2 * 3 * BYTES),
        ("butterfly", 2 * BYTES, 4 * 2 * BYTES),
        ("parameter_server", 4 * BYTES, 2 * 4 * BYTES),
    ],
)
def test_bytes_sent_in_a_step(algorithm: str, most: int, total: int) -> None:
    """Of 1696 B on four ranks; a server is a device, too."""
    (row,) = run_numerics(replace(PLAN, algorithm=algorithm))
    assert (row.bytes_sent_max, row.bytes_sent_total) == (most, total)


def test_accumulation_and_buckets_send_no_more() -> None:
    (row,) = run_numerics(replace(PLAN, accumulation=4, bucket_bytes=8 * 64))
    assert row.bytes_sent_total == 2 * 3 * BYTES


def test_fewer_bits_send_less() -> None:
    sent = [
        run_numerics(replace(PLAN, gradient_dtype=d))[0].bytes_sent_total for d in ("float64", "float32", "float16")
    ]
    assert sent == [2 * 3 * BYTES, 3 * BYTES, 3 * BYTES // 2]


def test_traffic_by_purpose() -> None:
    """Statistics of 16 features: sums and the count, squares, then two sums backward. A tree sends 2 (N - 1) times."""
    plan = replace(PLAN, algorithm="tree", network=Network(batch_norm="synchronised"))
    traffic = {entry.purpose: entry for entry in train(plan).traffic}
    assert {purpose: entry.calls for purpose, entry in traffic.items()} == {"statistics": 2 * 3, "gradients": 2}
    assert sum(traffic["statistics"].sent_bytes) == 2 * 6 * 8 * (17 + 16 + 32)
    assert sum(traffic["gradients"].sent_bytes) == 2 * 6 * 8 * (8 * 16 + 2 * 16 + 16 * 4 + 4)
    assert {entry.collective for entry in traffic.values()} == {"all_reduce"}


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
def test_memory(optimizer: str, states: int) -> None:
    """64 samples a rank keep their 8 inputs and 16 outputs of the tanh; a bucket is a second copy of its gradients."""
    (row,) = run_numerics(replace(PLAN, optimizer=optimizer, bucket_bytes=8 * 68))
    kept = 64 * (8 + 16) * 8
    assert row.most_held == {
        "parameters": BYTES,
        "optimizer states": states * BYTES,
        "gradients": BYTES,
        "activations": kept,
        "buckets": 8 * (8 * 16 + 16),
    }
    # Most is held when the output layer's gradients are there and no activations are freed.
    assert row.memory["gradients"] == 8 * 68
    assert row.peak_bytes == sum(row.memory.values()) == (1 + states) * BYTES + 8 * 68 + kept


def test_micro_batches_keep_fewer_activations() -> None:
    (row,) = run_numerics(replace(PLAN, accumulation=4))
    assert row.most_held["activations"] == 16 * (8 + 16) * 8


def bucketed(plan: NumericsPlan) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(parameter.name for parameter in bucket) for bucket in buckets_of(plan))


def test_buckets_are_filled_as_gradients_come_out() -> None:
    names = ("output.bias", "output.weight", "hidden.bias", "hidden.weight")
    assert bucketed(PLAN) == (names,)
    assert bucketed(replace(PLAN, bucket_bytes=1)) == tuple((name,) for name in names)
    # 32 B, then 512 B reach 200 B; 128 B, then 1024 B do.
    assert bucketed(replace(PLAN, bucket_bytes=200)) == (names[:2], names[2:])
    assert bucketed(replace(PLAN, mistake="left_out_parameter", left_out="hidden.bias")) == ((*names[:2], names[3]),)
    norm = replace(PLAN, network=Network(batch_norm="local"))
    assert bucketed(norm) == (("output.bias", "output.weight", "norm.weight", "norm.bias", "hidden.weight"),)


def test_an_algorithm_that_looks_at_nodes() -> None:
    """Two nodes of two: each rank sends half of its vector inside, twice, and a quarter outside, twice."""
    cluster = Cluster.two_level(2, 2, Link(0.0, 2.0), Link(0.0, 1.0))
    (row,) = run_numerics(replace(PLAN, algorithm="hierarchical"), cluster=cluster)
    assert row.bytes_sent_max == 2 * BYTES // 2 + 2 * BYTES // 4


@pytest.mark.parametrize(
    ("changed", "place", "text"),
    [
        ({"world_size": 0}, "world_size", "1 to"),
        ({"world_size": True}, "world_size", "whole number"),
        ({"steps": 1.5}, "steps", "whole number"),
        ({"seed": -1}, "seed", "0 to"),
        ({"samples": 3}, "samples", "3 samples for 4 ranks"),
        ({"accumulation": 65}, "samples", "4 ranks x 65 micro-batches"),
        ({"shards": (100, 60, 60)}, "shards", "4 whole numbers"),
        ({"shards": (100, 60, 60, 37)}, "shards", "sum to the 256"),
        ({"shards": (253, 1, 1, 1), "accumulation": 2}, "shards", "a shard of 1"),
        ({"shards": 4}, "shards", "4 whole numbers"),
        ({"bucket_bytes": 0}, "bucket_bytes", "1 to"),
        ({"strategy": "dpp"}, "strategy", 'did you mean "ddp"?'),
        ({"optimizer": "Adam"}, "optimizer", 'did you mean "adam"?'),
        ({"gradient_dtype": "int8"}, "gradient_dtype", "float32"),
        ({"mistake": "no_allreduce"}, "mistake", 'did you mean "no_all_reduce"?'),
        ({"mistake": "left_out_parameter", "left_out": "norm.bias"}, "left_out", "hidden.bias"),
        ({"network": Network(batch_norm="synced")}, "network.batch_norm", "synchronised"),
        ({"network": Network(classes=1)}, "network.classes", "2 to"),
        ({"learning_rate": 0.0}, "learning_rate", "above 0"),
        ({"learning_rate": float("nan")}, "learning_rate", "above 0"),
        ({"learning_rate": 1.7e308}, "learning_rate", "no longer finite at step"),
        ({"algorithm": "rign"}, "", 'did you mean "ring"?'),
        ({"algorithm": "rign", "mistake": "no_all_reduce"}, "", 'did you mean "ring"?'),
        ({"algorithm": "ring", "options": {"order": "far"}}, "order", "no option"),
    ],
)
def test_bad_plans(changed: dict[str, Any], place: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        train(replace(PLAN, **changed))
    (problem,) = caught.value.problems
    assert problem.place == place
    assert text in problem.message


def test_problems_are_known_before_training() -> None:
    cluster = Cluster.flat(4, Link(0.0, 1.0))
    assert problems_of(PLAN, (1, 2), cluster) == []
    nodes = Cluster.two_level(2, 2, Link(0.0, 2.0), Link(0.0, 1.0))
    found = problems_of(replace(PLAN, algorithm="parameter_server"), (3,), nodes)
    assert [problem.place for problem in found] == ["record", ""]
    assert "need a flat cluster" in found[1].message


def test_all_problems_at_once() -> None:
    with pytest.raises(InputError) as caught:
        train(NumericsPlan(steps=0, optimizer="lion", learning_rate=-1.0, network=Network(hidden=0)))
    places = {problem.place for problem in caught.value.problems}
    assert places == {"steps", "optimizer", "learning_rate", "network.hidden"}


@pytest.mark.parametrize("record", [(0,), (1, 3), (1.5,)])
def test_steps_that_do_not_happen(record: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="steps are 1 to 2"):
        train(PLAN, record)


def test_a_cluster_of_another_size() -> None:
    with pytest.raises(InputError, match="write 8"):
        train(PLAN, cluster=Cluster.flat(8, Link(0.0, 1.0)))
