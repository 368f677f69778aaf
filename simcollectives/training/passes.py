"""The forward and backward pass that all strategies share: kernels by module, activations by layer, gradients."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from simcollectives.engines.job import DTYPES
from simcollectives.training.model import Layer, Module, Parameter
from simcollectives.training.program import Builder, Item
from simcollectives.training.setup import LayerBytes, Training

GradientReady = Callable[[Parameter], None]
"""Told a parameter when the kernels that complete its gradient have been issued."""


def nobody(_what: object) -> None:
    """Take no notice."""


@dataclass(frozen=True)
class Hooks:
    """What a strategy does around the kernels of a pass: in the backward pass, "before" comes first in time, too.

    A layer's hooks are called outside those of its modules, and outside its recomputation; where a whole layer is
    computed again, "again" is called around its modules. ``ready`` is told each gradient when it is complete;
    ``gradient_bytes`` is the size that a gradient has while the pass computes it, None for that of ``Training``, and
    ``gradient_item`` its name in the account of memory.
    """

    before_layer: Callable[[Layer], None] = nobody
    after_layer: Callable[[Layer], None] = nobody
    before_module: Callable[[Module], None] = nobody
    after_module: Callable[[Module], None] = nobody
    before_again: Callable[[Module], None] = nobody
    after_again: Callable[[Module], None] = nobody
    ready: GradientReady = nobody
    gradient_bytes: Callable[[Parameter], int] | None = None
    gradient_item: str = "gradients"


NO_HOOKS = Hooks()

PARAMETERS, BUFFERS, GRADIENTS, OPTIMIZER = "parameters", "buffers", "gradients", "optimizer states"
NEW_GRADIENTS, GRADIENT_COPY = "gradients to be added", "gradients in float32"
BUCKETS = "buckets"
ACTIVATIONS, WORKING = "activations", "activations while computed"
MODEL_STATES = (PARAMETERS, GRADIENTS, OPTIMIZER, GRADIENT_COPY)


def stand_replicated(builder: Builder, training: Training) -> None:
    """Note what every rank of plain data parallelism holds all the time: parameters, buffers and optimizer states."""
    stand_model(builder, training)
    builder.stand(OPTIMIZER, training.optimizer.held_bytes * training.model.elements)


def stand_model(builder: Builder, training: Training) -> None:
    """Note the whole model: its parameters and buffers."""
    builder.stand(PARAMETERS, training.parameter_bytes)
    stand_buffers(builder, training)


def stand_buffers(builder: Builder, training: Training) -> None:
    """Note the buffers of the model, which every rank holds whole."""
    if buffers := sum(b.elements * DTYPES[training.parameter_dtype(b)] for b in training.model.buffers):
        builder.stand(BUFFERS, buffers)


def forward(builder: Builder, training: Training, hooks: Hooks = NO_HOOKS) -> None:
    """Issue the forward pass of one micro-batch."""
    for layer in training.model.layers:
        hooks.before_layer(layer)
        held = training.activations.get(layer.name, LayerBytes())
        last = len(layer.modules) - 1
        for index, module in enumerate(layer.modules):
            hooks.before_module(module)
            allocates = _activations(held) if index == 0 else []
            frees: list[Item] = [(WORKING, held.working)] if index == last and held.working else []
            builder.compute(module.name, training.seconds[module.name].forward, allocates=allocates, frees=frees)
            hooks.after_module(module)
        hooks.after_layer(layer)


def backward(builder: Builder, training: Training, hooks: Hooks = NO_HOOKS, *, first: bool = True) -> None:
    """Issue the backward pass of one micro-batch, last layer first.

    A gradient is told once, when the last module that uses its parameter is done. ``first``: no gradients are held yet;
    else each new one is added to the one that is held, which reads two and writes one, and freed. So are the parts of a
    tied parameter's gradient.
    """
    uses = _uses(training)
    left = dict(uses)
    size_of = hooks.gradient_bytes or training.gradient_bytes
    for layer in reversed(training.model.layers):
        hooks.before_layer(layer)
        held = training.activations.get(layer.name, LayerBytes())
        _recompute(builder, training, layer, held, hooks)
        for index in reversed(range(len(layer.modules))):
            module = layer.modules[index]
            hooks.before_module(module)
            kept, new, added = _new_gradients(size_of, module, uses, left, first)
            allocates = [item for item in ((hooks.gradient_item, kept), (NEW_GRADIENTS, new)) if item[1]]
            frees = [(NEW_GRADIENTS, added)] if added else []
            if index == 0:
                frees += _activations(held)
            seconds = training.seconds[module.name].backward + training.memory_seconds(3 * added)
            builder.compute(f"{module.name} backward", seconds, allocates=allocates, frees=frees)
            for parameter in module.gradients:
                left[parameter.name] -= 1
                if left[parameter.name] == 0:
                    hooks.ready(parameter)
            hooks.after_module(module)
        hooks.after_layer(layer)


def _uses(training: Training) -> Counter[str]:
    return Counter(p.name for layer in training.model.layers for module in layer.modules for p in module.parameters)


def is_recomputed(training: Training, layer: Layer) -> bool:
    """Whether a layer's modules run forward again in the backward pass, and not the attention alone."""
    return any(module.parameters and training.seconds[module.name].recompute for module in layer.modules)


