"""Peer: transformers and torch, on tiny models. Tensors, gradients, FLOPs and activations must be theirs.

torchvision is not needed: what it publishes of ResNets is tested with the models.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from simcollectives.interop.huggingface import read_model
from simcollectives.training.activations import FLOAT32_BYTES, MASK_BYTES, activations
from simcollectives.training.flops import model_flops
from simcollectives.training.model import Model
from simcollectives.training.workload import Workload

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = pytest.mark.torch

SAMPLES, SEQUENCE = 2, 24
WORKLOAD = Workload(SAMPLES, SEQUENCE, attention_kernel="eager")
SMALL = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 97}
GPT2 = {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 97, "activation_function": "gelu"}
BERT = {**SMALL, "max_position_embeddings": 32}
T5 = {"d_model": 48, "d_kv": 8, "d_ff": 80, "num_layers": 2, "num_heads": 4, "vocab_size": 97}

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("gpt2", "GPT2LMHeadModel", GPT2),
    "gpt2-inner": ("gpt2", "GPT2LMHeadModel", {**GPT2, "n_inner": 60}),
    "gpt2-untied": ("gpt2", "GPT2LMHeadModel", {**GPT2, "tie_word_embeddings": False}),
    "gpt2-bare": ("gpt2", "GPT2Model", GPT2),
    "llama": ("llama", "LlamaForCausalLM", SMALL),
    "llama-grouped": ("llama", "LlamaForCausalLM", {**SMALL, "num_key_value_heads": 2}),
    "llama-biased": ("llama", "LlamaForCausalLM", {**SMALL, "attention_bias": True, "mlp_bias": True}),
    "llama-tied": ("llama", "LlamaForCausalLM", {**SMALL, "tie_word_embeddings": True}),
    "llama-bare": ("llama", "LlamaModel", SMALL),
    "mistral-head-dim": ("mistral", "MistralForCausalLM", {**SMALL, "head_dim": 20, "num_key_value_heads": 1}),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", {**SMALL, "num_key_value_heads": 2, "tie_word_embeddings": True}),
    "mixtral": ("mixtral", "MixtralForCausalLM", {**SMALL, "num_key_value_heads": 2}),
    "mixtral-four": ("mixtral", "MixtralForCausalLM", {**SMALL, "num_key_value_heads": 4, "num_local_experts": 4}),
    "bert": ("bert", "BertModel", BERT),
    "bert-words": ("bert", "BertForMaskedLM", BERT),
    "bert-pretraining": ("bert", "BertForPreTraining", BERT),
    "t5": ("t5", "T5ForConditionalGeneration", T5),
    "t5-gated": (
        "t5",
        "T5ForConditionalGeneration",
        {**T5, "feed_forward_proj": "gated-gelu", "num_decoder_layers": 1},
    ),
    "t5-bare": ("t5", "T5Model", T5),
    "t5-encoder": ("t5", "T5EncoderModel", T5),
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> tuple[Any, Model]:
    """The model of transformers, and ours of the config that it would save."""
    return pair(request.param)


def pair(name: str, experts: str = "eager") -> tuple[Any, Model]:
    kind, architecture, fields = CASES[name]
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(
        kind, **fields, attn_implementation="eager", experts_implementation=experts
    )
    theirs = getattr(transformers, architecture)(config)
    saved = {**config.to_dict(), "architectures": [architecture]}
    return theirs, read_model(saved).model


def inputs(theirs: Any) -> dict[str, Any]:
    tokens = torch.randint(3, 97, (SAMPLES, SEQUENCE))
    given = {"input_ids": tokens}
    if type(theirs).__name__ in ("T5ForConditionalGeneration", "T5Model"):
        given["decoder_input_ids"] = tokens
    return given


def loss(theirs: Any) -> Any:
    """The sum of what the model returns, so that all of its parameters get a gradient."""
    output = theirs(**inputs(theirs), return_dict=True)
    kinds = ("logits", "prediction_logits", "seq_relationship_logits", "last_hidden_state", "pooler_output")
    return sum(output[kind].float().sum() for kind in kinds if output.get(kind) is not None)


def test_tensors_are_those_of_transformers_in_their_order(case: tuple[Any, Model]) -> None:
    theirs, ours = case
    assert [(p.name, p.shape) for p in ours.parameters] == [
        (name, tuple(tensor.shape)) for name, tensor in theirs.named_parameters()
    ]
    assert [(b.name, b.shape, f"torch.{b.dtype}") for b in ours.buffers] == [
        (name, tuple(tensor.shape), str(tensor.dtype)) for name, tensor in theirs.named_buffers()
    ]


def test_gradients_are_ready_in_the_order_of_autograd(case: tuple[Any, Model]) -> None:
    theirs, ours = case
    ready: list[str] = []
    for name, tensor in theirs.named_parameters():
        tensor.register_post_accumulate_grad_hook(lambda _, name=name: ready.append(name))
    loss(theirs).backward()
    assert ready == expected_order(ours)


def expected_order(model: Model) -> list[str]:
    """Layers and modules from the last to the first; a parameter when the last module that uses it is done."""
    modules = [module for layer in model.layers for module in layer.modules]
    left = Counter(parameter.name for module in modules for parameter in module.parameters)
    order = []
    for module in reversed(modules):
        for parameter in module.gradients:
            left[parameter.name] -= 1
            if not left[parameter.name]:
                order.append(parameter.name)
    return order


def test_flops_are_those_that_torch_counts(case: tuple[Any, Model]) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    theirs, ours = case
    flops = model_flops(ours, WORKLOAD)
    with FlopCounterMode(display=False) as forward:
        value = loss(theirs)
    with FlopCounterMode(display=False) as backward:
        value.backward()
    assert forward.get_total_flops() == flops.forward
    assert backward.get_total_flops() == flops.backward


def kept_by_autograd(theirs: Any) -> int:
    """Bytes of all storages that a training step keeps for the backward, but of parameters, buffers and inputs."""
    given = inputs(theirs)
    targets = torch.randint(3, 97, (SAMPLES * SEQUENCE,))
    own = [*theirs.parameters(), *theirs.buffers(), *given.values(), targets]
    sizes = {tensor.untyped_storage().data_ptr(): 0 for tensor in own}
    alive = []

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        sizes.setdefault(storage.data_ptr(), storage.nbytes())
        alive.append(tensor)
        return tensor

    theirs.train()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = theirs(**given, use_cache=False).logits if takes_cache(theirs) else theirs(**given).logits
        torch.nn.functional.cross_entropy(logits.view(-1, 97).float(), targets)
    return sum(sizes.values())


def takes_cache(theirs: Any) -> bool:
    return not type(theirs).__name__.startswith("Bert")


TOKENS = SAMPLES * SEQUENCE
INT64_BYTES, SCALAR = 8, FLOAT32_BYTES
NORM_STATISTICS = {"gpt2": 2, "bert": 2, "llama": 1, "t5": 1, "mixtral": 1}


def beyond_the_count(ours: Model, kind: str) -> int:
    """Bytes that these CPU kernels keep beyond what is counted, in float32: each a thing that the count leaves out."""
    counted = activations(ours, WORKLOAD, "float32").layers or ()
    # A mask of the CPU's dropout is float32, not one byte an element.
    masks = sum(size for layer in counted for name, size in layer.kept if "mask" in name)
    found = masks // MASK_BYTES * (FLOAT32_BYTES - MASK_BYTES)
    # Norms keep their statistics; RMSNorm, made of several operations here, its normalised input too.
    norms = sum(module.kind == "norm" for layer in ours.layers for module in layer.modules)
    copies = 0 if kind in ("gpt2", "bert") else 48
    found += norms * TOKENS * FLOAT32_BYTES * (NORM_STATISTICS[kind] + copies)
    # Positions: their numbers, token types, cosines and sines, or numbers of buckets in each stack.
    positions = {
        "gpt2": SEQUENCE * INT64_BYTES,
        "bert": SEQUENCE * INT64_BYTES,
        "llama": 2 * SEQUENCE * 12 * FLOAT32_BYTES,
        "mixtral": 2 * SEQUENCE * 12 * FLOAT32_BYTES,
        "t5": 2 * SEQUENCE**2 * INT64_BYTES,
    }
    return found + positions[kind] + SCALAR  # the loss keeps the sum of its weights


@pytest.mark.parametrize("name", ["gpt2", "gpt2-inner", "bert-words", "llama", "llama-biased", "t5"])
def test_activations_are_those_that_autograd_keeps(name: str) -> None:
    theirs, ours = pair(name)
    counted = activations(ours, WORKLOAD, "float32").kept_bytes
    assert counted is not None
    assert kept_by_autograd(theirs) == counted + beyond_the_count(ours, CASES[name][0])


def test_activations_of_experts_are_those_that_autograd_keeps_but_for_the_routing() -> None:
    """Each token's experts are noted as numbers; the layout of that is left out."""
    theirs, ours = pair("mixtral-four", experts="grouped_mm")
    counted = activations(ours, WORKLOAD, "float32").kept_bytes
    assert counted is not None
    routing = kept_by_autograd(theirs) - counted - beyond_the_count(ours, "mixtral")
    assert 0 < routing < 0.02 * counted


def test_flash_attention_keeps_row_sums_in_place_of_the_softmax() -> None:
    theirs, ours = pair("llama")
    theirs.config._attn_implementation = "sdpa"
    workload = Workload(SAMPLES, SEQUENCE, attention_kernel="flash")
    counted = activations(ours, workload, "float32").kept_bytes
    assert counted is not None
    sums = 2 * TOKENS * 4 * FLOAT32_BYTES  # of two blocks, four heads
    assert kept_by_autograd(theirs) == counted + beyond_the_count(ours, "llama") + sums
