"""DistributedDataParallel as PyTorch 2.13.0 ran it: recorded steps, entry by entry, and buckets of known models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.training.buckets import Bucket, assign
from simcollectives.training.catalogue import load_model
from simcollectives.training.model import Layer, Model, Module, Parameter
from simcollectives.training.program import Program
from simcollectives.training.setup import ModuleSeconds, Precision, Training
from simcollectives.training.strategies.ddp import bucket_limits, buckets_of
from simcollectives.training.strategies.table import find_strategy, resolve_strategy_options

TRACES: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "ddp_traces.json").read_text(encoding="utf-8"))
MIB = 1 << 20
CLUSTER = Cluster.flat(2, Link(1e-6, 1e9))
DDP = find_strategy("ddp")


def model_a() -> Model:
    """Eight blocks of two float32 layers without bias, 2 MiB each."""
    layers = []
    for number in range(8):
        a = Parameter(f"{number}.a.weight", (1024, 512))
        b = Parameter(f"{number}.b.weight", (512, 1024))
        modules = Module(f"{number}.a", "linear", (a,), a.elements), Module(f"{number}.b", "linear", (b,), b.elements)
        layers.append(Layer(str(number), modules))
    registration = tuple(p.name for layer in layers for module in layer.modules for p in module.parameters)
    return Model("A", "plain", tuple(layers), registration)


def training_of(model: Model, dtype: str = "float32", **more: Any) -> Training:
    seconds = {module.name: ModuleSeconds(1e-3, 2e-3) for layer in model.layers for module in layer.modules}
    return Training(model, CLUSTER, 1, 1, seconds, precision=Precision(dtype, dtype, dtype), **more)


def options_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the options of PyTorch as ours."""
    given = {name: config[name] for name in ("static_graph", "find_unused_parameters") if name in config}
    if "bucket_cap_mb" in config:
        given["bucket_cap"] = config["bucket_cap_mb"] * MIB
    return resolve_strategy_options(DDP, given)


def events_of(program: Program, accumulation: int) -> list[str]:
    """Return marks and buckets of a program. Buckets are float32; what is int32 was not recorded."""
    reduced = [operation for operation in program.operations if operation.call and operation.call.dtype == "float32"]
    events = []
    for operation in program.operations:
        if operation.name.endswith(".b backward"):
            events.append(f"B{operation.name[0]}")
        elif operation.name == "0.a backward" and operation.micro_batch < accumulation - 1:
            events.append("end of no_sync microbatch")
        elif operation in reduced and operation.call is not None:
            number, last = reduced.index(operation), operation is reduced[-1]
            events.append(f"AR bucket{number} {operation.call.bytes // MIB}MiB last={last}")
    return events


@pytest.mark.parametrize("case", TRACES["steps"], ids=[case["case"] for case in TRACES["steps"]])
def test_steps_are_those_of_pytorch(case: dict[str, Any]) -> None:
    """What is reduced, in which order, and between which blocks' backward steps: in the first three iterations."""
    options, accumulation = options_of(case["config"]), case["config"].get("micro_batches", 1)
    found = []
    for iteration in range(3):
        training = training_of(model_a(), accumulation=accumulation, iteration=iteration)
        found += [f"== iter {iteration}", *events_of(DDP.program(training, options), accumulation)]
    assert found == case["events"]


@pytest.mark.parametrize("config", [{}, {"bucket_cap_mb": 1}, {"static_graph": True}])
def test_the_third_iteration_is_steady(config: dict[str, Any]) -> None:
    options = options_of(config)
    third, steady = (DDP.program(training_of(model_a(), iteration=number), options) for number in (3, None))
    assert third == steady
    assert third.calls


def bucket_bytes(model: str, dtype: str, **given: Any) -> list[int]:
    options = resolve_strategy_options(DDP, given)
    return [bucket.bytes for bucket in buckets_of(training_of(load_model(model), dtype), options)]


def bytes_of(buckets: list[Bucket]) -> list[int]:
    return [bucket.bytes for bucket in buckets]


@pytest.mark.parametrize(
    "known", TRACES["buckets"], ids=[f"{known['model']}, {known['config']}" for known in TRACES["buckets"]]
)
def test_buckets_are_those_of_pytorch(known: dict[str, Any]) -> None:
    """Parameters in reverse registration order; with find_unused_parameters the constructor's own buckets."""
    training = training_of(load_model(known["model"]), known["dtype"])
    name, _, value = known["config"].partition("=")
    options = options_of({name: float(value) if value else True})
    if name == "find_unused_parameters":
        found = bytes_of(buckets_of(training, options))
        assert found == bytes_of(buckets_of(training, options, 5)), "never made anew"
    else:
        parameters = training.model.parameters[::-1]
        found = bytes_of(assign(parameters, bucket_limits(options), training.gradient_dtype, training.gradient_bytes))
    assert len(found) == known["count"]
    assert found[: len(known["bytes"])] == known["bytes"]


@pytest.mark.parametrize(
    ("model", "dtype", "count", "first", "at_100"),
    [
        ("gpt2", "float32", 13, [9_446_400], 4),
        ("gpt2-xl", "float32", 145, [40_979_200, 40_985_600, 40_998_400], 49),
        ("bert-large-uncased-mlm", "float32", 38, [], 12),
        ("llama-2-7b", "bfloat16", 226, [262_144_000], 82),
    ],
)
def test_buckets_of_known_models(model: str, dtype: str, count: int, first: list[int], at_100: int) -> None:
    """Counts and first sizes of PyTorch 2.13.0, with its defaults and with bucket_cap_mb=100."""
    sizes = bucket_bytes(model, dtype)
    assert len(sizes) == count
    assert sizes[: len(first)] == first
    assert len(bucket_bytes(model, dtype, bucket_cap=100 * MIB)) == at_100
    assert sum(sizes) == training_of(load_model(model), dtype).all_gradient_bytes


def test_gpt2_in_the_order_in_which_gradients_become_complete() -> None:
    assert bucket_bytes("gpt2", "float32") == [9_446_400, *[28_351_488] * 11, 176_446_464]
    training = training_of(load_model("gpt2"), iteration=0)
    assert bytes_of(buckets_of(training, options_of({}), 0)) == [497_759_232]


def test_llama_in_the_order_in_which_gradients_become_complete() -> None:
    """A block runs its norms before what they feed, but registers them last: the second bucket is smaller by a norm.

    After the head come the last norm (8,192 B) and the down projection of 4096 x 11008.
    """
    sizes = bucket_bytes("llama-2-7b", "bfloat16")
    assert sizes[:3] == [262_144_000, 8_192 + 2 * 4096 * 11008, 2 * 4096 * 11008]


@pytest.mark.parametrize(
    ("caps", "sizes"),
    [
        (None, [2_052_000, 28_852_224, 15_853_824]),
        ([1 * MIB, 35 * MIB], [2_052_000, 38_297_600, 6_408_448]),
    ],
)
def test_resnet_18(caps: list[int] | None, sizes: list[int]) -> None:
    """The layout of torchvision in float32, with limits of 1 MiB, then 25 or 35 MiB."""
    assert bucket_bytes("resnet-18", "float32", bucket_cap=caps) == sizes
