"""Groups of ranks that run the same collective at once: what one of them sees of the cluster, and all together."""

from dataclasses import replace
from typing import Any

import numpy as np

from simcollectives.cluster import Cluster
from simcollectives.cluster.network import Level
from simcollectives.engines.job import Job
from simcollectives.errors import InputError, Problem
from simcollectives.schedule.combinators import embed
from simcollectives.schedule.types import IntArray, Schedule
from simcollectives.training.program import Call


def members_of(world_size: int, call: Call) -> IntArray:
    """[group, member]: the ranks of every group that runs a collective.

    >>> members_of(4, Call("all_reduce", "replicate", 2, 1, "float32", stride=2)).tolist()
    [[0, 2], [1, 3]]

    Raises:
        InputError: the ranks cannot be divided into such groups.
    """
    size, stride = call.group_size, call.stride
    if world_size % (size * stride):
        apart = f" that stand {stride} apart" if stride > 1 else ""
        rule = f"{world_size} ranks cannot be divided into groups of {size}{apart}"
        raise InputError([Problem("", f"{call.group}: {rule}; take a divisor of {world_size // stride}")])
    ranks = np.arange(world_size, dtype=np.int64).reshape(-1, size, stride)
    return np.swapaxes(ranks, 1, 2).reshape(-1, size)


def seen_alone(cluster: Cluster, call: Call) -> Cluster:
    """The cluster that one group sees: its members, and the levels of links that they use among themselves.

    Where groups are not all spread alike over the nodes, all members are taken to be on the outermost level.
    """
    if call.group_size == cluster.world_size:
        return cluster
    on_node = _members_on_a_node(cluster, call)
    if on_node is None or on_node in (1, call.group_size):
        level = cluster.levels[0 if on_node == call.group_size else -1]
        return Cluster(1, call.group_size, (Level(level.name, level.link, call.group_size),), device=cluster.device)
    nodes = call.group_size // on_node
    levels = zip(cluster.levels, (on_node, nodes), strict=True)
    return Cluster(nodes, on_node, tuple(Level(x.name, x.link, size) for x, size in levels), device=cluster.device)


def undisturbed(cluster: Cluster, call: Call) -> bool:
    """Whether a group beside its siblings takes as long as on what it sees alone: no port is shared or unequal."""
    whole = call.group_size == cluster.world_size
    return whole or (cluster.network.plain and _members_on_a_node(cluster, call) is not None)


def _members_on_a_node(cluster: Cluster, call: Call) -> int | None:
    """How many members of a group share a node; None where that is not the same for all, or there are more levels."""
    size, stride, inner = call.group_size, call.stride, cluster.gpus_per_node
    reach = size * stride
    if len(cluster.levels) == 1:
        return size
    if len(cluster.levels) > 2 or cluster.rank_order != "node_major":
        return None
    if reach <= inner:
        return size if inner % reach == 0 else None
    if stride % inner == 0:
        return 1
    return inner // stride if inner % stride == 0 and reach % inner == 0 else None


def all_together(job: Job, cluster: Cluster, call: Call) -> Job:
    """Return the job of all groups at once on the whole cluster, from that of one on what it sees alone."""
    groups = members_of(cluster.world_size, call)
    same_chunks = np.zeros(len(groups), dtype=np.int64)
    channels = tuple(embed(channel, groups, same_chunks) for channel in job.schedule.channels)
    schedule = Schedule(job.schedule.collective, cluster.world_size, job.schedule.chunks, channels)
    # No closed form knows how groups share the links.
    algorithm = replace(job.algorithm, level_costs=_no_form)
    return replace(job, algorithm=algorithm, cluster=cluster, full_cluster=cluster, schedule=schedule)


def _no_form(*_: Any) -> None:
    return None
