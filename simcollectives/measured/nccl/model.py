"""NCCL's cost model of a collective: the latency and bandwidth of every algorithm and protocol."""

from collections.abc import Sequence

from simcollectives.cluster.nccl_graph import MAX_CHANNELS, NcclGraph
from simcollectives.errors import InputError, Problem, show_value, suggestion
from simcollectives.measured.nccl.available import NEW_GPUS, why_not
from simcollectives.measured.nccl.bandwidth import bandwidth
from simcollectives.measured.nccl.constants import (
    ALGORITHMS,
    COLLECTIVE_ALGORITHMS,
    OLD_PLATEAU,
    PATTERN_OF,
    PLATEAU,
    PROTOCOLS,
)
from simcollectives.measured.nccl.latency import Asked, latency_seconds
from simcollectives.measured.nccl.types import Candidate, Model, is_whole

SOURCE = "NCCL 2.30.7"
ASKED_FOR = "it is not among those asked for"
MAX_COUNT = 1 << 20
_FEW_CHANNELS, _FAST_CHANNEL = 16, 45e9


def nccl_model(
    collective: str,
    graph: NcclGraph,
    nodes: int,
    gpus_per_node: int,
    algorithms: Sequence[str] = ALGORITHMS,
    protocols: Sequence[str] = PROTOCOLS,
) -> Model:
    """Return every candidate for a collective on so many equal nodes, those that cannot be taken with the reason.

    ``algorithms`` and ``protocols`` are those allowed, as NCCL_ALGO and NCCL_PROTO say.

    Raises:
        InputError: a name is unknown, a number is no count, or no candidate can be taken; all problems at once.
    """
    _check(collective, nodes, gpus_per_node, algorithms, protocols)
    world_size = nodes * gpus_per_node
    candidates = []
    for algorithm in ALGORITHMS:
        for protocol in PROTOCOLS:
            if world_size == 1:
                candidates.append(_alone(algorithm, protocol))
            elif algorithm not in algorithms or protocol not in protocols:
                candidates.append(Candidate(algorithm, protocol, reason=ASKED_FOR))
            else:
                candidates.append(_candidate(collective, algorithm, protocol, graph, nodes, gpus_per_node))
    model = Model(
        collective=collective,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        channels=_communicator_channels(graph, nodes),
        candidates=tuple(candidates),
        tree_factor=collective == "all_reduce",
        nvls_tree_factor=collective == "all_reduce" and graph.gpu == "blackwell" and graph.cpu in ("intel", "amd"),
        plateau=1.0 if nodes == 1 or collective != "all_reduce" else OLD_PLATEAU if graph.gpu == "volta" else PLATEAU,
        source=SOURCE,
    )
    require_candidate(model)
    return model


def _alone(algorithm: str, protocol: str) -> Candidate:
    """With one rank NCCL takes ring/Simple and nothing is sent."""
    if (algorithm, protocol) == ("ring", "Simple"):
        return Candidate(algorithm, protocol, 0.0, float("inf"))
    return Candidate(algorithm, protocol, reason="there is one rank")


def _candidate(collective: str, algorithm: str, protocol: str, graph: NcclGraph, nodes: int, gpus: int) -> Candidate:
    reason = why_not(collective, algorithm, protocol, graph, nodes, gpus)
    channels = graph.searched(PATTERN_OF[algorithm], nodes)
    if reason or channels is None:
        return Candidate(algorithm, protocol, reason=reason)
    asked = Asked(collective, algorithm, protocol, graph, channels, nodes, gpus)
    rate = bandwidth(asked)
    if rate <= 0:
        return Candidate(algorithm, protocol, reason="the model gives it no bandwidth")
    return Candidate(algorithm, protocol, latency_seconds(asked), rate)


def _communicator_channels(graph: NcclGraph, nodes: int) -> int:
    """Twice the searched ones of ring and tree; again twice for few fast ones, from Hopper on and between nodes."""
    found = [one for one in (graph.searched("ring", nodes), graph.searched("tree", nodes)) if one is not None]
    if not found:
        return 1
    channels = min(MAX_CHANNELS, 2 * min(one.channels for one in found))
    again = nodes > 1 and graph.gpu in NEW_GPUS and found[0].intra > _FAST_CHANNEL and channels < _FEW_CHANNELS
    return 2 * channels if again else channels


def require_candidate(model: Model) -> None:
    """Raise InputError where no candidate of a model can be taken."""
    if model.available:
        return
    reasons = dict.fromkeys(one.reason for one in model.candidates if one.reason != ASKED_FOR)
    where = f"{model.collective} on {model.nodes} x {model.gpus_per_node} GPUs"
    why = f" ({'; '.join(list(reasons)[:6])})" if reasons else ""
    raise InputError(f"nothing is left for {where}{why}; allow ring and Simple")


def check_collective(collective: str) -> list[Problem]:
    """Return the problem of a collective that NCCL's model does not have; none where it has it."""
    if collective in COLLECTIVE_ALGORITHMS:
        return []
    known = list(COLLECTIVE_ALGORITHMS)
    text = f"NCCL's cost model has no {show_value(collective)}; {suggestion(collective, known, 'it has')}"
    return [Problem("collective", text)]


def _check(collective: str, nodes: int, gpus: int, algorithms: Sequence[str], protocols: Sequence[str]) -> None:
    problems = check_collective(collective)
    for place, number in (("nodes", nodes), ("gpus_per_node", gpus)):
        if not is_whole(number, 1, MAX_COUNT):
            text = f"{show_value(number)} is not a count; give a whole number from 1 to {MAX_COUNT}"
            problems.append(Problem(place, text))
    for place, names, known in (("algorithms", algorithms, ALGORITHMS), ("protocols", protocols, PROTOCOLS)):
        for name in names:
            if name not in known:
                problems.append(Problem(place, f"{show_value(name)} is unknown to NCCL; {suggestion(name, known)}"))
    if problems:
        raise InputError(problems)
