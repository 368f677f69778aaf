"""config.json of Hugging Face: which family, which heads, what is assumed, and everything wrong at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.errors import InputError, Problem
from simcollectives.interop.huggingface import NAMES, read_model
from simcollectives.training.families import FAMILIES

SMALL = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 97}
LLAMA: dict[str, Any] = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SMALL}
# mistralai/Mistral-Nemo-Base-2407: heads of 128, though 5120 / 32 = 160. Published with 12.2 B parameters.
NEMO = {
    "architectures": ["MistralForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 5120,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 40,
    "num_key_value_heads": 8,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 131072,
}


def problems(source: Any) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        read_model(source)
    return [(problem.place, problem.message) for problem in caught.value.problems]


def write(folder: Path, data: object, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_heads_narrower_than_the_width_allows() -> None:
    built = read_model(NEMO)
    assert built.model.elements == 12_247_782_400
    assert built.model.parameters[1].shape == (32 * 128, 5120)
    assert (built.assumed, built.warnings) == ((), ())


def test_a_file_or_its_folder_gives_the_model_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "small-llama"
    folder.mkdir()
    path = write(folder, LLAMA)
    assert read_model(path).model.name == read_model(folder).model.name == "small-llama"
    assert read_model(write(folder, LLAMA, "other.json")).model.name == "other"
    assert read_model(path, "mine").model.name == "mine"
    assert read_model(LLAMA).model == read_model(path, "model").model


def test_what_is_left_out_is_told_with_what_stands_for_it() -> None:
    built = read_model({**LLAMA, "num_key_value_heads": None})
    assert dict(built.assumed) == {
        "head_dim": 12,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
    }
    assert dict(read_model({"model_type": "gpt2", **GPT2}).assumed)["n_inner"] == 4 * 48
    assert read_model(LLAMA).model.shape == read_model({**LLAMA, "num_key_value_heads": 4}).model.shape


GPT2 = {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 97}


@pytest.mark.parametrize("family", NAMES)
def test_defaults_are_those_of_transformers(family: str) -> None:
    """Sizes apart, a config without fields is the one that the family's class makes: a sample of them."""
    expected = {
        "bert": {"type_vocab_size": 2, "hidden_dropout_prob": 0.1, "tie_word_embeddings": True},
        "gpt2": {"resid_pdrop": 0.1, "tie_word_embeddings": True},
        "llama": {"num_key_value_heads": 32, "tie_word_embeddings": False, "attention_bias": False},
        "mistral": {"num_key_value_heads": 8, "sliding_window": 4096, "intermediate_size": 14336},
        "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
        "qwen2": {"num_key_value_heads": 32, "vocab_size": 151936, "intermediate_size": 22016},
        "t5": {"num_decoder_layers": 6, "d_kv": 64, "d_ff": 2048, "feed_forward_proj": "relu"},
    }[family]
    assumed = dict(read_model({"model_type": "both", "text_config": {"model_type": family}}).assumed)
    assert {field: assumed[field] for field in expected} == expected


@pytest.mark.torch
@pytest.mark.parametrize("family", NAMES)
def test_every_default_is_that_of_transformers(family: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    theirs = transformers.AutoConfig.for_model(family)
    assumed = dict(read_model({"model_type": "both", "text_config": {"model_type": family}}).assumed)
    architecture = assumed.pop("architectures")
    assert architecture == FAMILIES[family].architectures[0]
    derived = {"n_inner": 4 * 768}
    head_dim = theirs.__dict__.get("head_dim") or 4096 // 32
    for field, value in assumed.items():
        expected = getattr(theirs, field, None)
        if field == "head_dim":
            expected = head_dim
        if field == "sliding_window" and family == "qwen2":
            expected = 4096  # kept by the file, put aside by use_sliding_window
        assert value == (derived.get(field) if expected is None and field in derived else expected), field


def test_heads_are_chosen_by_the_architecture() -> None:
    bert = {"model_type": "bert", **SMALL, "max_position_embeddings": 32}
    tensors = {
        name: len(read_model({**bert, "architectures": [name]}).model.parameters)
        for name in ("BertModel", "BertForMaskedLM", "BertForPreTraining")
    }
    # Two blocks of 16 tensors, 5 of the embeddings; 2 of the pooler; 5 of the words; 2 of the next sentence.
    assert tensors == {"BertModel": 39, "BertForMaskedLM": 42, "BertForPreTraining": 46}
    bare = read_model({**LLAMA, "architectures": ["LlamaModel"]})
    assert bare.model.registration[0] == "embed_tokens.weight"
    assert read_model({**LLAMA, "architectures": None}).architecture == "LlamaForCausalLM"
    two = read_model({**LLAMA, "architectures": ["LlamaModel", "LlamaForCausalLM"]})
    assert two.warnings == ("architectures: LlamaModel is taken, not LlamaForCausalLM",)


def test_the_text_model_of_several_is_taken_with_a_warning() -> None:
    """As llava-hf/llava-1.5-7b-hf, whose text_config leaves out what equals LlamaConfig's defaults."""
    text = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32064}
    config = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "text_config": text}
    built = read_model({**config, "vision_config": {"model_type": "clip_vision_model"}})
    # Vicuna 7B, whose vocabulary is padded by 64 words: 64 more rows of 4096 in the embedding and in the head.
    assert built.model.elements == 6_738_415_616 + 2 * 64 * 4096
    assert built.warnings == ('text_config of "llava" is taken alone; left out: vision_config',)
    assert dict(built.assumed)["hidden_size"] == 4096
    tied = read_model({**config, "tie_word_embeddings": True})
    assert tied.model.elements == built.model.elements - 32064 * 4096


