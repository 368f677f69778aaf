"""What torch's DistributedDataParallel communicates, entry by entry: real runs of two processes on gloo beside ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.training import Precision, Training
from simcollectives.training.model import Layer, Model, Module, Parameter
from simcollectives.training.program import Program
from simcollectives.training.setup import ModuleSeconds
from simcollectives.training.strategies.table import find_strategy, resolve_strategy_options

pytestmark = pytest.mark.torch

MIB = 1 << 20
CLUSTER = Cluster.flat(2, Link(1e-6, 1e9))
KINDS = {
    "LayerNorm": "norm",
    "BatchNorm2d": "norm",
    "Embedding": "embedding",
    "Conv2d": "convolution",
    "Linear": "linear",
}

OPTIONS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("defaults", {}, {}),
    ("2 KiB", {"bucket_cap_mb": 2 / 1024}, {"bucket_cap": 2048}),
    ("10 KiB", {"bucket_cap_mb": 10 / 1024}, {"bucket_cap": 10240}),
    ("every gradient", {"bucket_cap_mb": 1 / MIB}, {"bucket_cap": 1}),
    ("100 MiB", {"bucket_cap_mb": 100}, {"bucket_cap": 100 * MIB}),
    (
        "views",
        {"bucket_cap_mb": 4 / 1024, "gradient_as_bucket_view": True},
        {"bucket_cap": 4096, "gradient_as_bucket_view": True},
    ),
    ("static", {"bucket_cap_mb": 4 / 1024, "static_graph": True}, {"bucket_cap": 4096, "static_graph": True}),
    (
        "unused",
        {"bucket_cap_mb": 4 / 1024, "find_unused_parameters": True},
        {"bucket_cap": 4096, "find_unused_parameters": True},
    ),
    (
        "static and unused",
        {"bucket_cap_mb": 4 / 1024, "find_unused_parameters": True, "static_graph": True},
        {"bucket_cap": 4096, "find_unused_parameters": True, "static_graph": True},
    ),
    (
        "no buffers",
        {"bucket_cap_mb": 4 / 1024, "broadcast_buffers": False},
        {"bucket_cap": 4096, "broadcast_buffers": False},
    ),
)
MODELS = ("mlp", "tied", "mixed", "ready", "convolutions")


def cases() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Return names, cases for the recorder, and our options."""
    found = []
    for model in MODELS:
        for name, ddp, ours in OPTIONS:
            case = {"model": model, "ddp": ddp, "steps": 4, "micro_batches": 1, "no_sync": True}
            found.append((f"{model}, {name}", case, ours))
    for model in ("mlp", "convolutions"):
        for no_sync in (True, False):
            for count in (2, 3):
                case = {"model": model, "ddp": {"bucket_cap_mb": 4 / 1024}, "steps": 3, "micro_batches": count}
                ours = {"bucket_cap": 4096, "no_sync": no_sync}
                found.append((f"{model}, {count} micro-batches, no_sync {no_sync}", {**case, "no_sync": no_sync}, ours))
    for hook in ("fp16",):  # torch refuses bf16 without NCCL
        case = {"model": "ready", "ddp": {"bucket_cap_mb": 4 / 1024}, "hook": hook, "steps": 3}
        found.append(
            (f"{hook} hook", {**case, "micro_batches": 1, "no_sync": True}, {"bucket_cap": 4096, "hook": hook})
        )
    for rank in (1, 2):
        for cap in (4096, 64 * 1024):
            case = {"model": "mlp", "ddp": {"bucket_cap_mb": cap / MIB}, "hook": "powersgd", "rank": rank, "start": 2}
            ours = {"bucket_cap": cap, "hook": "powersgd", "powersgd_rank": rank, "powersgd_start": 2}
            name = f"PowerSGD of rank {rank}, {cap} B"
            found.append((name, {**case, "steps": 5, "micro_batches": 1, "no_sync": True}, ours))
    return found


CASES = cases()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Run all cases once."""
    pytest.importorskip("torch", reason="torch is not installed; pip install torch==2.13.0")
    folder = tmp_path_factory.mktemp("ddp")
    given, output = folder / "cases.json", folder / "events.json"
    given.write_text(json.dumps([case for _, case, _ in CASES]), encoding="utf-8")
    script = Path(__file__).with_name("ddp_recorder.py")
    subprocess.run([sys.executable, "-W", "ignore", script, given, output], check=True, timeout=600)
    found: list[Any] = json.loads(output.read_text(encoding="utf-8"))
    return found


def model_of(description: list[Any]) -> Model:
    """Return a recorded model as ours, a layer for each module."""
    parts = dict(description)
    layers = []
    for name, kind, parameters in parts["modules"]:
        mine = tuple(Parameter(parts["names"][own], tuple(shape), dtype) for own, shape, dtype in parameters)
        layers.append(Layer(name, (Module(name, KINDS[kind], mine),)))  # type: ignore[arg-type]
    buffers = tuple(Parameter(name, tuple(shape), dtype) for name, shape, dtype in parts["buffers"])
    return Model("recorded", "recorded", tuple(layers), tuple(parts["registration"]), buffers=buffers)


def events_of(program: Program) -> list[list[Any]]:
    """Return what a program issues: marks of backwards, and collectives."""
    found: list[list[Any]] = []
    for operation in program.operations:
        if operation.call is not None:
            found.append([operation.call.kind, operation.call.elements, operation.call.dtype])
        elif operation.name.endswith(" backward"):
            found.append(["backward", operation.name.removesuffix(" backward")])
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=[name for name, _, _ in CASES])
def test_ddp_communicates_what_torch_does(recorded: list[Any], number: int) -> None:
    _, case, ours = CASES[number]
    description, *steps = recorded[number]
    model = model_of(description)
    strategy = find_strategy("ddp")
    options = resolve_strategy_options(strategy, ours)
    seconds = {layer.name: ModuleSeconds(1e-3, 2e-3) for layer in model.layers}
    assert len(steps) == case["steps"]
    for iteration, events in enumerate(steps):
        training = Training(
            model,
            CLUSTER,
            1,
            1,
            seconds,
            accumulation=case["micro_batches"],
            precision=Precision("float32", "float32", "float32"),
            iteration=iteration,
        )
        assert events_of(strategy.program(training, options)) == events, f"step {iteration}"
