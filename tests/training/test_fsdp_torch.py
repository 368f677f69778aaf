"""What torch's FSDP1 and FSDP2 communicate, entry by entry: real runs of four processes on gloo beside ours."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simcollectives.training.model import Model
from simcollectives.training.program import HOST, Program
from tests.training.fsdp_cases import model_b, program_of, training_of

pytestmark = pytest.mark.torch

MIXED = {"param_dtype": "bfloat16", "reduce_dtype": "float32"}
PARTS = {"units": "embedding_and_head"}
Case = tuple[str, str, dict[str, Any], dict[str, Any]]
"""A name, a strategy, its options, and of the run: blocks, micro-batches, whether there is an embedding."""

CASES: tuple[Case, ...] = (
    ("float32", "fsdp2", {}, {}),
    ("twelve blocks", "fsdp2", MIXED, {"blocks": 12}),
    ("one block", "fsdp2", MIXED, {"blocks": 1}),
    ("reshard", "fsdp2", {**MIXED, "reshard_after_forward": True}, {}),
    ("parts of two", "fsdp2", {**MIXED, "reshard_after_forward": 2}, {"micro_batches": 2}),
    ("parts of two and units", "fsdp2", {**MIXED, **PARTS, "reshard_after_forward": 2}, {}),
    ("parts of one", "fsdp2", {**MIXED, "reshard_after_forward": 1}, {}),
    ("parts of four", "fsdp2", {**MIXED, "reshard_after_forward": 4}, {}),
    ("units", "fsdp2", {**MIXED, **PARTS}, {}),
    ("units, last kept", "fsdp2", {**MIXED, **PARTS, "reshard_last_unit": False}, {}),
    ("last kept", "fsdp2", {**MIXED, "reshard_last_unit": False}, {}),
    ("first not gathered", "fsdp2", {**MIXED, **PARTS, "unshard_first_in_backward": False}, {}),
    ("forward prefetch of 1", "fsdp2", {**MIXED, "forward_prefetch": 1}, {}),
    ("forward prefetch of 2, units", "fsdp2", {**MIXED, **PARTS, "forward_prefetch": 2}, {}),
    ("backward prefetch of 2", "fsdp2", {**MIXED, "backward_prefetch": 2}, {}),
    ("backward prefetch of 3, units", "fsdp2", {**MIXED, **PARTS, "backward_prefetch": 3}, {}),
    ("both prefetches", "fsdp2", {**PARTS, "forward_prefetch": 3, "backward_prefetch": 2}, {}),
    ("three micro-batches", "fsdp2", MIXED, {"micro_batches": 3}),
    ("sync of the last", "fsdp2", {**MIXED, "gradient_sync": "last"}, {"micro_batches": 3}),
    ("sync of the last, bfloat16", "fsdp2", {"param_dtype": "bfloat16", "gradient_sync": "last"}, {"micro_batches": 2}),
    (
        "kept between micro-batches",
        "fsdp2",
        {**MIXED, "reshard_after_backward": False, "gradient_sync": "last"},
        {"micro_batches": 3},
    ),
    ("kept, every sync", "fsdp2", {**PARTS, "reshard_after_backward": False}, {"micro_batches": 2}),
    (
        "kept altogether",
        "fsdp2",
        {"reshard_after_backward": False, "reshard_after_forward": False},
        {"micro_batches": 2},
    ),
    ("no waits between", "fsdp2", {**MIXED, "wait_in_every_backward": False}, {"micro_batches": 3}),
    ("two buffers, own group", "fsdp2", {"reduce_scatter_buffers": 2, "separate_reduce_scatter_group": True}, {}),
    ("float16", "fsdp2", {"param_dtype": "float16", "reduce_dtype": "float16"}, {}),
    ("no embedding", "fsdp2", MIXED, {"embedding": False}),
    ("no embedding, units", "fsdp2", {**MIXED, **PARTS}, {"embedding": False}),
    ("hybrid", "hsdp", {**MIXED, **PARTS, "shard_size": 2}, {}),
    ("hybrid, all-reduce of the last", "hsdp", {"shard_size": 2, "all_reduce": "last"}, {"micro_batches": 3}),
    ("hybrid, sync of the last", "hsdp", {**MIXED, "shard_size": 2, "gradient_sync": "last"}, {"micro_batches": 2}),
    ("FSDP1", "fsdp1", {}, {}),
    ("FSDP1, bfloat16", "fsdp1", MIXED, {}),
    ("FSDP1, bfloat16 aligned", "fsdp1", {**MIXED, "use_orig_params": True}, {}),
    ("FSDP1, one block", "fsdp1", {}, {"blocks": 1}),
    ("FSDP1, twelve blocks", "fsdp1", {}, {"blocks": 12, "steps": 4}),
    ("FSDP1, units", "fsdp1", {**PARTS, "use_orig_params": True}, {}),
    ("FSDP1, forward prefetch", "fsdp1", {"forward_prefetch": True}, {"blocks": 6}),
    ("FSDP1, forward prefetch aligned", "fsdp1", {"forward_prefetch": True, "use_orig_params": True}, {"blocks": 6}),
    ("FSDP1, forward prefetch, units", "fsdp1", {**PARTS, "forward_prefetch": True, "use_orig_params": True}, {}),
    (
        "FSDP1, forward prefetch, after",
        "fsdp1",
        {"forward_prefetch": True, "use_orig_params": True, "backward_prefetch": "BACKWARD_POST"},
        {"micro_batches": 2},
    ),
    ("FSDP1, after, micro-batches", "fsdp1", {"backward_prefetch": "BACKWARD_POST"}, {"micro_batches": 2}),
    ("FSDP1, none", "fsdp1", {"backward_prefetch": "none"}, {"blocks": 5}),
    ("FSDP1, no_sync", "fsdp1", {"no_sync": True}, {"micro_batches": 3}),
    ("FSDP1, gradients", "fsdp1", {"sharding_strategy": "SHARD_GRAD_OP"}, {"blocks": 5}),
    (
        "FSDP1, gradients, no_sync",
        "fsdp1",
        {"sharding_strategy": "SHARD_GRAD_OP", "no_sync": True, "use_orig_params": True},
        {"micro_batches": 3},
    ),
    ("FSDP1, gradients, micro-batches", "fsdp1", {"sharding_strategy": "SHARD_GRAD_OP"}, {"micro_batches": 2}),
    ("FSDP1, no shards", "fsdp1", {"sharding_strategy": "NO_SHARD"}, {}),
    ("FSDP1, no shards, aligned", "fsdp1", {"sharding_strategy": "NO_SHARD", "use_orig_params": True, **MIXED}, {}),
    ("FSDP1, hybrid", "fsdp1", {"sharding_strategy": "HYBRID_SHARD", "shard_size": 2}, {"micro_batches": 2}),
    ("FSDP1, unlimited", "fsdp1", {"limit_all_gathers": False}, {}),
)


def case_of(strategy: str, options: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """Return a case for the recorder."""
    names = ("sharding_strategy", "forward_prefetch", "use_orig_params", "limit_all_gathers")
    fsdp1 = {name: options[name] for name in names if name in options}
    fsdp1["backward_prefetch"] = options.get("backward_prefetch", "BACKWARD_PRE")
    if fsdp1["backward_prefetch"] == "none":
        fsdp1["backward_prefetch"] = None
    case = {
        "version": 1 if strategy == "fsdp1" else 2,
        "blocks": 4,
        "embedding": True,
        "micro_batches": 1,
        "steps": 3 if strategy == "fsdp1" else 2,
        **run,
        "shard": options.get("shard_size"),
        "dtypes": {name: options[name] for name in ("param_dtype", "reduce_dtype") if name in options},
        "parts": options.get("units") == "embedding_and_head",
        "keep_last": not options.get("reshard_last_unit", True),
        "forward_prefetch": options.get("forward_prefetch", 0),
        "backward_prefetch": options.get("backward_prefetch", 1),
        "unshard_first": options.get("unshard_first_in_backward", True),
        "separate": options.get("separate_reduce_scatter_group", False),
        "buffers": options.get("reduce_scatter_buffers", 1),
        "sync": options.get("gradient_sync", "every"),
        "all_reduce": options.get("all_reduce", "every"),
        "wait_every": options.get("wait_in_every_backward", True),
        "reshard_after_backward": options.get("reshard_after_backward", True),
        "no_sync": options.get("no_sync", False),
        "fsdp1": fsdp1,
    }
    if "reshard_after_forward" in options:
        case["reshard_after_forward"] = options["reshard_after_forward"]
    return case


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Run all cases once."""
    pytest.importorskip("torch", reason="torch is not installed; pip install torch==2.13.0")
    folder = tmp_path_factory.mktemp("fsdp")
    given, output = folder / "cases.json", folder / "events.json"
    given.write_text(json.dumps([case_of(*case) for _, *case in CASES]), encoding="utf-8")
    script = Path(__file__).with_name("fsdp_recorder.py")
    subprocess.run([sys.executable, "-W", "ignore", script, given, output], check=True, timeout=600)
    found: list[Any] = json.loads(output.read_text(encoding="utf-8"))
    return found


