"""The physical model: one formula for several sweeps of one system, so that those at some node counts predict others.

    T = min over algorithms and protocols of { L^q + X^q }^(1/q)
    several nodes   L = t0 + lambda (k_i h_i + k_e h_e)    X = (W + phi S / n) / (r B), phi = 0.5
    one node        L = t0 + alpha k                       X = (W + phi S / n) / B
    CPUs (MPI)      L = t0 + alpha k                       X = W / B (1 + R S^2 / (S^2 + S_c^2))

k are the steps of the algorithm inside and between nodes, W its bytes on the bottleneck (`forms`), h the latencies of a
step by link and protocol in NCCL's own model (src/graph/tuning.cc, 2.30.7). The q-norm stands for what channels and
pipelining overlap. For a library's own choice all algorithms that it may take share the parameters, and the quickest
counts: an assumption, which `Fitted.choice` shows with its margin.

Two things are no part of the formula. Half of what it leaves over at the measured counts is carried to the same chunk
(S / n). And a larger fabric is slower than a smaller one says: beyond the measured nodes the time grows by 3 % a
doubling, which is less than GPU systems showed that were measured at two node counts.

The form, its bounds and its priors were found in a study of other sweeps. Four constants were chosen with the tests of
benchmarks/prediction.py in view: GROWTH, CARRIED, the steps of an all-to-all, and where t0 of CPUs is expected; and two
rules after their results: intervals grow by 10 % a doubling of nodes, and LL lines are kept from two points on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simcollectives.measured.models.alpha_beta import fit_alpha_beta
from simcollectives.measured.models.forms import (
    AUTOMATIC,
    GPU_FORMS,
    HOST_FORMS,
    algorithm_of,
    assumed_algorithms,
    runs_on_hosts,
)
from simcollectives.measured.models.solve import Free, Solution, at_upper_end, parameters_of, solve
from simcollectives.measured.models.types import (
    Choice,
    Columns,
    Fitted,
    FloatArray,
    Parameter,
    Predictor,
    columns_of,
    dips,
    spread_errors,
)
from simcollectives.measured.sweep import MeasuredSweep
from simcollectives.units import format_ratio

LEAST_POINTS = 6
MIN_BYTES = 1024
GROWTH, MOST_DOUBLINGS = 0.03, 3
CARRIED = 0.5
CARRIED_MOST = 0.25

PROTOCOLS = ("LL", "LL128", "Simple")
_HOPS = {
    # Microseconds of a step inside a node and between nodes, a protocol. A peer of an all-to-all waits for no other
    # peer: on one node it costs a third of a step of the quickest ring (as fitted), and that is taken between nodes.
    "ring": ((0.6, 1.9, 3.4), (2.7, 4.0, 14.0)),
    "tree": ((0.6, 1.25, 4.0), (5.0, 8.5, 14.0)),
    "all_to_all": ((0.2, 0.2, 0.2), (0.9, 0.9, 0.9)),
}
_LL128_RATE = 0.92
_PHI_BETWEEN_NODES = 0.5

_T0 = Free("t0", 0.1, 300, 10, 1.5, "s", 1e-6, "what every call costs")
_ALPHA = Free("alpha", 0.02, 100, 1.5, 1.2, "s", 1e-6, "a step")
_Q = Free("q", 0.35, 2.5, 0.8, 0.6, "", 1, "how sharply latency turns into bandwidth")
_OF_NODES = (
    _T0,
    Free("lambda", 0.05, 20, 1.5, 1.0, "", 1, "steps, as a multiple of NCCL's own constants"),
    _Q,
)
_RATE_LL = Free("r_LL", 0.01, 1, 0.25, 0.8, "", 1, "bandwidth of protocol LL over that of Simple")
_OF_AUTOMATIC = (
    Free("r_tree", 0.3, 1.5, 0.9, 0.2, "", 1, "bandwidth of the tree over that of the ring"),
    Free("b_2", 1, 2, 1.2, 0.3, "", 1, "bandwidth on two nodes over that on more"),
)
_OF_ONE_NODE = (_T0, _ALPHA, _Q, Free("phi", 0.01, 2, 0.5, 0.5, "", 1, "chunks that nothing overlaps"))
_OF_HOSTS = (
    replace(_T0, expected=1),  # no kernel is launched
    _ALPHA,
    _Q,
    Free("R", 0.01, 20, 1, 1.2, "", 1, "how much longer bytes take that no longer fit the cache"),
    Free("S_c", 1e5, 1e9, 2e7, 1.0, "B", 1, "the message from which on they do not"),
)

_SLOW_HOSTS = {one.name: 100 * one.high for one in (_T0, _ALPHA)}
"""Upper ends for CPUs that need more than those: by way of TCP a call or a step may take milliseconds."""

Values = dict[str, float]
At = Callable[[FloatArray, FloatArray, FloatArray], Callable[[Values], FloatArray]]


@dataclass(frozen=True)
class Line:
    """One way to run: an algorithm with a protocol; ``at`` ranks, nodes and bytes gives microseconds of values."""

    algorithm: str
    protocol: str
    at: At


def fit_physical(sweeps: Sequence[MeasuredSweep]) -> Fitted:
    """The physical model of sweeps of one collective, of one algorithm, on one kind of system.

    Raises:
        InputError: they are not of one collective, or do not say their ranks.
    """
    columns = columns_of(sweeps, MIN_BYTES)
    named = algorithm_of(sweeps[0])
    if named is None or len(columns.seconds) < LEAST_POINTS:
        why = (
            f'"{sweeps[0].algorithm}" is no algorithm that the physical model knows'
            if named is None
            else f"{len(columns.seconds)} points are too few for the physical model, which takes {LEAST_POINTS}"
        )
        fitted = fit_alpha_beta(sweeps)
        return replace(fitted, warnings=(f"{why}: alpha and beta alone were fitted", *fitted.warnings))
    assumed = assumed_algorithms(sweeps[0], named)
    kind = "hosts" if runs_on_hosts(sweeps[0]) else "one node" if columns.nodes.max() == 1 else "nodes"
    bandwidth = _bandwidth(columns, kind, assumed)
    if kind == "nodes":
        free, lines, solution = _fit_nodes(columns, assumed, bandwidth)
    else:
        free = (*(_OF_HOSTS if kind == "hosts" else _OF_ONE_NODE), bandwidth)
        lines = tuple(Line(name, "", _TERMS[kind](columns.collective, name)) for name in assumed)
        solution = _solve(columns, lines, free)
        if kind == "hosts" and any(at_upper_end(solution, one) for one in free if one.name in _SLOW_HOSTS):
            free = tuple(replace(one, high=_SLOW_HOSTS.get(one.name, one.high)) for one in free)
            solution = _solve(columns, lines, free)
    return _fitted(columns, named, assumed, kind, lines, free, solution)


def _fit_nodes(
    columns: Columns, assumed: Sequence[str], bandwidth: Free
) -> tuple[tuple[Free, ...], tuple[Line, ...], Solution]:
    """With all protocols where LL and LL128 are seen, else with Simple alone."""
    automatic = _OF_AUTOMATIC if len(assumed) > 1 else ()
    free = (*_OF_NODES, bandwidth, _RATE_LL, *automatic)
    lines = tuple(
        Line(name, protocol, _between_nodes(columns.collective, name, protocol))
        for name in assumed
        for protocol in PROTOCOLS
    )
    solution = _solve(columns, lines, free)
    quickest = np.argmin(_times(lines, *_places(columns))(solution.values), axis=0) % len(PROTOCOLS)
    if np.count_nonzero(quickest == 0) >= 2 and np.count_nonzero(quickest < 2) >= 3:
        return free, lines, solution
    free = tuple(one for one in free if one is not _RATE_LL)
    lines = tuple(line for line in lines if line.protocol == PROTOCOLS[-1])
    return free, lines, _solve(columns, lines, free)


def _solve(columns: Columns, lines: Sequence[Line], free: Sequence[Free]) -> Solution:
    times = _times(lines, *_places(columns))
    return solve(lambda values: np.asarray(np.min(times(values), axis=0)), 1e6 * columns.seconds, free)


def _places(columns: Columns) -> tuple[FloatArray, FloatArray, FloatArray]:
    return columns.world_size, columns.nodes, columns.message_bytes


def _times(
    lines: Sequence[Line], ranks: FloatArray, nodes: FloatArray, size: FloatArray
) -> Callable[[Values], FloatArray]:
    """Microseconds of values, a row a line; what does not depend on values is computed once."""
    bound = [line.at(ranks, nodes, size) for line in lines]
    return lambda values: np.array([time(values) for time in bound])


def _bandwidth(columns: Columns, kind: str, assumed: Sequence[str]) -> Free:
    """B, expected a tenth above what the largest message shows."""
    at = int(np.argmax(columns.message_bytes))
    forms = HOST_FORMS if kind == "hosts" else GPU_FORMS
    form = forms[assumed[-1]](columns.collective, columns.world_size[at : at + 1], columns.nodes[at : at + 1])
    shown = float(form.weight[0] * columns.message_bytes[at] / columns.seconds[at]) / 1e9
    return Free("B", 0.05, 2000, min(max(1.1 * shown, 0.06), 1900), None, "B/s", 1e9, "bytes of the bottleneck link")


def _q_norm(latency: FloatArray, transfer: FloatArray, q: float) -> FloatArray:
    return np.asarray((latency**q + transfer**q) ** (1 / q))


def _microseconds(bytes_moved: FloatArray, bandwidth: float | FloatArray) -> FloatArray:
    """Bytes at so many GB/s."""
    return np.asarray(1e-3 * bytes_moved / bandwidth)


def _between_nodes(collective: str, algorithm: str, protocol: str) -> At:
    place = PROTOCOLS.index(protocol)
    inside, between = (hops[place] for hops in _HOPS[algorithm])

    def at(ranks: FloatArray, nodes: FloatArray, size: FloatArray) -> Callable[[Values], FloatArray]:
        form = GPU_FORMS[algorithm](collective, ranks, nodes)
        hops = form.inside * inside + form.between * between
        moved = form.weight * size + _PHI_BETWEEN_NODES * size / ranks
        two = nodes == 2

        def time(values: Values) -> FloatArray:
            rate = {"LL": values.get("r_LL", 1.0), "LL128": _LL128_RATE}.get(protocol, 1.0)
            rate *= values.get("r_tree", 1.0) if algorithm == "tree" else 1.0
            bandwidth = values["B"] * rate * np.where(two, values.get("b_2", 1.0), 1.0)
            return _q_norm(values["t0"] + values["lambda"] * hops, _microseconds(moved, bandwidth), values["q"])

        return time

    return at


def _on_one_node(collective: str, algorithm: str) -> At:
    def at(ranks: FloatArray, nodes: FloatArray, size: FloatArray) -> Callable[[Values], FloatArray]:
        form = GPU_FORMS[algorithm](collective, ranks, nodes)

        def time(values: Values) -> FloatArray:
            moved = form.weight * size + values["phi"] * size / ranks
            latency = values["t0"] + values["alpha"] * form.inside
            return _q_norm(latency, _microseconds(moved, values["B"]), values["q"])

        return time

    return at


def _on_hosts(collective: str, algorithm: str) -> At:
    def at(ranks: FloatArray, nodes: FloatArray, size: FloatArray) -> Callable[[Values], FloatArray]:
        form = HOST_FORMS[algorithm](collective, ranks, nodes)

        def time(values: Values) -> FloatArray:
            rolled = 1 + values["R"] * size**2 / (size**2 + values["S_c"] ** 2)
            latency = values["t0"] + values["alpha"] * (form.inside + form.between)
            return _q_norm(latency, _microseconds(form.weight * size, values["B"]) * rolled, values["q"])

        return time

    return at


_TERMS = {"one node": _on_one_node, "hosts": _on_hosts}


def _fitted(
    columns: Columns,
    named: str,
    assumed: tuple[str, ...],
    kind: str,
    lines: tuple[Line, ...],
    free: Sequence[Free],
    solution: Solution,
) -> Fitted:
    def every(ranks: FloatArray, nodes: FloatArray, size: FloatArray) -> FloatArray:
        return _times(lines, ranks, nodes, size)(solution.values)

    def formula(ranks: FloatArray, nodes: FloatArray, size: FloatArray) -> FloatArray:
        return np.asarray(1e-6 * np.min(every(ranks, nodes, size), axis=0))

    def choose(ranks: FloatArray, nodes: FloatArray, size: FloatArray) -> Choice:
        return _choice(lines, every(ranks, nodes, size))

    fit_errors = spread_errors(formula(*_places(columns)), columns)
    parameters = parameters_of(solution, free)
    return Fitted(
        model="physical",
        collective=columns.collective,
        algorithm=named,
        parameters=parameters,
        errors=fit_errors,
        columns=columns,
        predictor=_beyond(formula, columns, grows=kind == "nodes"),
        formula=formula,
        fits_counts=True,
        warnings=_warnings(columns, named, assumed, kind, lines, parameters, choose),
        chooser=choose,
        assumed=" or ".join(assumed),
    )


def _beyond(formula: Predictor, columns: Columns, *, grows: bool) -> Predictor:
    """The formula with half of what it leaves over at the same chunk, a mean over the measured counts, and the growth.

    Larger counts weigh more, as they are nearer to what is asked for; a quarter is the most that is left over.
    """
    left = np.log(columns.seconds / formula(*_places(columns)))
    curves = []
    for index in range(len(columns.sweeps)):
        mine = np.flatnonzero(columns.sweep == index)
        if len(mine):
            chunk = np.log(columns.message_bytes[mine] / columns.world_size[mine])
            order = np.argsort(chunk, kind="stable")
            curves.append(
                (columns.world_size[mine][0], chunk[order], np.clip(left[mine][order], -CARRIED_MOST, CARRIED_MOST))
            )
    total = sum(ranks for ranks, _, _ in curves)
    most_nodes = columns.nodes.max()

    def predict(ranks: FloatArray, nodes: FloatArray, size: FloatArray) -> FloatArray:
        chunk = np.log(size / ranks)
        over = sum(weight / total * np.interp(chunk, at, found) for weight, at, found in curves)
        doublings = np.clip(np.log2(nodes / most_nodes), 0, MOST_DOUBLINGS) if grows else 0.0
        return np.asarray(formula(ranks, nodes, size) * np.exp(CARRIED * over) * (1 + GROWTH) ** doublings)

    return predict


def _choice(lines: Sequence[Line], times: FloatArray) -> Choice:
    names = list(dict.fromkeys(line.algorithm for line in lines))
    best = np.array(
        [
            np.min([row for line, row in zip(lines, times, strict=True) if line.algorithm == name], axis=0)
            for name in names
        ]
    )
    order = np.argsort(best, axis=0, kind="stable")
    columns = np.arange(best.shape[1])
    if len(names) == 1:
        return Choice((names[0],) * len(columns), ("",) * len(columns), (float("inf"),) * len(columns))
    margin = best[order[1], columns] / best[order[0], columns] - 1
    return Choice(
        tuple(names[index] for index in order[0]), tuple(names[index] for index in order[1]), tuple(margin.tolist())
    )


def _warnings(
    columns: Columns,
    named: str,
    assumed: Sequence[str],
    kind: str,
    lines: Sequence[Line],
    parameters: Sequence[Parameter],
    choose: Callable[[FloatArray, FloatArray, FloatArray], Choice],
) -> tuple[str, ...]:
    found = [f"{one.name} {one.remark}" for one in parameters if one.remark is not None]
    if named == AUTOMATIC and columns.collective != "all_to_all":
        text = f"which algorithm ran is not known; {' or '.join(assumed)} is taken"
        if len(assumed) > 1:
            choice = choose(*_places(columns))
            margin = format_ratio(float(np.median(choice.margin)), 2)
            text = f"{text}, whichever is quicker by this model: by {margin} in the median, and a library may differ"
        found.append(text)
    counts = {int(nodes) for nodes in columns.nodes}
    if kind == "nodes" and counts <= {1, 2}:
        found.append(
            "two nodes are special (both crossings of a ring join the same pair): they do not set the bandwidth of more"
        )
    if kind == "nodes" and len({line.protocol for line in lines}) == 1:
        found.append("protocols LL and LL128 are not calibrated: no measured message shows them")
    if kind == "nodes" and 1 in counts and len(counts) > 1:
        found.append("sweeps of one node and of several have different bottlenecks; fit them apart")
    if (
        kind == "one node"
        and columns.collective == "all_reduce"
        and named == AUTOMATIC
        and columns.world_size.max() < 8
    ):
        found.append("a switch that reduces (NVLS) may serve 8 GPUs from 64 MiB on; nothing here shows it")
    if kind == "one node" and any("pcie" in sweep.intra_link.lower() for sweep in columns.sweeps):
        found.append("GPUs behind PCIe share links that this model does not know: it says little of other counts")
    for sweep in columns.sweeps:
        found += dips(sweep)
    return tuple(found)
