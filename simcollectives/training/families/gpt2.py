"""GPT-2, and GPT-3 in its layout: pre-norm blocks, learned positions, Conv1D weights stored [inputs, outputs].

Parameters: V h + P h + L (12 h^2 + 13 h) + 2 h, where the feed-forward is 4 h wide. Reference: transformers 5.24,
models/gpt2/modeling_gpt2.py.
"""

from dataclasses import dataclass

from simcollectives.training.families.config import MOST_LAYERS, Config, option, size
from simcollectives.training.families.parts import assemble, attention, embedding, head, linear, norm
from simcollectives.training.families.types import Family
from simcollectives.training.model import Layer, Model, TransformerShape


@dataclass(frozen=True, kw_only=True)
class GPT2Config(Config):
    """Fields of a GPT-2 config."""

    vocab_size: int = size(50257)
    n_positions: int = size(1024, "max_position_embeddings")
    n_embd: int = size(768, "hidden_size")
    n_layer: int = size(12, "num_hidden_layers", most=MOST_LAYERS)
    n_head: int = size(12, "num_attention_heads")
    n_inner: int | None = option(None, follows="inner")
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True

    @property
    def inner(self) -> int:
        """Width of the feed-forward."""
        return self.n_inner or 4 * self.n_embd

    def problems(self) -> list[tuple[str, str]]:
        """Return what does not fit together."""
        found = []
        if self.n_embd % self.n_head:
            found.append(("n_head", f"{self.n_head} heads do not divide n_embd {self.n_embd}; give a divisor of it"))
        if self.add_cross_attention:
            found.append(("add_cross_attention", "cross-attention is not modelled for this family; write false"))
        return found


def build(config: GPT2Config, architecture: str, name: str) -> Model:
    """Return the model of a config."""
    root = "" if architecture == "GPT2Model" else "transformer."
    hidden = config.n_embd
    words = embedding(f"{root}wte", config.vocab_size, hidden)
    embeddings = Layer(f"{root}embedding", (words, embedding(f"{root}wpe", config.n_positions, hidden)), block=False)
    blocks = [_block(config, f"{root}h.{index}") for index in range(config.n_layer)]
    layers = [embeddings, *blocks, Layer(f"{root}ln_f", (norm(f"{root}ln_f", hidden, bias=True),), block=False)]
    if root:
        tied = words.parameters[0] if config.tie_word_embeddings else None
        layers.append(Layer("lm_head", (head("lm_head", hidden, config.vocab_size, tied),), block=False))
    shape = TransformerShape(
        hidden=hidden,
        heads=config.n_head,
        kv_heads=config.n_head,
        head_dim=hidden // config.n_head,
        intermediate=config.inner,
        vocabulary=config.vocab_size,
        gated=False,
        dropout=config.resid_pdrop > 0,
        attention_dropout=config.attn_pdrop > 0,
    )
    registered = [module for layer in layers for module in layer.modules]
    return assemble(name, "gpt2", layers, registered, shape, longest_sequence=config.n_positions)


def _block(config: GPT2Config, path: str) -> Layer:
    hidden = config.n_embd
    return Layer(
        path,
        (
            norm(f"{path}.ln_1", hidden, bias=True),
            linear(f"{path}.attn.c_attn", hidden, 3 * hidden, bias=True, transposed=True),
            attention(f"{path}.attn.core", hidden, causal=True),
            linear(f"{path}.attn.c_proj", hidden, hidden, bias=True, transposed=True),
            norm(f"{path}.ln_2", hidden, bias=True),
            linear(f"{path}.mlp.c_fc", hidden, config.inner, bias=True, transposed=True),
            linear(f"{path}.mlp.c_proj", config.inner, hidden, bias=True, transposed=True),
        ),
    )


GPT2 = Family(
    name="gpt2",
    summary="GPT-2 and GPT-3: learned positions, LayerNorm, biases, GELU, tied embeddings",
    config=GPT2Config,
    architectures=("GPT2LMHeadModel", "GPT2Model"),
    build=build,
)
