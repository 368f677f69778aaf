"""T5: an encoder and a decoder that attends to it, relative positions, embeddings always tied.

Parameters: V d + L (4 d H k + f d + 2 d) + L' (8 d H k + f d + 3 d) + 64 H + 2 d with H heads of k, and f = 2 F, or 3 F
where the feed-forward of width F is gated. Both sequences are taken to be equally long. The table of relative positions
stands in the first block of each stack and serves all. Reference: transformers 5.24, models/t5/modeling_t5.py.
"""

from dataclasses import dataclass

from simcollectives.training.families.config import MOST_LAYERS, Config, option, size
from simcollectives.training.families.parts import assemble, attention, chosen, embedding, head, linear, norm
from simcollectives.training.families.types import Family
from simcollectives.training.model import Layer, Model, Module, Parameter, TransformerShape

_ATTENTION = ("q", "k", "v", "o", "relative_attention_bias")
_FEED_FORWARD = ("wi", "wi_0", "wi_1", "wo")


@dataclass(frozen=True, kw_only=True)
class T5Config(Config):
    """Fields of a T5 config."""

    vocab_size: int = size(32128)
    d_model: int = size(512, "hidden_size")
    d_kv: int = size(64, "head_dim")
    d_ff: int = size(2048)
    num_layers: int = size(6, "num_hidden_layers", most=MOST_LAYERS)
    num_decoder_layers: int | None = option(None, follows="decoder_layers")
    num_heads: int = size(8, "num_attention_heads")
    relative_attention_num_buckets: int = 32
    dropout_rate: float = 0.1
    feed_forward_proj: str = "relu"
    tie_word_embeddings: bool = True

    @property
    def decoder_layers(self) -> int:
        """Blocks of the decoder."""
        return self.num_decoder_layers or self.num_layers

    @property
    def gated(self) -> bool:
        """Whether the feed-forward has three matrices."""
        return self.feed_forward_proj.startswith("gated-")

    def problems(self) -> list[tuple[str, str]]:
        """Return what does not fit together."""
        if self.decoder_layers > MOST_LAYERS:
            return [("num_decoder_layers", f"{self.decoder_layers} is more than {MOST_LAYERS}; give fewer")]
        if "-" in self.feed_forward_proj.removeprefix("gated-"):
            rule = f'"{self.feed_forward_proj}" is neither an activation nor "gated-" and one; write "gated-gelu"'
            return [("feed_forward_proj", rule)]
        return []

    def warnings(self) -> list[str]:
        """Return what the model leaves out."""
        if self.tie_word_embeddings:
            return []
        return ["tie_word_embeddings: false is not applied: transformers 5 ties T5's embeddings always"]


def build(config: T5Config, architecture: str, name: str) -> Model:
    """Return the model of a config."""
    words = Parameter("shared.weight", (config.vocab_size, config.d_model))
    layers = _stack(config, "encoder", config.num_layers, words)
    if architecture != "T5EncoderModel":
        layers += _stack(config, "decoder", config.decoder_layers, words)
    registered = [module for layer in layers for module in _registered(layer)]
    if architecture == "T5ForConditionalGeneration":
        logits = head("lm_head", config.d_model, config.vocab_size, words)
        layers.append(Layer("lm_head", (logits,), block=False))
    shape = TransformerShape(
        hidden=config.d_model,
        heads=config.num_heads,
        kv_heads=config.num_heads,
        head_dim=config.d_kv,
        intermediate=config.d_ff,
        vocabulary=config.vocab_size,
        gated=config.gated,
        dropout=config.dropout_rate > 0,
        attention_dropout=config.dropout_rate > 0,
        inner_dropout=config.dropout_rate > 0,
    )
    return assemble(name, "t5", layers, registered, shape)


def _stack(config: T5Config, path: str, blocks: int, words: Parameter) -> list[Layer]:
    """The encoder or the decoder: its embedding, blocks and last norm."""
    table = Module(f"{path}.embed_tokens", "embedding", (words,))
    last = norm(f"{path}.final_layer_norm", config.d_model)
    return [
        Layer(table.name, (table,), block=False),
        *(_block(config, f"{path}.block.{index}", first=index == 0) for index in range(blocks)),
        Layer(last.name, (last,), block=False),
    ]


def _block(config: T5Config, path: str, *, first: bool) -> Layer:
    decoder = path.startswith("decoder")
    modules = _attention(config, f"{path}.layer.0", "SelfAttention", causal=decoder, positions=first)
    if decoder:
        modules += _attention(config, f"{path}.layer.1", "EncDecAttention", causal=False, positions=False)
    last = f"{path}.layer.{2 if decoder else 1}"
    width, inner = config.d_model, config.d_ff
    modules += [
        norm(f"{last}.layer_norm", width),
        *(
            linear(f"{last}.DenseReluDense.{part}", width, inner)
            for part in (["wi_0", "wi_1"] if config.gated else ["wi"])
        ),
        linear(f"{last}.DenseReluDense.wo", inner, width),
    ]
    return Layer(path, tuple(modules))


def _attention(config: T5Config, path: str, kind: str, *, causal: bool, positions: bool) -> list[Module]:
    width, inner = config.d_model, config.num_heads * config.d_kv
    name = f"{path}.{kind}"
    modules = [norm(f"{path}.layer_norm", width), *(linear(f"{name}.{part}", width, inner) for part in "qkv")]
    if positions:
        table = embedding(f"{name}.relative_attention_bias", config.relative_attention_num_buckets, config.num_heads)
        modules.append(table)
    return [*modules, attention(f"{name}.core", inner, causal=causal), linear(f"{name}.o", inner, width)]


def _registered(layer: Layer) -> list[Module]:
    """Modules of a layer in registration order: in each part of a block the norm comes last."""
    if not layer.block:
        return list(layer.modules)
    order = []
    for part in range(3):
        for kind in ("SelfAttention", "EncDecAttention"):
            order += [f"layer.{part}.{kind}.{suffix}" for suffix in _ATTENTION]
        order += [f"layer.{part}.DenseReluDense.{suffix}" for suffix in _FEED_FORWARD]
        order.append(f"layer.{part}.layer_norm")
    return chosen(layer, order)


T5 = Family(
    name="t5",
    summary="T5: encoder and decoder of equal sequences, relative positions, RMSNorm, no biases",
    config=T5Config,
    architectures=("T5ForConditionalGeneration", "T5Model", "T5EncoderModel"),
    build=build,
)
