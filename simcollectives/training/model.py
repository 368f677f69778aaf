"""What a model is, for training: parameters in modules, modules in layers, layers in the order of the forward pass."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

ModuleKind = Literal["linear", "convolution", "norm", "embedding", "attention", "other"]


@dataclass(frozen=True)
class Parameter:
    """One tensor. ``dtype`` is None where it follows the run's; a ``sparse`` gradient is reduced on its own."""

    name: str
    shape: tuple[int, ...]
    dtype: str | None = None
    sparse: bool = False

    @cached_property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)


@dataclass(frozen=True)
class Module:
    """A leaf module: what owns parameters, or computes without any (the attention itself).

    ``matmul_elements`` are the weight elements that each token is multiplied with: 2 FLOPs each, forward. Attention of
    ``attention_width`` = heads x head_dim adds 4 x sequence x width FLOPs a token, half of that where it is causal.
    ``positions`` of each sample are multiplied, where that is not every token: 1 for a pooler, the pixels that a
    convolution makes. ``parameters`` are in registration order.
    """

    name: str
    kind: ModuleKind
    parameters: tuple[Parameter, ...] = ()
    matmul_elements: int = 0
    attention_width: int = 0
    causal: bool = False
    positions: int | None = None

    @property
    def gradients(self) -> tuple[Parameter, ...]:
        """Parameters in the order in which autograd finishes their gradients: a linear's bias before its weight."""
        return self.parameters if self.kind in ("norm", "convolution") else self.parameters[::-1]


@dataclass(frozen=True)
class Layer:
    """Modules in forward order. A ``block`` is one of the repeated layers, recomputed and sharded as a whole."""

    name: str
    modules: tuple[Module, ...]
    block: bool = True

    @property
    def elements(self) -> int:
        """Elements of its parameters, a tied one counted where it stands."""
        return sum(parameter.elements for module in self.modules for parameter in module.parameters)


@dataclass(frozen=True)
class TransformerShape:
    """The sizes that activations depend on. ``gated`` feed-forward has three matrices.

    Masks are kept by ``dropout`` on what attention and feed-forward add to the residual stream, and on embeddings; by
    ``attention_dropout`` on the attention's weights; by ``inner_dropout`` inside the feed-forward and after the last
    norm. With ``experts``, each token goes through ``experts_per_token`` feed-forwards.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    gated: bool
    dropout: bool
    attention_dropout: bool = False
    inner_dropout: bool = False
    experts: int = 0
    experts_per_token: int = 1


@dataclass(frozen=True)
class Model:
    """A model. ``layers`` are in forward order; ``registration`` names every parameter once, in registration order.

    A tied parameter stands in each of its modules with one name. ``buffers`` are not trained (BatchNorm's statistics).
    ``longest_sequence`` is what learned positions allow; None: any.
    """

    name: str
    family: str
    layers: tuple[Layer, ...]
    registration: tuple[str, ...]
    shape: TransformerShape | None = None
    buffers: tuple[Parameter, ...] = ()
    longest_sequence: int | None = None

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter once, in registration order."""
        by_name = {p.name: p for layer in self.layers for module in layer.modules for p in module.parameters}
        return tuple(by_name[name] for name in self.registration)

    @cached_property
    def place(self) -> dict[str, int]:
        """Places of parameters in registration order, by their names."""
        return {name: index for index, name in enumerate(self.registration)}

    @cached_property
    def has_sequence(self) -> bool:
        """Whether anything is computed for every token of a sequence: not in a model of images."""
        modules = [module for layer in self.layers for module in layer.modules if module.positions is None]
        return any(module.matmul_elements or module.attention_width for module in modules)

    @cached_property
    def has_attention(self) -> bool:
        """Whether any module is the core of an attention."""
        return any(module.attention_width for layer in self.layers for module in layer.modules)

    @cached_property
    def elements(self) -> int:
        """Number of parameters, a tied one counted once."""
        return sum(parameter.elements for parameter in self.parameters)