def _recompute(builder: Builder, training: Training, layer: Layer, held: LayerBytes, hooks: Hooks) -> None:
    again = {module.name: training.seconds[module.name].recompute for module in layer.modules}
    working: list[Item] = [(WORKING, held.working)] if held.working else []
    if not any(again.values()) and working:
        builder.compute(f"{layer.name} recompute", 0.0, allocates=working)
        return
    whole = is_recomputed(training, layer)
    for module in layer.modules:
        if whole:
            hooks.before_again(module)
        if again[module.name]:
            builder.compute(f"{module.name} recompute", again[module.name], allocates=working)
            working = []
        if whole:
            hooks.after_again(module)


def _new_gradients(
    size_of: Callable[[Parameter], int], module: Module, uses: Counter[str], left: dict[str, int], first: bool
) -> tuple[int, int, int]:
    """Bytes of gradients that a module's backward makes and keeps, makes to be added, and adds to others."""
    kept = new = added = 0
    for parameter in module.parameters:
        size = size_of(parameter)
        part = left[parameter.name] < uses[parameter.name]
        whole = left[parameter.name] == 1 and not first
        if part or not first:
            new += size
        else:
            kept += size
        added += size * (part + whole)
    return kept, new, added


def _activations(held: LayerBytes) -> list[Item]:
    items = (ACTIVATIONS, held.kept), (WORKING, held.working)
    return [item for item in items if item[1]]


def optimizer_step(
    builder: Builder, training: Training, after: Iterable[int] = (), *, frees_gradients: bool = True
) -> int:
    """Issue the optimizer on the whole model, after which gradients are freed unless something else holds them."""
    parts = [(p.elements, training.parameter_dtype(p), training.gradient_dtype(p)) for p in training.model.parameters]
    frees = [(GRADIENTS, training.all_gradient_bytes)] if frees_gradients else []
    return optimizer_on(builder, training, parts, after=after, frees=frees)


def optimizer_on(
    builder: Builder,
    training: Training,
    parts: Sequence[tuple[int, str, str]],
    *,
    after: Iterable[int] = (),
    frees: Iterable[Item] = (),
) -> int:
    """Issue the optimizer on ``parts``: elements, and the dtypes of parameters and of gradients.

    ``frees`` what is not needed once it is done.
    """
    builder.phase = "optimizer"
    optimizer = training.optimizer
    moved = sum(elements * optimizer.moved_bytes(DTYPES[own], DTYPES[gradient]) for elements, own, gradient in parts)
    copies: list[Item] = []
    if optimizer.gradient_copy:
        copies = [(GRADIENT_COPY, 4 * sum(elements for elements, _, _ in parts))]
    seconds = training.memory_seconds(moved)
    return builder.compute("optimizer", seconds, after=after, allocates=copies, frees=[*copies, *frees])


def ready_order(training: Training) -> list[Parameter]:
    """Return parameters in the order in which a backward pass completes their gradients."""
    order: list[Parameter] = []
    left = _uses(training)
    for layer in reversed(training.model.layers):
        for module in reversed(layer.modules):
            for parameter in module.gradients:
                left[parameter.name] -= 1
                if left[parameter.name] == 0:
                    order.append(parameter)
    return order


def elements_by_dtype(training: Training) -> dict[str, int]:
    """Return the elements of all gradients by their dtype, in registration order."""
    elements: dict[str, int] = {}
    for parameter in training.model.parameters:
        dtype = training.gradient_dtype(parameter)
        elements[dtype] = elements.get(dtype, 0) + parameter.elements
    return elements
