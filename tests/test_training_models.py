"""Models: totals and tensors of the named ones, closed forms of any config, models without a family."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.errors import InputError
from simcollectives.training.buckets import MIB, assign
from simcollectives.training.catalogue import describe_model, list_models, load_model, model_names
from simcollectives.training.families import FAMILIES, build_model
from simcollectives.training.model import Model, Parameter
from simcollectives.training.plain import tensor_model, uniform_model

# Parameters, tensors, parameters of each kind of block: transformers 5.24.0 with torch 2.13.0 on the meta device.
TOTALS: dict[str, tuple[int, int, set[int]]] = {
    "gpt2": (124_439_808, 148, {7_087_872}),
    "gpt2-medium": (354_823_168, 292, {12_596_224}),
    "gpt2-large": (774_030_080, 436, {19_677_440}),
    "gpt2-xl": (1_557_611_200, 580, {30_740_800}),
    "gpt3-175b": (174_604_259_328, 1156, {1_812_099_072}),
    "llama-2-7b": (6_738_415_616, 291, {202_383_360}),
    "llama-2-13b": (13_015_864_320, 363, {317_204_480}),
    "llama-2-70b": (68_976_648_192, 723, {855_654_400}),
    "llama-3-8b": (8_030_261_248, 291, {218_112_000}),
    "llama-3-70b": (70_553_706_496, 723, {855_654_400}),
    "llama-3.1-405b": (405_853_388_800, 1137, {3_187_703_808}),
    "mistral-7b-v0.1": (7_241_732_096, 291, {218_112_000}),
    "mixtral-8x7b-v0.1": (46_702_792_704, 291, {1_451_270_144}),
    "qwen2.5-7b": (7_615_616_512, 339, {233_057_792}),
    "bert-large-uncased": (335_141_888, 391, {12_596_224}),
    "bert-large-uncased-mlm": (335_174_458, 394, {12_596_224}),
    "bert-large-uncased-pretraining": (336_226_108, 398, {12_596_224}),
    # The first block of each stack has the table of 32 x 128 relative positions beside.
    "t5-11b": (11_307_321_344, 509, {201_328_640, 201_328_640 + 4096, 268_438_528, 268_438_528 + 4096}),
}
# torchvision's documentation: parameters, and multiply-adds of an image of 224 x 224 pixels in billions.
RESNETS = {"resnet-18": (11_689_512, 1.81), "resnet-34": (21_797_672, 3.66), "resnet-50": (25_557_032, 4.09)}


def modules_of(model: Model) -> list[Any]:
    return [module for layer in model.layers for module in layer.modules]


@pytest.mark.parametrize("name", TOTALS)
def test_a_named_model_has_the_parameters_of_transformers(name: str) -> None:
    model = load_model(name)
    total, tensors, blocks = TOTALS[name]
    assert model.elements == total
    assert len(model.parameters) == tensors
    assert {layer.elements for layer in model.layers if layer.block} == blocks


@pytest.mark.parametrize("name", RESNETS)
def test_a_resnet_has_the_parameters_and_multiply_adds_of_torchvision(name: str) -> None:
    model = load_model(name)
    parameters, multiply_adds = RESNETS[name]
    assert model.elements == parameters
    counted = sum(module.matmul_elements * (module.positions or 0) for module in modules_of(model))
    assert counted / 1e9 == pytest.approx(multiply_adds, abs=0.005)


def test_every_shipped_model_is_tested_and_tells_its_source() -> None:
    assert set(model_names()) == set(TOTALS) | set(RESNETS)
    assert all(named.source and named.architecture for named in list_models())


@pytest.mark.parametrize("name", model_names())
def test_names_are_unique_and_every_parameter_stands_in_a_module(name: str) -> None:
    model = load_model(name)
    names = [module.name for module in modules_of(model)]
    assert len(names) == len(set(names))
    assert {p.name for module in modules_of(model) for p in module.parameters} == set(model.registration)
    assert len(model.registration) == len(set(model.registration))


def test_an_unknown_model_is_told_the_nearest_and_all() -> None:
    with pytest.raises(InputError, match=r"did you mean \"llama-3-8b\"\? known: bert-large-uncased, .*t5-11b"):
        describe_model("llama-3-8B")


def test_a_tied_head_holds_the_embedding_itself() -> None:
    model = load_model("gpt2")
    words = model.layers[0].modules[0].parameters[0]
    assert model.layers[-1].modules[0].parameters == (words,)
    assert (words.name, words.shape) == ("transformer.wte.weight", (50257, 768))
    assert "lm_head.weight" not in model.registration


def test_registration_and_forward_order_of_a_llama_block() -> None:
    model = load_model("llama-3-8b")
    block = model.layers[1]
    assert [module.name.removeprefix("model.layers.0.") for module in block.modules] == [
        "input_layernorm",
        *(f"self_attn.{part}" for part in ("q_proj", "k_proj", "v_proj", "core", "o_proj")),
        "post_attention_layernorm",
        *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
    ]
    assert [p.shape for p in model.parameters[1:10]] == [
        *((4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096)),
        *((14336, 4096), (14336, 4096), (4096, 14336)),
        *((4096,), (4096,)),
    ]


def test_experts_are_two_tensors_of_a_layer() -> None:
    model = load_model("mixtral-8x7b-v0.1")
    shapes = {p.name: p.shape for p in model.parameters}
    assert shapes["model.layers.0.mlp.experts.gate_up_proj"] == (8, 28672, 4096)
    assert shapes["model.layers.0.mlp.experts.down_proj"] == (8, 4096, 14336)
    # Active for each token, embedding included, of transformers' count on the meta device.
    used = sum(module.matmul_elements for module in modules_of(model))
    norms = 65 * 4096
    assert used + norms + 32000 * 4096 == 12_879_925_248


def test_buffers_of_batch_norm_are_two_statistics_and_a_count() -> None:
    model = load_model("resnet-18")
    assert len(model.buffers) == 3 * 20
    assert [(b.name, b.shape, b.dtype) for b in model.buffers[:3]] == [
        ("bn1.running_mean", (64,), "float32"),
        ("bn1.running_var", (64,), "float32"),
        ("bn1.num_batches_tracked", (), "int64"),
    ]


def ready(model: Model) -> list[Parameter]:
    """Parameters in the order of the backward."""
    left = Counter(p.name for module in modules_of(model) for p in module.parameters)
    found = []
    for module in reversed(modules_of(model)):
        for parameter in module.gradients:
            left[parameter.name] -= 1
            if not left[parameter.name]:
                found.append(parameter)
    return found


def bucket_bytes(parameters: list[Parameter], limits: list[float], width: int) -> list[int]:
    return [bucket.bytes for bucket in assign(parameters, limits, lambda p: "one", lambda p: p.elements * width)]


@pytest.mark.parametrize(
    ("name", "limits", "expected"),
    [
        # torchvision's ResNet-18 in float32 under DistributedDataParallel.
        ("resnet-18", [MIB, 25 * MIB], [2_052_000, 28_852_224, 15_853_824]),
        ("resnet-18", [MIB, 35 * MIB], [2_052_000, 38_297_600, 6_408_448]),
        # transformers' GPT-2 under torch 2.13.
        ("gpt2", [MIB, 25 * MIB], [9_446_400, *[28_351_488] * 11, 176_446_464]),
        ("gpt2", [25 * MIB], [*[28_351_488] * 12, 157_541_376]),
        ("gpt2", [100 * MIB], [106_318_848, 111_037_440, 113_405_952, 166_996_992]),
        ("gpt2", [inf], [497_759_232]),
    ],
)
def test_buckets_follow_from_the_order_of_the_gradients(name: str, limits: list[float], expected: list[int]) -> None:
    assert bucket_bytes(ready(load_model(name)), limits, 4) == expected


@pytest.mark.parametrize(
    ("name", "width", "count", "first"),
    [
        ("gpt2-xl", 4, 145, [40_979_200, 40_985_600, 40_998_400]),
        ("bert-large-uncased-mlm", 4, 38, []),
        ("llama-2-7b", 2, 226, [262_144_000, 90_202_112, 90_177_536, 90_177_536, 33_554_432]),
    ],
)
def test_buckets_of_the_registration_walked_backwards(name: str, width: int, count: int, first: list[int]) -> None:
    """Numbers seen with torch 2.13, for tensors in reverse order of their registration."""
    found = bucket_bytes([*reversed(load_model(name).parameters)], [MIB, 25 * MIB], width)
    assert len(found) == count
    assert found[: len(first)] == first


def test_norms_of_llama_are_ready_where_they_are_computed() -> None:
    """Not where they are registered: in a block a norm and down, up, gate, a norm and o, v, k, q."""
    found = bucket_bytes(ready(load_model("llama-2-7b")), [MIB, 25 * MIB], 2)
    head, norm, wide, square = 32000 * 4096 * 2, 4096 * 2, 4096 * 11008 * 2, 4096 * 4096 * 2
    block = [norm + wide, wide, wide, norm + square, square, square, square]
    assert found == [head, *block * 32, norm + head]


SIZES = st.integers(1, 40)
HEADS = st.integers(1, 6)


def built(family: str, config: dict[str, Any], architecture: str | None = None) -> Model:
    return build_model(FAMILIES[family], config, "any", architecture).model


@given(SIZES, SIZES, HEADS, st.integers(1, 9), st.integers(1, 3), st.booleans(), st.none() | SIZES)
def test_closed_form_of_gpt2(
    vocabulary: int, positions: int, heads: int, width: int, layers: int, tied: bool, inner: int | None
) -> None:
    h = heads * width
    i = inner or 4 * h
    config = {"vocab_size": vocabulary, "n_positions": positions, "n_embd": h, "n_head": heads, "n_layer": layers}
    model = built("gpt2", {**config, "n_inner": inner, "tie_word_embeddings": tied})
    block = 4 * h * h + 2 * h * i + 9 * h + i
    assert model.elements == (1 if tied else 2) * vocabulary * h + positions * h + layers * block + 2 * h
    if inner is None:
        assert block == 12 * h * h + 13 * h


@given(
    SIZES,
    SIZES,
    SIZES,
    st.tuples(HEADS, HEADS).map(lambda pair: (pair[0] * pair[1], pair[1])),
    SIZES,
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from(["llama", "mistral", "qwen2", "mixtral"]),
    HEADS,
    st.tuples(st.booleans(), st.booleans()),
)
def test_closed_form_of_decoders(
    v: int,
    h: int,
    i: int,
    heads: tuple[int, int],
    d: int,
    layers: int,
    tied: bool,
    family: str,
    experts: int,
    biases: tuple[bool, bool],
) -> None:
    n, k = heads
    config = {
        "vocab_size": v,
        "hidden_size": h,
        "intermediate_size": i,
        "num_attention_heads": n,
        "num_key_value_heads": k,
        "head_dim": d,
        "num_hidden_layers": layers,
        "tie_word_embeddings": tied,
        "num_local_experts": experts,
        "num_experts_per_tok": 1,
        "attention_bias": biases[0],
        "mlp_bias": biases[1],
    }
    block = 2 * h * n * d + 2 * h * k * d + 2 * h
    block += experts * (h + 3 * h * i) if family == "mixtral" else 3 * h * i
    if family == "llama":
        block += biases[0] * (n * d + 2 * k * d + h) + biases[1] * (2 * i + h)
    elif family == "qwen2":
        block += n * d + 2 * k * d
    assert built(family, config).elements == (1 if tied else 2) * v * h + h + layers * block


@given(SIZES, SIZES, st.integers(1, 4), HEADS, st.integers(1, 9), SIZES, st.integers(1, 3))
def test_closed_form_of_bert(v: int, p: int, t: int, heads: int, width: int, i: int, layers: int) -> None:
    h = heads * width
    config = {
        "vocab_size": v,
        "max_position_embeddings": p,
        "type_vocab_size": t,
        "hidden_size": h,
        "num_attention_heads": heads,
        "intermediate_size": i,
        "num_hidden_layers": layers,
    }
    common = (v + p + t) * h + 2 * h + layers * (4 * h * h + 4 * h + 2 * h * i + i + h + 4 * h)
    pooler, words = h * h + h, h * h + h + 2 * h + v
    assert built("bert", config).elements == common + pooler
    assert built("bert", config, "BertForMaskedLM").elements == common + words
    assert built("bert", config, "BertForPreTraining").elements == common + pooler + words + 2 * h + 2


@given(SIZES, SIZES, HEADS, SIZES, SIZES, st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_closed_form_of_t5(
    v: int, d: int, heads: int, k: int, ff: int, layers: int, decoders: int, gated: bool
) -> None:
    config = {
        "vocab_size": v,
        "d_model": d,
        "num_heads": heads,
        "d_kv": k,
        "d_ff": ff,
        "num_layers": layers,
        "num_decoder_layers": decoders,
        "feed_forward_proj": "gated-gelu" if gated else "relu",
    }
    forward = (3 if gated else 2) * d * ff
    encoder = layers * (4 * d * heads * k + forward + 2 * d) + 32 * heads + d
    decoder = decoders * (8 * d * heads * k + forward + 3 * d) + 32 * heads + d
    assert built("t5", config).elements == v * d + encoder + decoder
    assert built("t5", config, "T5EncoderModel").elements == v * d + encoder


def test_a_width_that_heads_do_not_divide_is_refused_unless_theirs_is_given() -> None:
    config = {"vocab_size": 9, "hidden_size": 10, "intermediate_size": 8, "num_attention_heads": 4}
    config |= {"num_hidden_layers": 1, "num_key_value_heads": 3}
    with pytest.raises(InputError) as caught:
        built("llama", config)
    assert [problem.place for problem in caught.value.problems] == ["$.num_attention_heads", "$.num_key_value_heads"]
    shape = built("llama", {**config, "head_dim": 7, "num_key_value_heads": 2}).shape
    assert shape is not None
    assert (shape.head_dim, shape.kv_heads) == (7, 2)


@pytest.mark.parametrize(
    ("family", "field", "value", "words"),
    [
        ("gpt2", "add_cross_attention", True, "not modelled"),
        ("gpt2", "n_head", 5, "divisor"),
        ("bert", "tie_word_embeddings", False, "not modelled"),
        ("t5", "feed_forward_proj", "a-b-c", "gated-gelu"),
        ("t5", "num_decoder_layers", 10_001, "give fewer"),
        ("mixtral", "num_experts_per_tok", 9, "give fewer"),
        ("resnet", "block", "wide", "bottleneck"),
        ("resnet", "layers", [2, 2], "four"),
        ("resnet", "layers", [2, 2, 2, 0], "list of whole numbers"),
        ("resnet", "image_size", 16, "pixels"),
    ],
)
def test_what_a_family_does_not_model_is_refused(family: str, field: str, value: object, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        build_model(FAMILIES[family], {field: value}, "any", whole=False)
    assert [problem.place for problem in caught.value.problems] == [f"$.{field}"]


@given(st.integers(1, 10**12), st.integers(1, 20), st.integers(1, 20))
def test_a_uniform_model_has_its_parameters_exactly(parameters: int, layers: int, each: int) -> None:
    if parameters < layers * each:
        with pytest.raises(InputError, match="give fewer"):
            uniform_model(parameters, layers, each)
        return
    model = uniform_model(parameters, layers, each)
    sizes = [parameter.elements for parameter in model.parameters]
    assert sum(sizes) == parameters == sum(module.matmul_elements for module in modules_of(model))
    assert len(sizes) == layers * each
    assert len(model.layers) == layers
    assert max(sizes) - min(sizes) <= 1


def test_the_lecture_s_model_of_equal_tensors() -> None:
    model = uniform_model(1.36e9, 24, 16)
    assert len(model.parameters) == 384
    assert model.elements == 1_360_000_000


@pytest.mark.parametrize(
    ("given_", "places"),
    [((0, 1.5, True), ["parameters", "layers", "tensors_per_layer"]), ((1e9, 10**6, 2), ["layers"])],
)
def test_bad_uniform_models(given_: tuple[Any, Any, Any], places: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        uniform_model(*given_)
    assert [problem.place for problem in caught.value.problems] == places


def listed(model: Model) -> list[Parameter]:
    return list(model.parameters)


@pytest.mark.parametrize("name", ["gpt2", "llama-2-7b", "resnet-18", "t5-11b"])
def test_a_list_of_tensors_finds_the_blocks_by_their_numbers(name: str) -> None:
    named = load_model(name)
    model = tensor_model("list", listed(named))
    assert model.registration == named.registration
    assert model.elements == named.elements
    blocks = {layer.name: layer.elements for layer in model.layers if layer.block}
    assert blocks == {layer.name: layer.elements for layer in named.layers if layer.block}


def test_a_list_of_tensors_in_one_layer() -> None:
    tensors = [Parameter("a.weight", (4, 3)), Parameter("a.bias", (4,)), Parameter("scale", (3,))]
    model = tensor_model("list", tensors, grouped=False)
    assert [layer.name for layer in model.layers] == ["list"]
    assert [(m.name, m.kind, m.matmul_elements) for m in modules_of(model)] == [
        ("a", "linear", 12),
        ("scale", "norm", 0),
    ]
    assert [p.name for p in model.layers[0].modules[0].gradients] == ["a.bias", "a.weight"]


def test_bad_lists_of_tensors_tell_all_problems() -> None:
    with pytest.raises(InputError, match="empty"):
        tensor_model("list", [])
    with pytest.raises(InputError) as caught:
        tensor_model("list", [Parameter("a", (0, 2)), Parameter("a", (1,)), Parameter("", (2,)), Parameter("b", (-1,))])
    assert [problem.place for problem in caught.value.problems] == [f"tensors[{index}]" for index in range(4)]


@pytest.mark.parametrize("name", [["gpt2"], {}, None, 2])
def test_what_is_no_name_is_no_model(name: Any) -> None:
    with pytest.raises(InputError, match="is not a known model"):
        load_model(name)
