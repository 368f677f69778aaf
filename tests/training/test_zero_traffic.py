"""What ZeRO communicates: bytes of a step, whatever the layers, and what DeepSpeed's stage 3 gathers of known models.

The figures of known models are those of an emulator that reproduced eight recorded runs of deepspeed 0.19.8.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.training.catalogue import load_model
from simcollectives.training.model import Layer, Model, Module, Parameter
from simcollectives.training.program import HOST, Program
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.strategies.table import find_strategy, resolve_strategy_options
from simcollectives.training.strategies.zero_fetch import (
    Coordinator,
    most_live,
    persistent_parameters,
    visits_of,
)
from simcollectives.training.strategies.zero_prefetch import quantization_groups
from simcollectives.training.strategies.zero_visits import Tree, stops_of_step
from tests.training.steps import uniform_training
from tests.training.zero_models import training_of

DEEPSPEED = {"implementation": "deepspeed"}
PSI = 1 << 22
NOT_KEPT = {"param_persistence_threshold": 0}
AT_ONCE = {**NOT_KEPT, "max_live_parameters": 0, "max_reuse_distance": 0}
EIGHT = Cluster.flat(8, Link(5e-6, 450e9))


def step_of(strategy: str, options: dict[str, Any], layers: int = 4, cluster: Cluster = EIGHT, **more: Any) -> Step:
    return simulate_step(uniform_training(PSI, layers, 4, cluster=cluster, **more), strategy, options)


def sent_parameters(step: Step) -> float:
    """What rank 0 sends, in (N - 1)/N x bytes of the parameters."""
    ranks = step.training.world_size
    # Flags and norms are a few bytes.
    return round(sum(step.sent_bytes.values()) / (2 * PSI * (ranks - 1) / ranks), 4)


@pytest.mark.parametrize("layers", [1, 4, 16])
@pytest.mark.parametrize(
    ("strategy", "options", "times"),
    [
        ("zero1", {}, 2),
        ("zero2", {}, 2),
        ("zero3", {}, 3),
        ("zero1", {"reduce_bucket_size": 100_000}, 2),
        ("zero2", {"reduce_bucket_size": 1}, 2),
        ("zero1", DEEPSPEED, 3),
        ("zero2", DEEPSPEED, 3),
        ("zero2", {**DEEPSPEED, "reduce_bucket_size": 100_000, "overlap_comm": True}, 3),
        ("zero3", {**DEEPSPEED, **AT_ONCE}, 3),
        ("zero3", {**DEEPSPEED, **AT_ONCE, "prefetch_bucket_size": 0}, 3),
        ("zero3", {**DEEPSPEED, **NOT_KEPT}, 2),  # under 1e9 parameters: gathered once, kept from forward to backward
    ],
)
def test_bytes_of_a_step(strategy: str, options: dict[str, Any], times: int, layers: int) -> None:
    """In units of (N - 1)/N x 2 bytes x parameters: 2, DeepSpeed's all-reduce makes it 3; gathered twice it is 3."""
    assert sent_parameters(step_of(strategy, options, layers)) == times


@pytest.mark.parametrize(
    ("strategy", "options", "reduced", "gathered"),
    [
        ("zero1", {}, 1, 1),
        ("zero2", {}, 3, 1),
        ("zero3", {}, 3, 6),
        ("zero1", DEEPSPEED, 1, 1),
        ("zero2", DEEPSPEED, 3, 1),
        ("zero3", {**DEEPSPEED, **AT_ONCE}, 3, 6),
    ],
)
def test_stage_1_alone_reduces_once_for_all_micro_batches(
    strategy: str, options: dict[str, Any], reduced: int, gathered: int
) -> None:
    step = step_of(strategy, options, accumulation=3)
    elements = Counter[str]()
    for call in step.collectives:
        elements["gathered" if call.kind == "all_gather" else "reduced"] += call.elements if call.elements > 1 else 0
    assert elements == {"reduced": reduced * PSI, "gathered": gathered * PSI}


def gathers(program: Program, phase: str) -> list[int]:
    found = [operation for operation in program.operations if operation.call and operation.phase == phase]
    return [operation.call.elements for operation in found if operation.call and operation.call.kind == "all_gather"]


def stage_3(model: str, options: dict[str, Any]) -> Program:
    # One rank, so that nothing is padded.
    strategy = find_strategy("zero3")
    training = training_of(load_model(model), 1)
    return strategy.program(training, resolve_strategy_options(strategy, {**DEEPSPEED, **options}))


