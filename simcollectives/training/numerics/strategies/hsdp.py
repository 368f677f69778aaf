"""Hybrid sharding: FSDP2 inside groups of consecutive ranks (a node's, by default), data parallelism between groups.

All-gathers and reduce-scatters stay inside a group (a node, say); then each shard's gradient is all-reduced with those
of its peers in the other groups. Memory is 1/``shard_size``. Reference: Zhao et al., PVLDB 16(12), 2023, section 3.2.2.
"""

from dataclasses import replace

from simcollectives.cluster import Cluster
from simcollectives.training.numerics.group import Among, Group
from simcollectives.training.numerics.layers import Parameters
from simcollectives.training.numerics.plan import NumericsPlan
from simcollectives.training.numerics.strategies import fsdp2
from simcollectives.training.numerics.strategies.fully_sharded import FullySharded
from simcollectives.training.numerics.strategies.types import Collective, Options, Strategy, StrategyEntry
from simcollectives.training.strategies.fsdp_options import SHARD_SIZE


def _groups(cluster: Cluster, options: Options) -> tuple[Among, Among]:
    given: int | None = options["shard_size"]
    size = cluster.gpus_per_node if given is None else given
    return Among("shard", size), Among("replicate", max(cluster.world_size // size, 1), size)


def make(plan: NumericsPlan, group: Group, initial: Parameters, options: Options) -> Strategy:
    """Shard over consecutive ranks, replicate over the groups."""
    shard, replicate = _groups(group.cluster, options)
    sharding = replace(fsdp2.sharding_of(options), shard=shard, replicate=replicate)
    return FullySharded(plan, group, initial, sharding)


def collectives(cluster: Cluster, options: Options) -> tuple[Collective, ...]:
    """Inside a group as FSDP2, between groups an all-reduce."""
    shard, replicate = _groups(cluster, options)
    return ("reduce_scatter", shard), ("all_gather", shard), ("all_reduce", replicate)


STRATEGY = StrategyEntry(
    name="hsdp",
    summary="sharded as fsdp2 inside groups of ranks, replicated over the groups",
    reference="Zhao et al. 2023",
    make=make,
    collectives=collectives,
    options=(SHARD_SIZE, *fsdp2.OPTIONS),
)
