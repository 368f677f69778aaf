"""FLOPs: what transformers' models take, the ratios to 6 FLOPs a parameter, and Megatron's closed forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.errors import InputError
from simcollectives.training.catalogue import load_model, model_names
from simcollectives.training.families import FAMILIES, build_model
from simcollectives.training.flops import Flops, convention, layer_flops, model_flops, module_flops, utilisation
from simcollectives.training.model import Parameter
from simcollectives.training.plain import tensor_model, uniform_model
from simcollectives.training.workload import Workload

# Elements that a token is multiplied with, sequence, and FLOPs of one forward with full attention: arithmetic of the
# tensors of transformers 5.24.0, equal to torch 2.13.0's FlopCounterMode on small models.
FORWARD: dict[str, tuple[int, int, int]] = {
    "gpt2": (123_532_032, 1024, 291_648_307_200),
    "gpt2-medium": (353_453_056, 1024, 826_951_073_792),
    "gpt2-large": (772_117_760, 1024, 1_774_570_700_800),
    "gpt2-xl": (1_554_971_200, 1024, 3_506_703_564_800),
    "gpt3-175b": (174_563_733_504, 2048, 734_804_261_732_352),
    "llama-2-7b": (6_607_077_376, 4096, 62_921_270_886_400),
    "llama-2-13b": (12_851_609_600, 4096, 119_024_281_190_400),
    "llama-2-70b": (68_713_185_280, 4096, 606_878_878_924_800),
    "llama-3-8b": (7_504_658_432, 4096, 70_274_254_897_152),
    "llama-3-70b": (69_501_714_432, 4096, 613_338_509_737_984),
    "mistral-7b-v0.1": (7_110_393_856, 4096, 67_044_439_490_560),
    "qwen2.5-7b": (7_070_285_824, 4096, 64_654_290_190_336),
}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_flops_of_named_models(name: str) -> None:
    model = load_model(name)
    matmul, sequence, expected = FORWARD[name]
    assert sum(module.matmul_elements for layer in model.layers for module in layer.modules) == matmul
    flops = model_flops(model, Workload(1, sequence))
    assert flops.forward == expected
    assert flops.backward == 2 * expected


def test_a_token_of_mixtral_goes_through_two_experts_and_the_router() -> None:
    flops = model_flops(load_model("mixtral-8x7b-v0.1"), Workload(1, 1024))
    assert flops.forward == 2 * 1024 * 12_748_587_008 + 4 * 32 * 1024**2 * 4096


@pytest.mark.parametrize(
    ("name", "sequence", "full", "causal"),
    [
        ("gpt2", 1024, 1.144, 1.069),
        ("gpt2-xl", 1024, 1.099, 1.049),
        ("gpt3-175b", 2048, 1.027, 1.014),
        ("llama-2-7b", 4096, 1.140, 1.060),
        ("llama-2-13b", 4096, 1.116, 1.052),
        ("llama-2-70b", 4096, 1.074, 1.035),
        ("llama-3-8b", 8192, 1.202, 1.068),
        ("llama-3-70b", 8192, 1.137, 1.061),
    ],
)
def test_ratio_to_six_flops_a_parameter_and_token(name: str, sequence: int, full: float, causal: float) -> None:
    """Published arithmetic: 3 F / (6 parameters x tokens)."""
    model = load_model(name)
    rule = 6 * model.elements * sequence
    assert model_flops(model, Workload(1, sequence)).model / rule == pytest.approx(full, abs=5e-4)
    half = Workload(1, sequence, attention_flops="causal")
    assert model_flops(model, half).model / rule == pytest.approx(causal, abs=5e-4)


def gpt2(heads: int, width: int, layers: int, vocabulary: int) -> Any:
    config = {"n_embd": heads * width, "n_head": heads, "n_layer": layers, "vocab_size": vocabulary}
    return build_model(FAMILIES["gpt2"], {**config, "n_positions": 4096}, "any").model


@given(
    st.integers(1, 8),
    st.integers(1, 64),
    st.integers(1, 5),
    st.integers(1, 999),
    st.integers(1, 4096),
    st.integers(1, 9),
)
def test_closed_forms_of_megatron(heads: int, width: int, layers: int, v: int, s: int, b: int) -> None:
    """Narayanan et al. 2021, arXiv 2104.04473: 72 b L s h^2 (1 + s/6h + v/12hL); recomputed, 96 and v/16hL.

    Selective recomputation adds one forward of the attention to the first: 4 b L s^2 h.
    """
    model, h = gpt2(heads, width, layers, v), heads * width
    block = b * layers * s * h * h
    needed = 72 * block * (1 + s / (6 * h) + v / (12 * h * layers))
    full = 96 * block * (1 + s / (6 * h) + v / (16 * h * layers))
    exact = {"rel": 1e-12}
    for recomputation, expected in (("none", needed), ("full", full), ("selective", needed + 4 * block * s / h)):
        flops = model_flops(model, Workload(b, s, recomputation, attention_kernel="eager"))  # type: ignore[arg-type]
        assert flops.model == pytest.approx(needed, **exact)
        assert flops.hardware == pytest.approx(expected, **exact)


@given(
    st.sampled_from([name for name in model_names() if "175b" not in name]),
    st.integers(1, 512),
    st.integers(1, 64),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from(["eager", "flash"]),
    st.sampled_from(["full", "causal"]),
)
def test_modules_make_layers_and_layers_make_the_model(
    name: str, sequence: int, samples: int, recomputation: Any, kernel: Any, attention: Any
) -> None:
    model = load_model(name)
    if not model.has_sequence:
        sequence, recomputation = 1, "none" if recomputation == "selective" else recomputation
    workload = Workload(samples, sequence, recomputation, kernel, attention)
    whole = model_flops(model, workload)
    layers = [layer_flops(layer, workload) for layer in model.layers]
    assert sum(layers, Flops()) == whole
    assert whole.model == 3 * whole.forward
    assert whole.forward == samples * model_flops(model, Workload(1, sequence, attention_flops=attention)).forward
    assert whole.hardware >= whole.model
    assert whole.recomputation <= whole.forward
    one = next(layer for layer in model.layers if layer.block)
    plain = sum((module_flops(module, workload) for module in one.modules), Flops())
    assert replace(layer_flops(one, workload), recomputation=0) == plain


def test_every_second_product_is_recomputed() -> None:
    """Llama: of q, k, v, o, gate, up and down, those of k, o and up; 2 FLOPs an element and token."""
    model = load_model("llama-3-8b")
    found = model_flops(model, Workload(1, 8192, "operators"))
    assert found.recomputation == 32 * 8192 * 2 * 4096 * (1024 + 4096 + 14336)


def test_the_head_is_not_recomputed() -> None:
    model = load_model("gpt2")
    workload = Workload(1, 1024, "full")
    head = layer_flops(model.layers[-1], workload)
    assert head.forward == 2 * 1024 * 768 * 50257
    assert head.recomputation == 0
    whole = model_flops(model, workload)
    assert whole.recomputation == whole.forward - head.forward


def test_a_flash_kernel_executes_two_and_a_half_forwards_of_attention_in_its_backward() -> None:
    model = load_model("gpt2")
    core = model.layers[1].modules[2]
    flash = module_flops(core, Workload(1, 1024))
    assert flash.backward + flash.rebuilding == 2.5 * flash.forward
    assert module_flops(core, Workload(1, 1024, attention_kernel="eager")).rebuilding == 0


def test_only_causal_attention_is_halved() -> None:
    halved = Workload(1, 512, attention_flops="causal")
    bert, t5 = load_model("bert-large-uncased"), load_model("t5-11b")
    assert model_flops(bert, halved) == model_flops(bert, Workload(1, 512))
    saved = model_flops(t5, Workload(1, 512)).forward - model_flops(t5, halved).forward
    assert saved == 24 * 2 * 512**2 * 128 * 128  # of the decoder's attention to itself alone


def test_models_without_a_family_take_two_flops_an_element() -> None:
    workload = Workload(2, 2048)
    assert model_flops(uniform_model(1_300_000_000, 24, 16), workload).model == 6 * 1_300_000_000 * 4096
    listed = tensor_model("list", [Parameter("a.weight", (4, 3)), Parameter("a.bias", (4,))])
    assert model_flops(listed, workload).forward == 2 * 12 * 4096


def test_a_pooler_sees_one_token_of_a_sequence() -> None:
    pooler = load_model("bert-large-uncased").layers[-1]
    assert layer_flops(pooler, Workload(3, 512)).forward == 3 * 2 * 1024**2


def test_utilisation_of_a_peak() -> None:
    assert utilisation(45, 2.0, 50.0) == 0.45
    assert utilisation(45, 0.0, 50.0) is None
    assert utilisation(45, 2.0, 0.0) is None


def test_the_convention_is_told() -> None:
    text = convention(Workload(1, 1, "full", "flash", "causal"))
    assert "half of the pairs" in text
    assert "blocks are recomputed, flash attention rebuilds" in text
    assert "every pair" in convention(Workload(1, 1))


def test_bad_workloads_tell_all_problems() -> None:
    with pytest.raises(InputError) as caught:
        Workload(0, True, "some", "fast", "half")  # type: ignore[arg-type]
    assert [problem.place for problem in caught.value.problems] == [
        *("samples", "sequence", "recomputation", "attention_kernel", "attention_flops"),
    ]


def test_sequences_longer_than_the_learned_positions_are_refused() -> None:
    with pytest.raises(InputError, match="513 tokens; bert-large-uncased has learned positions for 512"):
        model_flops(load_model("bert-large-uncased"), Workload(1, 513))
    assert model_flops(load_model("llama-3-8b"), Workload(1, 1_000_000)).forward > 0