@pytest.mark.parametrize(
    ("model", "counts", "share", "peak"),
    [
        ("llama-2-7b", (203, 192), 0.85, 1.13e9),
        ("llama-2-70b", (403, 397), 0.985, 1.20e9),
        ("llama-3-8b", None, 0.87, 1.52e9),
    ],
)
def test_what_the_defaults_gather(model: str, counts: tuple[int, int] | None, share: float, peak: float) -> None:
    """Gathers forward and backward; the share that the backward gathers again; the most that is held."""
    program = stage_3(model, {})
    forward, backward = gathers(program, "forward"), gathers(program, "backward")
    elements = load_model(model).elements
    if counts is not None:
        assert (len(forward), len(backward)) == counts
    assert sum(backward) / elements == pytest.approx(share, abs=0.005)
    assert held_at_most(model, {}) == pytest.approx(peak, rel=0.005)
    kept = sum(p.elements for p in load_model(model).parameters if p.elements <= 100_000)
    # The embedding is the last of the backward pass: what was gathered ahead in the forward pass is used there.
    assert sum(forward) >= elements - kept


def held_at_most(model: str, options: dict[str, Any]) -> int:
    resolved = resolve_strategy_options(find_strategy("zero3"), options)
    training = training_of(load_model(model), 1)
    stops = stops_of_step(training, Tree(training.model))
    kept = frozenset(p.name for p in persistent_parameters(training.model.parameters, resolved))
    return most_live(stops, Coordinator(visits_of(stops), resolved, kept, available=set(kept)))


@pytest.mark.parametrize("model", ["llama-2-7b", "gpt2-xl"])
def test_nothing_kept_is_gathered_exactly_twice(model: str) -> None:
    """Psi + Psi, and at most the largest parameters of one module at once; a tied embedding is there four times."""
    program = stage_3(model, AT_ONCE)
    found = load_model(model)
    uses = sum(p.elements for layer in found.layers for module in layer.modules for p in module.parameters)
    assert sum(gathers(program, "forward")) == sum(gathers(program, "backward")) == uses
    largest = max(sum(p.elements for p in m.parameters) for layer in found.layers for m in layer.modules)
    assert held_at_most(model, {**AT_ONCE, "prefetch_bucket_size": 0}) == largest


def test_the_recorded_pass_gathers_exactly_twice() -> None:
    training = training_of(load_model("llama-2-7b"), 1, iteration=0)
    strategy = find_strategy("zero3")
    program = strategy.program(training, resolve_strategy_options(strategy, DEEPSPEED))
    elements = training.model.elements
    assert sum(gathers(program, "forward")) == sum(gathers(program, "backward")) == elements


@pytest.mark.parametrize(
    ("distance", "gathered"),
    [
        (3 * PSI, 16),  # the first block is computed again 2.5 PSI later: nothing is released before its last use
        (PSI, 16 + 2 * 4),  # the two last blocks are kept, the others gathered once more
        (PSI // 2, 16 + 3 * 4),  # the last block is kept, the others gathered once more
        (PSI // 4, 16 + 2 + 3 * (4 + 2)),  # of each block the half that is used first again is kept
        (0, 3 * 16),
    ],
)
def test_recomputed_blocks_are_gathered_again_only_beyond_the_reuse_distance(distance: int, gathered: int) -> None:
    """In tensors, of which four blocks have four each; a block's 4 are used twice in its backward."""
    options = {**AT_ONCE, "prefetch_bucket_size": 0, "max_reuse_distance": distance}
    step = step_of("zero3", {**DEEPSPEED, **options}, recompute=True)
    assert sum(c.elements for c in step.collectives if c.kind == "all_gather") == gathered * PSI // 16


TWO_NODES = Cluster.two_level(2, 4, Link(5e-6, 450e9), Link(10e-6, 50e9))
PLUS_PLUS = {
    "zero_hpz_partition_size": 4,
    "zero_quantized_weights": True,
    "zero_quantized_gradients": True,
}


def bytes_by_group(options: dict[str, Any], shape: tuple[int, ...] = (1024, 1024), **more: Any) -> Counter[str]:
    training = training_of(matrices(shape), cluster=TWO_NODES, **more)
    strategy = find_strategy("zero3")
    program = strategy.program(training, resolve_strategy_options(strategy, {**DEEPSPEED, **AT_ONCE, **options}))
    found = Counter[str]()
    for call in program.calls:
        if call.dtype not in ("float32", "float64"):
            found[f"{call.kind} {call.group}"] += call.bytes
    return found


def matrices(shape: tuple[int, ...]) -> Model:
    weights = [Parameter(f"{n}.weight", shape) for n in range(4)]
    layers = [Layer(str(n), (Module(str(n), "linear", (w,), w.elements),)) for n, w in enumerate(weights)]
    return Model("matrices", "plain", tuple(layers), tuple(w.name for w in weights))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {"all_gather world": 4, "reduce_scatter world": 2}),
        ({"zero_hpz_partition_size": 4}, {"all_gather world": 2, "all_gather hpz": 2, "reduce_scatter world": 2}),
        ({"zero_quantized_weights": True}, {"all_gather world": 2, "reduce_scatter world": 2}),
        (
            {"zero_quantized_gradients": True},
            {"all_gather world": 4, "all_to_all node": 0.5, "all_to_all across nodes": 0.5 / 4},
        ),
        (
            PLUS_PLUS,
            {
                "all_gather world": 1,
                "all_gather hpz": 1,
                "all_to_all node": 0.5,
                "all_to_all across nodes": 0.5 / 4,
            },
        ),
    ],
)
def test_bytes_of_zero_plus_plus(options: dict[str, Any], wanted: dict[str, float]) -> None:
    """Bytes a parameter by group, without scales: across nodes 2 + 2 + 2, or 1 + 0 + 0.5 of a rank's share."""
    elements = 4 * 1024 * 1024
    assert bytes_by_group(options) == {group: size * elements for group, size in wanted.items()}


