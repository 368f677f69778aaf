"""Megatron-LM's distributed optimizer: layout of its buffers, memory, traffic, and steps worked by hand.

In the steps two layers take 10 s forward and 20 s backward each, a collective takes 10 s, and nothing else takes time.
"""

from __future__ import annotations

from typing import Any

import pytest

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.errors import InputError
from simcollectives.training.model import Layer, Model, Module, Parameter
from simcollectives.training.setup import ModuleSeconds, Optimizer, Precision, Training
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.strategies.megatron import buckets_of, write_program
from simcollectives.training.strategies.megatron_buffers import bucket_alignment, cut_buffer, default_bucket_size
from simcollectives.training.strategies.table import find_strategy, resolve_strategy_options
from tests.training.steps import uniform_training
from tests.training.test_strategies import TenSeconds

OVERLAP = {"overlap_grad_reduce": True, "overlap_param_gather": True}
HALF, MIXED = Precision("float16", "float16", "float16"), Precision("bfloat16", "bfloat16", "bfloat16")
FULL = Precision("float32", "float32", "float32")


def sizes(*elements: int) -> list[Parameter]:
    return [Parameter(f"p{number}", (size,)) for number, size in enumerate(elements)]


def model(registration: tuple[int, ...] = (0, 1), elements: int = 1024, kind: str = "linear") -> Model:
    names = [f"{number}.weight" for number in range(len(registration))]
    shape = (32, elements // 32)
    layers = [
        Layer(str(n), (Module(str(n), kind, (Parameter(name, shape),)),))  # type: ignore[arg-type]
        for n, name in enumerate(names)
    ]
    return Model("plain", "plain", tuple(layers), tuple(names[number] for number in registration))


def training(of: Model | None = None, ranks: int = 2, **more: Any) -> Training:
    of = of or model()
    seconds = {module.name: ModuleSeconds(10.0, 20.0) for layer in of.layers for module in layer.modules}
    given = {"cluster": Cluster.flat(ranks, Link(0.0, 1.0)), "precision": FULL, "optimizer": Optimizer(master=False)}
    given |= more
    return Training(of, given.pop("cluster"), 1, 1, seconds, **given)


def step(options: dict[str, Any] | None = None, **more: Any) -> Step:
    one = training(**more)
    given = {"clip_grad": False, "bucket_size": 1024, **(options or {})}
    return simulate_step(one, "megatron", given, pricer=TenSeconds(one.cluster))


def test_buckets_end_with_the_tensor_that_fills_them() -> None:
    """Backwards: 200 reach 150, padded to 256; 30 and, from the next multiple of 64 on, 100 reach 164: 256 again."""
    a, b, c = sizes(100, 30, 200)
    assert cut_buffer([a, b, c], 150, 128) == [((c,), 256), ((b, a), 256)]
    assert cut_buffer([a, b, c], 165, 128) == [((c,), 256), ((b, a), 256)]
    assert cut_buffer([a, b, c], None, 128) == [((c, b, a), 512)]  # 200; 256 to 286; 320 to 420
    assert cut_buffer([a, b, c], 150, None) == [((c,), 200), ((b, a), 130)]


def test_alignment_and_default_size() -> None:
    """The spec's rules: lcm(ranks, 128), with 2^16 for NCCL; max(40e6, 1e6 x ranks) elements."""
    assert bucket_alignment(8, high_bus_bandwidth=False) == 128
    assert bucket_alignment(96, high_bus_bandwidth=False) == 384
    assert bucket_alignment(96, high_bus_bandwidth=True) == 3 << 16
    assert [default_bucket_size(ranks) for ranks in (1, 40, 41, 1024)] == [40e6, 40e6, 41e6, 1024e6]


def test_without_overlap_there_is_one_bucket() -> None:
    """With it, five of 40 M elements, 10 tensors of 4 M each, and one of what is left."""
    one = uniform_training(208_000_000, 13, 4, cluster=Cluster.flat(8, Link(0.0, 1e9)))
    for options, expected in (({}, [208_000_000]), ({"overlap_grad_reduce": True}, [40_000_000] * 5 + [8_000_000])):
        resolved = resolve_strategy_options(find_strategy("megatron"), options)
        assert [bucket.elements for bucket in buckets_of(one, resolved)] == expected


@pytest.mark.parametrize(
    ("precision", "fp32", "per_parameter", "alone"),
    [
        (HALF, False, lambda d: 4 + 16 / d, 20),
        (MIXED, True, lambda d: 6 + 12 / d, 18),
        (FULL, False, lambda d: 8 + 8 / d, 16),
    ],
)
@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_memory_is_that_of_its_documentation(
    precision: Precision, fp32: bool, per_parameter: Any, alone: int, ranks: int
) -> None:
    """docs/source/api-guide/dist_optimizer.md: bytes a parameter in parameters, gradients and optimizer states."""
    optimizer = Optimizer(master=precision is not FULL)
    one = uniform_training(1 << 20, 4, 4, cluster=Cluster.flat(ranks, Link(0.0, 1e9)), precision=precision)
    one = Training(**{**vars(one), "optimizer": optimizer})
    states = ("parameters", "gradients", "optimizer states", "gradients in float32")
    for distributed, expected in ((True, per_parameter(ranks)), (False, alone)):
        options = {"grad_reduce_in_fp32": fp32, "use_distributed_optimizer": distributed}
        memory = simulate_step(one, "megatron", options).most_bytes
        assert sum(memory.get(state, 0) for state in states) == expected * (1 << 20)


@pytest.mark.parametrize("options", [{}, OVERLAP, {**OVERLAP, "grad_reduce_in_fp32": True}])
def test_traffic(options: dict[str, Any]) -> None:
    """Gradients are reduced once, whatever the micro-batches; parameters gathered once: (d - 1)/d of each."""
    ranks, elements = 8, 1 << 20
    one = uniform_training(elements, 4, 4, cluster=Cluster.flat(ranks, Link(0.0, 1e9)), accumulation=3)
    sent = simulate_step(one, "megatron", {**options, "clip_grad": False}).sent_bytes
    gradient = 4 if options.get("grad_reduce_in_fp32") else 2
    assert sent == {
        "reduce_scatter": elements * gradient * (ranks - 1) // ranks,
        "all_gather": elements * 2 * (ranks - 1) // ranks,
    }


def spans(of: Step) -> list[tuple[str, str, float, float]]:
    return [(call.kind, call.name, call.start, call.end) for call in of.collectives]


def test_the_steady_step_gathers_one_bucket_ahead() -> None:
    """Bucket 1, of the first layer, is waited for; that of the second comes during its forward pass."""
    found = step(OVERLAP)
    assert spans(found) == [
        ("all_gather", "bucket 1", 0, 10),
        ("all_gather", "bucket 0", 10, 20),
        ("reduce_scatter", "bucket 0", 50, 60),
        ("reduce_scatter", "bucket 1", 70, 80),
    ]
    assert (found.step_seconds, found.exposed_seconds) == (80, 20)


def test_no_more_than_one_bucket_ahead() -> None:
    """Three layers: the gather of the third is sent for when the second begins, at 20."""
    gathers = [span for span in spans(step(OVERLAP, of=model((0, 1, 2)))) if span[0] == "all_gather"]
    assert gathers == [
        ("all_gather", "bucket 2", 0, 10),
        ("all_gather", "bucket 1", 10, 20),
        ("all_gather", "bucket 0", 20, 30),
    ]


def test_the_first_step_reduces_at_its_end_and_gathers_nothing() -> None:
    found = step(OVERLAP, iteration=0)
    assert spans(found) == [("reduce_scatter", "bucket 0", 60, 70), ("reduce_scatter", "bucket 1", 70, 80)]


def test_without_overlap_everything_is_exposed() -> None:
    found = step()
    assert spans(found) == [("reduce_scatter", "bucket 0", 60, 70), ("all_gather", "bucket 0", 70, 80)]
    assert found.exposed_seconds == found.communication_seconds == 20


def test_buckets_are_independent() -> None:
    """Registered in the other order, bucket 1 is complete first, and does not wait for bucket 0.

    No gather comes ahead of its layer then: the bucket before that of the first layer is none.
    """
    assert spans(step(OVERLAP, of=model((1, 0)))) == [
        ("all_gather", "bucket 0", 0, 10),
        ("all_gather", "bucket 1", 20, 30),
        ("reduce_scatter", "bucket 1", 60, 70),
        ("reduce_scatter", "bucket 0", 80, 90),
    ]


def test_only_the_last_micro_batch_communicates_gradients() -> None:
    found = step(OVERLAP, accumulation=2)
    assert [(c.kind, c.micro_batch) for c in found.collectives] == [("all_gather", 0)] * 2 + [("reduce_scatter", 1)] * 2
    assert found.step_seconds == 80 + 60


def test_instances_share_the_states_and_reduce_across() -> None:
    """Four ranks, two instances: neighbours reduce-scatter 2048, ranks two apart all-reduce the half."""
    one = training(ranks=4)
    options = {"clip_grad": False, "num_distributed_optimizer_instances": 2, "overlap_grad_reduce": True}
    calls = write_program(one, resolve_strategy_options(find_strategy("megatron"), options)).calls
    assert [(c.kind, c.group, c.group_size, c.stride, c.elements) for c in calls] == [
        ("reduce_scatter", "shard", 2, 1, 2048),
        ("all_reduce", "replicate", 2, 2, 1024),
        ("all_gather", "shard", 2, 1, 2048),
    ]
    assert simulate_step(one, "megatron", options).memory["optimizer states"] == 8 * 2048 // 2


def test_gradients_apart_are_added_to_the_buffer() -> None:
    """A norm's gradient of 4,096 B is read, the buffer read and written: 12,288 B at 1,024 B/s, twice."""
    device = Cluster.flat(2, Link(0.0, 1.0), device=Device(memory_bandwidth=1024.0))
    fused, apart = (step(cluster=device, of=model(kind=kind)) for kind in ("linear", "norm"))
    assert apart.compute_seconds - fused.compute_seconds == pytest.approx(2 * 12)
    assert apart.most_bytes["gradients"] - fused.most_bytes["gradients"] == 4096


def test_statistics() -> None:
    """The norm of the gradients; before it, in float16, the flag of an overflow, which the host waits for."""
    found = step({"clip_grad": True}, precision=HALF)
    statistics = [(c.name, c.elements, c.dtype) for c in found.collectives if c.kind == "all_reduce"]
    assert statistics == [("overflow flag", 1, "float32"), ("norm of the gradients", 1, "float32")]


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"overlap_param_gather": True}, "overlap_param_gather"),
        ({**OVERLAP, "use_distributed_optimizer": False}, "overlap_param_gather"),
        ({"num_distributed_optimizer_instances": 3}, "num_distributed_optimizer_instances"),
        (
            {"num_distributed_optimizer_instances": 2, "use_distributed_optimizer": False},
            "num_distributed_optimizer_instances",
        ),
        ({"bucket_size": "25 MiB"}, "bucket_size"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError) as caught:
        simulate_step(training(), "megatron", options)
    assert [problem.place for problem in caught.value.problems] == [place]


def test_warnings() -> None:
    assert simulate_step(training(precision=MIXED), "megatron").warnings == (
        "gradients add up in bfloat16; Megatron-LM's --bf16 sets grad_reduce_in_fp32: true",
    )
    assert simulate_step(training(), "megatron", {"bucket_size": 5}).warnings == (
        "bucket_size does nothing without overlap_grad_reduce: all gradients are one bucket",
    )
    assert simulate_step(training(), "megatron", OVERLAP).warnings == ()
