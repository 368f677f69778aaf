"""A cluster from measured times: the alpha and bandwidth with which this package's own closed forms come nearest.

Sweeps on one node give the links inside a node, those on several nodes the links between; each level is one fit, over
all its sweeps and collectives at once, robust to outliers. What no sweep shows is taken from a machine, or tied to what
is shown, and said so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simcollectives.algorithms import ALGORITHMS
from simcollectives.cluster import Cluster, Link, Machine
from simcollectives.engines.closed_form import closed_form_parts
from simcollectives.engines.job import Job, make_job
from simcollectives.errors import InputError, listing
from simcollectives.measured.fit import MIN_POINTS, jobs_of, predict_jobs
from simcollectives.measured.models.alpha_beta import INSIDE_OVER_BETWEEN
from simcollectives.measured.models.forms import AUTOMATIC, algorithm_of
from simcollectives.measured.models.solve import Free, parameters_of, solve
from simcollectives.measured.models.types import Fitted, FloatArray, Parameter, SpreadErrors, spread_errors, stacked
from simcollectives.measured.sweep import MeasuredSweep, with_points
from simcollectives.units import format_bandwidth, format_ratio, format_seconds

FIRST_WORDS = "# Fitted to measured times."
"""How every cluster file begins that was written from measured times, and no other file."""

_STARTS = 2
_FAR_OFF = 0.25
_FAR_OFF_P90 = 0.75
_ALPHA = Free("alpha", 1e-9, 1e-2, 5e-6, None, "s", 1, "a message")
_BANDWIDTH = Free("bandwidth", 1e6, 1e14, 1e11, None, "B/s", 1, "one direction of a link")


@dataclass(frozen=True)
class LevelFit:
    """The link of one level, and the errors that remain, over all sweeps and alone by collective."""

    level: str
    link: Link
    parameters: tuple[Parameter, ...]
    errors: SpreadErrors
    algorithms: tuple[tuple[str, str], ...]
    sweeps: tuple[MeasuredSweep, ...]


@dataclass(frozen=True)
class Calibration:
    """A cluster of ``nodes`` nodes, its links, which levels were fitted, and what a reader has to know."""

    nodes: int
    gpus_per_node: int
    intra: Link | None
    inter: Link | None
    fits: tuple[LevelFit, ...]
    remarks: tuple[str, ...]


def calibrate(sweeps: Sequence[MeasuredSweep], machine: Machine | None = None) -> Calibration:
    """The cluster of one system's sweeps; links that they do not show are those of ``machine``, if it is given.

    Raises:
        InputError: the sweeps are of nodes of different sizes, or do not say their ranks.
    """
    if not sweeps:
        raise InputError("no sweep to calibrate by; name a log, a CSV file or a shipped set")
    lacking = [sweep.name for sweep in sweeps if sweep.world_size is None or sweep.collective is None]
    if lacking:
        raise InputError(f"nothing says of which collective, or on how many ranks, {listing(lacking)} are")
    within = [sweep for sweep in sweeps if sweep.nodes in (None, 1)]
    across = [sweep for sweep in sweeps if sweep.nodes not in (None, 1)]
    sizes = {(sweep.world_size or 1) // (sweep.nodes or 1) for sweep in across}
    if len(sizes) > 1:
        raise InputError(f"the sweeps ran on nodes of {listing([str(size) for size in sorted(sizes)])} GPUs; fit apart")
    local = sizes.pop() if sizes else max(sweep.world_size or 1 for sweep in within)
    remarks: list[str] = []
    fits: list[LevelFit] = []
    intra = machine.intra if machine is not None else None
    inter = machine.inter if machine is not None else None
    inside, between = (_with_closed_form(some, remarks) for some in (within, across))
    if not inside and not between:
        raise InputError(f"nothing is left to fit: {'; '.join(remarks)}")
    if inside:
        fits.append(_fit_level("intra", inside, None))
        intra = fits[-1].link
    if between:
        tied = intra is None and local > 1
        fits.append(_fit_level("inter", between, intra))
        inter = fits[-1].link
        if tied:
            intra = _inside(inter, local)
            remarks.append(
                "no sweep shows the links inside a node: their alpha is tied to that between nodes, 3.4 to 14"
            )
            remarks.append("their bandwidth is what the network cards of a node carry together: it may well be more")
    elif machine is not None:
        remarks.append(f"no sweep shows the links between nodes: they are those of {machine.name}'s data sheet")
    remarks += _remarks(fits)
    return Calibration(max(sweep.nodes or 1 for sweep in sweeps), local, intra, inter, tuple(fits), tuple(remarks))


class _Simulated(NamedTuple):
    """Messages of a sweep that this package prices exactly: the algorithm that stands for what ran, a job a message."""

    sweep: MeasuredSweep
    algorithm: str
    jobs: Sequence[Job]


def _with_closed_form(sweeps: Sequence[MeasuredSweep], remarks: list[str]) -> list[_Simulated]:
    """The sweeps and messages for which a closed form is exact on their cluster; a remark for the others."""
    kept = []
    for sweep in sweeps:
        name = simulated_algorithm(sweep)
        jobs = jobs_of(_largest_job(sweep, name), sweep, "int8") if name else []
        exact = [index for index, job in enumerate(jobs) if closed_form_parts(job) is not None]
        if len(exact) < MIN_POINTS:
            remarks.append(f"{sweep.name} is left out: no {sweep.collective} has a closed form on its cluster")
            continue
        if len(exact) < len(sweep.message_bytes):
            left = f"{len(sweep.message_bytes) - len(exact)} of {len(sweep.message_bytes)} messages"
            remarks.append(f"{left} of {sweep.name} are left out: no closed form of {name} there")
        used = with_points(sweep, [(sweep.message_bytes[index], sweep.seconds[index]) for index in exact])
        kept.append(_Simulated(used, name, [jobs[index] for index in exact]))
    return kept


def _largest_job(sweep: MeasuredSweep, name: str) -> Job:
    return make_job(str(sweep.collective), name, _bare_cluster(sweep), max(sweep.message_bytes), None, "int8")


def _bare_cluster(sweep: MeasuredSweep) -> Cluster:
    """The ranks and nodes of a sweep, on links of which those between nodes are the slower ones."""
    ranks, nodes = sweep.world_size or 1, sweep.nodes or 1
    return Cluster.two_level(nodes, ranks // nodes, Link(1e-6, 1e11), Link(1e-5, 1e10) if nodes > 1 else None)


def _inside(inter: Link, gpus_per_node: int) -> Link:
    """Links inside a node that no sweep shows: alpha in NCCL's ratio, and what all its cards together carry."""
    return Link(inter.alpha * INSIDE_OVER_BETWEEN, inter.bandwidth * gpus_per_node)


