"""Llama, and Mistral and Qwen2 as the same architecture: pre-norm blocks, grouped-query attention, gated feed-forward.

Parameters: 2 V h + h + L (2 h n d + 2 h k d + 3 h i + 2 h) with n heads and k key-value heads of d, h less V h where
embeddings are tied; Qwen2 adds L (n + 2 k) d biases. Reference: transformers 5.24, models/llama/modeling_llama.py.
"""

from dataclasses import dataclass
from typing import ClassVar

from simcollectives.training.families.config import MOST_LAYERS, Config, option, size
from simcollectives.training.families.parts import assemble, attention, chosen, embedding, head, linear, norm
from simcollectives.training.families.types import Family
from simcollectives.training.model import Layer, Model, Module, Parameter, TransformerShape

REGISTERED = (
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("mlp.gate", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "mlp.experts"),
    *("input_layernorm", "post_attention_layernorm"),
)
"""Modules of a block in registration order, of Mixtral too: the norms come last."""


@dataclass(frozen=True, kw_only=True)
class DecoderConfig(Config):
    """Fields that all families of this architecture have, with Llama's defaults."""

    family: ClassVar[str] = "llama"
    vocab_size: int = size(32000)
    hidden_size: int = size(4096)
    intermediate_size: int = size(11008)
    num_hidden_layers: int = size(32, most=MOST_LAYERS)
    num_attention_heads: int = size(32)
    num_key_value_heads: int | None = option(None, follows="kv_heads")
    head_dim: int | None = option(None, follows="width")
    attention_dropout: float = 0.0
    tie_word_embeddings: bool = False

    @property
    def kv_heads(self) -> int:
        """Number of heads of keys and values."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def width(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def biases(self) -> tuple[bool, bool, bool]:
        """Whether queries, keys and values, the output projection, and the feed-forward have biases."""
        return False, False, False

    @property
    def window(self) -> int | None:
        """Tokens that attention looks back, where that is bounded."""
        return None

    def problems(self) -> list[tuple[str, str]]:
        """Return what does not fit together."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        found = []
        if self.head_dim is None and hidden % heads:
            rule = f"{heads} heads do not divide hidden_size {hidden}; give a divisor of it, or head_dim"
            found.append(("num_attention_heads", rule))
        if heads % self.kv_heads:
            rule = f"{self.kv_heads} does not divide num_attention_heads {heads}; give a divisor of it"
            found.append(("num_key_value_heads", rule))
        return found

    def warnings(self) -> list[str]:
        """Return what the model leaves out."""
        if self.window is None:
            return []
        return [f"the sliding window of {self.window} tokens is not applied: longer sequences attend to all tokens"]


@dataclass(frozen=True, kw_only=True)
class LlamaConfig(DecoderConfig):
    """Fields of a Llama config."""

    attention_bias: bool = False
    mlp_bias: bool = False

    @property
    def biases(self) -> tuple[bool, bool, bool]:
        """Whether queries, keys and values, the output projection, and the feed-forward have biases."""
        return self.attention_bias, self.attention_bias, self.mlp_bias


@dataclass(frozen=True, kw_only=True)
class MistralConfig(DecoderConfig):
    """Fields of a Mistral config."""

    family: ClassVar[str] = "mistral"
    intermediate_size: int = size(14336)
    num_key_value_heads: int | None = 8
    sliding_window: int | None = 4096

    @property
    def window(self) -> int | None:
        """Tokens that attention looks back, where that is bounded."""
        return self.sliding_window


@dataclass(frozen=True, kw_only=True)
class Qwen2Config(DecoderConfig):
    """Fields of a Qwen2 config."""

    family: ClassVar[str] = "qwen2"
    vocab_size: int = size(151936)
    intermediate_size: int = size(22016)
    num_key_value_heads: int | None = 32
    use_sliding_window: bool = False
    sliding_window: int | None = 4096

    @property
    def biases(self) -> tuple[bool, bool, bool]:
        """Whether queries, keys and values, the output projection, and the feed-forward have biases."""
        return True, False, False

    @property
    def window(self) -> int | None:
        """Tokens that attention of the later layers looks back, where that is bounded."""
        return self.sliding_window if self.use_sliding_window else None


