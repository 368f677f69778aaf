"""The modules that models are made of, and the model made of them."""

from collections.abc import Iterable, Sequence

from simcollectives.training.model import Layer, Model, Module, Parameter, TransformerShape


def linear(
    name: str, inputs: int, outputs: int, *, bias: bool = False, transposed: bool = False, positions: int | None = None
) -> Module:
    """Return a linear layer: weight [outputs, inputs], or [inputs, outputs] where it is stored ``transposed``."""
    shape = (inputs, outputs) if transposed else (outputs, inputs)
    parameters = [Parameter(f"{name}.weight", shape)]
    if bias:
        parameters.append(Parameter(f"{name}.bias", (outputs,)))
    return Module(name, "linear", tuple(parameters), matmul_elements=inputs * outputs, positions=positions)


def head(name: str, hidden: int, outputs: int, tied: Parameter | None = None) -> Module:
    """Return the linear layer that makes the logits; ``tied`` to the embedding's weight where there is one."""
    weight = tied or Parameter(f"{name}.weight", (outputs, hidden))
    return Module(name, "linear", (weight,), matmul_elements=hidden * outputs)


def norm(name: str, width: int, *, bias: bool = False) -> Module:
    """Return a LayerNorm, or an RMSNorm, which has no bias."""
    names = ("weight", "bias") if bias else ("weight",)
    return Module(name, "norm", tuple(Parameter(f"{name}.{part}", (width,)) for part in names))


def embedding(name: str, rows: int, width: int) -> Module:
    """Return a table that is looked up, without FLOPs."""
    return Module(name, "embedding", (Parameter(f"{name}.weight", (rows, width)),))


def attention(name: str, width: int, *, causal: bool) -> Module:
    """Return the attention itself, between the projections."""
    return Module(name, "attention", attention_width=width, causal=causal)


def chosen(layer: Layer, suffixes: Iterable[str]) -> list[Module]:
    """Return modules of a layer by their names without the layer's, in the order given; those that it lacks are not."""
    by_name = {module.name: module for module in layer.modules}
    names = (f"{layer.name}.{suffix}" for suffix in suffixes)
    return [by_name[name] for name in names if name in by_name]


def assemble(
    name: str,
    family: str,
    layers: Sequence[Layer],
    registered: Iterable[Module],
    shape: TransformerShape | None = None,
    buffers: Sequence[Parameter] = (),
    longest_sequence: int | None = None,
) -> Model:
    """Return a model; ``registered`` are its modules in registration order, where a tied parameter counts once."""
    registration = dict.fromkeys(parameter.name for module in registered for parameter in module.parameters)
    return Model(name, family, tuple(layers), tuple(registration), shape, tuple(buffers), longest_sequence)
