# ruff: noqa: E501  (a scenario and its problems each stand on one line)
"""Every wrong ``training:`` gets all its problems at once, each with its place, line, rule and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcollectives.errors import InputError
from simcollectives.scenario import load_scenario
from tests.scenario.training_texts import BOTH, NODES, UNIFORM, training

PEAK = "write device: {peak: {bfloat16: 989 TFLOP/s}} under cluster:, or layer_seconds:"
REST = "strategy: ddp, sequence: 1, mfu: 45%"
TIMES = "compute takes its time from mfu, or from layer_seconds; write one of them, such as mfu: 45%"
SHARE = "is not a share of the peak; write more than 0% and at most 100%"
BARE = "cluster: {devices: 8, link: {alpha: 5 us, bandwidth: 50 GB/s}}"
V100 = "cluster: {machine: dgx-1v, nodes: 1}"
LAYERS = "model: {parameters: 1e6, layers: 2}, strategy: ddp, sequence: 1"
ZEROS = "layer_seconds: {block: {forward: 0 s, backward: 0 s}}"


def unit(old: str, new: str) -> str:
    assert old in UNIFORM
    return training(UNIFORM.replace(old, new))


CASES = {
    # models
    training(f"model: gpt22, {REST}"): ['$.training.model (line 3): "gpt22" is not a known model; did you mean "gpt2"?'],
    training(f"model: 3, {REST}"): [
        "$.training.model (line 3): 3 is not a model; write llama-3-8b, {config: config.json}, "
        "{parameters: 1.3e9, layers: 24} or {tensors: {name: [768, 768]}}"
    ],
    training(f"model: {{parameters: 1.5, layers: 2}}, {REST}"): [
        "$.training.model.parameters (line 3): 1.5 is not a number of parameters; write a whole number from 1 to 1e+14, such as 1.3e9"
    ],
    training(f"model: {{parameters: 1.3 B, layers: 2}}, {REST}"): [
        '$.training.model.parameters (line 3): "1.3 B" is not a number of parameters; write a whole number from 1 to 1e+14'
    ],
    training(f"model: {{parameters: 1e300, layers: 0}}, {REST}"): [
        "$.training.model.layers (line 3): 0 is not a size",
        "$.training.model.parameters (line 3): 1e+300 is not a number of parameters",
    ],
    training(f"model: {{parameters: 7, layers: 4, tensors_per_layer: 2}}, {REST}"): [
        "$.training.model (line 3): layers: 4 x 2 tensors; there may be no more than the 7 parameters; give fewer"
    ],
    training(f"model: {{parameters: 7, layer: 1}}, {REST}"): [
        '$.training.model.layer (line 3): unknown key; did you mean "layers"?'
    ],
    training(f"model: {{parameters: 7}}, {REST}"): [
        "$.training.model (line 3): the key layers is missing; write layers: 24"
    ],
    training(f"model: {{parameters: 7, layers: 1, config: x}}, {REST}"): [
        "$.training.model (line 3): parameters, layers, config are of different ways to write a model; keep one of parameters, config, tensors"
    ],
    training(f'model: {{tensors: {{a: [3], b: [0], "": [1]}}}}, {REST}'): [
        "$.training.model.tensors.b[0] (line 3): 0 is not a size"
    ],
    training(f'model: {{tensors: {{a: [3], "": [1]}}}}, {REST}'): [
        "$.training.model (line 3): tensors[1]: the tensor has no name; give one"
    ],
    training(f"model: {{tensors: {{a: [16777216, 16777216]}}}}, {REST}"): [
        "$.training.model (line 3): 2.81475e+14 parameters; a model has at most 1e+14"
    ],
    training(f"model: {{config: nowhere.json}}, {REST}"): [
        "$.training.model.config (line 3): nowhere.json: the file cannot be read (No such file or directory); check the path"
    ],
    training(f"model: {{config: ..}}, {REST}"): [
        "$.training.model.config (line 3): ..: the folder has no config.json; name the file, or a folder that has one"
    ],
    training(REST): ["$.training (line 3): the key model is missing; write model: llama-3-8b"],
    # strategies and their options
    unit("strategy: ddp", "strategy: dpp"): ['$.training.strategy (line 3): "dpp" is not a strategy; did you mean "ddp"?'],
    unit("strategy: ddp", "strategies: [5, ddpp]"): [
        "$.training.strategies[0] (line 3): 5 is not a strategy; write a name such as ddp, or {ddp: {bucket_cap: 25 MiB}}",
        '$.training.strategies[1] (line 3): "ddpp" is not a strategy; did you mean "ddp"?',
    ],
    unit("strategy: ddp", "strateg: ddp"): ['$.training.strateg (line 3): unknown key; did you mean "strategy"?'],
    unit("strategy: ddp", "strategies: ddp"): ['$.training.strategies (line 3): "ddp" is not a list; write strategies: [ddp, all_reduce_once]'],
    training("strategy: ddpp, sequence: 128, mfu: 45%"): [
        "$.training (line 3): the key model is missing; write model: llama-3-8b",
        '$.training.strategy (line 3): "ddpp" is not a strategy; did you mean "ddp"?',
    ],
    training(UNIFORM.replace("strategy: ddp", "strategies: [ddpp, ddp]"), "expect: [{step_second: {strategy: ddp}, at_most: 1 s}]"): [
        '$.training.strategies[0] (line 3): "ddpp" is not a strategy; did you mean "ddp"?',
        '$.expect[0].step_second (line 4): unknown key; did you mean "step_seconds"?',
    ],
    unit("strategy: ddp, ", ""): ["$.training (line 3): no strategy is named; write strategy: ddp, or strategies: [ddp, all_reduce_once]"],
    unit("strategy: ddp", "strategy: ddp, strategies: [ddp]"): ["$.training (line 3): strategy and strategies cannot stand together"],
    unit("strategy: ddp", "strategies: [ddp, {ddp: {}}]"): ["$.training.strategies[1] (line 3): ddp is listed twice, first at [0]; keep one"],
    unit("strategy: ddp", "strategy: {ddp: {bucket_cap: 25}}"): [
        '$.training.strategy.ddp.bucket_cap (line 3): 25 has no unit; write "25 B"'
    ],
    unit("strategy: ddp", "strategies: [{ddp: {bucketcap: 25 MB, hook: fp8}}, {all_reduce_once: {x: 1}}]"): [
        '$.training.strategies[0].ddp.bucketcap (line 3): ddp has no option "bucketcap"; did you mean "bucket_cap"?',
        '$.training.strategies[0].ddp.hook (line 3): ddp: "fp8" is not a choice; write none or fp16 or bf16 or powersgd',
        '$.training.strategies[1].all_reduce_once.x (line 3): all_reduce_once has no option "x"; it has: none',
    ],
    training(UNIFORM.replace("strategy: ddp", "strategy: {parameter_server: {servers: 4}}"), cluster=NODES): [
        "$.training (line 3): parameter_server (servers: 4) all_reduce: dedicated servers need a flat cluster"
    ],
    # batches
    unit("sequence: 128", "sequence: 128, micro_batch: 2, accumulation: 3, train_batch: 50"): [
        "$.training.train_batch (line 3): 50 is not micro_batch x accumulation x world size, 2 x 3 x 8 = 48; change one of them"
    ],
    training(UNIFORM + ", train_batch: 8", "sweep: {accumulation: [1, 2]}"): [
        "$.sweep (line 4): at accumulation: 2: 8 is not micro_batch x accumulation x world size, 1 x 2 x 8 = 16; change one of them"
    ],
    unit("sequence: 128", "sequence: 1.5, micro_batch: 0, accumulation: -1"): [
        "$.training.accumulation (line 3): -1 is not a size; write a whole number from 1 to 16777216",
        "$.training.micro_batch (line 3): 0 is not a size; write a whole number from 1 to 16777216",
        "$.training.sequence (line 3): 1.5 is not a size; write a whole number from 1 to 16777216",
    ],
    unit(", sequence: 128", ""): ["$.training (line 3): no sequence is given; write sequence: 4096 under training:, or sweep it"],
    unit("sequence: 128", "sequence: 128, accumulation: 16777216"): [
        "$.training.accumulation (line 3): 16777216 micro-batches x 8 modules are 134,217,728 passes to play; at most 1,000,000: take fewer micro-batches"
    ],
    training("model: gpt2, strategy: ddp, mfu: 45%", "sweep: {sequence: [1024, 1025]}"): [
        "$.sweep (line 4): at sequence: 1025: 1025 tokens; gpt2 has learned positions for 1024; give at most as many"
    ],
    training("model: resnet-50, strategy: ddp, sequence: 77, recomputation: selective, mfu: 45%"): [
        "$.training.recomputation (line 3): selective: resnet-50 has no attention to recompute; write none or full",
        "$.training.sequence (line 3): 77 tokens; resnet-50 takes images, each of which counts as one; leave it out",
    ],
    # compute
    unit("mfu: 45%", "mfu: 0"): [f"$.training.mfu (line 3): 0 {SHARE}"],
    unit("mfu: 45%", "mfu: 200%"): [f'$.training.mfu (line 3): "200%" {SHARE}'],
    unit("mfu: 45%", "mfu: 45"): [f"$.training.mfu (line 3): 45 {SHARE}"],
    unit("mfu: 45%", "mfu: .nan"): ["$.training.mfu (line 3): .nan is not a finite number; write a number"],
    unit("mfu: 45%", "mfu: 1e400%"): ['$.training.mfu (line 3): "1e400%" is outside of what a float holds'],
    unit("mfu: 45%", "mfu: null"): ["$.training.mfu (line 3): no value stands here; write one, or leave it out"],
    unit(", mfu: 45%", ""): [f"$.training (line 3): {TIMES}"],
    training(f"{LAYERS}, mfu: 45%, {ZEROS}"): [f"$.training (line 3): {TIMES}"],
    training(UNIFORM, "sweep: {mfu: [0, 45%, 101%]}"): [
        f"$.sweep.mfu[0] (line 4): 0 {SHARE}",
        f'$.sweep.mfu[2] (line 4): "101%" {SHARE}',
    ],
    training(UNIFORM, cluster=BARE): [f"$.training.mfu (line 3): the device has no known peak for bfloat16; {PEAK}"],
    training(UNIFORM, cluster=V100): [
        f"$.training.mfu (line 3): the device has no known peak for bfloat16; it has float16 125 TFLOP/s; {PEAK}"
    ],
    training(f"{LAYERS}, layer_seconds: {{blok: {{forward: 1 ms, backward: 2 ms}}}}"): [
        "$.training.layer_seconds (line 3): layers.0, layers.1 have no time; write {forward: 0 s, backward: 0 s} where a layer takes none",
        '$.training.layer_seconds.blok (line 3): unknown key; did you mean "block"?',
    ],
    training(f"{LAYERS}, layer_seconds: {{block: {{forward: 1, backward: -2 ms}}}}"): [
        '$.training.layer_seconds.block.backward (line 3): "-2 ms" is negative, and a time is 0 or more; write "5 us"',
        '$.training.layer_seconds.block.forward (line 3): 1 has no unit; write "1 us"',
    ],
    training(f"{LAYERS}, {ZEROS}", "sweep: {recomputation: [none, full], sequence: [1, 2]}"): [
        "$.sweep.recomputation (line 4): layer_seconds are measured for one recomputation; leave it as it is, or write mfu: instead",
        "$.sweep.sequence (line 4): layer_seconds are measured for one sequence; leave it as it is, or write mfu: instead",
    ],
    # words
    unit("mfu: 45%", "mfu: 45%, dtype: fp8, optimizer: adan, recomputation: some, step: 1000000000, foo: 1"): [
        '$.training.dtype (line 3): "fp8" is unknown; known: float64, float32,',
        "$.training.foo (line 3): unknown key; known keys: model, strategy,",
        '$.training.optimizer (line 3): "adan" is not an optimizer; did you mean "adam"?',
        '$.training.recomputation (line 3): "some" is unknown; known: none, selective, operators, full',
        "$.training.step (line 3): 1000000000 is not a step; write first, steady, or a whole number from 1 to 1000000",
    ],
    unit("mfu: 45%", "mfu: 45%, parameters: int8"): ['$.training.parameters (line 3): "int8" is unknown; known: float64, float32, float16, bfloat16'],
    unit("mfu: 45%", "mfu: 45%, dtype: uint8, gradients: int32"): [
        '$.training.dtype (line 3): "uint8" is unknown; known: float64, float32, float16, bfloat16',
        '$.training.gradients (line 3): "int32" is unknown; known: float64, float32, float16, bfloat16',
    ],
    unit("mfu: 45%", "mfu: 45%, optimizer: {name: adan, mster: true}"): [
        '$.training.optimizer.mster (line 3): unknown key; did you mean "master"?',
        '$.training.optimizer.name (line 3): "adan" is unknown; did you mean "adam"?',
    ],
    unit("mfu: 45%", "mfu: 45%, slow: {0: 0, x: 2, 3: fast}"): [
        '$.training.slow.x (line 3): "x" is not a rank; write a whole number, as in {3: 120%}',
        '$.training.slow["0"] (line 3): 0 is out of range: a factor is 1e-9 to 1e9; write for instance "50%"',
        '$.training.slow["3"] (line 3): "fast" does not start with a number, and a ratio does; write "0.5%"',
    ],
    unit("mfu: 45%", "mfu: 45%, slow: {8: 2, 9: 3}, train_batch: 9"): [
        "$.training.slow (line 3): there is no rank 8; ranks are 0 to 7",
        "$.training.slow (line 3): there is no rank 9; ranks are 0 to 7",
        "$.training.train_batch (line 3): 9 is not micro_batch x accumulation x world size, 1 x 1 x 8 = 8",
    ],
    unit("mfu: 45%", "mfu: 45%, collectives: {all_reduc: ring, broadcast: 3}"): [
        "$.training.collectives.broadcast (line 3): 3 is not an algorithm; write a name such as ring",
    ],
    unit("mfu: 45%", "mfu: 45%, collectives: {all_reduc: ring, broadcast: ring, all_reduce: {hierarchical: {inter: star}}}"): [
        '$.training.collectives.all_reduc (line 3): unknown key; did you mean "all_reduce"?',
        '$.training.collectives.all_reduce (line 3): hierarchical: "star" does not fit inter; write one of: butterfly',
        '$.training.collectives.broadcast (line 3): broadcast has no algorithm "ring"',
    ],
    # nonsense
    "title: x\n" + BARE + "\ntraining: [1]": ["$.training (line 3): [1] is not a mapping; write training: {model: llama-3-8b"],
    "title: x\n" + BARE + "\ntraining: null": ["$.training (line 3): no value stands here; write one, or leave it out"],
    training(UNIFORM, "collective: {name: all_reduce, algorithms: [ring]}"): [
        "$.collective (line 4): a scenario is about a training step or about a collective; leave "
    ],
    training(UNIFORM, "engine: event", "skew: {random: 3 us}"): [
        "$.engine (line 4): engine belongs to a collective; leave it out",
        "$.skew (line 5): skew belongs to a collective; leave it out",
    ],
    # sweeps, expectations, timelines
    training(UNIFORM, "sweep: {message: [1 KB], nodes: [1], ddp.x: [1], link.bandwith: [1 GB/s], recomputation: [ful]}"): [
        "$.sweep.message (line 4): unknown key; known keys: micro_batch, sequence, accumulation, mfu, recomputation, devices",
        "$.sweep.nodes (line 4): a flat cluster has no key nodes; vary devices",
        '$.sweep.recomputation[0] (line 4): "ful" is unknown; did you mean "full"?',
        '$.sweep["ddp.x"] (line 4): ddp has no such option; its options: ddp.bucket_cap',
        '$.sweep["link.bandwith"] (line 4): unknown key; did you mean "link.bandwidth"?',
    ],
    training(UNIFORM.replace("ddp", "{ddp: {bucket_cap: 1 MB}}"), "sweep: {ddp.bucket_cap: [1 MB, 2 MB]}"): [
        '$.sweep["ddp.bucket_cap"] (line 4): bucket_cap is given with ddp in line 3, and swept here; keep one'
    ],
    training(UNIFORM, "sweep: {ddp.no_sync: {from: 0, to: 1, step: 1}}"): [
        '$.sweep["ddp.no_sync"] (line 4): the values of this option are no whole numbers, so it has no range; write a list of them'
    ],
    training(BOTH, "expect:", "  - {step_second: {strategy: ddp}, at_most: 1 s}", "  - {step_seconds: {strategy: zero}, at_most: 1 s}", "  - {mfu: {strategy: ddp}, equals: 30 s, abs: 1%}", "  - {step_seconds: {}, at_most: 1 s}", "  - {peak_bytes: {strategy: ddp}, at_most: 80}", "  - {crossover: [ddp, all_reduce_once], along: recomputation, at_most: 4}", "  - {overlap: {strategy: ddp}}"): [
        '$.expect[0].step_second (line 5): unknown key; did you mean "step_seconds"?',
        '$.expect[1].step_seconds (line 6): "zero" is no strategy of this scenario; it has: ddp, all_reduce_once',
        '$.expect[2].equals (line 7): "30 s" is a time, not a ratio; write "0.5%"',
        "$.expect[3].step_seconds (line 8): nothing says which strategy is meant; write strategy: with one of ddp, all_reduce_once",
        '$.expect[4].at_most (line 9): 80 has no unit; write "80 B"',
        "$.expect[5].along (line 10): recomputation is no quantity that times could cross along",
        "$.expect[6] (line 11): no bound is given; write one of equals (with rel or abs), at_most, at_least, between",
    ],
    training(UNIFORM.replace(", mfu: 45%", ""), "sweep: {mfu: [40%, 50%]}", "expect: [{step_seconds: {}, at_most: 1 s}]"): [
        "$.expect[0].step_seconds (line 5): the scenario sweeps mfu (40%, 50%); name one value here, swept or not"
    ],
    training(UNIFORM, "timeline: [{strategy: all_reduce_once}, {nodes: 3}, {sequence: 0}, 3]"): [
        '$.timeline[0] (line 4): "all_reduce_once" is no strategy of this scenario; it has: ddp',
        "$.timeline[1].nodes (line 4): a flat cluster has no key nodes; vary devices",
        "$.timeline[2].sequence (line 4): 0 is not a size; write a whole number from 1 to 16777216",
        "$.timeline[3] (line 4): 3 is not a mapping; write {strategy: ddp}",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("text", "problems"), CASES.items(), ids=range(len(CASES)))
def test_all_problems_are_told(refuse: Any, text: str, problems: list[str]) -> None:
    found = refuse(text)
    assert [one[: len(problem)] for one, problem in zip(found, problems, strict=False)] == problems
    assert len(found) == len(problems), found


CONFIGS = {
    '{"model_type": "mamba"}': [
        'model_type in my.json: "mamba" is not a known family; known: bert, gpt2, llama, mistral, mixtral, qwen2, t5'
    ],
    '{"model_type": "gpt2", "n_embd": -3}': [
        "n_embd in my.json: -3 is not a whole number from 1 to 2147483647; write for instance 768",
        'n_head in my.json: this field is missing; add it, such as "n_head": 12',
        'n_layer in my.json: this field is missing; add it, such as "n_layer": 12',
        'n_positions in my.json: this field is missing; add it, such as "n_positions": 1024',
        'vocab_size in my.json: this field is missing; add it, such as "vocab_size": 50257',
    ],
    "[1,\n2": ["my.json (line 2): this is not JSON: Expecting ',' delimiter; mend it"],
    "[]": ["my.json: the file holds []; it must hold an object, {...}"],
}  # fmt: skip


@pytest.mark.parametrize(("config", "problems"), CONFIGS.items(), ids=range(len(CONFIGS)))
def test_a_config_is_told_field_by_field(tmp_path: Path, config: str, problems: list[str]) -> None:
    (tmp_path / "my.json").write_text(config)
    path = tmp_path / "scenario.yaml"
    path.write_text(training(f"model: {{config: my.json}}, {REST}"))
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    assert {(one.place, one.line) for one in caught.value.problems} == {("$.training.model.config", 3)}
    assert [one.message for one in caught.value.problems] == problems
