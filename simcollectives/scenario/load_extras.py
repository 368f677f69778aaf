"""The sections ``timeline:`` and ``contributions:``."""

from typing import Any

from simcollectives.cluster import Cluster
from simcollectives.engines import DEFAULT, IDEAL, check_engine, make_job
from simcollectives.engines.contributions import traceable
from simcollectives.errors import InputError
from simcollectives.scenario.build import build_cluster, message_at, options_at
from simcollectives.scenario.context import Context
from simcollectives.scenario.load_points import Namer
from simcollectives.scenario.numbers import at
from simcollectives.scenario.places import Path, shown
from simcollectives.scenario.schema import SelectorModel
from simcollectives.scenario.types import AlgorithmEntry, Point, Selector

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
    cluster, options = cluster_and_options(namer, selector.entry, selector.point)
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
    cluster, options = cluster_and_options(namer, selector.entry, selector.point)
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


def cluster_and_options(namer: Namer, entry: AlgorithmEntry, point: Point) -> tuple[Cluster, dict[str, Any]]:
    """Return what runs at a point.

    Raises:
        InputError: the cluster is not valid, or there is no such option.
    """
    if namer.cluster is None:
        raise InputError("the cluster is not valid")
    return build_cluster(namer.cluster, point), options_at(namer.collective, entry, point)
