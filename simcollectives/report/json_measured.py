"""Predictions against measurements as JSON data, in SI units; errors are ratios, with signs in ``bias`` and points."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from simcollectives.measured.spread import RANGES, Spread, range_of, spread, spreads_by
from simcollectives.report.table_measured_steps import groups_of
from simcollectives.scenario import MeasuredComparison, MeasuredStepComparison
from simcollectives.scenario.training.keys import MEASURED_METRICS


def measured_json(measured: MeasuredComparison) -> dict[str, Any]:
    """Return a comparison with one sweep: one entry a measured point in ``points``."""
    sweep, fit = measured.sweep, measured.fit
    columns = (sweep.message_bytes, sweep.seconds, fit.given_predicted, fit.predicted, measured.relative)
    names = ("message_bytes", "seconds", "predicted_seconds", "fitted_seconds", "error")
    return {
        "set": sweep.name,
        "source": sweep.source,
        "measured_algorithm": sweep.algorithm,
        "label": measured.label,
        "point": dict(measured.point),
        "world_size": measured.world_size,
        "nodes": measured.nodes,
        "level": fit.level,
        "alpha": fit.alpha,
        "bandwidth": fit.bandwidth,
        "errors": asdict(fit.given_errors),
        "fitted_errors": asdict(fit.errors),
        "points": [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)],
    }


def errors_json(measured: Sequence[MeasuredComparison]) -> list[dict[str, Any]]:
    """Return the errors of each sweep by range of messages and in all, and of all sweeps together."""
    found: list[dict[str, Any]] = []
    for one in measured:
        of = {"set": one.sweep.name, "label": one.label, "world_size": one.world_size, "nodes": one.nodes}
        found += errors_by_range(of, one.relative, one.sweep.message_bytes)
    if len(measured) > 1:
        together = [error for one in measured for error in one.relative]
        sizes = [size for one in measured for size in one.sweep.message_bytes]
        found += errors_by_range(dict.fromkeys(("set", "label", "world_size", "nodes")), together, sizes)
    return found


def errors_by_range(of: dict[str, Any], relative: Sequence[float], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return the errors in each range of messages that has points, and in all, each with what they are ``of``."""
    by_range = spreads_by(relative, [range_of(size) for size in sizes])
    groups: list[tuple[str | None, Spread]] = [(name, by_range[name]) for name in RANGES if name in by_range]
    groups.append((None, spread(relative)))
    return [{**of, "messages": name, **spread_json(found, sizes)} for name, found in groups]


def spread_json(found: Spread, sizes: Sequence[int] = ()) -> dict[str, Any]:
    """Return a spread; with ``sizes``, the message at which the largest error is."""
    at_bytes = {"largest_at_bytes": sizes[found.worst_at]} if sizes else {}
    errors = {name: getattr(found, name) for name in ("points", "bias", "median", "p90", "largest", "worst")}
    return {**errors, **at_bytes}


def step_json(measured: MeasuredStepComparison) -> dict[str, Any]:
    """Return a measured step beside the simulated one; the keys of a row, and of collectives those that are alike."""
    relative = measured.relative
    return {
        "label": measured.label,
        "point": dict(measured.point),
        "name": measured.name,
        "world_size": measured.world_size,
        "measured": dict(measured.measured),
        "predicted": dict(measured.predicted),
        "errors": {name: relative.get(name) for name in measured.measured},
        "step": None if measured.step is None else {"name": measured.step.name, "rank": measured.step.rank},
        "collectives": [{**asdict(one), "difference": one.difference} for one in measured.collectives],
    }


def step_errors_json(measured: Sequence[MeasuredStepComparison]) -> list[dict[str, Any]]:
    """Return the errors of each metric, in all and by strategy and each key of the points."""
    found = []
    for metric in MEASURED_METRICS:
        mine = [one for one in measured if metric in one.relative]
        relative = [one.relative[metric] for one in mine]
        for by, groups in groups_of(mine).items():
            for group, one in spreads_by(relative, groups).items():
                value = None if by == "all" else group
                found.append({"metric": metric, "by": by, "group": value, **spread_json(one)})
    return found
