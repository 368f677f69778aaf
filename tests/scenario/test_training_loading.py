"""Every key of ``training:`` and every way to write a model, an optimizer and a strategy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcollectives.scenario import load_scenario
from simcollectives.scenario.training.types import TrainingScenario, TrainingSettings
from tests.scenario.training_texts import GPT2, training

EVERY_KEY = """
title: Every key
cluster:
  nodes: 2
  gpus_per_node: 2
  intra: {alpha: 5 us, bandwidth: 450 GB/s}
  inter: {alpha: 10 us, bandwidth: 50 GB/s}
training:
  model: {parameters: 1e6, layers: 2, tensors_per_layer: 3}
  strategies: [{ddp: {bucket_cap: 25 MiB, hook: bf16, no_sync: false}}, all_reduce_once]
  sequence: 128
  micro_batch: 2
  accumulation: 3
  train_batch: 24
  dtype: float16
  parameters: float32
  gradients: float16
  optimizer: {name: momentum, master: true, gradient_copy: true}
  layer_seconds: {block: {forward: 1 ms, backward: 2 ms}, layers.1: {forward: 3 ms, backward: 4 ms}}
  recomputation: full
  attention_kernel: eager
  attention_flops: causal
  step: 3
  slow: {3: 120%}
  collectives: {all_reduce: {hierarchical: {intra: ring, inter: butterfly}}, broadcast: tree}
timeline: [{strategy: all_reduce_once}]
"""


def settings_of(load: Any, body: str, *lines: str) -> TrainingSettings:
    scenario = load(training(body, *lines))
    assert isinstance(scenario, TrainingScenario)
    settings: TrainingSettings = scenario.training
    return settings


def test_every_key_is_read(load: Any) -> None:
    scenario = load(EVERY_KEY)
    settings = scenario.training
    assert settings.model.elements == 1_000_000
    assert [entry.label for entry in settings.strategies] == [
        "ddp (bucket_cap: 25 MiB, no_sync: false, hook: bf16)",
        "all_reduce_once",
    ]
    assert (settings.sequence, settings.micro_batch, settings.accumulation, settings.train_batch) == (128, 2, 3, 24)
    precision = settings.precision
    assert (precision.compute, precision.parameters, precision.gradients) == ("float16", "float32", "float16")
    assert (settings.optimizer.name, settings.optimizer.held_bytes, settings.optimizer.gradient_copy) == (
        "momentum", 4 + 4, True,
    )  # fmt: skip
    assert settings.mfu is None
    assert settings.layer_seconds == {"layers.0": (1e-3, 2e-3), "layers.1": (3e-3, 4e-3)}
    assert (settings.recomputation, settings.attention_kernel, settings.attention_flops) == (
        "full", "eager", "causal",
    )  # fmt: skip
    assert settings.iteration == 2
    assert settings.slow == {3: 1.2}
    name, options = settings.choices["all_reduce"]
    assert (name, options["intra"], options["inter"]) == ("hierarchical", "ring", "butterfly")
    assert settings.choices["broadcast"][0] == "tree"
    assert [selector.entry.label for selector in scenario.timelines] == ["all_reduce_once"]


def test_what_is_left_out_has_a_default(load: Any) -> None:
    settings = settings_of(load, "model: gpt2, strategy: ddp, sequence: 8, mfu: 45%")
    assert (settings.micro_batch, settings.accumulation, settings.train_batch, settings.iteration) == (1, 1, None, None)
    assert settings.precision.gradients == settings.precision.parameters == settings.precision.compute == "bfloat16"
    assert (settings.optimizer.name, settings.optimizer.held_bytes) == ("adam", 12)
    assert (settings.recomputation, settings.attention_kernel, settings.attention_flops) == ("none", "flash", "full")


@pytest.mark.parametrize(("dtype", "held"), [("bfloat16", 8 + 4), ("float32", 8)])
def test_a_master_copy_is_kept_beside_parameters_of_16_bits(load: Any, dtype: str, held: int) -> None:
    settings = settings_of(load, f"model: gpt2, strategy: ddp, sequence: 8, mfu: 45%, parameters: {dtype}")
    assert settings.optimizer.held_bytes == held


@pytest.mark.parametrize(("written", "iteration"), [("first", 0), ("steady", None), ("1", 0), ("7", 6)])
def test_a_step_is_first_steady_or_a_number(load: Any, written: str, iteration: int | None) -> None:
    assert (
        settings_of(load, f"model: gpt2, strategy: ddp, sequence: 8, mfu: 45%, step: {written}").iteration == iteration
    )


# Totals: 124,439,808 is the published size of GPT-2; the others are written in the text itself.
MODELS = {
    "gpt2": (124_439_808, 148),
    "{parameters: 10, layers: 2, tensors_per_layer: 2}": (10, 4),
    "{parameters: 1e3, layers: 4}": (1000, 4),
    "{tensors: {wte.weight: [10, 3], h.0.w: [4], h.1.w: [5, 5]}}": (30 + 4 + 25, 3),
}


@pytest.mark.parametrize(("model", "sizes"), MODELS.items(), ids=lambda value: str(value)[:30])
def test_a_model_has_four_ways_to_be_written(load: Any, model: str, sizes: tuple[int, int]) -> None:
    found = settings_of(load, f"model: {model}, strategy: ddp, sequence: 8, mfu: 45%").model
    assert (found.elements, len(found.parameters)) == sizes


def test_a_config_stands_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "small.json").write_text(json.dumps(GPT2))
    path = tmp_path / "scenario.yaml"
    path.write_text(training("model: {config: configs/small.json}, strategy: ddp, sequence: 8, mfu: 45%"))
    scenario = load_scenario(path)
    assert isinstance(scenario, TrainingScenario)
    assert scenario.training.model.elements == 124_439_808
    assert scenario.training.model.name == "small"


@pytest.mark.parametrize("key", ["mfu", "sequence", "micro_batch", "recomputation"])
def test_what_is_swept_need_not_be_written(load: Any, key: str) -> None:
    written = {"mfu": "45%", "sequence": "8", "micro_batch": "2", "recomputation": "full"}
    body = ", ".join(f"{name}: {value}" for name, value in written.items() if name != key)
    scenario = load(training(f"model: gpt2, strategy: ddp, {body}", f"sweep: {{{key}: [{written[key]}]}}"))
    assert list(scenario.sweeps[0].values) == [key]


def test_one_strategy_need_not_be_named_again(load: Any) -> None:
    body = "model: gpt2, strategy: {ddp: {hook: fp16}}, sequence: 8, mfu: 45%"
    scenario = load(training(body, "expect: [{step_seconds: {}, at_least: 1 us}]", "timeline: {sequence: 16}"))
    assert scenario.expectations[0].selector.entry.label == "ddp (hook: fp16)"
    assert scenario.timelines[0].point == {"sequence": 16}
