"""What FSDP sends and holds: bytes of a step whatever its layers, and what stands at the peak, from the rules."""

from __future__ import annotations

from typing import Any

import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.errors import InputError
from simcollectives.training.catalogue import load_model
from simcollectives.training.model import Layer, Model
from simcollectives.training.passes import GRADIENTS, OPTIMIZER, PARAMETERS
from simcollectives.training.setup import ModuleSeconds, Optimizer, Precision, Training
from simcollectives.training.sharding import GATHER_BUFFERS, SCATTER_BUFFERS, UNSHARDED, UNSHARDED_GRADIENTS
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.strategies.fsdp1_step import flatten
from simcollectives.training.strategies.fsdp_units import Dtypes, Mesh, padded_rows, units_of
from tests.training.fsdp_cases import model_b, module, training_of
from tests.training.steps import uniform_model

FAST = Link(0.0, 1e15)
MIXED = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
W, R, MASTER = 2, 4, 4


def step_of(model: Model, ranks: int, strategy: str, options: dict[str, Any], **more: Any) -> Step:
    seconds = {part.name: ModuleSeconds(1.0, 2.0) for layer in model.layers for part in layer.modules}
    precision = more.pop("precision", Precision("bfloat16", "float32", "float32"))
    cluster = Cluster.flat(ranks, FAST)
    optimizer = Optimizer(master=False)
    training = Training(model, cluster, 1, 1, seconds, precision=precision, optimizer=optimizer, **more)
    return simulate_step(training, strategy, options)


