"""The sections ``measured:``, ``timeline:`` and ``contributions:``."""

import math
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from simcollectives.cluster import Cluster
from simcollectives.engines import DEFAULT, DTYPES, IDEAL, check_engine, closed_form, make_job
from simcollectives.engines.contributions import traceable
from simcollectives.errors import InputError, listing, show_value, suggestion
from simcollectives.measured import SHIPPED, MeasuredSweep, load_sweep, restrict
from simcollectives.measured.fit import MIN_POINTS
from simcollectives.scenario.build import build_cluster, message_at, options_at
from simcollectives.scenario.context import MAX_OF_A_KIND, Context
from simcollectives.scenario.load_points import Namer
from simcollectives.scenario.numbers import at
from simcollectives.scenario.places import Path, shown
from simcollectives.scenario.schema import MeasuredModel, SelectorModel
from simcollectives.scenario.types import AlgorithmEntry, MeasuredSettings, Point, Selector
from simcollectives.units import format_bytes

MAX_DRAWN_TRANSFERS = 100_000
_QUICK_WORLD_SIZE = 1024


def load_timelines(context: Context, value: Any, namer: Namer | None) -> tuple[Selector, ...]:
    """Return the runs to draw; a mapping or a list of mappings is written."""
    path: Path = ("timeline",)
    several = isinstance(value, list)
    found = []
    for index, raw in enumerate(value if several else [value]):
        here: Path = (*path, index) if several else path
        selector = _selector(context, here, raw, namer)
        if selector is None or namer is None or namer.fits is None:
            continue
        try:
            drawable = _transfers(namer, selector, namer.fits.engine) <= MAX_DRAWN_TRANSFERS
        except InputError as error:
            context.add_error(here, error)
            continue
        if drawable:
            found.append(selector)
        else:
            context.add(here, f"more than {MAX_DRAWN_TRANSFERS} transfers are too many to draw; take fewer devices")
    return tuple(found)


def _transfers(namer: Namer, selector: Selector, engine: str) -> int:
    cluster, options = _cluster_and_options(namer, selector.entry, selector.point)
    if cluster.world_size > _QUICK_WORLD_SIZE:
        return MAX_DRAWN_TRANSFERS + 1
    collective = namer.collective
    message = message_at(collective, selector.point)
    fits = namer.fits
    conditions = IDEAL if fits is None else at(fits.conditions, selector.point)
    time = DEFAULT if fits is None else at(fits.time, selector.point)
    job = make_job(collective.name, selector.entry.name, cluster, message, options, collective.dtype, conditions)
    check_engine(job, engine, timeline=True, time=time)
    return job.messages_at_most


def load_contributions(context: Context, value: Any, namer: Namer | None) -> Selector | None:
    """Return the run whose chunks are followed; how long its message is does not matter."""
    path: Path = ("contributions",)
    selector = _selector(context, path, value, namer, {"message": 0})
    if selector is None or namer is None:
        return None
    cluster, options = _cluster_and_options(namer, selector.entry, selector.point)
    try:
        traceable(namer.collective.name, selector.entry.name, cluster, options)
    except InputError as error:
        for problem in error.problems:
            context.add(path, problem.message)
        return None
    return selector


def _selector(
    context: Context, path: Path, raw: Any, namer: Namer | None, shared: Point | None = None
) -> Selector | None:
    if not isinstance(raw, dict):
        context.add(path, f"{shown(raw)} is not a mapping; write {{algorithm: ring, message: 1 MiB}}")
        return None
    model = context.validate(path, raw, SelectorModel)
    if model is None or namer is None:
        return None
    return namer.selector(path, model.algorithm, raw, ("algorithm",), shared or {})


def _cluster_and_options(namer: Namer, entry: AlgorithmEntry, point: Point) -> tuple[Cluster, dict[str, Any]]:
    if namer.cluster is None:
        raise InputError("the cluster is not valid")
    return build_cluster(namer.cluster, point), options_at(namer.collective, entry, point)


def load_measured(context: Context, value: Any, namer: Namer | None) -> MeasuredSettings | None:
    """Return the measured sweep and what is fitted to it, or note every problem and return None."""
    path: Path = ("measured",)
    if not isinstance(value, dict):
        context.add(path, f"{shown(value)} is not a mapping; write {{set: {SHIPPED[0]}, algorithm: ring}}")
        return None
    model = context.validate(path, value, MeasuredModel)
    if model is None:
        return None
    if namer is None:
        _sweep(context, path, model, None, None)
        return None
    own = set(MeasuredModel.model_fields)
    named = namer.point(path, {key: one for key, one in value.items() if key != "message"}, own)
    if "message" in value:
        context.add((*path, "message"), "the messages are the measured ones; write min: and max: to take a range")
    found = namer.entry((*path, "algorithm"), model.algorithm)
    point = None
    if found is not None and named is not None:
        point = namer.complete(path, {**named, **found[1]}, [found[0]], "message")
    sweep = _sweep(context, path, model, namer, point)
    if found is None or sweep is None or point is None or namer.fits is None:
        return None
    entry = found[0]
    reason = namer.fits.reason(entry, {**point, "message": 0})
    if reason is not None:
        context.add(path, reason)
        return None
    return _fitted(context, path, model, namer, MeasuredSettings(sweep, entry, point, "", context.document.line(path)))


