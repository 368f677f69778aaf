"""The section ``measured:`` of a scenario of a collective: measured sweeps, each at a point of its own."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any, TypeVar

from simcollectives.engines import DTYPES, closed_form
from simcollectives.errors import InputError, counted, listing, show_value, suggestion
from simcollectives.measured import SHIPPED, MeasuredSweep, load_sweep, restrict
from simcollectives.measured.fit import MIN_POINTS
from simcollectives.scenario.build import build_cluster
from simcollectives.scenario.context import Context
from simcollectives.scenario.load_extras import cluster_and_options
from simcollectives.scenario.load_points import Namer
from simcollectives.scenario.places import Path, place_text, shown
from simcollectives.scenario.schema import MeasuredModel
from simcollectives.scenario.types import MeasuredSettings, Point
from simcollectives.units import format_bytes

_QUICK_WORLD_SIZE = 1024
PATH: Path = ("measured",)

Found = TypeVar("Found")


def load_each(
    context: Context, value: Any, load: Callable[[Path, dict[str, Any]], Found | None], example: str
) -> tuple[Found, ...] | None:
    """Return what each mapping of the section gives, which is one or a list of them; None where one is wrong."""
    several = isinstance(value, list)
    found: list[Found | None] = []
    if value == []:
        context.add(PATH, f"an empty list measures nothing; write {example}, or leave it out")
    for index, raw in enumerate(value if several else [value]):
        path = (*PATH, index) if several else PATH
        if not isinstance(raw, dict):
            context.add(path, f"{shown(raw)} is not a mapping; write {example}")
            found.append(None)
            continue
        found.append(load(path, raw))
    return None if None in found else tuple(one for one in found if one is not None)


def load_measured(context: Context, value: Any, namer: Namer | None) -> tuple[MeasuredSettings, ...] | None:
    """Return the measured sweeps and what is fitted to each; None after noting a problem."""
    example = f"{{set: {SHIPPED[0]}, algorithm: ring}}"
    found = load_each(context, value, lambda path, raw: _load(context, path, raw, namer), example)
    if namer is not None:
        check_repeats(context, found or (), lambda one, other: _same(namer, one, other))
    return found


def check_repeats(context: Context, found: Sequence[Found], same: Callable[[Found, Found], bool]) -> None:
    """Note each measurement that stands in the list twice: it would count twice."""
    for index, one in enumerate(found):
        first = next((place for place, other in enumerate(found[:index]) if same(one, other)), None)
        if first is not None:
            context.add((*PATH, index), f"the same as {place_text((*PATH, first))}; leave one of them out")


def _same(namer: Namer, one: MeasuredSettings, other: MeasuredSettings) -> bool:
    alike = (one.sweep, one.entry, one.level) == (other.sweep, other.entry, other.level)
    return alike and namer.same_point(one.point, other.point)


def _load(context: Context, path: Path, value: dict[str, Any], namer: Namer | None) -> MeasuredSettings | None:
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
        mine = namer.own_point(path, found[0], named, found[1])
        point = None if mine is None else namer.complete(path, mine, [found[0]], "message")
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
        context.add_file_error(here, model.file, error)
        return None
    sizes = f"{format_bytes(sweep.message_bytes[0])} to {format_bytes(sweep.message_bytes[-1])}"
    left = sum((model.min or 0) <= size <= (model.max or math.inf) for size in sweep.message_bytes)
    if left < MIN_POINTS:
        what = f"{counted(left, 'measured point')} {'is' if left == 1 else 'are'} left; a fit needs {MIN_POINTS}"
        whole = left == len(sweep.message_bytes)
        context.add(path, f"{what}: measure more messages" if whole else f"{what} of {sizes}: widen min and max")
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
    cluster, options = cluster_and_options(namer, settings.entry, settings.point)
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
    if cluster.world_size == 1:
        context.add(path, "one rank moves nothing, so that no time is predicted; name a point of 2 ranks or more")
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
