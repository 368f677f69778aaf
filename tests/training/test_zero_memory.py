"""What a rank holds under ZeRO: the tables of model states, and small steps worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.training.model import Layer, Model, Module, Parameter
from simcollectives.training.setup import ModuleSeconds, Optimizer, Training
from simcollectives.training.step import Step, simulate_step
from tests.training.steps import uniform_step

DEEPSPEED = {"implementation": "deepspeed"}
STATES = ("parameters", "gradients", "optimizer states")


@pytest.mark.parametrize("implementation", ["paper", "deepspeed"])
@pytest.mark.parametrize(
    ("elements", "ranks", "gigabytes"),
    [
        (7_000_000_000, 4, {"zero1": 49, "zero2": 38.5, "zero3": 28}),
        (7_000_000_000, 8, {"zero1": 38.5, "zero2": 26.25, "zero3": 14}),
        (13_000_000_000, 8, {"zero1": 71.5, "zero3": 26}),
    ],
)
def test_model_states(elements: int, ranks: int, gigabytes: dict[str, float], implementation: str) -> None:
    """2 + 2 + 12 bytes a parameter, of which 12, 14 or all 16 are divided; 112 and 208 GB without."""
    for strategy, size in gigabytes.items():
        options = {"implementation": implementation}
        cluster = Cluster.flat(ranks, Link(5e-6, 450e9))
        step = uniform_step(strategy, options, elements=elements, layers=25, tensors=4, cluster=cluster)
        assert sum(step.most_bytes[item] for item in STATES) == size * 1e9


LAYERS, ELEMENTS = 4, 100
PSI = LAYERS * ELEMENTS
SHARDED = 12 * PSI // 2  # optimizer states on two ranks


def model(*sizes: int) -> Model:
    weights = [Parameter(f"{n}.weight", (size,)) for n, size in enumerate(sizes)]
    layers = [Layer(str(n), (Module(str(n), "linear", (w,), w.elements),)) for n, w in enumerate(weights)]
    return Model("equal", "plain", tuple(layers), tuple(w.name for w in weights))


def step_of(strategy: str, options: dict[str, Any], *sizes: int, seconds: float = 1e6, **more: Any) -> Step:
    """Two ranks, bfloat16, kernels of ``seconds`` that hide every collective but those that nothing hides."""
    of = model(*(sizes or (ELEMENTS,) * LAYERS))
    kernels = {module.name: ModuleSeconds(seconds, 2 * seconds) for layer in of.layers for module in layer.modules}
    cluster = Cluster.flat(2, Link(0.0, 1.0), device=Device(memory_bandwidth=1e3))
    return simulate_step(Training(of, cluster, 1, 1, kernels, **more), strategy, options)


@pytest.mark.parametrize(
    ("strategy", "options", "most"),
    [
        ("zero1", {}, {"parameters": 800, "gradients": 800}),
        # All gradients in one bucket, or of one layer in each: reduced behind the next layer's backward.
        ("zero2", {}, {"parameters": 800, "gradients": 400, "unsharded gradients": 800}),
        ("zero2", {"reduce_bucket_size": 100}, {"parameters": 800, "gradients": 400, "unsharded gradients": 400}),
        # Two layers are gathered, and the gradients of one are reduced while those of the next are made.
        ("zero3", {}, {"parameters": 400, "gradients": 400, "unsharded parameters": 400, "unsharded gradients": 400}),
    ],
)
def test_memory_of_the_paper(strategy: str, options: dict[str, Any], most: dict[str, int]) -> None:
    """800 bytes of parameters, as many of gradients, each 200 a layer."""
    assert step_of(strategy, options).most_bytes == {"optimizer states": SHARDED, **most}


def test_later_micro_batches_are_added_shard_by_shard() -> None:
    step = step_of("zero2", {"reduce_bucket_size": 100}, accumulation=2)
    assert step.most_bytes["gradients"] == 400
    assert step.most_bytes["gradients to be added"] == 100
    assert "gradients to be added" not in step_of("zero2", {"reduce_bucket_size": 100}).most_bytes
    assert step_of("zero1", {}, accumulation=2).most_bytes["gradients to be added"] == 200


@pytest.mark.parametrize(
    ("stage", "options", "most"),
    [
        # A bucket buffer of 2 x 1,000 bytes; gradients of two owners are copied together; all gradients stay.
        (1, {}, {"gradients": 800, "buckets": 2000, "copies of buckets": 800}),
        (2, {}, {"gradients": 400, "unsharded gradients": 200, "buckets": 2000, "copies of buckets": 800}),
        (2, {"overlap_comm": True}, {"buckets": 4000, "copies of buckets": 800}),
        # Of one owner each: nothing is copied together.
        (2, {"reduce_bucket_size": 200}, {"buckets": 400, "copies of buckets": None}),
        (2, {"use_multi_rank_bucket_allreduce": False}, {"copies of buckets": None}),
        (2, {"reduce_scatter": False}, {"copies of buckets": None}),
        (2, {"communication_data_type": "fp32"}, {"copies of buckets": 800 + 1600}),
        # Without a buffer gradients wait for their reduction where they are.
        (2, {"contiguous_gradients": False}, {"unsharded gradients": 800, "buckets": None}),
        # Larger than a bucket: not copied into it, and there until it is reduced, when the next is complete.
        (2, {"reduce_bucket_size": 50}, {"unsharded gradients": 400, "buckets": 100}),
        (2, {"grad_accum_dtype": "fp32"}, {"gradients": 800}),
    ],
)
def test_memory_of_deepspeed_in_stages_1_and_2(
    stage: int, options: dict[str, Any], most: dict[str, int | None]
) -> None:
    step = step_of(f"zero{stage}", {**DEEPSPEED, "reduce_bucket_size": 1000, **options})
    assert {item: step.most_bytes.get(item) for item in most} == most
    assert step.most_bytes["parameters"] == 800
    assert step.most_bytes["gradients in float32"] == 4 * PSI // 2


def test_the_flat_parameters_are_padded() -> None:
    """101 parameters on two ranks take 104: a multiple of 2 x 2, of 52 each."""
    step = step_of("zero1", DEEPSPEED, 50, 51)
    assert step.most_bytes["parameters"] == 2 * 104
    assert step.most_bytes["optimizer states"] == 12 * 52
    assert step.most_bytes["gradients"] == 2 * 101


STAGE_3 = {**DEEPSPEED, "param_persistence_threshold": 0, "reduce_bucket_size": 1000}
ALONE = {"max_live_parameters": 0, "max_reuse_distance": 0, "prefetch_bucket_size": 0}


@pytest.mark.parametrize(
    ("options", "most"),
    [
        # All four at once in a flat buffer, which is copied out; with the shards, that is five times the parameters.
        ({}, {"unsharded parameters": 800, "all-gather buffers": 800}),
        # One at a time, gathered in place.
        (ALONE, {"unsharded parameters": 200, "all-gather buffers": None}),
        # The first alone; after it, one ahead in every call while fewer than 200 elements are held.
        (
            {"max_live_parameters": 200, "prefetch_bucket_size": 50, "max_reuse_distance": 0},
            {"unsharded parameters": 400},
        ),
        # A persistent parameter stands all the time; it leaves nothing to gather but at the step.
        ({"param_persistence_threshold": 100}, {"unsharded parameters": 800, "all-gather buffers": None}),
        # A bucket of all gradients is put side by side for their owners; the buffer stands all the time. A gradient is
        # copied into it while the next one is made.
        ({}, {"buckets": 2000, "reduce-scatter buffers": 800, "unsharded gradients": 400}),
        # One gradient that divides needs no copy.
        ({"reduce_bucket_size": 100}, {"buckets": 200, "reduce-scatter buffers": None}),
        ({"communication_data_type": "fp32"}, {"reduce-scatter buffers": 1600 + 1600}),
        ({"contiguous_gradients": False}, {"buckets": None, "unsharded gradients": 800}),
        # The optimizer takes two layers at a time, of 50 elements each, and copies their gradients.
        ({"sub_group_size": 100}, {"gradients in float32": 4 * 100}),
        ({}, {"gradients in float32": 4 * 200}),
        ({"grad_accum_dtype": "fp32"}, {"gradients": 800}),
        # A second copy on the two ranks: as large as a shard of two.
        ({**ALONE, "zero_hpz_partition_size": 2}, {"second shards": 400}),
        # 400 integers of a byte, and a scale of 4 from each of two ranks.
        ({"zero_quantized_weights": True}, {"all-gather buffers": 400 + 2 * 4 * 1, "unsharded parameters": 800}),
    ],
)
def test_memory_of_deepspeed_in_stage_3(options: dict[str, Any], most: dict[str, int | None]) -> None:
    step = step_of("zero3", {**STAGE_3, **options})
    assert {item: step.most_bytes.get(item) for item in most} == most
    assert step.most_bytes["parameters"] == 400
    assert step.most_bytes["optimizer states"] == SHARDED


def test_shards_of_stage_3_are_padded_one_by_one() -> None:
    """Three elements on two ranks are two shards of 2; DeepSpeed always copies gradients, whatever the optimizer."""
    step = step_of("zero3", {**STAGE_3, **ALONE}, 3, 3, optimizer=Optimizer(state_bytes=0, master=False))
    assert step.most_bytes["parameters"] == 2 * 4
    assert step.most_bytes["gradients"] == 2 * 4
    assert step.most_bytes["gradients in float32"] == 4 * 4
    assert step.most_bytes["unsharded parameters"] == 2 * 4


@pytest.mark.parametrize("seconds", [0.0, 1e6])
def test_gathered_parameters_stay_within_what_may_live(seconds: float) -> None:
    """However far the host is ahead: 200 elements, and the one that goes over."""
    options = {**STAGE_3, "max_live_parameters": 150, "prefetch_bucket_size": 1000, "max_reuse_distance": 0}
    step = step_of("zero3", options, *[50] * 20, seconds=seconds)
    assert step.most_bytes["unsharded parameters"] <= 2 * 200


def test_the_first_iteration_ends_with_persistent_parameters() -> None:
    """They are whole after the first step, and from then on."""
    options = {**STAGE_3, "param_persistence_threshold": 100}
    first, later = (step_of("zero3", options, iteration=number) for number in (0, 1))
    ends = [sum(change.bytes for change in step.timeline.memory) for step in (first, later)]
    assert ends[0] == ends[1] == 400 + 400 + SHARDED + 2000 + 800