def without_embedding(model: Model) -> Model:
    """The first block gets the input."""
    return replace(model, layers=model.layers[1:], registration=model.registration[1:])


def events_of(program: Program) -> list[list[Any]]:
    """Return collectives, marks inside of blocks, and the host's waits for units that are free."""
    found: list[list[Any]] = []
    freed: list[int] = []
    for place, operation in enumerate(program.operations):
        call = operation.call
        if call is not None:
            found.append([call.kind, call.elements, call.group_size, call.dtype])
        elif operation.name.endswith(" freed"):
            freed.append(place)
        elif operation.stream == HOST:
            found.append(["host", freed.index(operation.after[0])])
        elif operation.name.endswith(".down") and operation.phase == "forward":
            found.append(["forward", int(operation.name.split(".")[1])])
        elif operation.name.endswith(".up backward"):
            found.append(["backward", int(operation.name.split(".")[1])])
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=[name for name, *_ in CASES])
def test_fsdp_communicates_what_torch_does(recorded: list[Any], number: int) -> None:
    _, strategy, options, run = CASES[number]
    case, steps = case_of(strategy, options, run), recorded[number]
    model = model_b(case["blocks"])
    model = model if case["embedding"] else without_embedding(model)
    assert len(steps) == case["steps"]
    for iteration, events in enumerate(steps):
        training = training_of(model, iteration=iteration, accumulation=case["micro_batches"])
        assert events_of(program_of(strategy, training, options)) == events, f"step {iteration}"
        assert any(event[0] in ("reduce_scatter", "all_reduce") for event in events)
