"""What goes into a step: precision, optimizers, seconds of kernels, and errors that are all told at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.errors import InputError
from simcollectives.training.catalogue import load_model
from simcollectives.training.compute import seconds_from_flops, seconds_from_layers
from simcollectives.training.flops import model_flops
from simcollectives.training.model import Layer, Model, Module, Parameter
from simcollectives.training.plain import uniform_model
from simcollectives.training.prepare import prepare_training
from simcollectives.training.setup import OPTIMIZERS, Optimizer, Precision
from simcollectives.training.workload import Workload

DEVICE = Device(peak_flops=(("bfloat16", 100e12), ("float32", 50e12)))
CLUSTER = Cluster.flat(4, Link(1e-6, 1e9), device=DEVICE)
GPT2 = load_model("gpt2")


def test_mixed_precision_adam_holds_12_bytes() -> None:
    """2 + 2 + 12: a float32 master of 4, momentum and variance of 4 each, beside 16-bit parameter and gradient."""
    assert Optimizer().held_bytes == 12
    assert Optimizer(master=False).held_bytes == 8
    assert {name: Optimizer(name, state).held_bytes for name, state in OPTIMIZERS.items()} == {
        "adam": 12,
        "adamw": 12,
        "momentum": 8,
        "sgd": 4,
    }


@pytest.mark.parametrize(
    ("optimizer", "parameter", "gradient", "moved"),
    [
        (Optimizer(master=False), 4, 4, 28),  # reads gradient, weight, two states; writes weight and states
        (Optimizer(), 2, 4, 30),  # the same on the master, and the 16-bit copy is written
        (Optimizer(), 2, 2, 28),  # the gradient has 2 bytes
        (Optimizer(gradient_copy=True), 2, 2, 36),  # 2 + 4 for the copy, then as with float32 gradients
        (Optimizer("sgd", 0, master=False), 4, 4, 12),
        (Optimizer("momentum", 4, master=False), 4, 4, 20),
        (Optimizer("sgd", 0), 2, 2, 12),
    ],
)
def test_bytes_that_an_optimizer_moves(optimizer: Optimizer, parameter: int, gradient: int, moved: int) -> None:
    assert optimizer.moved_bytes(parameter, gradient) == moved


def test_only_floats_are_trained() -> None:
    with pytest.raises(InputError) as caught:
        Precision("int8", "float32", "bf16")
    assert [problem.place for problem in caught.value.problems] == ["compute", "gradients"]
    assert '"int8" is not a dtype to train in; write one of: float64, float32' in caught.value.problems[0].message
    with pytest.raises(InputError, match="state_bytes: -1 is not a number of bytes"):
        Optimizer(state_bytes=-1)


ATTENTION = Module("block.attention", "attention", attention_width=64)
LINEAR = Module("block.linear", "linear", (Parameter("w", (64, 32)),), matmul_elements=2048)
NORM = Module("norm", "norm", (Parameter("n", (64,)),))
EMBEDDING = Module("embedding", "embedding", (Parameter("e", (10, 64)),))
SMALL = Model(
    "small",
    "plain",
    (Layer("in", (EMBEDDING, NORM), block=False), Layer("block", (ATTENTION, LINEAR))),
    ("e", "n", "w"),
)


def test_seconds_from_flops() -> None:
    """2 samples of 8 tokens at 1,000 FLOP/s: a linear takes 2 a weight and token, attention 4 x 8 x 64 a token."""
    found = seconds_from_flops(SMALL, Workload(2, 8, attention_kernel="eager"), 1000.0)
    linear, attention = 2 * 16 * 2048 / 1000, 4 * 16 * 8 * 64 / 1000
    assert (found["block.linear"].forward, found["block.linear"].backward) == (linear, 2 * linear)
    assert (found["block.attention"].forward, found["block.attention"].backward) == (attention, 2 * attention)
    assert found["norm"] == found["embedding"]
    assert found["norm"].forward == found["norm"].backward == 0
    assert all(seconds.recompute == 0 for seconds in found.values())


@pytest.mark.parametrize(
    ("recomputation", "again"), [("none", ()), ("selective", ("attention",)), ("full", ("attention", "linear"))]
)
def test_recomputation_is_a_forward_more(recomputation: Any, again: tuple[str, ...]) -> None:
    """A flash kernel computes its scores again besides: half of its forward, whatever is recomputed."""
    found = seconds_from_flops(SMALL, Workload(2, 8, recomputation), 1000.0)
    for name in ("attention", "linear"):
        seconds = found[f"block.{name}"]
        assert seconds.recompute == (seconds.forward if name in again else 0)
        assert seconds.backward == pytest.approx((2.5 if name == "attention" else 2) * seconds.forward)


def test_measured_layers_are_divided_by_flops() -> None:
    workload = Workload(2, 8)
    found = seconds_from_layers(SMALL, workload, {"in": (3.0, 5.0), "block": (10.0, 30.0)})
    assert (found["embedding"].forward, found["norm"].forward, found["norm"].backward) == (1.5, 1.5, 2.5)
    attention, linear = 4 * 8 * 64, 2 * 2048
    assert found["block.attention"].forward == pytest.approx(10 * attention / (attention + linear))
    assert found["block.linear"].backward == pytest.approx(30 * linear / (attention + linear))


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.integers(1, 8))
def test_parts_of_a_layer_sum_to_what_was_measured(forward: float, backward: float, tokens: int) -> None:
    measured = {layer.name: (forward, backward) for layer in GPT2.layers}
    found = seconds_from_layers(GPT2, Workload(1, tokens), measured)
    for layer in GPT2.layers:
        assert sum(found[module.name].forward for module in layer.modules) == pytest.approx(forward)
        assert sum(found[module.name].backward for module in layer.modules) == pytest.approx(backward)


def test_the_share_of_the_peak() -> None:
    """All kernels together take the model's FLOPs at the reached share of the peak of the dtype of the computation."""
    workload = Workload(2, 128, attention_kernel="eager")
    for precision, peak in ((Precision(), 100e12), (Precision("float32", "float32", "float32"), 50e12)):
        training = prepare_training(GPT2, CLUSTER, workload, mfu=0.4, precision=precision)
        seconds = sum(one.forward + one.backward for one in training.seconds.values())
        assert seconds == pytest.approx(model_flops(GPT2, workload).model / (0.4 * peak))


