"""The forward and backward pass that all strategies share: kernels by module, activations by layer, gradients."""

from collections import Counter
from collections.abc import Callable

from simcollectives.engines.job import DTYPES
from simcollectives.training.model import Layer, Module, Parameter
from simcollectives.training.program import Builder, Item
from simcollectives.training.setup import LayerBytes, Training

GradientReady = Callable[[Parameter, int], None]
"""Told a parameter whose gradient is complete, and the operation that completed it."""

PARAMETERS, GRADIENTS, OPTIMIZER = "parameters", "gradients", "optimizer states"
GRADIENT_COPY = "gradients in float32"
ACTIVATIONS, WORKING = "activations", "recomputed activations"
MODEL_STATES = (PARAMETERS, GRADIENTS, OPTIMIZER, GRADIENT_COPY)


def stand_replicated(builder: Builder, training: Training) -> None:
    """Note what every rank of plain data parallelism holds all the time: parameters and optimizer states."""
    builder.stand(PARAMETERS, training.parameter_bytes)
    builder.stand(OPTIMIZER, training.optimizer.held_bytes * training.model.elements)


def forward(builder: Builder, training: Training) -> None:
    """Issue the forward pass of one micro-batch."""
    for layer in training.model.layers:
        held = training.activations.get(layer.name, LayerBytes())
        last = len(layer.modules) - 1
        for index, module in enumerate(layer.modules):
            allocates: list[Item] = []
            frees: list[Item] = []
            if index == 0 and held.kept:
                allocates.append((ACTIVATIONS, held.kept))
            if index == 0 and held.working:
                allocates.append((WORKING, held.working))
            if index == last and held.working:
                frees.append((WORKING, held.working))
            builder.compute(module.name, training.seconds[module.name].forward, allocates=allocates, frees=frees)


def backward(builder: Builder, training: Training, ready: GradientReady, *, first: bool = True) -> None:
    """Issue the backward pass of one micro-batch, last layer first.

    A gradient is told once, when the last module that uses its parameter is done. ``first``: no gradients are held yet.
    """
    uses = Counter(p.name for layer in training.model.layers for module in layer.modules for p in module.parameters)
    left = dict(uses)
    for layer in reversed(training.model.layers):
        held = training.activations.get(layer.name, LayerBytes())
        _recompute(builder, training, layer, held)
        for index in reversed(range(len(layer.modules))):
            module = layer.modules[index]
            allocates = _new_gradients(training, module, uses, left) if first else []
            frees = _activations(held) if index == 0 else []
            seconds = training.seconds[module.name].backward
            done = builder.compute(f"{module.name} backward", seconds, allocates=allocates, frees=frees)
            for parameter in module.gradients:
                left[parameter.name] -= 1
                if left[parameter.name] == 0:
                    ready(parameter, done)


def _recompute(builder: Builder, training: Training, layer: Layer, held: LayerBytes) -> None:
    again = [(module, training.seconds[module.name].recompute) for module in layer.modules]
    again = [(module, seconds) for module, seconds in again if seconds]
    working: list[Item] = [(WORKING, held.working)] if held.working else []
    if not again and working:
        builder.compute(f"{layer.name} recompute", 0.0, allocates=working)
    for number, (module, seconds) in enumerate(again):
        builder.compute(f"{module.name} recompute", seconds, allocates=working if number == 0 else [])


def _new_gradients(training: Training, module: Module, uses: Counter[str], left: dict[str, int]) -> list[Item]:
    new = [p for p in module.parameters if left[p.name] == uses[p.name]]
    size = sum(training.gradient_bytes(p) for p in new)
    return [(GRADIENTS, size)] if size else []


def _activations(held: LayerBytes) -> list[Item]:
    items = (ACTIVATIONS, held.kept), (WORKING, held.working)
    return [item for item in items if item[1]]


def optimizer_step(builder: Builder, training: Training, after: list[int], gradients: int | None = None) -> int:
    """Issue the optimizer on the whole model, after which ``gradients`` bytes are freed: those of all, if not given."""
    builder.phase = "optimizer"
    moved = 0
    for parameter in training.model.parameters:
        sizes = DTYPES[training.parameter_dtype(parameter)], DTYPES[training.gradient_dtype(parameter)]
        moved += parameter.elements * training.optimizer.moved_bytes(*sizes)
    if gradients is None:
        gradients = sum(training.gradient_bytes(p) for p in training.model.parameters)
    copies: list[Item] = []
    if training.optimizer.gradient_copy:
        copies = [(GRADIENT_COPY, 4 * training.model.elements)]
    frees = [*copies, (GRADIENTS, gradients)] if gradients else copies
    return builder.compute("optimizer", training.memory_seconds(moved), after=after, allocates=copies, frees=frees)


def ready_order(training: Training) -> list[Parameter]:
    """Return parameters in the order in which a backward pass completes their gradients."""
    order: list[Parameter] = []
    left = Counter(p.name for layer in training.model.layers for module in layer.modules for p in module.parameters)
    for layer in reversed(training.model.layers):
        for module in reversed(layer.modules):
            for parameter in module.gradients:
                left[parameter.name] -= 1
                if left[parameter.name] == 0:
                    order.append(parameter)
    return order