@pytest.mark.parametrize("strategy", ["fsdp1", "fsdp2"])
@pytest.mark.parametrize("layers", [1, 2, 5, 24])
def test_bytes_are_three_times_the_model_whatever_the_layers(strategy: str, layers: int) -> None:
    """3 Psi (N - 1)/N elements of 2 bytes: two all-gathers and a reduce-scatter."""
    elements, ranks = 8 * 120 * 7, 8
    brain = Precision("bfloat16", "bfloat16", "bfloat16")
    step = step_of(uniform_model(elements, layers, 1), ranks, strategy, {}, precision=brain)
    gathered, scattered = step.sent_bytes["all_gather"], step.sent_bytes["reduce_scatter"]
    assert (gathered, scattered) == (2 * 2 * elements * 7 // 8, 2 * elements * 7 // 8)


@pytest.mark.parametrize(
    ("strategy", "options", "gathers"),
    [
        ("fsdp2", {"reshard_after_forward": False}, 1),
        ("fsdp1", {"sharding_strategy": "SHARD_GRAD_OP"}, 1),
        ("fsdp2", {"reshard_after_forward": 2}, 1 + (1 / 2) / (7 / 8)),
    ],
)
def test_bytes_of_units_that_are_kept(strategy: str, options: dict[str, Any], gathers: float) -> None:
    """Psi (w + r) (N - 1)/N; parts over two ranks are gathered again by sending half."""
    elements = 8 * 240
    step = step_of(uniform_model(elements, 6, 1), 8, strategy, {**MIXED, **options})
    assert step.sent_bytes["all_gather"] == pytest.approx(gathers * W * elements * 7 / 8, rel=1e-12)
    assert step.sent_bytes["reduce_scatter"] == R * elements * 7 // 8


def test_bytes_of_hybrid_sharding() -> None:
    """In groups of 4: 3 Psi (S - 1)/S; between 2 of them: an all-reduce of the shard, 2 (R - 1)/R Psi/S."""
    elements = 8 * 240
    step = step_of(uniform_model(elements, 6, 1), 8, "hsdp", {**MIXED, "shard_size": 4})
    expected = {"all_gather": 2 * W * elements * 3 // 4, "reduce_scatter": R * elements * 3 // 4}
    assert step.sent_bytes == {**expected, "all_reduce": R * elements // 4}


def test_padding() -> None:
    """A bias of 10 costs 12 on 4 ranks; FSDP1 fills up once, and with alignment at every tensor, too."""
    units = units_of(model_b(), "blocks")
    block, root = units.others[0], units.root
    assert sum(padded_rows(p, 4) for p in block.parameters) == 472
    assert sum(padded_rows(p, 4) for p in root.parameters) == 1064
    dtypes = Dtypes("float32", "float32", "float32")
    plain, aligned = (flatten(block, Mesh(4), dtypes, sharded=True, aligned=a).padded for a in (False, True))
    assert (plain, aligned) == (432, 432)
    plain, aligned = (flatten(root, Mesh(4), dtypes, sharded=True, aligned=a).padded for a in (False, True))
    assert (plain, aligned) == (1020, 1024)


def test_gradients_without_synchronisation() -> None:
    """26 B parameters in bfloat16 on 16 ranks: 3.25 GB of gradients in shards, 52 GB where they are not reduced."""
    model, brain = uniform_model(26_000_000_000, 13, 4), Precision("bfloat16", "bfloat16", "bfloat16")
    for sync, item, expected in (("every", GRADIENTS, 3.25e9), ("last", UNSHARDED_GRADIENTS, 52e9)):
        step = step_of(model, 16, "fsdp2", {"gradient_sync": sync}, precision=brain, accumulation=2)
        assert step.most_bytes[item] == expected
    step = step_of(model, 16, "fsdp2", {**MIXED, "gradient_sync": "last"}, accumulation=2)
    assert step.most_bytes[UNSHARDED_GRADIENTS] >= R * 26e9, "kept in the dtype of the reduction"


LAYERS, WIDE, RANKS = 6, 64, 8
BLOCK = WIDE * WIDE * 4


def wide_model() -> Model:
    """Blocks of four matrices between an embedding of one and a head of another."""
    layers = [Layer("embed", (module("embed", "embedding", weight=(8, WIDE)),), block=False)]
    for number in range(LAYERS):
        parts = tuple(module(f"layers.{number}.{k}", "linear", weight=(WIDE, WIDE)) for k in range(4))
        layers.append(Layer(f"layers.{number}", parts))
    layers.append(Layer("head", (module("head", "linear", weight=(8, WIDE)),), block=False))
    registration = tuple(p.name for layer in layers for part in layer.modules for p in part.parameters)
    return Model("wide", "plain", tuple(layers), registration)


ROOT = 2 * 8 * WIDE
STANDING = (MASTER + 8) * (LAYERS * BLOCK + ROOT) // RANKS


def held_in(step: Step, phase: str) -> int:
    """Return the most bytes that stand while kernels of a phase run."""
    spans = [span for span in step.timeline.of_rank(0) if span.operation.phase == phase and span.end > span.start]
    first, last = min(span.start for span in spans), max(span.end for span in spans)
    held = most = 0
    for change in step.timeline.memory:
        held += change.bytes
        most = max(most, held) if first <= change.time < last else most
    return most


def test_fsdp2_holds_three_units_in_forward() -> None:
    """The unit, its successor's all-gather, the one after that, a shard that is cast; and the root."""
    step = step_of(wide_model(), RANKS, "fsdp2", MIXED)
    assert held_in(step, "forward") == STANDING + W * ROOT + 3 * W * BLOCK + W * BLOCK // RANKS


def test_fsdp2_holds_ten_bytes_a_parameter_of_a_unit_in_backward() -> None:
    """The unit, the next one's all-gather and the gradients in bfloat16, one reduce-scatter's input in float32.

    It is highest in the second block: gradients of all after it are there in shards; so is that of the head, whole.
    """
    step = step_of(wide_model(), RANKS, "fsdp2", MIXED)
    shards = MASTER * (LAYERS - 2) * BLOCK // RANKS
    assert step.peak_bytes == STANDING + W * ROOT + W * ROOT // 2 + 10 * BLOCK + shards
    assert step.memory == {
        PARAMETERS: MASTER * (LAYERS * BLOCK + ROOT) // RANKS,
        OPTIMIZER: 8 * (LAYERS * BLOCK + ROOT) // RANKS,
        UNSHARDED: W * (ROOT + BLOCK),
        GATHER_BUFFERS: W * BLOCK,
        UNSHARDED_GRADIENTS: W * (ROOT // 2 + BLOCK),
        SCATTER_BUFFERS: R * BLOCK,
        GRADIENTS: shards,
    }


def test_fsdp2_of_llama_2_7b() -> None:
    """A block has 202,383,360 parameters, all divisible by 8: 2.02 GB, beside a root of 262,148,096 in bfloat16."""
    step = step_of(load_model("llama-2-7b"), 8, "fsdp2", MIXED)
    working = step.memory[GATHER_BUFFERS] + step.memory[SCATTER_BUFFERS] + step.memory[UNSHARDED]
    head_and_norm = 32000 * 4096 + 4096
    assert working + step.memory[UNSHARDED_GRADIENTS] == 10 * 202_383_360 + W * (262_148_096 + head_and_norm)


def test_units_that_are_kept_stand_together() -> None:
    """Without resharding all units stand at the end of forward; in parts of two, half of each."""
    model, elements = wide_model(), LAYERS * BLOCK + ROOT
    step = step_of(model, RANKS, "fsdp2", {**MIXED, "reshard_after_forward": False})
    assert step.most_bytes[UNSHARDED] == W * elements
    step = step_of(model, RANKS, "fsdp2", {**MIXED, "reshard_after_forward": 2})
    assert step.most_bytes["parts kept after forward"] == W * elements // 2
    step = step_of(model, RANKS, "fsdp1", {**MIXED, "sharding_strategy": "SHARD_GRAD_OP"})
    assert step.most_bytes[UNSHARDED] == W * elements


@pytest.mark.parametrize("buffers", [1, 2, 4])
def test_reduce_scatters_in_flight(buffers: int) -> None:
    step = step_of(wide_model(), RANKS, "fsdp2", {**MIXED, "reduce_scatter_buffers": buffers})
    assert step.most_bytes[SCATTER_BUFFERS] == buffers * R * BLOCK


def test_fsdp1_limits_what_is_unsharded() -> None:
    """By a limit of two ends of uses, which a step leaves to the next: three units and the root.

    Without it all of forward, and the two that backward gathers before it issues its first reduce-scatter.
    """
    limited = step_of(wide_model(), RANKS, "fsdp1", MIXED)
    assert limited.most_bytes[UNSHARDED] == W * (3 * BLOCK + ROOT)
    free = step_of(wide_model(), RANKS, "fsdp1", {**MIXED, "limit_all_gathers": False})
    assert free.most_bytes[UNSHARDED] == W * ((LAYERS + 2) * BLOCK + ROOT)


def test_no_shard_holds_everything() -> None:
    step = step_of(wide_model(), RANKS, "fsdp1", {"sharding_strategy": "NO_SHARD", "param_dtype": "float32"})
    elements = LAYERS * BLOCK + ROOT
    assert step.memory[PARAMETERS] == MASTER * elements
    assert step.memory[OPTIMIZER] == 8 * elements
    assert step.sent_bytes == {"all_reduce": 2 * MASTER * elements * 7 // 8}


def test_units_of_several_dtypes_are_refused() -> None:
    model = model_b()
    first = model.layers[1].modules[0]
    odd = tuple(type(p)(p.name, p.shape, "bfloat16") for p in first.parameters)
    layer = Layer("layers.0", (type(first)(first.name, first.kind, odd), *model.layers[1].modules[1:]))
    mixed = Model("mixed", "plain", (model.layers[0], layer, *model.layers[2:]), model.registration)
    with pytest.raises(InputError, match=r"layers\.0.*bfloat16 and float32"):
        simulate_step(training_of(mixed), "fsdp2")


@pytest.mark.parametrize(
    ("strategy", "options"),
    [("hsdp", {"shard_size": 3}), ("fsdp2", {"reshard_after_forward": 3}), ("fsdp1", {"sharding_strategy": "FULL"})],
)
def test_what_does_not_divide_is_refused(strategy: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"divi|FULL_SHARD"):
        simulate_step(training_of(model_b()), strategy, options)
