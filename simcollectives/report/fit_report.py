"""What `simcollectives fit` shows and writes: parameters, errors and warnings, predictions, a cluster, a picture."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from simcollectives.cluster import load_machine
from simcollectives.errors import Gathered, InputError, Problem, listing
from simcollectives.measured import MeasuredSweep
from simcollectives.measured.calibrate import FIRST_WORDS, Calibration, calibrate, cluster_yaml, error_text, far_off
from simcollectives.measured.groups import fit_all, fit_for
from simcollectives.measured.load import load_sweeps
from simcollectives.measured.models import Fitted, Parameter, find_model
from simcollectives.measured.models.types import share_inside, spread_errors, stacked
from simcollectives.measured.spread import relative_errors
from simcollectives.measured.suspects import without_suspects
from simcollectives.report.files import check_own, json_text, png_bytes, write_whole
from simcollectives.report.json_measured import errors_by_range
from simcollectives.report.reading import check_no_input, naming_file
from simcollectives.report.rows import byte_family
from simcollectives.report.table_errors import ERROR_WORDS, errors_table, ranks_text, signed
from simcollectives.report.text import NOTHING, Block, Column, TextTable, caption, heading, make_console, rendered, show
from simcollectives.units import format_bandwidth, format_bytes, format_ratio, format_seconds

_DIGITS = 3
_MOST_OF_ONE_NODE = 8


@dataclass(frozen=True)
class Predicted:
    """A fit at counts, with the seconds that were measured there, where some were; ``half_width`` as a ratio."""

    fit: Fitted
    title: str
    world_size: int
    nodes: int
    message_bytes: tuple[int, ...]
    seconds: tuple[float, ...]
    half_width: float
    measured: MeasuredSweep | None

    @property
    def relative(self) -> tuple[float, ...]:
        """Predicted over measured, less 1; empty where nothing was measured."""
        if self.measured is None:
            return ()
        return relative_errors(self.seconds, self.measured.seconds)


@dataclass(frozen=True)
class Asked:
    """What is taken of files: which ``place`` and ``collective``; and what they do not say themselves."""

    place: str = "out"
    collective: str | None = None
    ranks: int | None = None
    nodes: int | None = None


@dataclass(frozen=True)
class FitReport:
    """Fits, what they predict, and the cluster."""

    fits: tuple[Fitted, ...]
    predictions: tuple[Predicted, ...]
    cluster: Calibration | None
    told: tuple[str, ...]


def run_fit(
    what: Sequence[str],
    model: str,
    predict: Sequence[str],
    nodes: Sequence[int],
    machine: str | None,
    asked: Asked,
    *,
    output: Path | None,
    as_json: bool,
) -> None:
    """Fit, print, and write what ``output`` asks for.

    Raises:
        InputError: as ``make_report`` and ``write_report``; ``output`` is there, and another kind of file.
    """
    if output is not None:
        check_no_input(output, [Path(one) for one in (*what, *predict)])
        check_own(output, FIRST_WORDS)
    report = make_report(what, model, predict, nodes, machine, asked)
    for text in report.told:
        print(f"warning: {text}", file=sys.stderr)
    if as_json:
        print(json_text(report_json(report)))
    else:
        show(rendered(report_blocks(report), make_console(sys.stdout).width), sys.stdout)
    for path in write_report(report, output) if output is not None else ():
        print(f"wrote {path}", file=sys.stderr)


def make_report(
    what: Sequence[str], model: str, predict: Sequence[str], nodes: Sequence[int], machine: str | None, asked: Asked
) -> FitReport:
    """Load, fit and predict.

    Raises:
        InputError: something cannot be read, fitted or predicted; all problems of a kind at once.
    """
    gathered = Gathered()
    named = gathered.take(lambda: find_model(model))
    known = None if machine is None else gathered.take(lambda: load_machine(machine))
    sweeps = [without_suspects(sweep) for sweep in gathered.take(lambda: _load(what, asked)) or ()]
    unseen = gathered.take(lambda: _load(predict, asked)) or []
    gathered.finish()
    fits = [] if named is None else fit_all(sweeps, named)
    predictions = [_of_sweep(fits, sweep) for sweep in unseen]
    told = [f"{sweep.name}: {text}" for sweep in (*sweeps, *unseen) for text in _told(sweep, asked)]
    for count in nodes:
        found, unable = _of_all(fits, count)
        predictions += found
        told += unable
    try:
        cluster = calibrate(sweeps, known)
        told += [text for level in cluster.fits if (text := far_off(level, fits))]
    except InputError as error:
        cluster = None
        told += [f"no cluster comes of these sweeps: {problem.message}" for problem in error.problems]
    return FitReport(tuple(fits), tuple(predictions), cluster, tuple(told))


def _told(sweep: MeasuredSweep, asked: Asked) -> tuple[str, ...]:
    """What to know of a sweep, what was left out, what it says itself, and that one node is taken if it says none."""
    pairs = (("--ranks", asked.ranks, sweep.world_size), ("--log-nodes", asked.nodes, sweep.nodes))
    unused = [f"{name} {one} is not applied: it says {own}" for name, one, own in pairs if one not in (None, own)]
    return (*_left_out(sweep), *unused)


def _left_out(sweep: MeasuredSweep) -> tuple[str, ...]:
    if sweep.nodes is not None or sweep.world_size is None or sweep.world_size <= _MOST_OF_ONE_NODE:
        return (*sweep.noted, *sweep.dropped)
    taken = f"nothing says on how many nodes its {sweep.world_size} ranks ran: one is taken; give --log-nodes"
    return (*sweep.noted, *sweep.dropped, taken)


def _load(what: Sequence[str], asked: Asked) -> list[MeasuredSweep]:
    gathered = Gathered()
    said = (asked.place, asked.collective, asked.ranks, asked.nodes)
    found = [gathered.take(partial(naming_file, load_sweeps, one, *said)) for one in what]
    gathered.finish()
    every = [sweep for sweeps in found for sweep in sweeps or ()]
    kept = [sweep for sweep in every if asked.collective in (None, sweep.collective)]
    if every and not kept:
        known = listing(sorted({str(sweep.collective) for sweep in every}))
        raise InputError(f"no sweep is of {asked.collective}, as --collective asks; there are those of {known}")
    return kept


def _of_sweep(fits: Sequence[Fitted], sweep: MeasuredSweep) -> Predicted:
    fit = fit_for(fits, sweep)
    if fit is None:
        raise InputError(f"no fit predicts {sweep.name}: fit {sweep.collective} on as few or as many nodes, too")
    ranks, nodes = sweep.world_size or 1, sweep.nodes or 1
    return _predicted(fit, sweep.name, (ranks, nodes), sweep.message_bytes, sweep)


def _of_all(fits: Sequence[Fitted], nodes: int) -> tuple[list[Predicted], list[str]]:
    """The predictions of the fits that say something of so many nodes, and why the others do not.

    Raises:
        InputError: no fit does.
    """
    found, problems = [], []
    for fit in fits:
        try:
            found.append(_of_nodes(fit, nodes))
        except InputError as error:
            names = ", ".join(sweep.name for sweep in fit.columns.sweeps)
            problems += [Problem(names, problem.message) for problem in error.problems]
    if not found:
        raise InputError(problems)
    return found, [f"{problem.place}: {problem.message}" for problem in problems]


def _of_nodes(fit: Fitted, nodes: int) -> Predicted:
    """At so many nodes of the measured size; at the messages of the sweep with most of them."""
    ranks, on = fit.columns.counts[-1]
    if nodes > 1 and on == 1:
        raise InputError(f"{nodes} nodes cannot be predicted from sweeps on one node: they show no link between nodes")
    longest = max(fit.columns.sweeps, key=lambda sweep: len(sweep.message_bytes))
    sizes = tuple(sorted(set(longest.message_bytes)))
    title = f"{fit.collective}, {fit.algorithm}, {nodes} nodes"
    return _predicted(fit, title, (nodes * ranks // on, nodes), sizes, None)


def _predicted(
    fit: Fitted, title: str, counts: tuple[int, int], sizes: tuple[int, ...], measured: MeasuredSweep | None
) -> Predicted:
    seconds = tuple(fit.predict(sizes, *counts).tolist())
    return Predicted(fit, title, *counts, sizes, seconds, fit.half_width(*counts), measured)


def report_blocks(report: FitReport) -> list[Block]:
    """Every fit with its parameters and errors, predictions, and the links of the cluster."""
    blocks: list[Block] = []
    for fit in report.fits:
        blocks += [*([Text("")] if blocks else []), *fit_blocks(fit)]
    for one in report.predictions:
        blocks += [Text(""), *_prediction_blocks(one)]
    if report.cluster is not None:
        blocks += [Text(""), *_cluster_blocks(report.cluster)]
    return blocks


def fit_blocks(fit: Fitted) -> list[Block]:
    """Parameters with units and intervals, errors and where they occur, and what to know."""
    counts = ", ".join(ranks_text(ranks, nodes) for ranks, nodes in fit.columns.counts)
    names = ", ".join(sweep.name for sweep in fit.columns.sweeps)
    assumed = f", as {fit.assumed}" if fit.assumed not in ("", fit.algorithm) else ""
    said = {f"{one.name} {one.remark}" for one in fit.parameters}
    columns = [
        Column("parameter", [one.name for one in fit.parameters], right=False),
        Column("value", [show_parameter(one, one.value) for one in fit.parameters]),
        Column("interval", [_interval(one) for one in fit.parameters], right=False),
        Column("meaning", [_meaning(one) for one in fit.parameters], right=False, wrap_at=60),
    ]
    return [
        heading(f"{fit.collective}, {fit.algorithm}{assumed}: {fit.model}"),
        caption(f"fitted to {names} ({counts})"),
        TextTable(columns),
        Text(f"error: {errors_text(fit)}"),
        *(caption(f"note: {text}") for text in fit.warnings if text not in said),
    ]


def errors_text(fit: Fitted) -> str:
    """Return the errors of a fit: median, 90th percentile, the largest and where; and of how many points."""
    text = f"{fit.errors.text(_DIGITS)} of {fit.errors.largest_in}; {fit.errors.points} points"
    left = sum(len(sweep.message_bytes) for sweep in fit.columns.sweeps) - fit.errors.points
    return f"{text}, {left} below {format_bytes(fit.columns.message_bytes.min())} left out" if left else text


def show_parameter(parameter: Parameter, value: float) -> str:
    """Return a value of a parameter with its unit."""
    if not np.isfinite(value):
        return NOTHING
    if parameter.unit == "":
        return f"{value:.{_DIGITS}g}"
    shows = {"s": format_seconds, "B/s": format_bandwidth, "B": format_bytes}
    return shows[parameter.unit](value, _DIGITS)


def _interval(one: Parameter) -> str:
    if one.low == one.high or not np.isfinite(one.high):
        return ""
    return f"{show_parameter(one, one.low)} to {show_parameter(one, one.high)}"


def _meaning(one: Parameter) -> str:
    return one.meaning if one.remark is None else f"{one.meaning}; {one.remark}"


def _prediction_blocks(one: Predicted) -> list[Block]:
    family = byte_family(one.message_bytes)
    choice = one.fit.choice(one.message_bytes, one.world_size, one.nodes)
    columns = [
        Column("message", [format_bytes(size, family=family) for size in one.message_bytes]),
        Column("predicted", [format_seconds(time) for time in one.seconds]),
        Column(
            "from .. to",
            [
                f"{format_seconds(time * (1 - one.half_width), 3)} .. {format_seconds(time * (1 + one.half_width), 3)}"
                for time in one.seconds
            ],
        ),
    ]
    if one.measured is not None:
        columns.append(Column("measured", [format_seconds(time) for time in one.measured.seconds]))
        columns.append(Column("off by", [signed(ratio) for ratio in one.relative]))
    if len(set(choice.runner_up)) > 1 or choice.runner_up[0]:
        columns.append(Column("taken to run", list(choice.algorithm), right=False))
        margins = zip(choice.runner_up, choice.margin, strict=True)
        columns.append(
            Column("quicker than", [f"{name} by {format_ratio(ratio, 2)}" for name, ratio in margins], right=False)
        )
    title = f"Predicted: {one.title} ({ranks_text(one.world_size, one.nodes)})"
    if one.measured is None:
        return [heading(title), TextTable(columns)]
    where = errors_table([("of this prediction", one.relative, one.message_bytes)])
    words = caption(ERROR_WORDS)
    return [heading(title), TextTable(columns), Text(_off_text(one, one.measured)), where, words]


def _off_text(one: Predicted, measured: MeasuredSweep) -> str:
    predicted = np.array(one.seconds)
    errors = spread_errors(predicted, stacked([measured]))
    inside = format_ratio(share_inside(predicted, np.array(measured.seconds), one.half_width), 2)
    return f"error: {errors.text(_DIGITS)}; {inside} inside the interval"


def _cluster_blocks(cluster: Calibration) -> list[Block]:
    columns = [
        Column("level", [fit.level for fit in cluster.fits], right=False),
        Column("alpha", [format_seconds(fit.link.alpha) for fit in cluster.fits]),
        Column("bandwidth", [format_bandwidth(fit.link.bandwidth) for fit in cluster.fits]),
        Column(
            "simulated",
            ["; ".join(f"{kind} by {name}" for kind, name in fit.algorithms) for fit in cluster.fits],
            right=False,
        ),
        Column("error", [error_text(fit) for fit in cluster.fits], right=False, wrap_at=60),
    ]
    return [
        heading("Cluster: links with which this package's closed forms come nearest"),
        TextTable(columns),
        *(caption(f"note: {text}") for text in cluster.remarks),
    ]


def write_report(report: FitReport, path: Path) -> list[Path]:
    """Write the cluster file, and a picture of the residuals beside it; returns what was written.

    Raises:
        InputError: no cluster comes of the sweeps, or a file cannot be written.
    """
    if report.cluster is None:
        raise InputError(f"nothing is written to {path}: {'; '.join(report.told)}")
    from simcollectives.report.plot_fit import residuals

    return [
        write_whole(path, cluster_yaml(report.cluster).encode()),
        write_whole(path.with_suffix(".residuals.png"), png_bytes(residuals(report.fits))),
    ]


def report_json(report: FitReport) -> dict[str, Any]:
    """Return a report as data for ``json_text``, in SI units."""
    return {
        "fits": [_fit_json(fit) for fit in report.fits],
        "predictions": [_prediction_json(one) for one in report.predictions],
        "cluster": None if report.cluster is None else cluster_yaml(report.cluster),
        "warnings": list(report.told),
    }


def _fit_json(fit: Fitted) -> dict[str, Any]:
    errors = fit.errors
    return {
        "model": fit.model,
        "collective": fit.collective,
        "algorithm": fit.algorithm,
        "assumed": fit.assumed,
        "sets": [sweep.name for sweep in fit.columns.sweeps],
        "parameters": [
            {
                "name": one.name,
                "unit": one.unit,
                **{end: getattr(one, end) for end in ("value", "low", "high")},
                "remark": one.remark,
            }
            for one in fit.parameters
        ],
        "median_error": errors.median,
        "p90_error": errors.p90,
        "largest_error": errors.largest,
        "largest_at_bytes": errors.largest_at_bytes,
        "largest_in": errors.largest_in,
        "warnings": list(fit.warnings),
    }


def _prediction_json(one: Predicted) -> dict[str, Any]:
    choice = one.fit.choice(one.message_bytes, one.world_size, one.nodes)
    return {
        "title": one.title,
        "collective": one.fit.collective,
        "world_size": one.world_size,
        "nodes": one.nodes,
        "interval": one.half_width,
        "errors": errors_by_range({}, one.relative, one.message_bytes) if one.relative else [],
        "points": [
            {
                "message_bytes": size,
                "seconds": seconds,
                "measured_seconds": None if one.measured is None else one.measured.seconds[place],
                "algorithm": choice.algorithm[place],
                "runner_up": choice.runner_up[place] or None,
                "margin": choice.margin[place],
            }
            for place, (size, seconds) in enumerate(zip(one.message_bytes, one.seconds, strict=True))
        ],
    }
