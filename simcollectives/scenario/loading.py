"""Loading a scenario file: everything that is wrong with it is found before anything is run."""

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from simcollectives.engines import DEFAULT, IDEAL, Conditions, Default, TimeModel
from simcollectives.errors import InputError, nearest
from simcollectives.scenario.build import label_at, restricted
from simcollectives.scenario.context import Context, unknown_key
from simcollectives.scenario.fits import Fits
from simcollectives.scenario.keys import is_option, owner, point_text
from simcollectives.scenario.load_cluster import load_cluster
from simcollectives.scenario.load_collective import load_collective
from simcollectives.scenario.load_conditions import load_conditions, load_time
from simcollectives.scenario.load_expect import load_expectations
from simcollectives.scenario.load_extras import load_contributions, load_timelines
from simcollectives.scenario.load_measured import load_measured
from simcollectives.scenario.load_nccl import with_nccl
from simcollectives.scenario.load_points import Namer
from simcollectives.scenario.load_sweeps import load_sweeps
from simcollectives.scenario.numerics.loading import load_numerics_scenario
from simcollectives.scenario.numerics.schema import NumericsFile
from simcollectives.scenario.places import Path
from simcollectives.scenario.point_keys import KeyTable
from simcollectives.scenario.points import sweep_points
from simcollectives.scenario.schema import ScenarioModel
from simcollectives.scenario.schema_values import Model
from simcollectives.scenario.training.loading import load_training_scenario
from simcollectives.scenario.training.schema import TrainingFile
from simcollectives.scenario.training.types import AnyScenario
from simcollectives.scenario.types import (
    EMPTY,
    AlgorithmEntry,
    CollectiveSettings,
    Scenario,
    Sweep,
    Verify,
)
from simcollectives.scenario.yaml_text import Document, read_document

__all__ = ["load_document", "load_scenario"]

_LOOKED_AT = 50_000_000
"""Ranks that sweeps are looked through for before a run; the rest is refused in the run, row by row."""


def load_scenario(path: str | os.PathLike[str]) -> AnyScenario:
    """Load a scenario file.

    Raises:
        InputError: the file cannot be read or is not a valid scenario; all problems at once, with lines.
    """
    return load_document(read_document(path))


def load_document(document: Document) -> AnyScenario:
    """Load a scenario that is already read from YAML; relative paths in it start at the folder of its ``source``.

    Raises:
        InputError: it is not a valid scenario; all problems at once, with lines.
    """
    context = Context(document)
    data = document.data
    _check_keys(context, data)
    _check_empty(context, (), data)
    scenario = _LOADERS[_section(data)](context, data)
    context.finish()
    if scenario is None:
        raise InputError("the scenario is not valid", document.source)
    return scenario


_FILES: Mapping[str, tuple[type[Model], str]] = {
    "training": (TrainingFile, "a training step"),
    "numerics": (NumericsFile, "training in numbers"),
    "collective": (ScenarioModel, "a collective"),
}
"""The section that tells what a scenario is about; where there are several, the first of these counts."""


def _section(data: Mapping[str, Any]) -> str:
    return next((section for section in _FILES if section in data), "collective")


def _check_keys(context: Context, data: dict[str, Any]) -> None:
    section = _section(data)
    model = _FILES[section][0]
    known = list(model.model_fields)
    meant = {nearest(key, known) for key in data if key not in known}
    for key in data:
        if key in known:
            continue
        owners = [about for file, about in _FILES.values() if key in file.model_fields]
        if key in _FILES:
            rule = f"a scenario is about {_FILES[section][1]} or about {_FILES[key][1]}; leave one out"
        else:
            belongs = f"{key} belongs to {' or '.join(owners)}; leave it out"
            rule = belongs if owners else unknown_key(key, [*known, *(one for one in _FILES if one != section)])
        context.add((key,), rule, unusable=True)
    for name, field in model.model_fields.items():
        if field.is_required() and name not in data and name not in meant:
            context.add_missing(name)


