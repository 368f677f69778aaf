"""Hierarchical all-reduce: inside each node reduce-scatter, between nodes all-reduce each part, inside all-gather.

    T = T_reduce_scatter(g, M; intra) + T_all_reduce(P, M/g; inter) + T_all_gather(g, M; intra)

With rings at both levels: 2 (g - 1) (alpha1 + M/(g B1)) + 2 (P - 1) (alpha2 + M/(g P B2)) for P nodes of g. Options
``intra`` (any algorithm with both a reduce-scatter and an all-gather) and ``inter`` (any all-reduce): a name, or
{name: {option: value}}. The g devices of a node use their own network ports at the same time. With uneven chunks the
largest part replaces M/g. Nodes are those of the cluster, whatever the rank order; a flat cluster is one node.

Reference: Cho et al., BlueConnect, MLSys 2019. Stages follow one another, without pipelining.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from simcollectives.algorithms.types import (
    Algorithm,
    Cost,
    LevelCost,
    Option,
    Options,
    Placement,
    flat_placement,
    resolve_options,
)
from simcollectives.cluster.types import Cluster
from simcollectives.errors import AlgorithmError, show_value, suggestion
from simcollectives.schedule.combinators import concatenate, embed
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import Schedule

Table = Mapping[tuple[str, str], Algorithm]


def _part_option(name: str, collectives: tuple[str, ...], table: Table, summary: str) -> Option:
    names = {n for c, n in table if c == collectives[0] and all((other, n) in table for other in collectives)}

    def check(value: Any) -> Any:
        part, given = next(iter(value.items())) if isinstance(value, Mapping) and len(value) == 1 else (value, {})
        if not isinstance(part, str) or part not in names:
            remedy = suggestion(part, sorted(names), "write one of")
            raise ValueError(f"{show_value(part)} does not fit {name}; {remedy}")
        if not isinstance(given, Mapping):
            remedy = f"write {name}: {{{part}: {{option: value}}}}"
            raise ValueError(f"{show_value(given)} are not options of {part}; {remedy}")
        for collective in collectives:
            try:
                resolve_options(table[collective, part], given)
            except AlgorithmError as error:
                raise ValueError("; ".join(problem.message for problem in error.problems)) from None
        return {part: dict(given)} if given else part

    return Option(name, "ring", summary, check, tuple(sorted(names)))


def _part(value: Any, collective: str, table: Table) -> tuple[Algorithm, dict[str, Any]]:
    name, given = next(iter(value.items())) if isinstance(value, Mapping) else (value, {})
    algorithm = table[collective, name]
    return algorithm, resolve_options(algorithm, given)


def _stages(placement: Placement) -> tuple[tuple[str, str, int], ...]:
    """Option, collective and number of ranks of each stage."""
    nodes, members = placement.groups.shape
    return (("intra", "reduce_scatter", members), ("inter", "all_reduce", nodes), ("intra", "all_gather", members))


def _accepts(table: Table, placement: Placement, options: Options) -> str | None:
    for level, collective, size in _stages(placement):
        part, given = _part(options[level], collective, table)
        reason = part.accepts(Placement(flat_placement(size).groups, flat=False), given)
        if reason:
            return f"{level} {part.name}: {reason}"
    return None


def _schedule(table: Table, placement: Placement, options: Options) -> Schedule:
    members = placement.groups.shape[1]
    scatter, between, gather = (
        part.schedule(flat_placement(size), given)
        for level, collective, size in _stages(placement)
        for part, given in (_part(options[level], collective, table),)
    )
    part_chunks = between.chunks
    whole = np.zeros(len(placement.groups), dtype=np.int64)
    phases = concatenate(
        embed(scatter.channels[0], placement.groups, whole, part_chunks),
        embed(between.channels[0], placement.groups.T, np.arange(members, dtype=np.int64) * part_chunks),
        embed(gather.channels[0], placement.groups, whole, part_chunks),
    )
    chunks, first = members * part_chunks, between.own_first
    return Schedule("all_reduce", placement.world_size, chunks, (phases,), own_first=first)


def _costs(table: Table, nodes: int, members: int, layout: Layout, options: Options) -> tuple[Cost, Cost] | None:
    """Cost inside nodes and cost between them: the first part of each node is the largest, and is always sent."""
    part_chunks = layout.chunks // members
    grouped = Layout(layout.elements, layout.chunks, group=part_chunks)
    scatter, gather = (
        part.cost(members, grouped, given)
        for part, given in (_part(options["intra"], c, table) for c in ("reduce_scatter", "all_gather"))
    )
    inter, inter_options = _part(options["inter"], "all_reduce", table)
    between = inter.cost(nodes, Layout(grouped.head(1), part_chunks), inter_options)
    if scatter is None or gather is None or between is None:
        return None
    return scatter + gather, between


def _cost(table: Table, n: int, layout: Layout, options: Options) -> Cost | None:
    both = _costs(table, 1, n, layout, options)
    return both and both[0] + both[1]


def _level_costs(
    table: Table, cluster: Cluster, layout: Layout, _itemsize: int, options: Options
) -> tuple[LevelCost, ...] | None:
    if len(cluster.levels) > 2:
        return None
    both = _costs(table, cluster.nodes, cluster.gpus_per_node, layout, options)
    return both and (LevelCost(cluster.levels[0].name, both[0]), LevelCost(cluster.levels[-1].name, both[1]))


def _same_bits(table: Table, options: Options) -> bool:
    inter, given = _part(options["inter"], "all_reduce", table)
    return inter.same_bits(given)


def algorithms(flat: tuple[Algorithm, ...]) -> tuple[Algorithm, ...]:
    """Build the hierarchical all-reduce over the algorithms that work inside and between nodes."""
    table = {(a.collective, a.name): a for a in flat}
    inside = ("reduce_scatter", "all_gather")
    return (
        Algorithm(
            name="hierarchical",
            collective="all_reduce",
            summary="reduce-scatter inside nodes, all-reduce between, all-gather inside",
            formula="T_rs(g, M) + T_ar(P, M/g) + T_ag(g, M)",
            reference="Cho et al. 2019 (BlueConnect)",
            schedule=partial(_schedule, table),
            cost=partial(_cost, table),
            options=(
                _part_option("intra", inside, table, "reduce-scatter and all-gather inside a node"),
                _part_option("inter", ("all_reduce",), table, "all-reduce between nodes"),
            ),
            accepts=partial(_accepts, table),
            level_costs=partial(_level_costs, table),
            same_bits=partial(_same_bits, table),
        ),
    )
