"""The model that DeepSpeed was recorded with, and what our programs communicate for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcollectives.cluster import Cluster, Link
from simcollectives.training.model import Layer, Model, Module, Parameter
from simcollectives.training.program import Program
from simcollectives.training.setup import ModuleSeconds, Precision, Training
from simcollectives.training.strategies.table import find_strategy, resolve_strategy_options

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "zero_traces.json").read_text(encoding="utf-8"))
BFLOAT16 = Precision("bfloat16", "bfloat16", "bfloat16")


def linear(name: str, inputs: int, outputs: int, *, bias: bool = True) -> Module:
    weight, biases = Parameter(f"{name}.weight", (outputs, inputs)), Parameter(f"{name}.bias", (outputs,))
    return Module(name, "linear", (weight, biases) if bias else (weight,), weight.elements)


def model_b(blocks: int = 4, *, tied: bool = False) -> Model:
    """Embedding(50, 10); blocks of Linear(10, 20) and Linear(20, 10); LayerNorm(10); a head of 10 x 50."""
    embedding = Parameter("embedding.weight", (50, 10))
    head = Module("head", "linear", (embedding,), 500) if tied else linear("head", 10, 50, bias=False)
    norm = Module("norm", "norm", (Parameter("norm.weight", (10,)), Parameter("norm.bias", (10,))))
    layers = [
        Layer("embedding", (Module("embedding", "embedding", (embedding,)),), block=False),
        *(
            Layer(f"blocks.{n}", (linear(f"blocks.{n}.a", 10, 20), linear(f"blocks.{n}.b", 20, 10)))
            for n in range(blocks)
        ),
        Layer("norm", (norm,), block=False),
        Layer("head", (head,), block=False),
    ]
    registration = dict.fromkeys(p.name for layer in layers for module in layer.modules for p in module.parameters)
    return Model("B", "plain", tuple(layers), tuple(registration))


def training_of(model: Model, ranks: int = 2, **more: Any) -> Training:
    seconds = {module.name: ModuleSeconds(1e-3, 2e-3) for layer in model.layers for module in layer.modules}
    given = {"precision": BFLOAT16, "cluster": Cluster.flat(ranks, Link(1e-6, 1e9))} | more
    return Training(model, given.pop("cluster"), 1, 1, seconds, **given)


def program_of(config: Mapping[str, Any], training: Training, **more: Any) -> Program:
    """Return the program for a ``zero_optimization`` of DeepSpeed; stage 0 reduces all gradients once."""
    if config["stage"] == 0:
        return find_strategy("all_reduce_once").program(training, {})
    strategy = find_strategy(f"zero{config['stage']}")
    given = {name.removeprefix("stage3_"): value for name, value in config.items() if name not in ("stage", "ga")}
    options = resolve_strategy_options(strategy, {"implementation": "deepspeed", **given, **more})
    return strategy.program(training, options)


def entries(program: Program) -> list[str]:
    """Return collectives and the beginnings of micro-batches, as they were recorded."""
    found: list[str] = []
    micro_batch = -1
    for operation in program.operations:
        if operation.micro_batch > micro_batch:
            micro_batch = operation.micro_batch
            found.append(f"-- mb {micro_batch}")
        if operation.call is not None:
            call = operation.call
            found.append(f"{call.kind} {call.elements}:{call.dtype} @{call.group_size}")
    return found
