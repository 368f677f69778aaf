"""Training steps to look at: uniform models as the lectures have them, and programs written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.training.model import Layer, Model, Module, Parameter
from simcollectives.training.pricing import Price, Pricer
from simcollectives.training.program import Builder, Call, Program
from simcollectives.training.setup import LayerBytes, ModuleSeconds, Training
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.strategies import table
from simcollectives.training.strategies.types import Strategy

GEMM_RATE = 989e12 * 0.45
NVLINK, INFINIBAND = Link(5e-6, 450e9), Link(10e-6, 50e9)
SIXTY_FOUR = Cluster.two_level(8, 8, NVLINK, INFINIBAND)
H100 = Device(name="H100", memory_bytes=80e9, memory_bandwidth=3.35e12)


def uniform_model(elements: int, layers: int, tensors: int) -> Model:
    """``elements`` parameters in ``layers`` equal layers of ``tensors`` tensors, each a linear module of its own."""
    count = layers * tensors
    made = []
    for layer in range(layers):
        modules = []
        for number in range(tensors):
            place = layer * tensors + number
            size = elements // count + (place < elements % count)
            name = f"layers.{layer}.{number}"
            modules.append(Module(name, "linear", (Parameter(f"{name}.weight", (size,)),), size))
        made.append(Layer(f"layers.{layer}", tuple(modules)))
    registration = tuple(p.name for layer in made for module in layer.modules for p in module.parameters)
    return Model("uniform", "uniform", tuple(made), registration)


def uniform_training(
    elements: int = 1_360_000_000,
    layers: int = 24,
    tensors: int = 16,
    tokens: int = 4096,
    cluster: Cluster = SIXTY_FOUR,
    *,
    recompute: bool = False,
    kept: int = 0,
    **more: Any,
) -> Training:
    """6 FLOPs a parameter and token, at 45 % of an H100; ``kept`` bytes of activations a layer."""
    model = uniform_model(elements, layers, tensors)
    seconds = {}
    for layer in model.layers:
        for module in layer.modules:
            forward = 2 * module.matmul_elements * tokens / GEMM_RATE
            seconds[module.name] = ModuleSeconds(forward, 2 * forward, forward if recompute else 0.0)
    held = {layer.name: LayerBytes(kept, kept if recompute else 0) for layer in model.layers} if kept else {}
    return Training(model, cluster, 1, tokens, seconds, activations=held, **more)


def uniform_step(strategy: str = "ddp", options: dict[str, Any] | None = None, **training: Any) -> Step:
    return simulate_step(uniform_training(**training), strategy, options)


class FixedPrices(Pricer):
    """Every collective lasts a microsecond for each 1,000 bytes, of it a microsecond of latency."""

    def __call__(self, call: Call) -> Price:
        seconds = 1e-6 + call.bytes * 1e-9
        return Price(seconds, 1e-6, "ring", "none", call.bytes, {})


def written_step(monkeypatch: pytest.MonkeyPatch, write: Callable[[Builder], None], **training: Any) -> Step:
    """The step of a program written by hand, on eight devices; groups may have any names."""

    def program(_training: Training, _options: Any) -> Program:
        builder = Builder()
        write(builder)
        return builder.program()

    strategy = Strategy(name="written", summary="by hand", reference="none", program=program)
    monkeypatch.setattr(table, "STRATEGIES", (*table.STRATEGIES, strategy))
    given = uniform_training(8000, 2, 2, cluster=Cluster.flat(8, NVLINK), **training)
    return simulate_step(given, "written", pricer=FixedPrices(given.cluster))


def every_kind(builder: Builder) -> None:
    """Compute, collectives of two groups, copies and host work; all kinds of collectives."""
    builder.stand("parameters", 16_000)
    first = builder.compute("Sync of statistics", 20e-6, allocates=[("activations", 4096)])
    gathered = builder.collective("unit 0", Call("all_gather", "shard", 4, 4000, "bfloat16"), after=[first])
    builder.compute("nccl test", 10e-6, after=[gathered])
    builder.copy("shard from the host", 30e-6, stream="copy in")
    builder.phase = "backward"
    done = builder.compute("layer backward", 40e-6, frees=[("activations", 4096)])
    builder.collective("unit 0", Call("reduce_scatter", "shard", 4, 4000, "float32"), after=[done])
    builder.collective("all", Call("all_reduce", "world", 8, 8000, "float32"), after=[done])
    builder.collective("tokens", Call("all_to_all", "world", 8, 800, "int64"))
    builder.collective("one", Call("reduce", "world", 8, 8, "float16"))
    last = builder.collective("buffers", Call("broadcast", "world", 8, 80, "int8"))
    builder.phase = "optimizer"
    builder.host("wait for the buffers", after=[last])
    builder.host("Adam on the host", 50e-6)
    builder.copy("shard to the device", 10e-6, stream="copy in")
    builder.compute("optimizer", 5e-6, after=[builder.last["copy in"]])