def simulated_algorithm(sweep: MeasuredSweep) -> str:
    """The algorithm of this package that stands for what ran: of the same name, else one with a closed form.

    That is a ring first of all; empty where there is none. NCCL's ring is one of every channel, and each leaves a node
    by another network card: between nodes of several GPUs it is simulated by rotated rings.
    """
    known = [algorithm.name for algorithm in ALGORITHMS if algorithm.collective == sweep.collective]
    ran = algorithm_of(sweep)
    by_all_cards = ran in (AUTOMATIC, "ring") and (sweep.world_size or 1) > (sweep.nodes or 1) > 1
    order = [*(["rotated_rings"] if by_all_cards else []), ran, "ring", "pairwise", "direct", *known]
    exact = (name for name in order if name in known and closed_form_parts(_largest_job(sweep, str(name))) is not None)
    return next(map(str, exact), "")


def _fit_level(level: str, simulated: Sequence[_Simulated], intra: Link | None) -> LevelFit:
    """One link for all sweeps of a level; where nothing is known of the links inside, they are tied to it."""
    sweeps = tuple(one.sweep for one in simulated)
    columns = stacked(sweeps)

    def predict(values: Mapping[str, float]) -> FloatArray:
        link = Link(values["alpha"], values["bandwidth"])
        parts = []
        for one in simulated:
            cluster = one.jobs[0].cluster
            inside = link if level == "intra" else intra or _inside(link, cluster.gpus_per_node)
            linked = cluster.with_link("intra", inside) if cluster.gpus_per_node > 1 else cluster
            linked = linked.with_link(level, link)
            parts.append(predict_jobs(one.jobs, linked))
        return np.concatenate(parts)

    free = (_ALPHA, _BANDWIDTH)
    solution = solve(predict, columns.seconds, free, _STARTS)
    return LevelFit(
        level,
        Link(solution.values["alpha"], solution.values["bandwidth"]),
        parameters_of(solution, free),
        spread_errors(predict(solution.values), columns),
        tuple(dict.fromkeys((str(one.sweep.collective), one.algorithm) for one in simulated)),
        sweeps,
    )