def _check_empty(context: Context, path: Path, value: Any) -> None:
    """Note every key and item without a value: nowhere does null mean anything."""
    if value is None:
        key = str(path[-1])
        hint = " (is a space missing after the colon?)" if ":" in key else ""
        context.add(path, f"no value stands here; write one, or leave it out{hint}", unusable=True)
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_empty(context, (*path, key), inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _check_empty(context, (*path, index), inner)


def _load(context: Context, data: dict[str, Any]) -> Scenario | None:
    texts = {key: context.text(data, key) for key in ("title", "description")}
    engine, verify = (_word(context, data, key) for key in ("engine", "verify"))
    cluster = load_cluster(context, data["cluster"]) if "cluster" in data else None
    collective = load_collective(context, data["collective"]) if "collective" in data else None
    written, seeds = load_conditions(context, data, engine)
    meaning = load_time(context, data)
    table = KeyTable(cluster, collective, written, meaning, seeds)
    sweeps = load_sweeps(context, data["sweep"], table) if "sweep" in data else ()
    conditions, time = written or IDEAL, meaning or DEFAULT
    skipping = _word(context, data, "skipping")
    if engine == "closed_form" and not skipping:
        context.add(("skipping",), "closed_form plays no rounds at all; leave skipping: out, or write engine: auto")
    if engine == "closed_form" and not conditions.ideal:
        engine, conditions = "auto", IDEAL  # it is reported, once
    varied = {owner(key) for sweep in sweeps or () for key in sweep.values}
    if "measured" in data and (not conditions.ideal or varied & {"skew", "jitter"}):
        rule = "measurements are compared with closed forms, which have no late or random runs"
        context.add(("measured",), f"{rule}; leave skew: and jitter: out")
    if "measured" in data and not isinstance(time, Default):
        context.add(("measured",), "measurements are compared in the default time; leave time: out")
    namer = _namer(context, data, table, sweeps, (engine, verify, time), conditions)
    measured = load_measured(context, data["measured"], namer) if "measured" in data else ()
    if namer is not None:
        namer = replace(namer, measured=measured)
    namer = with_nccl(context, data["nccl"], namer) if "nccl" in data else namer
    expectations = load_expectations(context, data["expect"], namer) if "expect" in data else ()
    timelines = load_timelines(context, data["timeline"], namer) if "timeline" in data else ()
    contributions = load_contributions(context, data["contributions"], namer) if "contributions" in data else None
    if namer is None or namer.cluster is None or texts["title"] is None:
        return None
    return Scenario(
        file=context.document.source,
        title=texts["title"],
        description=texts["description"],
        cluster=namer.cluster,
        collective=namer.collective,
        sweeps=tuple(namer.sweeps),
        engine=engine,
        verify=verify,
        expectations=expectations,
        measured=measured or (),
        nccl=namer.nccl,
        timelines=timelines,
        contributions=contributions,
        conditions=conditions,
        time=time,
        seeds=seeds,
        skipping=skipping,
    )


def _word(context: Context, data: dict[str, Any], key: str) -> Any:
    """Return the word, or true or false, that a key takes, or its default."""
    field = ScenarioModel.model_fields[key]
    if key not in data or context.is_unusable((key,)):
        return field.default
    word = context.validate_type((key,), data[key], field.annotation)
    return field.default if word is None else word


def _namer(
    context: Context,
    data: dict[str, Any],
    table: KeyTable,
    sweeps: tuple[Sweep, ...] | None,
    how: tuple[str, Verify, TimeModel],
    conditions: Conditions,
) -> Namer | None:
    """Return what resolves names, after checking that every algorithm runs at every point."""
    cluster, collective = table.cluster, table.collective
    if collective is None:
        return None
    written = data["collective"]
    whole = len(collective.algorithms) == len(written["algorithms"])
    if cluster is None or sweeps is None:
        return Namer(context, table, sweeps or (), None, whole, collective=collective)
    fits = Fits(cluster, collective, *how, conditions=conditions)
    namer = Namer(context, table, sweeps, fits, whole, collective=collective)
    if collective.message_bytes is None and "message" in written:
        return replace(namer, fits=None)  # the message is reported already
    if not _messages_are_given(context, namer):
        return replace(namer, fits=None)
    _check_points(context, namer, fits)
    for index, sweep in enumerate(sweeps):
        context.limited(_sweep_path(namer, index), _twice(collective, sweep), lambda: True)
    return namer


def _messages_are_given(context: Context, namer: Namer) -> bool:
    """Whether every point has a message; a problem for each sweep without."""
    if namer.collective.message_bytes is not None:
        return True
    if not namer.sweeps:
        context.add(("collective",), "no message is given; write message: 1 MiB here, or sweep it")
        return False
    lacking = [index for index, sweep in enumerate(namer.sweeps) if "message" not in sweep.values]
    for index in lacking:
        context.add(
            _sweep_path(namer, index), "no message is given; sweep it here, or write message: under collective:"
        )
    return not lacking


def _sweep_path(namer: Namer, index: int) -> Path:
    several = isinstance(namer.context.document.data.get("sweep"), list)
    return ("sweep", index) if several else ("sweep",)


def _twice(collective: CollectiveSettings, sweep: Sweep) -> Iterator[str]:
    """Why a sweep makes an entry the same as another one, which would run twice."""
    swept = {key: values for key, values in sweep.values.items() if is_option(key) or key == "root"}
    for combination in itertools.product(*swept.values()) if swept else ():
        point = dict(zip(swept, combination, strict=True))
        seen: dict[str, AlgorithmEntry] = {}
        for entry in collective.algorithms:
            found = label_at(collective, entry, restricted(point, entry))
            first = seen.setdefault(found, entry)
            if first is not entry:
                mine = {**restricted(point, first), **restricted(point, entry)}
                where = " and ".join(one.place.removeprefix("$.collective.") for one in (first, entry))
                yield f"at {point_text(mine)}: {where} are both {found}; leave one out"


def _check_points(context: Context, namer: Namer, fits: Fits) -> None:
    """Note every algorithm that does not run at a point; at most ten problems of each kind."""
    collective = namer.collective
    if not namer.sweeps:
        for index, entry in enumerate(collective.algorithms):
            reason = fits.reason(entry, EMPTY)
            if reason is not None:
                rooted = collective.root is not None and "unreachable" in reason
                path: Path = ("collective", "root") if rooted else ("collective", "algorithms", index)
                context.add(path, reason.rpartition(": ")[2] if rooted else reason)
    for index, sweep in enumerate(namer.sweeps):
        points = itertools.takewhile(lambda _point: fits.work < _LOOKED_AT, sweep_points([sweep]))
        found = (fits.reason(entry, point) for point in points for entry in collective.algorithms)
        context.limited(_sweep_path(namer, index), found, lambda: fits.worn)


_LOADERS: Mapping[str, Callable[[Context, dict[str, Any]], AnyScenario | None]] = {
    "training": load_training_scenario,
    "numerics": load_numerics_scenario,
    "collective": _load,
}
