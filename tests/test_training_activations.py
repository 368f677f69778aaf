"""Activations: the published formulas, and what each recomputation keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.errors import InputError
from simcollectives.training.activations import Activations, LayerActivations, activations
from simcollectives.training.catalogue import list_models, load_model
from simcollectives.training.families import FAMILIES, build_model
from simcollectives.training.plain import uniform_model
from simcollectives.training.workload import Workload

GIB = 1 << 30


def blocks(found: Activations, part: str = ".h.") -> list[LayerActivations]:
    return [layer for layer in found.layers or () if part in layer.layer]


def kept(found: Activations, part: str = ".h.") -> int:
    return sum(layer.bytes.kept for layer in blocks(found, part))


@given(st.integers(1, 8), st.integers(1, 64), st.integers(1, 256), st.integers(1, 9), st.integers(1, 3))
def test_formulas_of_korthikanti(a: int, width: int, s: int, b: int, layers: int) -> None:
    """arXiv 2205.05198, equations 2 and 5, table 2, without parallelism: bytes in 16 bits."""
    h = a * width
    config = {"n_embd": h, "n_head": a, "n_layer": layers, "vocab_size": 50, "n_positions": 256}
    model = build_model(FAMILIES["gpt2"], config, "any").model
    scores = 5 * a * s * s * b
    everything = 34 * s * b * h + scores
    for recomputation, kernel, keeps, works in (
        ("none", "eager", everything, 0),
        ("none", "flash", 34 * s * b * h, 0),
        ("selective", "eager", 34 * s * b * h, scores),
        ("full", "eager", 2 * s * b * h, everything - 2 * s * b * h),
    ):
        found = activations(model, Workload(b, s, recomputation, kernel))  # type: ignore[arg-type]
        sizes = [layer.bytes for layer in blocks(found)]
        assert [(size.kept, size.working) for size in sizes] == [(keeps, works)] * layers


@pytest.mark.parametrize(
    ("recomputation", "one", "all_"), [("none", 2.67, 256.5), ("selective", None, 76.5), ("full", None, 4.5)]
)
def test_gpt3_of_one_sequence(recomputation: Any, one: float | None, all_: float) -> None:
    """The same formulas for 96 layers of 12288: GiB."""
    found = activations(load_model("gpt3-175b"), Workload(1, 2048, recomputation, "eager"))
    assert kept(found) / GIB == all_
    if one is not None:
        assert blocks(found)[0].bytes.kept / GIB == pytest.approx(one, abs=0.005)


def test_gpt2_of_the_zero_paper() -> None:
    """Rajbhandari et al. 2020, arXiv 1910.02054, section 3.2: 1.5 B, 32 x 1K tokens, 60 GB; about 8 GB recomputed.

    Their 60 GB are 12 elements of 2 bytes, s b h each, for each block; counting every tensor gives 17.
    """
    model = load_model("gpt2-xl")
    every = activations(model, Workload(32, 1024))
    assert kept(every) * 12 / 17 == pytest.approx(60e9, rel=0.01)
    again = activations(model, Workload(32, 1024, "full"))
    last = blocks(again)[-1].bytes
    assert kept(again) + last.working == pytest.approx(8e9, rel=0.2)


def test_parts_of_a_block() -> None:
    """Attention 11 s b h + 5 a s^2 b, feed-forward 19 s b h, norms 4 s b h (Korthikanti et al. 2022, section 4.1)."""
    found = activations(load_model("gpt2"), Workload(1, 1024, attention_kernel="eager"))
    sbh = 1024 * 768
    sizes = blocks(found)[0].kept
    norms = sum(size for name, size in sizes if name.endswith("input of the norm"))
    attention = sum(size for name, size in sizes if ".attn" in name) - norms // 2
    assert norms == 4 * sbh
    assert attention == 11 * sbh + 5 * 12 * 1024**2
    assert sum(size for _, size in sizes) - norms - attention == 19 * sbh


def test_what_stands_around_the_blocks() -> None:
    """The last norm's input, the head's input, float32 logits, and the mask of the embeddings' dropout."""
    found = activations(load_model("gpt2"), Workload(2, 1024))
    sizes = {layer.layer: layer.bytes.kept for layer in found.layers or () if ".h." not in layer.layer}
    sbh = 2 * 1024 * 768
    assert sizes == {
        "transformer.embedding": sbh,
        "transformer.ln_f": 2 * sbh,
        "lm_head": 2 * sbh + 4 * 2 * 1024 * 50257,
    }