def test_problems_of_a_nested_part_have_its_place() -> None:
    assert problems({"model_type": "x", "text_config": {"model_type": "llama", "vocab_size": -1}})[0][0] == (
        "$.text_config.vocab_size"
    )
    assert problems({"model_type": "x", "text_config": {"vocab_size": 1}})[0][0] == "$.text_config.model_type"


def test_an_unknown_family_is_told_the_nearest_and_all() -> None:
    ((place, message),) = problems({**LLAMA, "model_type": "llamma"})
    assert place == "$.model_type"
    assert message == (
        '"llamma" is not a known family; did you mean "llama"? known: bert, gpt2, llama, mistral, mixtral, qwen2, t5'
    )
    assert "resnet" not in NAMES
    assert problems({})[0][1].startswith("this field is missing")


def test_all_problems_at_once_with_remedies() -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLN"],
        "hidden_sise": 4096,
        "intermediate_size": "80",
        "num_hidden_layers": 1e3,
        "num_attention_heads": 0,
        "num_key_value_heads": True,
        "attention_dropout": 2,
        "mlp_bias": 1,
        "vocab_size": None,
    }
    found = dict(problems(config))
    assert list(found) == [
        f"$.{field}"
        for field in (
            *("architectures", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
            *("num_attention_heads", "num_key_value_heads", "attention_dropout", "mlp_bias"),
        )
    ]
    assert 'did you mean "LlamaForCausalLM"? known for llama: LlamaForCausalLM, LlamaModel' in found["$.architectures"]
    assert 'is it "hidden_sise", misspelled? add it' in found["$.hidden_size"]
    assert found["$.num_hidden_layers"].startswith("1000.0 is not a whole number from 1 to 10000")
    assert found["$.mlp_bias"] == "1 is not true or false; write for instance false"


def test_architectures_that_are_no_list_of_names() -> None:
    found = problems({**LLAMA, "architectures": "LlamaForCausalLM", "vocab_size": 0})
    assert [place for place, _ in found] == ["$.architectures", "$.vocab_size"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**LLAMA, "quantization_config": {"bits": 4}}, "quantization_config is not applied"),
        ({"model_type": "mistral", **SMALL, "num_key_value_heads": 4}, "sliding window of 4096 tokens is not applied"),
        ({"model_type": "qwen2", **SMALL, "num_key_value_heads": 4, "use_sliding_window": True}, "sliding window"),
        (
            {"model_type": "t5", "vocab_size": 9, "d_model": 8, "d_kv": 2, "d_ff": 4, "num_layers": 1, "num_heads": 2}
            | {"tie_word_embeddings": False},
            "ties T5's embeddings always",
        ),
    ],
)
def test_what_is_not_applied_is_warned_of(config: dict[str, Any], words: str) -> None:
    (warning,) = read_model(config).warnings
    assert words in warning


def test_other_names_of_a_field_are_known() -> None:
    renamed = {"model_type": "gpt2", "vocab_size": 97, "hidden_size": 48, "num_hidden_layers": 2}
    renamed |= {"num_attention_heads": 4, "max_position_embeddings": 32}
    assert read_model(renamed).model == read_model({"model_type": "gpt2", **GPT2}).model


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "this is not JSON"),
        (b'{"a": 1,\n"b": }', "line 2"),
        (b"[1]", "must hold an object"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"a": 1, "a": 2}', '"a" is there twice'),
        (b"[" * 100_000, "nested too deeply"),
        (b" " * (1 << 20) + b"{}", "larger than 1048576 bytes"),
    ],
)
def test_files_that_are_no_config(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        read_model(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_model(tmp_path / "nothing.json")
    with pytest.raises(InputError, match=r"the folder has no config\.json; name the file"):
        read_model(tmp_path)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.data(), st.sampled_from(["llama", "gpt2", "t5", "bert", "mixtral"]))
def test_any_values_give_a_model_or_an_error_with_places(data: st.DataObject, family: str) -> None:
    names = list(FAMILIES[family].config.__dataclass_fields__)
    small = st.integers(1, 12)
    fields = data.draw(st.dictionaries(st.sampled_from([*names, "architectures"]), small | ANYTHING))
    found: tuple[Problem, ...] = ()
    elements = 0
    try:
        config = {"model_type": family, **SMALL_LAYERS, **fields}
        elements = read_model({"model_type": "both", "text_config": config}).model.elements
    except InputError as error:
        found = error.problems
    assert bool(found) == (elements == 0)
    assert all(problem.place.startswith("$.text_config.") and problem.message for problem in found)


SMALL_LAYERS = {"num_hidden_layers": 1, "n_layer": 1, "num_layers": 1}