def _sweep(
    context: Context, path: Path, model: MeasuredModel, namer: Namer | None, point: Point | None
) -> MeasuredSweep | None:
    """Return the measured points in the range that is asked for.

    Where a log does not say its collective and ranks, they are those that the scenario simulates there.
    """
    here = (*path, "set" if model.file is None else "file")
    if context.is_unusable((*path, "file")) or context.is_unusable((*path, "set")):
        return None
    if model.file is None and model.set not in SHIPPED:
        what = "no measured set is named" if model.set is None else f"{show_value(model.set)} is no shipped set"
        remedy = suggestion(model.set, SHIPPED, "shipped are")
        context.add(
            here if model.set is not None else path, f"{what}; {remedy}; or write file: for a CSV file or a log"
        )
        return None
    try:
        if model.file is None:
            sweep = load_sweep(str(model.set), place=model.place)
        else:
            folder = FilePath(context.document.source).parent
            ranks = None if namer is None or point is None else _world_size(namer, point)
            collective = None if namer is None else namer.collective.name
            sweep = load_sweep(folder / model.file, model.set, model.place, collective, ranks)
    except InputError as error:
        source = "" if model.file is None else f"{show_value(model.file)[1:-1]}: "
        for problem in error.problems[:MAX_OF_A_KIND]:
            context.add(here, f"{source}{problem}")
        return None
    sizes = f"{format_bytes(sweep.message_bytes[0])} to {format_bytes(sweep.message_bytes[-1])}"
    left = sum((model.min or 0) <= size <= (model.max or math.inf) for size in sweep.message_bytes)
    if left < MIN_POINTS:
        context.add(path, f"{left} measured points are left; a fit needs {MIN_POINTS} of {sizes}: widen min and max")
        return None
    return restrict(sweep, model.min, model.max)


def _world_size(namer: Namer, point: Point) -> int | None:
    """The ranks at a point; None where the cluster is not valid, which is said elsewhere."""
    try:
        return None if namer.cluster is None else build_cluster(namer.cluster, point).world_size
    except InputError:
        return None


def _fitted(
    context: Context, path: Path, model: MeasuredModel, namer: Namer, settings: MeasuredSettings
) -> MeasuredSettings | None:
    """Return the settings with the level, if the sweep is one of this collective on this cluster."""
    before = len(context.problems)
    sweep, collective = settings.sweep, namer.collective
    cluster, options = _cluster_and_options(namer, settings.entry, settings.point)
    named = (*path, "set") if model.set is not None else path
    if sweep.collective not in (None, collective.name):
        context.add(
            named, f"{sweep.name} measured {sweep.collective}, the scenario simulates {collective.name}; take another"
        )
    if sweep.world_size not in (None, cluster.world_size):
        rule = f"{sweep.name} ran on {sweep.world_size} GPUs, the cluster has {cluster.world_size}"
        context.add(named, f"{rule}; change the cluster or take another set")
    elif sweep.nodes not in (None, cluster.nodes):
        rule = f"{sweep.name} ran on {sweep.nodes} nodes, the cluster has {cluster.nodes}"
        context.add(named, f"{rule}; change the cluster or take another set")
    levels = [level.name for level in cluster.levels]
    level = model.level or levels[-1]
    if level not in levels:
        context.add((*path, "level"), f"{show_value(level)} is no level of this cluster; it has: {listing(levels)}")
    if len(context.problems) > before:
        return None
    if cluster.world_size <= _QUICK_WORLD_SIZE:
        for size in sweep.message_bytes:
            dtype = collective.dtype if size % DTYPES[collective.dtype] == 0 else "int8"
            try:
                closed_form(collective.name, settings.entry.name, cluster, size, options, dtype)
            except InputError as error:
                reason = error.problems[0].message.partition(";")[0]
                remedy = "a fit needs one: take another algorithm, or another range by min and max"
                context.add((*path, "algorithm"), f"{reason}, at {format_bytes(size)}; {remedy}")
                return None
    return replace(settings, level=level)
