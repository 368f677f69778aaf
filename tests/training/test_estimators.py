"""DeepSpeed's estimators: their published cases, their formulas, and their difference from a step's peak."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.cluster import Cluster
from simcollectives.errors import InputError
from simcollectives.report.table_estimate import estimate_blocks
from simcollectives.training.catalogue import load_model
from simcollectives.training.estimators import (
    BUFFER_FACTOR,
    Difference,
    beside_peak,
    estimate_of,
    largest_layer_elements,
    zero2_estimate,
    zero3_estimate,
)
from simcollectives.training.passes import GRADIENT_COPY, GRADIENTS, OPTIMIZER, PARAMETERS
from simcollectives.training.prepare import prepare_training
from simcollectives.training.step import simulate_step
from simcollectives.training.workload import Workload
from tests.training.steps import uniform_training

GIB = 2**30
MILLION = 1_000_000


def test_published_cases() -> None:
    """What DeepSpeed prints for these sizes (docs/code-docs/source/memory.rst has the form), in GiB to two digits."""
    both = zero3_estimate(6805 * MILLION, 131 * MILLION, 4, offload_optimizer=True, offload_parameters=True)
    optimizer = zero3_estimate(6805 * MILLION, 131 * MILLION, 4, offload_optimizer=True)
    none = zero3_estimate(6805 * MILLION, 131 * MILLION, 4)
    assert [round(one.gpu_bytes / GIB, 2) for one in (both, optimizer, none)] == [0.49, 3.66, 29.01]
    offloaded = zero2_estimate(2851 * MILLION, 8, offload_optimizer=True)
    assert [round(one.gpu_bytes / GIB, 2) for one in (offloaded, zero2_estimate(2851 * MILLION, 8))] == [5.31, 11.28]


@given(parameters=st.integers(1, 10**12), gpus=st.integers(1, 16), nodes=st.integers(1, 64))
def test_zero2_is_the_formula(parameters: int, gpus: int, nodes: int) -> None:
    plain = zero2_estimate(parameters, gpus, nodes)
    assert plain.gpu_bytes == 2 * parameters + 18 * parameters // (gpus * nodes)
    assert plain.cpu_bytes == int(4 * parameters * gpus * BUFFER_FACTOR)
    assert sum(plain.items.values()) == plain.gpu_bytes
    offloaded = zero2_estimate(parameters, gpus, nodes, offload_optimizer=True)
    assert offloaded.gpu_bytes == 2 * parameters
    assert offloaded.cpu_bytes == int(parameters * max(4 * gpus * nodes, 16) * BUFFER_FACTOR)


@given(largest=st.integers(1, 10**9), more=st.integers(0, 10**12), gpus=st.integers(1, 16), nodes=st.integers(1, 64))
def test_zero3_is_the_formula(largest: int, more: int, gpus: int, nodes: int) -> None:
    parameters, ranks = largest + more, gpus * nodes
    plain = zero3_estimate(parameters, largest, gpus, nodes)
    assert plain.gpu_bytes == 4 * largest + 18 * parameters // ranks
    assert plain.cpu_bytes == int(4 * largest * gpus * BUFFER_FACTOR)
    optimizer = zero3_estimate(parameters, largest, gpus, nodes, offload_optimizer=True)
    assert optimizer.gpu_bytes == 4 * largest + 2 * parameters // ranks
    assert optimizer.cpu_bytes == pytest.approx(16 * parameters / nodes * BUFFER_FACTOR, abs=1)
    both = zero3_estimate(parameters, largest, gpus, nodes, offload_optimizer=True, offload_parameters=True)
    assert both.gpu_bytes == 4 * largest
    assert both.cpu_bytes == pytest.approx(18 * parameters / nodes * BUFFER_FACTOR, abs=1)
    for one in (plain, optimizer, both):
        assert sum(one.items.values()) == one.gpu_bytes


def test_without_zero_init_every_rank_makes_the_model() -> None:
    for offload, states in ((False, 0), (True, 16)):
        made = zero3_estimate(1000, 10, 8, 2, offload_optimizer=offload, zero_init=False)
        assert made.cpu_bytes == 1000 * max(4 * 8, states / 2) * BUFFER_FACTOR


def test_the_largest_layer_is_a_module() -> None:
    """Llama-2-7B: embedding and head have 32000 x 4096 parameters each, more than any matrix of a block."""
    assert largest_layer_elements(load_model("llama-2-7b")) == 32000 * 4096


def test_all_wrong_numbers_at_once() -> None:
    with pytest.raises(InputError) as caught:
        zero3_estimate(0, -1, 8, offload_parameters=True)
    assert {problem.place for problem in caught.value.problems} == {"parameters", "largest_layer", "offload_parameters"}
    with pytest.raises(InputError, match="more than all 10 parameters"):
        zero3_estimate(10, 11, 8)


def test_differences_from_a_peak_sum_up_and_are_explained() -> None:
    """DDP holds everything on every rank: 2 + 2 + 12 bytes a parameter, and activations beside."""
    training = uniform_training(64_000_000, layers=4, tensors=2, kept=1_000_000)
    step = simulate_step(training, "ddp")
    estimate = zero2_estimate(training.model.elements, 8, 8)
    found = {one.item: one for one in beside_peak(estimate, step)}
    assert sum(one.estimated_bytes for one in found.values()) == estimate.gpu_bytes
    assert sum(one.simulated_bytes for one in found.values()) == step.peak_bytes
    assert found[PARAMETERS] == Difference(PARAMETERS, 128_000_000, 128_000_000, "alike")
    assert (found[OPTIMIZER].estimated_bytes, found[OPTIMIZER].simulated_bytes) == (12_000_000, 12 * 64_000_000)
    assert found[GRADIENT_COPY].reason == "does not stand in this step at all"
    assert found["buckets"].reason == "the estimator leaves it out"
    assert all(one.reason for one in found.values())
    assert found[GRADIENTS].simulated_bytes >= 128_000_000


def test_the_estimator_of_zero2_has_deepspeeds_model_states() -> None:
    """On 64 ranks, which divide the parameters, each item is at its largest what the estimator says."""
    training = uniform_training(64_000_000, layers=4, tensors=2, kept=1_000_000)
    step = simulate_step(training, "zero2", {"implementation": "deepspeed"})
    estimate = zero2_estimate(training.model.elements, 8, 8)
    found = {one.item: one for one in beside_peak(estimate, step)}
    assert [found[item].reason for item in (PARAMETERS, OPTIMIZER)] == ["alike", "alike"]
    assert {item: step.most_bytes[item] for item in estimate.items} == dict(estimate.items)
    assert sum(one.simulated_bytes for one in found.values()) == step.peak_bytes


@pytest.mark.parametrize(
    ("strategy", "options", "factor"),
    [
        ("zero2", {"implementation": "deepspeed"}, 2 + 18 / 8),
        ("zero3", {"implementation": "deepspeed"}, 18 / 8),
        ("zero2", {}, None),
        ("zero1", {"implementation": "deepspeed"}, None),
        ("fsdp2", {}, None),
    ],
)
def test_the_estimator_of_a_step(strategy: str, options: dict[str, Any], factor: float | None) -> None:
    """2 Psi + 18 Psi / 8 of ZeRO-2, and 4 L + 18 Psi / 8 of ZeRO-3, L the embedding of GPT-2."""
    model = load_model("gpt2")
    training = prepare_training(model, Cluster.machine("dgx-a100"), Workload(1, 64), mfu=0.4)
    step = simulate_step(training, strategy, options)
    estimate = estimate_of(step)
    if factor is None:
        assert estimate is None
        assert estimate_blocks(step) == []
        return
    assert estimate is not None
    gathered = 4 * 50257 * 768 if strategy == "zero3" else 0
    assert estimate.gpu_bytes == pytest.approx(factor * model.elements + gathered, abs=1)
    differences = beside_peak(estimate, step)
    assert sum(one.simulated_bytes for one in differences) == step.peak_bytes
    assert len(estimate_blocks(step)) == 3
