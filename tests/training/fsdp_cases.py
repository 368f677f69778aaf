"""Steps of FSDP to look at: the model of the recorded traces, and what a program issues as they show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simcollectives.cluster import Cluster, Link
from simcollectives.training.model import Layer, Model, Module, ModuleKind, Parameter
from simcollectives.training.program import Operation, Program
from simcollectives.training.setup import ModuleSeconds, Precision, Training
from simcollectives.training.strategies.table import find_strategy, resolve_strategy_options


def module(name: str, kind: ModuleKind, **shapes: tuple[int, ...]) -> Module:
    return Module(name, kind, tuple(Parameter(f"{name}.{own}", shape) for own, shape in shapes.items()))


def model_b(blocks: int = 4) -> Model:
    """An embedding, blocks of two linears with biases, a norm, and a head without bias that is not tied."""
    layers = [Layer("embed", (module("embed", "embedding", weight=(50, 10)),), block=False)]
    for number in range(blocks):
        name = f"layers.{number}"
        up = module(f"{name}.up", "linear", weight=(20, 10), bias=(20,))
        down = module(f"{name}.down", "linear", weight=(10, 20), bias=(10,))
        layers.append(Layer(name, (up, down)))
    layers.append(Layer("norm", (module("norm", "norm", weight=(10,), bias=(10,)),), block=False))
    layers.append(Layer("head", (module("head", "linear", weight=(50, 10)),), block=False))
    registration = tuple(p.name for layer in layers for part in layer.modules for p in part.parameters)
    return Model("B", "plain", tuple(layers), registration)


def training_of(model: Model, ranks: int = 4, parameters: str = "float32", **more: Any) -> Training:
    seconds = {part.name: ModuleSeconds(1e-3, 2e-3) for layer in model.layers for part in layer.modules}
    precision = Precision("float32", parameters, parameters)
    return Training(model, Cluster.flat(ranks, Link(1e-6, 1e9)), 1, 1, seconds, precision=precision, **more)


def program_of(strategy: str, training: Training, options: Mapping[str, Any]) -> Program:
    found = find_strategy(strategy)
    return found.program(training, resolve_strategy_options(found, options))


KINDS = {"all_gather": "AG", "reduce_scatter": "RS", "all_reduce": "AR"}
Event = tuple[str, str, Operation]


def events_of(operations: Iterable[Operation]) -> list[Event]:
    """Return kinds, units and operations: kernels of the forward (F) and backward (B) of blocks, frees, collectives.

    B stands where the backward of a block begins, before what is gathered or awaited for it.
    """
    events: list[Event] = []
    seen: set[tuple[int, str, str]] = set()
    for operation in operations:
        if operation.call is not None:
            events.append((KINDS[operation.call.kind], operation.name, operation))
            continue
        unit, _, what = operation.name.rpartition(" ")
        if what in ("freed", "copy-out"):
            events.append((what, unit, operation))
        elif operation.phase == "forward" and operation.name.endswith((".up", ".down")):
            if operation.name.endswith(".down"):
                events.append(("F", operation.name.removesuffix(".down"), operation))
        elif what == "backward":
            block = unit.rpartition(".")[0]
            key = operation.micro_batch, "B", block
            if block and key not in seen:
                seen.add(key)
                place = len(events)
                while events[place - 1][0] in ("AG", "copy-out") and events[place - 1][2].phase == "backward":
                    place -= 1
                events.insert(place, ("B", block, operation))
            else:
                events.append(("kernel", unit, operation))
    return [event for event in events if event[0] != "kernel"]
