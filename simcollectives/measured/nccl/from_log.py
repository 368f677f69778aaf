"""NCCL's cost model with the figures that a run printed, and its picks beside those that the model predicts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from simcollectives.cluster.nccl_graph import NcclGraph, span_of
from simcollectives.errors import InputError, counted, listing
from simcollectives.measured.nccl.choice import choose
from simcollectives.measured.nccl.model import ASKED_FOR, require_candidate
from simcollectives.measured.nccl.tuning_log import Call, TuningLog, TuningTable
from simcollectives.measured.nccl.types import Candidate, Model


@dataclass(frozen=True)
class Disagreement:
    """A message for which NCCL picked something else than is predicted."""

    message_bytes: int
    picked: str
    predicted: str
    count: int


@dataclass(frozen=True)
class Picks:
    """How many calls of a log were of the model's collective, how many as predicted, and the messages that were not."""

    calls: int
    agreeing: int
    others: tuple[Disagreement, ...]


def graph_of_log(graph: NcclGraph, log: TuningLog) -> NcclGraph:
    """Return a graph with the channels that a log says in the place of its own."""
    one_node = {**graph.one_node, **log.searched.get("one_node", {})}
    return replace(
        graph, one_node=one_node, several_nodes={**graph.several_nodes, **log.searched.get("several_nodes", {})}
    )


def with_log(model: Model, log: TuningLog) -> Model:
    """Return a model with latencies and bandwidths as a run of as many ranks and nodes printed them.

    Without such a run, but with the channels of one (``graph_of_log``), the model's own figures stand.

    Raises:
        InputError: no table is of this collective on these nodes, several different ones are, or none of the
            candidates asked for can be taken.
    """
    table = _table(model, log)
    if table is None:
        return replace(model, source=f"{model.source}, channels of {log.source}")
    printed = dict(table.entries)
    candidates = []
    for one in model.candidates:
        latency, rate = printed.get((model.collective, one.algorithm, one.protocol), (0.0, -1.0))
        reason = "the log has no such column" if rate < 0 else "its bandwidth is 0 in the log" if rate == 0 else ""
        reason = one.reason if one.reason == ASKED_FOR else reason
        candidates.append(
            replace(one, reason=reason, latency=0.0, bandwidth=0.0)
            if reason
            else Candidate(one.algorithm, one.protocol, latency, rate)
        )
    where = f"{log.source}, line {table.lines[0]}"
    source = f"{where}, NCCL {log.version}" if log.version else where
    if table.ranks is None:
        source += f", taken to be of {counted(model.world_size, 'rank')}, which it does not say"
    found = replace(model, candidates=tuple(candidates), channels=table.channels or model.channels, source=source)
    require_candidate(found)
    return found


def _table(model: Model, log: TuningLog) -> TuningTable | None:
    fitting = [
        table
        for table in log.tables
        if table.ranks in (None, model.world_size)
        and table.nodes in (None, model.nodes)
        and any(collective == model.collective for (collective, _, _), _ in table.entries)
    ]
    exact = [table for table in fitting if table.ranks is not None]
    fitting = exact or fitting
    if not fitting and log.searched.get(span_of(model.nodes)):
        return None
    if not fitting:
        has = [
            f"{_count(one.ranks, 'rank')} on {_count(one.nodes, 'node')} (line {one.lines[0]})" for one in log.tables
        ]
        has += [f"channels of {span.replace('_', ' ')}" for span in log.searched]
        asked = f"{model.collective} on {counted(model.world_size, 'rank')}, {counted(model.nodes, 'node')}"
        raise InputError(
            f"no table is of {asked}; it has: {listing(has, 6)}; take the log of such a run, or none", log.source
        )
    if len({table.entries for table in fitting}) > 1:
        lines = listing([str(table.lines[0]) for table in fitting], 6)
        raise InputError(f"different tables fit, at the lines {lines}; keep the one that is meant", log.source)
    return fitting[0]


def _count(number: int | None, noun: str) -> str:
    return f"unknown {noun}s" if number is None else counted(number, noun)


def ran_as(model: Model, log: TuningLog) -> bool:
    """Whether a log is of a run of as many ranks and nodes as the model's, as far as it says."""
    ran = {(table.ranks, table.nodes) for table in log.tables if table.ranks is not None}
    return not ran or any(ranks == model.world_size and nodes in (None, model.nodes) for ranks, nodes in ran)


def compare_picks(model: Model, calls: Sequence[Call]) -> Picks:
    """Return how often the calls of a log were as the model predicts."""
    total = agreeing = 0
    others = []
    for call in calls:
        if call.collective != model.collective:
            continue
        message = call.message_bytes * (model.world_size if call.per_rank else 1)
        predicted = choose(model, message).label
        total += call.count
        if predicted == call.label:
            agreeing += call.count
        else:
            others.append(Disagreement(message, call.label, predicted, call.count))
    return Picks(total, agreeing, tuple(sorted(others, key=lambda one: one.message_bytes)))
