"""BERT: post-norm blocks, learned positions, with the heads that its architectures have.

Parameters: (V + P + T) h + 2 h + L (4 h^2 + 4 h + 2 h i + i + h + 4 h), and h^2 + h for the pooler; the masked-language
head adds h^2 + h + 2 h + V and no pooler. Reference: transformers 5.24, models/bert/modeling_bert.py.
"""

from dataclasses import dataclass

from simcollectives.training.families.config import MOST_LAYERS, Config, size
from simcollectives.training.families.parts import assemble, attention, chosen, embedding, linear, norm
from simcollectives.training.families.types import Family
from simcollectives.training.model import Layer, Model, Module, Parameter, TransformerShape

_ARCHITECTURES = ("BertModel", "BertForMaskedLM", "BertForPreTraining")
_EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings", "LayerNorm")
_ID_BUFFERS = ("position_ids", "token_type_ids")
_HEADS = ("decoder", "transform.dense", "transform.LayerNorm")


@dataclass(frozen=True, kw_only=True)
class BertConfig(Config):
    """Fields of a BERT config."""

    vocab_size: int = size(30522)
    hidden_size: int = size(768)
    num_hidden_layers: int = size(12, most=MOST_LAYERS)
    num_attention_heads: int = size(12)
    intermediate_size: int = size(3072)
    max_position_embeddings: int = size(512)
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    is_decoder: bool = False
    add_cross_attention: bool = False
    tie_word_embeddings: bool = True

    def problems(self) -> list[tuple[str, str]]:
        """Return what does not fit together."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        found = []
        if hidden % heads:
            rule = f"{heads} heads do not divide hidden_size {hidden}; give a divisor of it"
            found.append(("num_attention_heads", rule))
        if self.add_cross_attention:
            found.append(("add_cross_attention", "cross-attention is not modelled for this family; write false"))
        if not self.tie_word_embeddings:
            found.append(("tie_word_embeddings", "false is not modelled for this family; write true"))
        return found


def build(config: BertConfig, architecture: str, name: str) -> Model:
    """Return the model of a config."""
    root = "" if architecture == "BertModel" else "bert."
    hidden = config.hidden_size
    embeddings = _embeddings(config, f"{root}embeddings")
    blocks = [_block(config, f"{root}encoder.layer.{index}") for index in range(config.num_hidden_layers)]
    layers = [embeddings, *blocks]
    registered = chosen(embeddings, _EMBEDDINGS)
    registered += [module for block in blocks for module in block.modules]
    if architecture != "BertForMaskedLM":
        pooler = linear(f"{root}pooler.dense", hidden, hidden, bias=True, positions=1)
        layers.append(Layer(f"{root}pooler", (pooler,), block=False))
        registered.append(pooler)
    if root:
        heads = _heads(config, architecture, embeddings.modules[0].parameters[0])
        layers.append(heads)
        registered += [*chosen(heads, (f"predictions.{part}" for part in _HEADS)), *chosen(heads, ["seq_relationship"])]
    shape = TransformerShape(
        hidden=hidden,
        heads=config.num_attention_heads,
        kv_heads=config.num_attention_heads,
        head_dim=hidden // config.num_attention_heads,
        intermediate=config.intermediate_size,
        vocabulary=config.vocab_size,
        gated=False,
        dropout=config.hidden_dropout_prob > 0,
        attention_dropout=config.attention_probs_dropout_prob > 0,
    )
    positions = config.max_position_embeddings
    buffers = [Parameter(f"{embeddings.name}.{part}", (1, positions), "int64") for part in _ID_BUFFERS]
    return assemble(name, "bert", layers, registered, shape, buffers, positions)


def _embeddings(config: BertConfig, path: str) -> Layer:
    """In forward order; registered with the positions before the token types."""
    hidden = config.hidden_size
    modules = (
        embedding(f"{path}.word_embeddings", config.vocab_size, hidden),
        embedding(f"{path}.token_type_embeddings", config.type_vocab_size, hidden),
        embedding(f"{path}.position_embeddings", config.max_position_embeddings, hidden),
        norm(f"{path}.LayerNorm", hidden, bias=True),
    )
    return Layer(path, modules, block=False)


def _block(config: BertConfig, path: str) -> Layer:
    hidden, inner = config.hidden_size, config.intermediate_size
    return Layer(
        path,
        (
            linear(f"{path}.attention.self.query", hidden, hidden, bias=True),
            linear(f"{path}.attention.self.key", hidden, hidden, bias=True),
            linear(f"{path}.attention.self.value", hidden, hidden, bias=True),
            attention(f"{path}.attention.self.core", hidden, causal=config.is_decoder),
            linear(f"{path}.attention.output.dense", hidden, hidden, bias=True),
            norm(f"{path}.attention.output.LayerNorm", hidden, bias=True),
            linear(f"{path}.intermediate.dense", hidden, inner, bias=True),
            linear(f"{path}.output.dense", inner, hidden, bias=True),
            norm(f"{path}.output.LayerNorm", hidden, bias=True),
        ),
    )


def _heads(config: BertConfig, architecture: str, words: Parameter) -> Layer:
    """The head of masked words, tied to their embedding; for pretraining the one of the next sentence too."""
    hidden, vocabulary = config.hidden_size, config.vocab_size
    bias = Parameter("cls.predictions.bias", (vocabulary,))
    modules = [
        linear("cls.predictions.transform.dense", hidden, hidden, bias=True),
        norm("cls.predictions.transform.LayerNorm", hidden, bias=True),
        Module("cls.predictions.decoder", "linear", (words, bias), matmul_elements=hidden * vocabulary),
    ]
    if architecture == "BertForPreTraining":
        modules.append(linear("cls.seq_relationship", hidden, 2, bias=True, positions=1))
    return Layer("cls", tuple(modules), block=False)


BERT = Family(
    name="bert",
    summary="BERT: post-norm encoder, learned positions, GELU; heads by its architectures",
    config=BertConfig,
    architectures=_ARCHITECTURES,
    build=build,
)
