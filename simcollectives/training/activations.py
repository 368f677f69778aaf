"""Bytes that layers keep from their forward to their backward.

Counted tensor by tensor, each as the kernel that reads it in the backward holds it: linear layers keep their input,
norms theirs, activation functions theirs, products both factors, dropout a mask of one byte an element; attention keeps
queries, keys and values, and where it is eager the softmax, and with dropout a mask and the dropped weights. Every
tensor has the dtype of the computation, but masks, the routers' probabilities and the logits, which are float32. Norms
and softmax count as single kernels: the statistics of both, and positions and token numbers, are left out, and keys and
values are not repeated for the heads that share them.

With dropout, a feed-forward of 4 h and as many heads of keys as of queries, a 16-bit block keeps s b h (34 + 5 a s / h)
bytes: 11 s b h + 5 a s^2 b in its attention, 19 s b h in its feed-forward, 4 s b h in its norms; flash attention or
selective recomputation leaves 34 s b h, full recomputation its input, 2 s b h (Korthikanti et al. 2022, arXiv
2205.05198); recomputation by operators, its input and the outputs of attention and of every second matrix product.
After the blocks come the last norm's input, the head's input and float32 logits, whose log-softmax the loss keeps in
their place; while the loss is differentiated there are two gradients of their size beside them (torch 2.13,
cross_entropy: of the negative log-likelihood and of the log-softmax).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from simcollectives.engines.job import DTYPES
from simcollectives.errors import InputError, Problem, show_value
from simcollectives.training.flops import kept_operators
from simcollectives.training.model import Layer, Model, Module, TransformerShape
from simcollectives.training.setup import LayerBytes
from simcollectives.training.workload import Workload, check_fits

MASK_BYTES, FLOAT32_BYTES = 1, 4
LOGITS, LOSS_GRADIENTS = "logits", ("gradient of the loss", "gradient of the logits")


@dataclass(frozen=True)
class Tensor:
    """Something kept: ``elements`` for each token, or for each pair of tokens in the ``weights`` of attention."""

    name: str
    elements: int
    element_bytes: int
    weights: bool = False


@dataclass(frozen=True)
class LayerActivations:
    """What a layer keeps until its backward is done, and what it holds only while it is computed, both in bytes."""

    layer: str
    kept: tuple[tuple[str, int], ...]
    working: tuple[tuple[str, int], ...] = ()

    @property
    def bytes(self) -> LayerBytes:
        """The sums of both."""
        return LayerBytes(sum(size for _, size in self.kept), sum(size for _, size in self.working))


@dataclass(frozen=True)
class Activations:
    """What each layer keeps, in forward order; None with a ``reason`` where that is not modelled."""

    layers: tuple[LayerActivations, ...] | None
    reason: str = ""

    @property
    def by_layer(self) -> Mapping[str, LayerBytes]:
        """Bytes by the name of the layer: none where they are not modelled."""
        return {layer.layer: layer.bytes for layer in self.layers or ()}

    @property
    def kept_bytes(self) -> int | None:
        """Bytes that all layers keep at the end of the forward."""
        return None if self.layers is None else sum(layer.bytes.kept for layer in self.layers)


def activations(model: Model, workload: Workload, dtype: str = "bfloat16") -> Activations:
    """Return what each layer keeps of one micro-batch computed in ``dtype``.

    Raises:
        InputError: the sequence is longer than the model's learned positions, or the dtype is not known.
    """
    check_fits(model, workload)
    if dtype not in DTYPES:
        raise InputError([Problem("dtype", f"{show_value(dtype)} is not known; write one of {', '.join(DTYPES)}")])
    shape = model.shape
    if shape is None:
        return Activations(None, f"activations of {model.name} are not modelled: it is no transformer of a known shape")
    if shape.experts and workload.recomputation == "operators":
        rule = f"{model.name} has experts, of whose products it is not known which are kept"
        raise InputError([Problem("recomputation", f"operators: {rule}; write none, selective or full")])
    width = DTYPES[dtype]
    last = max((index for index, layer in enumerate(model.layers) if layer.block), default=-1)
    layers = []
    for index, layer in enumerate(model.layers):
        if layer.block:
            layers.append(_kept(layer, _block(layer, shape, width), workload))
        else:
            tensors = _outside(layer, shape, width, read_again=index < last)
            loss = [replace(one, name=name) for one in tensors if one.name == LOGITS for name in LOSS_GRADIENTS]
            layers.append(LayerActivations(layer.name, _sizes(tensors, workload), _sizes(loss, workload)))
    return Activations(tuple(layers))


def _kept(layer: Layer, tensors: list[Tensor], workload: Workload) -> LayerActivations:
    """Tensors of a block, divided into those kept and those computed again."""
    if workload.attention_kernel == "flash":
        tensors = [tensor for tensor in tensors if not tensor.weights]
    again: list[Tensor] = []
    if workload.recomputation == "full":
        # Its input is the first tensor that a block keeps.
        tensors, again = [replace(tensors[0], name="input of the block")], tensors[1:]
    elif workload.recomputation == "operators":
        tensors, again = [replace(tensors[0], name="input of the block"), *_operators(layer, tensors[0])], tensors[1:]
    elif workload.recomputation == "selective":
        again = [tensor for tensor in tensors if tensor.weights]
        tensors = [tensor for tensor in tensors if not tensor.weights]
    return LayerActivations(layer.name, _sizes(tensors, workload), _sizes(again, workload))


def _operators(layer: Layer, like: Tensor) -> list[Tensor]:
    """Outputs of the modules that are not computed again."""
    found = []
    for module in kept_operators(layer):
        if module.kind == "attention":
            outputs = module.attention_width
        else:
            bias = [one.elements for one in module.parameters if len(one.shape) == 1]
            outputs = bias[0] if bias else module.parameters[0].shape[0]
        found.append(replace(like, name=f"{module.name}: output", elements=outputs))
    return found


def _sizes(tensors: list[Tensor], workload: Workload) -> tuple[tuple[str, int], ...]:
    """Names and bytes of tensors."""
    each = workload.tokens
    return tuple(
        (t.name, each * t.elements * t.element_bytes * (workload.sequence if t.weights else 1)) for t in tensors
    )


def _block(layer: Layer, shape: TransformerShape, width: int) -> list[Tensor]:
    """Tensors of a block: of each attention that it has, then of its feed-forward."""
    cores = [module for module in layer.modules if module.kind == "attention"]
    tensors = [tensor for core in cores for tensor in _attention(core, shape, width)]
    tensors += _experts(shape, width) if shape.experts else _feed_forward(shape, width)
    return tensors


def _attention(core: Module, shape: TransformerShape, width: int) -> list[Tensor]:
    path = core.name.rpartition(".")[0]
    heads = shape.heads * shape.head_dim
    keys = shape.kv_heads * shape.head_dim
    found = [
        Tensor(f"{path}: input of the norm", shape.hidden, width),
        Tensor(f"{path}: input of the projections", shape.hidden, width),
        Tensor(f"{path}: queries", heads, width),
        Tensor(f"{path}: keys", keys, width),
        Tensor(f"{path}: values", keys, width),
        Tensor(f"{path}: softmax", shape.heads, width, weights=True),
    ]
    if shape.attention_dropout:
        found.append(Tensor(f"{path}: mask of the softmax", shape.heads, MASK_BYTES, weights=True))
        found.append(Tensor(f"{path}: softmax after dropout", shape.heads, width, weights=True))
    found.append(Tensor(f"{path}: input of the output projection", heads, width))
    if shape.dropout:
        found.append(Tensor(f"{path}: dropout mask", shape.hidden, MASK_BYTES))
    return found


def _feed_forward(shape: TransformerShape, width: int) -> list[Tensor]:
    hidden, inner = shape.hidden, shape.intermediate
    found = [Tensor("input of the norm", hidden, width), Tensor("input of the feed-forward", hidden, width)]
    if shape.gated:
        found += [Tensor(name, inner, width) for name in ("gate", "activated gate", "factor of the gate")]
    else:
        found.append(Tensor("input of the activation", inner, width))
    if shape.inner_dropout:
        found.append(Tensor("inner dropout mask", inner, MASK_BYTES))
    found.append(Tensor("input of the last projection", inner, width))
    if shape.dropout:
        found.append(Tensor("dropout mask", hidden, MASK_BYTES))
    return found


def _experts(shape: TransformerShape, width: int) -> list[Tensor]:
    """Tensors of the experts of each token; their outputs are kept for the products with the router's weights."""
    used, hidden, inner = shape.experts_per_token, shape.hidden, shape.intermediate
    gates = ("gates", "activated gates", "factors of the gates", "inputs of the last projections")
    return [
        Tensor("input of the norm", hidden, width),
        Tensor("input of the router", hidden, width),
        Tensor("probabilities of the router", shape.experts, FLOAT32_BYTES),
        Tensor("inputs of the experts", used * hidden, width),
        *(Tensor(name, used * inner, width) for name in gates),
        Tensor("outputs of the experts", used * hidden, width),
    ]


def _outside(layer: Layer, shape: TransformerShape, width: int, *, read_again: bool) -> list[Tensor]:
    """Tensors of a layer that is no block: of norms and linears the input, of a linear within a head the output too.

    ``read_again``: blocks follow, so that the output of a last norm is what a decoder attends to.
    """
    found = []
    for module in layer.modules:
        if module.kind == "norm":
            found.append(Tensor(f"{module.name}: input", shape.hidden, width))
            if layer.modules == (module,):
                if shape.inner_dropout:
                    found.append(Tensor(f"{module.name}: dropout mask", shape.hidden, MASK_BYTES))
                if read_again:
                    found.append(Tensor(f"{module.name}: output", shape.hidden, width))
        elif module.kind == "linear" and module.positions is None:
            outputs = module.matmul_elements // shape.hidden
            found.append(Tensor(f"{module.name}: input", shape.hidden, width))
            if outputs == shape.vocabulary:
                found.append(Tensor(LOGITS, outputs, FLOAT32_BYTES))
            else:
                found.append(Tensor(f"{module.name}: input of the activation", outputs, width))
    if shape.dropout and layer.modules[0].kind == "embedding":
        found.append(Tensor("dropout mask", shape.hidden, MASK_BYTES))
    return found