def test_a_gated_block_with_grouped_queries_is_counted_tensor_by_tensor() -> None:
    """Llama 3 8B in bfloat16: inputs of norms, projections and feed-forward, q, k, v, o, and four of 14336."""
    found = activations(load_model("llama-3-8b"), Workload(1, 8192))
    expected = 2 * 8192 * (4 * 4096 + (4096 + 1024 + 1024) + 4096 + 4 * 14336)
    assert {layer.bytes.kept for layer in blocks(found, ".layers.")} == {expected}
    eager = activations(load_model("llama-3-8b"), Workload(1, 8192, attention_kernel="eager"))
    assert blocks(eager, ".layers.")[0].bytes.kept == expected + 2 * 32 * 8192**2


def test_experts_keep_what_each_token_sends_through_them() -> None:
    dense = activations(load_model("mistral-7b-v0.1"), Workload(1, 1024))
    sparse = activations(load_model("mixtral-8x7b-v0.1"), Workload(1, 1024))
    more = 2 * 1024 * (4 * 14336 + 2 * 2 * 4096) + 4 * 1024 * 8
    assert blocks(sparse, ".layers.")[0].bytes.kept == blocks(dense, ".layers.")[0].bytes.kept + more


def test_a_decoder_keeps_two_attentions_and_the_encoder_s_output() -> None:
    found = activations(load_model("t5-11b"), Workload(1, 512))
    sizes = {layer.layer: layer.bytes.kept for layer in found.layers or ()}
    attention = 512 * (2 * 2 * 1024 + 2 * 4 * 16384 + 1024)
    assert sizes["decoder.block.5"] - sizes["encoder.block.5"] == attention
    assert sizes["encoder.final_layer_norm"] - sizes["decoder.final_layer_norm"] == 2 * 512 * 1024


@pytest.mark.parametrize("named", list_models(), ids=lambda named: named.name)
def test_recomputation_keeps_less_and_computes_what_it_leaves_out(named: Any) -> None:
    model = named.model
    if model.shape is None:
        assert activations(model, Workload(1, 1)).layers is None
        return
    every = activations(model, Workload(2, 64, "none", "eager"))
    for recomputation in ("selective", "full"):
        less = activations(model, Workload(2, 64, recomputation, "eager"))  # type: ignore[arg-type]
        for layer, a, b in zip(model.layers, every.layers or (), less.layers or (), strict=True):
            assert b.bytes.kept + b.bytes.working == a.bytes.kept + a.bytes.working
            assert (b.bytes.kept < a.bytes.kept) == layer.block
    assert every.by_layer.keys() == {layer.name for layer in model.layers}


def test_recomputation_by_operators_keeps_every_second_product() -> None:
    """Llama 3 8B: input and q (4096), v (1024), attention (4096), gate (14336) and down (4096), of 2 bytes each."""
    found = activations(load_model("llama-3-8b"), Workload(2, 8192, "operators"))
    each = 4096 + 4096 + 1024 + 4096 + 14336 + 4096
    assert [layer.bytes.kept for layer in blocks(found, ".layers.")] == [2 * 2 * 8192 * each] * 32


def test_experts_have_no_recomputation_by_operators() -> None:
    with pytest.raises(InputError, match="has experts"):
        activations(load_model("mixtral-8x7b-v0.1"), Workload(1, 64, "operators"))


def test_the_loss_is_differentiated_in_float32() -> None:
    """Two gradients of the size of the logits, 4 bytes each, while the head's layer is computed."""
    found = activations(load_model("llama-3-8b"), Workload(2, 1024))
    assert [layer.bytes.working for layer in found.layers or ()][-1] == 2 * 4 * 2 * 1024 * 128256


def test_bytes_grow_with_the_dtype_but_for_masks_and_logits() -> None:
    model = load_model("gpt2")
    half, single = (activations(model, Workload(1, 128), dtype).kept_bytes for dtype in ("bfloat16", "float32"))
    assert half is not None
    assert single is not None
    masks = 128 * 768 * (1 + 2 * 12)
    assert single - half == half - masks - 4 * 128 * 50257


def test_models_without_a_shape_say_why_nothing_is_counted() -> None:
    found = activations(uniform_model(1000, 2, 2), Workload(1, 8))
    assert found.layers is None
    assert found.kept_bytes is None
    assert found.by_layer == {}
    assert "activations of uniform are not modelled" in found.reason


def test_sequences_longer_than_the_learned_positions_are_refused() -> None:
    with pytest.raises(InputError, match="learned positions for 1024"):
        activations(load_model("gpt2"), Workload(1, 1025))


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(InputError, match=r'"bf16" is not known; write one of float64, .*bfloat16'):
        activations(load_model("gpt2"), Workload(1, 8), "bf16")