def test_second_shards_last_until_the_step() -> None:
    """The second micro-batch gathers in the node from the start."""
    options = {"zero_hpz_partition_size": 4}
    elements = 4 * 1024 * 1024
    found = bytes_by_group(options, accumulation=2)
    assert found["all_gather world"] == 2 * elements
    assert found["all_gather hpz"] == 3 * 2 * elements


@pytest.mark.parametrize("shape", [(1 << 20,), (9, 11)])
def test_what_cannot_be_quantized_is_reduce_scattered(shape: tuple[int, ...]) -> None:
    """Vectors, and what is no multiple of 2 x 8: 99 elements are padded to 104."""
    found = bytes_by_group({"zero_quantized_gradients": True}, shape)
    size = (1 << 20) if len(shape) == 1 else 104
    assert found["reduce_scatter world"] == 4 * 2 * size
    assert not any(group.startswith("all_to_all") for group in found)


@pytest.mark.parametrize(
    ("elements", "groups"),
    [
        (64_000, 8),
        (8_000, 1),
        (8_008, 7),  # 8 x 1001 = 8 x 7 x 11 x 13: 2 to 6 do not divide
        (1 << 20, 256),  # 132 are wanted: 256 is the next that divides 2^17; halves of 4,096 are small enough
        (8_004, 2),  # no multiple of 8
    ],
)
def test_groups_of_scales(elements: int, groups: int) -> None:
    """At least one for 8,000 elements, so many that groups are multiples of 8."""
    assert quantization_groups(elements) == groups


def test_the_host_is_two_fetches_ahead() -> None:
    """Before it waits for a fourth parameter, it waits for the first: here each of 16 is gathered alone, twice."""
    training = uniform_training(PSI, 4, 4, cluster=EIGHT)
    options = resolve_strategy_options(find_strategy("zero3"), {**DEEPSPEED, **AT_ONCE, "prefetch_bucket_size": 0})
    operations = find_strategy("zero3").program(training, options).operations
    fetched = [place for place, o in enumerate(operations) if o.name.startswith("wait for layers")]
    stops = {place: o.after for place, o in enumerate(operations) if o.stream == HOST and o.name == "wait for a fetch"}
    assert len(fetched) == 32
    assert stops == {after - 1: (before,) for before, after in zip(fetched, fetched[3:], strict=False)}


def test_buckets_are_reduced_behind_each_other() -> None:
    """Without overlap nothing is hidden; with it only the last bucket, of the first layer, and the gather are not."""
    plain = step_of("zero2", {**DEEPSPEED, "reduce_bucket_size": PSI // 4}, tokens=1 << 20)
    hidden = step_of("zero2", {**DEEPSPEED, "reduce_bucket_size": PSI // 4, "overlap_comm": True}, tokens=1 << 20)
    assert plain.overlap == pytest.approx(0, abs=1e-9)
    reduces = [c.end - c.start for c in hidden.collectives if c.elements == PSI // 4]
    rest = [c.end - c.start for c in hidden.collectives if c.elements != PSI // 4]
    assert len(reduces) == 4
    assert hidden.exposed_seconds == pytest.approx(reduces[-1] + sum(rest))
