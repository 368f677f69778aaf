"""ZeRO as DeepSpeed 0.19.8 ran it: collectives of recorded steps, entry by entry."""

from __future__ import annotations

import re
from typing import Any

import pytest

from simcollectives.training.program import Program
from tests.training.zero_models import RECORDED, entries, model_b, program_of, training_of

KINDS = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}
MORE = {"grad_accum_dtype", "communication_data_type"}


def given_of(case: dict[str, Any]) -> dict[str, Any]:
    more = case.get("more", {})
    flat = {**more, **more.get("data_types", {})}
    return {name: value for name, value in flat.items() if name in MORE}


def blocks_of(case: dict[str, Any]) -> int:
    found = re.search(r"_L(\d+)", case["case"])
    return int(found[1]) if found else 4


def second_step(case: dict[str, Any]) -> list[str]:
    events = case["events"]
    return events[len(events) - events[::-1].index("== step") :]


def events_of(program: Program, case: dict[str, Any]) -> list[str]:
    """Return what the recorder noted: starts of blocks forward and backward, collectives with both their buffers.

    A block's backward was noted when the gradient of its output was known; the forward at its start.
    """
    ranks, events, micro_batch, stepped = case["world_size"], [], -1, True
    for operation in program.operations:
        if operation.micro_batch > micro_batch:
            micro_batch = operation.micro_batch
            events.append(f"-- mb {micro_batch}")
            stepped = False
        if operation.phase == "optimizer" and not stepped:
            events.append("opt.step()")
            stepped = True
        if found := re.fullmatch(r"blocks\.(\d+)\.(?:(a)|b( backward))", operation.name):
            events.append(f"{'F' if found[2] else 'B'}{found[1]}")
        if operation.call is not None:
            call = operation.call
            sizes = [call.elements]
            if call.kind in KINDS:
                sizes = [call.elements, call.elements // ranks][:: 1 if call.kind == "all_gather" else -1]
            buffers = ",".join(f"{size}:{call.dtype}" for size in sizes)
            events.append(f"{KINDS.get(call.kind, call.kind)} {buffers}")
    return events


@pytest.mark.parametrize("case", RECORDED["traces"], ids=[case["case"] for case in RECORDED["traces"]])
def test_collectives_are_those_of_deepspeed(case: dict[str, Any]) -> None:
    accumulation = case["config"].get("ga", 1)
    training = training_of(model_b(blocks_of(case)), case["world_size"], accumulation=accumulation)
    found = events_of(program_of(case["config"], training), case)
    wanted = second_step(case)

    def collectives(events: list[str]) -> list[str]:
        return [event for event in events if not re.fullmatch(r"[FB]\d+|opt.step\(\)", event)]

    assert collectives(found) == collectives(wanted)


@pytest.mark.parametrize("case", RECORDED["recorded"], ids=[case["case"] for case in RECORDED["recorded"]])
@pytest.mark.parametrize(("step", "iteration"), [("first", 0), ("second", 1), ("third", None)])
def test_recorded_steps(case: dict[str, Any], step: str, iteration: int | None) -> None:
    """The first step, in which stage 3 records a pass; the second and third; the steady state, which is the third."""
    wanted = case.get(step, case["third"])
    model = model_b(case["blocks"], tied=case.get("tied", False))
    training = training_of(model, case["world_size"], accumulation=case["accumulation"], iteration=iteration)
    program = program_of(case["zero_optimization"], training, **given_of(case))
    assert entries(program) == wanted