def build(config: DecoderConfig, architecture: str, name: str) -> Model:
    """Return the model of a config."""
    root = model_root(architecture)
    blocks = [_block(config, f"{root}layers.{index}") for index in range(config.num_hidden_layers)]
    return decoder(config, blocks, decoder_shape(config), root, name)


def model_root(architecture: str) -> str:
    """Return what all names begin with: the bare model stands at the root, below a head it is ``model``."""
    return "" if architecture.endswith("Model") else "model."


def decoder_shape(config: DecoderConfig, experts: int = 0, experts_per_token: int = 1) -> TransformerShape:
    """Return the sizes that activations depend on."""
    return TransformerShape(
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.kv_heads,
        head_dim=config.width,
        intermediate=config.intermediate_size,
        vocabulary=config.vocab_size,
        gated=True,
        dropout=False,
        attention_dropout=config.attention_dropout > 0,
        experts=experts,
        experts_per_token=experts_per_token,
    )


def decoder(config: DecoderConfig, blocks: list[Layer], shape: TransformerShape, root: str, name: str) -> Model:
    """Return blocks between an embedding, the last norm and a head, which the bare model (no ``root``) lacks."""
    hidden = config.hidden_size
    words = embedding(f"{root}embed_tokens", config.vocab_size, hidden)
    last = norm(f"{root}norm", hidden)
    layers = [Layer(words.name, (words,), block=False), *blocks, Layer(last.name, (last,), block=False)]
    registered = [words, *(module for block in blocks for module in chosen(block, REGISTERED)), last]
    if root:
        tied = words.parameters[0] if config.tie_word_embeddings else None
        logits = head("lm_head", hidden, config.vocab_size, tied)
        layers.append(Layer(logits.name, (logits,), block=False))
        registered.append(logits)
    frequencies = ((config.width + 1) // 2,)
    buffers = [
        Parameter(f"{root}rotary_emb.{buffer}", frequencies, "float32") for buffer in ("inv_freq", "original_inv_freq")
    ]
    return assemble(name, config.family, layers, registered, shape, buffers)


def attention_modules(config: DecoderConfig, path: str) -> tuple[Module, ...]:
    """Return the first half of a block in forward order: the norm and the attention."""
    hidden, heads, kv_heads = config.hidden_size, config.num_attention_heads, config.kv_heads
    qkv_bias, out_bias, _ = config.biases
    width, kv_width = heads * config.width, kv_heads * config.width
    return (
        norm(f"{path}.input_layernorm", hidden),
        linear(f"{path}.self_attn.q_proj", hidden, width, bias=qkv_bias),
        linear(f"{path}.self_attn.k_proj", hidden, kv_width, bias=qkv_bias),
        linear(f"{path}.self_attn.v_proj", hidden, kv_width, bias=qkv_bias),
        attention(f"{path}.self_attn.core", width, causal=True),
        linear(f"{path}.self_attn.o_proj", width, hidden, bias=out_bias),
        norm(f"{path}.post_attention_layernorm", hidden),
    )


def _block(config: DecoderConfig, path: str) -> Layer:
    hidden, inner, bias = config.hidden_size, config.intermediate_size, config.biases[2]
    feed_forward = (
        linear(f"{path}.mlp.gate_proj", hidden, inner, bias=bias),
        linear(f"{path}.mlp.up_proj", hidden, inner, bias=bias),
        linear(f"{path}.mlp.down_proj", inner, hidden, bias=bias),
    )
    return Layer(path, attention_modules(config, path) + feed_forward)


LLAMA = Family(
    name="llama",
    summary="Llama 2 and 3: rotary positions, RMSNorm, grouped-query attention, SwiGLU",
    config=LlamaConfig,
    architectures=("LlamaForCausalLM", "LlamaModel"),
    build=build,
)
MISTRAL = Family(
    name="mistral",
    summary="Mistral: as Llama, with a sliding window that is not applied",
    config=MistralConfig,
    architectures=("MistralForCausalLM", "MistralModel"),
    build=build,
)
QWEN2 = Family(
    name="qwen2",
    summary="Qwen2 and Qwen2.5: as Llama, with biases on queries, keys and values",
    config=Qwen2Config,
    architectures=("Qwen2ForCausalLM", "Qwen2Model"),
    build=build,
)
