"""Hybrid sharding: FSDP2 inside groups of consecutive ranks, data parallelism between the groups.

All-gathers and reduce-scatters stay inside a group (a node, say); then each shard's gradient is all-reduced with those
of its peers in the other groups. Memory is 1/``shard_size``. Reference: Zhao et al., PVLDB 16(12), 2023, section 3.2.2.
"""

from dataclasses import replace
from typing import Any

from simcollectives.algorithms.types import Option
from simcollectives.errors import show_value
from simcollectives.training.numerics.group import Among, Group
from simcollectives.training.numerics.layers import Parameters
from simcollectives.training.numerics.plan import NumericsPlan
from simcollectives.training.numerics.strategies import fsdp2
from simcollectives.training.numerics.strategies.fully_sharded import FullySharded
from simcollectives.training.numerics.strategies.types import Collective, Options, Strategy, StrategyEntry


def _size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    raise ValueError(f"{show_value(value)} is not valid; write a number of ranks that divides all of them")


def _groups(plan: NumericsPlan, options: Options) -> tuple[Among, Among]:
    size: int = options["shard_size"]
    return Among("shard", size), Among("replicate", max(plan.world_size // size, 1), size)


def make(plan: NumericsPlan, group: Group, initial: Parameters, options: Options) -> Strategy:
    """Shard over consecutive ranks, replicate over the groups."""
    shard, replicate = _groups(plan, options)
    sharding = replace(fsdp2.sharding_of(options), shard=shard, replicate=replicate)
    return FullySharded(plan, group, initial, sharding)


def collectives(plan: NumericsPlan, options: Options) -> tuple[Collective, ...]:
    """Inside a group as FSDP2, between groups an all-reduce."""
    shard, replicate = _groups(plan, options)
    return ("reduce_scatter", shard), ("all_gather", shard), ("all_reduce", replicate)


STRATEGY = StrategyEntry(
    name="hsdp",
    summary="sharded as fsdp2 inside groups of ranks, replicated over the groups",
    reference="Zhao et al. 2023",
    make=make,
    collectives=collectives,
    options=(Option("shard_size", 2, "consecutive ranks that share one replica", _size), *fsdp2.OPTIONS),
)