def _remarks(fits: Sequence[LevelFit]) -> list[str]:
    found = []
    for fit in fits:
        found += [f"{one.name} of {fit.level} {one.remark}" for one in fit.parameters if one.remark is not None]
        stood = ", ".join(f"{collective} by {name}" for collective, name in fit.algorithms)
        names = [algorithm_of(sweep) for sweep in fit.sweeps]
        if AUTOMATIC in names:
            found.append(f"the library chose its algorithms itself; they are simulated as {stood}")
        ran = {str(name) for name in names} - {AUTOMATIC} - {name for _, name in fit.algorithms}
        if ran:
            found.append(f"{listing(sorted(ran))} ran, and is simulated as {stood}")
    return found


def error_text(fit: LevelFit) -> str:
    """The stated error of a level."""
    return fit.errors.text(2)


def far_off(level: LevelFit, fits: Sequence[Fitted]) -> str:
    """A warning where closed forms on a link are far off, in the median or in many points; which fits come nearer."""
    if level.errors.median <= _FAR_OFF and level.errors.p90 <= _FAR_OFF_P90:
        return ""
    by = ", ".join(f"{kind} by {name}" for kind, name in level.algorithms)
    text = f"the link {level.level} of the cluster is far off what it is fitted to ({by}): {error_text(level)}"
    names = {sweep.name for sweep in level.sweeps}
    same = [fit for fit in fits if names & {sweep.name for sweep in fit.columns.sweeps}]
    farthest = max(same, key=lambda fit: fit.errors.median)
    if farthest.errors.median >= level.errors.median:
        return text
    off = format_ratio(farthest.errors.median, 2)
    return f"{text}; those of --model {farthest.model} are nearer than these closed forms, {off} at most in the median"


def cluster_yaml(found: Calibration) -> str:
    """A cluster file, which a scenario uses by ``cluster: {file: NAME}``: links, what they fit, and the error."""
    lines = [
        f"{FIRST_WORDS} Used by  cluster: {{file: THIS FILE}}, which may add nodes: beside file:.",
        "cluster:",
        f"  nodes: {found.nodes}",
        f"  gpus_per_node: {found.gpus_per_node}",
    ]
    for name, link in (("intra", found.intra), ("inter", found.inter)):
        if link is not None:
            alpha, bandwidth = format_seconds(link.alpha), format_bandwidth(link.bandwidth)
            lines.append(f"  {name}: {{alpha: {alpha}, bandwidth: {bandwidth}}}")
    lines.append("fitted:")
    for fit in found.fits:
        lines += [f"  {fit.level}:", *(f"    {line}" for line in _fit_lines(fit))]
    if found.remarks:
        lines += ["  remarks:", *(f"    - {_quoted(text)}" for text in found.remarks)]
    return "\n".join(lines) + "\n"


def _fit_lines(fit: LevelFit) -> list[str]:
    facts = {
        "simulated": [f"{collective} by {name}" for collective, name in fit.algorithms],
        "gpu": _distinct([sweep.gpu for sweep in fit.sweeps]),
        "nccl_version": _distinct([sweep.nccl_version for sweep in fit.sweeps]),
        "source": _distinct([sweep.source for sweep in fit.sweeps]),
        "not_taken": [f"{sweep.name}: {text}" for sweep in fit.sweeps for text in sweep.dropped],
        "noted": [f"{sweep.name}: {text}" for sweep in fit.sweeps for text in sweep.noted],
    }
    lines = [f"sets: [{', '.join(_quoted(sweep.name) for sweep in fit.sweeps)}]"]
    lines += [f"{name}: {_quoted('; '.join(values))}" for name, values in facts.items() if values]
    for one in fit.parameters:
        show = format_seconds if one.unit == "s" else format_bandwidth
        lines.append(f"{one.name}: {_quoted(f'{show(one.low)} to {show(one.high)}')}")
    return [*lines, f"error: {_quoted(error_text(fit))}"]


def _distinct(texts: Sequence[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]


def _quoted(text: str) -> str:
    """Text as a YAML scalar in single quotes, on one line."""
    plain = "".join(character if character.isprintable() else " " for character in text)
    return "'" + plain.replace("'", "''") + "'"