def test_a_master_copy_stands_beside_narrow_parameters_only() -> None:
    workload = Workload(1, 8)
    assert prepare_training(GPT2, CLUSTER, workload, mfu=0.4).optimizer.master
    full = Precision("bfloat16", "float32", "float32")
    assert not prepare_training(GPT2, CLUSTER, workload, mfu=0.4, precision=full).optimizer.master
    asked = prepare_training(GPT2, CLUSTER, workload, mfu=0.4, precision=full, optimizer=Optimizer())
    assert asked.optimizer.master


def test_batch_numbers() -> None:
    workload = Workload(2, 8)
    assert prepare_training(GPT2, CLUSTER, workload, mfu=0.4, accumulation=3, train_batch=24).accumulation == 3
    with pytest.raises(InputError, match=r"train_batch: 25 is not micro_batch x accumulation x world size, 2 x 3 x 4"):
        prepare_training(GPT2, CLUSTER, workload, mfu=0.4, accumulation=3, train_batch=25)


def test_all_errors_at_once() -> None:
    """Each with its place and its value."""
    with pytest.raises(InputError) as caught:
        prepare_training(
            GPT2,
            CLUSTER,
            Workload(2, 4096),
            mfu=1.5,
            accumulation=0,
            train_batch=7,
            iteration=-1,
            slow={4: 2.0, 1: 0.0, 2: float("inf"), "x": True},  # type: ignore[dict-item]
        )
    problems = caught.value.problems
    places = ["mfu", "accumulation", "iteration", "slow", "slow", "slow", "slow", "slow", "sequence"]
    assert [problem.place for problem in problems] == places
    for problem, value in zip(
        problems, ["1.5", "0 ", "-1 ", "rank 4", "0 ", "inf ", '"x"', "true", "4096"], strict=True
    ):
        assert value in problem.message


@pytest.mark.parametrize("mfu", [None, 0, -0.1, 1.01, float("nan"), "45%", True])
def test_no_share_of_a_peak(mfu: Any) -> None:
    with pytest.raises(InputError, match=r"mfu: .* is not a share of the peak"):
        prepare_training(GPT2, CLUSTER, Workload(1, 8), mfu=mfu)


def test_a_peak_that_is_not_known() -> None:
    precision = Precision("float16", "float16", "float16")
    with pytest.raises(InputError, match=r"no known peak for float16; it has bfloat16 100 TFLOP/s, float32 50 TFLOP/s"):
        prepare_training(GPT2, CLUSTER, Workload(1, 8), mfu=0.4, precision=precision)
    with pytest.raises(InputError, match="no known peak for bfloat16; write device"):
        prepare_training(GPT2, Cluster.flat(2, Link(1e-6, 1e9)), Workload(1, 8), mfu=0.4)


def test_measured_layers() -> None:
    model = uniform_model(1000, 3, 1)
    measured: dict[str, Any] = {"layers.0": (1.0, 2.0), "layers.1": (1.0, 2.0), "layers.2": (0.0, 0.0)}
    training = prepare_training(model, CLUSTER, Workload(1, 8), layer_seconds=measured)
    assert sum(seconds.forward for seconds in training.seconds.values()) == 2.0
    measured |= {"layers.1": (1.0, -2.0), "layer.2": (1.0, 2.0), "layers.0": 3.0}
    del measured["layers.2"]
    with pytest.raises(InputError) as caught:
        prepare_training(model, CLUSTER, Workload(1, 8), layer_seconds=measured, mfu=0.4)
    texts = [str(problem) for problem in caught.value.problems]
    assert texts == [
        "mfu: kernels have measured times already; leave mfu or them out",
        "layer_seconds: 3 are no times of layers.0; give the seconds of forward and backward",
        "layer_seconds: (1.0, -2.0) are no times of layers.1; give the seconds of forward and backward",
        'layer_seconds: "layer.2" is not a layer of uniform; did you mean "layers.2"?',
        "layer_seconds: layers.2 have no time; give (0.0, 0.0) to what takes none",
    ]
