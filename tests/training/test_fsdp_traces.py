"""FSDP1 and FSDP2 as PyTorch 2.13.0 ran them: recorded steps of four processes, entry by entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcollectives.training.program import Program
from tests.training.fsdp_cases import Event, events_of, model_b, program_of, training_of

TRACES: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "fsdp_traces.json").read_text(encoding="utf-8"))
CASES = {case["case"]: case for case in TRACES["cases"]}


def fsdp1_lines(event: Event) -> list[str]:
    kind, unit, operation = event
    if operation.call is not None:
        assert operation.call.group_size == 4
        assert operation.call.dtype == "float32"
        whole, part = operation.call.elements, operation.call.elements // 4
        return [f"AG [{part}]" if kind == "AG" else f"RS [{part}, {whole}]"]
    return ["free" if kind == "freed" else f"{kind}{unit.removeprefix('layers.')}"]


def fsdp2_lines(event: Event) -> list[str]:
    kind, unit, operation = event
    call = operation.call
    if call is not None:
        size, end = call.group_size, f"{call.dtype} ws={call.group_size}"
        mine = call.elements // size if kind == "AG" else call.elements
        return [f"AR[{unit}] n={mine} {end}" if kind == "AR" else f"{kind}[{unit}] n_in={mine} {end}"]
    if kind == "copy-out":
        return [f"waitAG+copyout({unit})"]
    if kind == "freed":
        return [*([f"post_bwd({unit})"] if operation.phase == "backward" else []), f"free({unit})"]
    return [f"{kind}{unit.removeprefix('layers.')}"]


def fsdp1_events(program: Program, micro_batches: int) -> list[str]:
    events = events_of(program.operations)
    lines = ["== iter 1"]
    for number in range(micro_batches):
        lines += [line for event in events if event[2].micro_batch == number for line in fsdp1_lines(event)]
        lines += ["-- end no_sync mb"] if number < micro_batches - 1 else []
    return lines


def fsdp2_events(program: Program, micro_batches: int) -> list[str]:
    events = events_of(program.operations)
    lines = ["== iter"]
    for number in range(micro_batches):
        lines.append(f"-- microbatch {number}")
        lines += [line for event in events if event[2].micro_batch == number for line in fsdp2_lines(event)]
    return lines


FSDP1: dict[str, dict[str, Any]] = {
    "fsdp1_default_pre": {},
    "fsdp1_no_sync": {"no_sync": True},
    "fsdp1_none": {"backward_prefetch": "none"},
    "fsdp1_post": {"backward_prefetch": "BACKWARD_POST"},
}
FSDP2: dict[str, tuple[str, dict[str, Any]]] = {
    "fsdp2_mode0": ("fsdp2", {}),
    "fsdp2_mode1": ("fsdp2", {"reshard_after_forward": False}),
    "fsdp2_mode3": ("hsdp", {"shard_size": 2}),
    "fsdp2_mode4": ("fsdp2", {"gradient_sync": "last"}),
}


def test_every_recorded_case_is_compared() -> None:
    assert {*FSDP1, *FSDP2} == {*CASES}


@pytest.mark.parametrize("name", FSDP1)
def test_fsdp1_is_that_of_pytorch(name: str) -> None:
    case = CASES[name]
    micro_batches = case["config"].get("micro_batches", 1)
    training = training_of(model_b(), iteration=1, accumulation=micro_batches)
    program = program_of("fsdp1", training, {"use_orig_params": True, **FSDP1[name]})
    assert fsdp1_events(program, micro_batches) == case["events"]


@pytest.mark.parametrize("name", FSDP2)
def test_fsdp2_is_that_of_pytorch(name: str) -> None:
    case = CASES[name]
    micro_batches = case["config"].get("micro_batches", 1)
    training = training_of(model_b(), accumulation=micro_batches)
    strategy, options = FSDP2[name]
    options = {"param_dtype": "bfloat16", "reduce_dtype": "float32", **options}
    assert fsdp2_events(program_of(strategy, training, options), micro_batches) == case["events"]
