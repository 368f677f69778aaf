"""Short runs of sharded training, each trained once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simcollectives.training.numerics import (
    STRATEGIES,
    History,
    NumericsPlan,
    NumericsRow,
    compare,
    one_device,
    plain,
    train,
)

PLAN = NumericsPlan(steps=2, samples=24, optimizer="adam", algorithm="butterfly")
SHARDED = [name for name in STRATEGIES if name != "ddp"]
FULLY = ["zero3", "fsdp2", "hsdp"]
PARAMETERS = 8 * 16 + 16 + 16 * 4 + 4
ITEM = 8


RUNS: dict[str, History] = {}


def trained(plan: NumericsPlan) -> History:
    """Train each plan once: what runs are compared with is often the same."""
    if repr(plan) not in RUNS:
        RUNS[repr(plan)] = train(plan)
    return RUNS[repr(plan)]


def planned(**changed: Any) -> NumericsPlan:
    """The plan, changed; hybrid sharding is over pairs of ranks, if nothing is said."""
    plan = replace(PLAN, **changed)
    pairs = {"shard_size": 2} if plan.strategy == "hsdp" else {}
    return replace(plan, strategy_options={**pairs, **plan.strategy_options})


def row(**changed: Any) -> NumericsRow:
    plan = planned(**changed)
    (found,) = compare(trained(plan), trained(one_device(plan)), trained(plain(plan)))
    return found
