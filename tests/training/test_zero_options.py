"""Options of the ZeRO strategies: what is refused, what does nothing and is said, what a row shows."""

from __future__ import annotations

from typing import Any

import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.errors import InputError
from simcollectives.training.setup import Precision
from simcollectives.training.step import simulate_step
from simcollectives.training.strategies.table import find_strategy, label_of, resolve_strategy_options
from tests.training.zero_models import model_b, training_of

DEEPSPEED = {"implementation": "deepspeed"}


@pytest.mark.parametrize(
    ("name", "given", "label"),
    [
        ("zero1", {}, "zero1"),
        ("zero2", DEEPSPEED, "zero2 (implementation: deepspeed)"),
        ("zero2", {"reduce_bucket_size": 2e8}, "zero2 (reduce_bucket_size: 200000000)"),
        ("zero3", {**DEEPSPEED, "communication_data_type": "fp32"}, "communication_data_type: float32"),
        ("zero3", {**DEEPSPEED, "overlap_comm": False}, "overlap_comm: false"),
    ],
)
def test_a_row_shows_the_implementation(name: str, given: dict[str, Any], label: str) -> None:
    strategy = find_strategy(name)
    assert label in label_of(strategy, resolve_strategy_options(strategy, given))


def test_defaults_are_those_of_deepspeed() -> None:
    """runtime/zero/config.py of deepspeed 0.19.8, in elements."""
    stage_2, stage_3 = (resolve_strategy_options(find_strategy(name), DEEPSPEED) for name in ("zero2", "zero3"))
    assert stage_2["overlap_comm"] is False
    assert stage_3["overlap_comm"] is True
    shared = {"reduce_bucket_size": 5e8, "contiguous_gradients": True, "reduce_scatter": True}
    assert shared.items() <= stage_2.items()
    assert shared.items() <= stage_3.items()
    known = {
        "prefetch_bucket_size": 5e7,
        "param_persistence_threshold": 1e5,
        "model_persistence_threshold": (1 << 63) - 1,
        "max_live_parameters": 1e9,
        "max_reuse_distance": 1e9,
        "sub_group_size": 1e9,
        "module_granularity_threshold": 0,
        "zero_hpz_partition_size": 1,
        "zero_quantized_weights": False,
        "zero_quantized_gradients": False,
    }
    assert known.items() <= stage_3.items()


@pytest.mark.parametrize("value", [-1, 1.5, "5e8", True, float("inf"), None])
def test_wrong_numbers_of_elements(value: Any) -> None:
    with pytest.raises(InputError, match=r"reduce_bucket_size: zero3: .* is not a number of elements"):
        resolve_strategy_options(find_strategy("zero3"), {"reduce_bucket_size": value})


@pytest.mark.parametrize(
    ("name", "given", "warnings"),
    [
        ("zero2", DEEPSPEED, []),
        ("zero3", DEEPSPEED, []),
        ("zero1", {"reduce_bucket_size": 100}, []),
        ("zero1", {"overlap_comm": True}, ["overlap_comm does nothing with implementation: paper"]),
        ("zero3", {"reduce_bucket_size": 100}, ["reduce_bucket_size does nothing with implementation: paper"]),
        ("zero3", {"zero_hpz_partition_size": 2}, ["zero_hpz_partition_size does nothing with implementation: paper"]),
        (
            "zero2",
            {**DEEPSPEED, "use_multi_rank_bucket_allreduce": False, "reduce_scatter": False},
            ["use_multi_rank_bucket_allreduce: false does nothing"],
        ),
        (
            "zero2",
            {**DEEPSPEED, "contiguous_gradients": False, "reduce_scatter": False},
            ["reduce_scatter: false does nothing without contiguous_gradients"],
        ),
        ("zero1", {**DEEPSPEED, "grad_accum_dtype": "fp32"}, ["BF16_Optimizer"]),
        ("zero3", {**DEEPSPEED, "zero_quantized_gradients": True}, ["does nothing on one node"]),
        # The embedding has 500 elements: 250 on each of two ranks, no multiple of 8.
        ("zero3", {**DEEPSPEED, "zero_quantized_weights": True}, ["embedding.weight and 19 others have none"]),
        (
            "zero3",
            {**DEEPSPEED, "zero_quantized_weights": True, "use_all_reduce_for_fetch_params": True},
            ["use_all_reduce_for_fetch_params does nothing with zero_quantized_weights", "have none"],
        ),
        # A block has 430 elements in three modules, itself included.
        ("zero3", {**DEEPSPEED, "module_granularity_threshold": 142}, ["smallest granularity of a module is 143"]),
        ("zero3", {**DEEPSPEED, "module_granularity_threshold": 143}, []),
    ],
)
def test_what_does_nothing_is_said(name: str, given: dict[str, Any], warnings: list[str]) -> None:
    found = simulate_step(training_of(model_b()), name, given).warnings
    assert len(found) == len(warnings)
    assert all(text in warning for text, warning in zip(warnings, found, strict=True))


def test_deepspeed_keeps_gradients_like_parameters() -> None:
    training = training_of(model_b(), precision=Precision("bfloat16", "bfloat16", "float32"))
    (warning,) = simulate_step(training, "zero2", DEEPSPEED).warnings
    assert "DeepSpeed keeps gradients in bfloat16 like parameters, not in float32" in warning
    assert simulate_step(training, "zero2").warnings == ()


def test_second_shards_need_equal_groups() -> None:
    training = training_of(model_b(), cluster=Cluster.flat(6, Link(1e-6, 1e9)))
    with pytest.raises(InputError, match="zero_hpz_partition_size: 6 ranks are no groups of 4; take a divisor of 6"):
        simulate_step(training, "zero3", {**DEEPSPEED, "zero_hpz_partition_size": 4})
    assert simulate_step(training, "zero3", {**DEEPSPEED, "zero_hpz_partition_size": 3}).step_seconds > 0
    # More than there are: all of them.
    assert simulate_step(training, "zero3", {**DEEPSPEED, "zero_hpz_partition_size": 8}).step_seconds > 0


def test_float16_tells_of_overflow_in_stage_3() -> None:
    training = training_of(model_b(), precision=Precision("float16", "float16", "float16"))
    step = simulate_step(training, "zero3", DEEPSPEED)
    assert [(c.kind, c.dtype) for c in step.collectives if c.elements == 1] == [
        ("all_reduce", "uint8"),
        ("all_reduce", "float64"),
    ]
