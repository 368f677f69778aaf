"""Mixtral: Llama's attention, and a feed-forward of experts of which a router picks some for each token.

Parameters: 2 V h + h + L (2 h n d + 2 h k d + E h + 3 E h i + 2 h). As in transformers 5, each layer holds all experts
in two tensors; transformers 4 had three for each expert. FLOPs count the experts of one token and the router.
Reference: transformers 5.24, models/mixtral/modeling_mixtral.py.
"""

from dataclasses import dataclass
from typing import ClassVar

from simcollectives.training.families.config import option, size
from simcollectives.training.families.llama import (
    DecoderConfig,
    attention_modules,
    decoder,
    decoder_shape,
    model_root,
)
from simcollectives.training.families.parts import linear
from simcollectives.training.families.types import Family
from simcollectives.training.model import Layer, Model, Module, Parameter


@dataclass(frozen=True, kw_only=True)
class MixtralConfig(DecoderConfig):
    """Fields of a Mixtral config."""

    family: ClassVar[str] = "mixtral"
    intermediate_size: int = size(14336)
    num_key_value_heads: int | None = 8
    num_local_experts: int = option(8, "num_experts")
    num_experts_per_tok: int = 2
    sliding_window: int | None = None

    @property
    def window(self) -> int | None:
        """Tokens that attention looks back, where that is bounded."""
        return self.sliding_window

    def problems(self) -> list[tuple[str, str]]:
        """Return what does not fit together."""
        found = super().problems()
        if self.num_experts_per_tok > self.num_local_experts:
            rule = f"{self.num_experts_per_tok} is more than num_local_experts {self.num_local_experts}; give fewer"
            found.append(("num_experts_per_tok", rule))
        return found


def build(config: MixtralConfig, architecture: str, name: str) -> Model:
    """Return the model of a config."""
    root = model_root(architecture)
    blocks = [_block(config, f"{root}layers.{index}") for index in range(config.num_hidden_layers)]
    shape = decoder_shape(config, config.num_local_experts, config.num_experts_per_tok)
    return decoder(config, blocks, shape, root, name)


def _block(config: MixtralConfig, path: str) -> Layer:
    hidden, inner, experts = config.hidden_size, config.intermediate_size, config.num_local_experts
    name = f"{path}.mlp.experts"
    tensors = (
        Parameter(f"{name}.gate_up_proj", (experts, 2 * inner, hidden)),
        Parameter(f"{name}.down_proj", (experts, hidden, inner)),
    )
    used = config.num_experts_per_tok * 3 * hidden * inner
    feed_forward = (linear(f"{path}.mlp.gate", hidden, experts), Module(name, "linear", tensors, matmul_elements=used))
    return Layer(path, attention_modules(config, path) + feed_forward)


MIXTRAL = Family(
    name="mixtral",
    summary="Mixtral: as Llama, with experts in place of one feed-forward",
    config=MixtralConfig,
    architectures=("MixtralForCausalLM", "MixtralModel"),
    build=build,
)
