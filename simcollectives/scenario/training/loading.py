"""Loading a file with ``training:``: everything that is wrong with it is found before anything is simulated."""

import itertools
from dataclasses import replace
from typing import Any

from simcollectives.scenario.context import Context
from simcollectives.scenario.load_cluster import load_cluster
from simcollectives.scenario.load_expect import Language, load_expectations
from simcollectives.scenario.load_sweeps import load_sweeps
from simcollectives.scenario.places import Path, shown
from simcollectives.scenario.points import sweep_points
from simcollectives.scenario.training.build import TrainingFits
from simcollectives.scenario.training.load import load_training
from simcollectives.scenario.training.load_measured import load_measured_steps
from simcollectives.scenario.training.naming import TrainingKeyTable, TrainingNamer
from simcollectives.scenario.training.schema import ALL, STEP_MODELS, StepSelector
from simcollectives.scenario.training.types import TrainingScenario
from simcollectives.scenario.types import EMPTY, Selector

STEP_LANGUAGE = Language(
    STEP_MODELS,
    "write {step_seconds: {strategy: ddp}, at_most: 1.2 s} or {efficiency: {strategy: ddp}, at_least: 90%}",
)
_LOOKED_AT = 2_000
"""Points that are looked at before anything is simulated; what is wrong with others is found when they are."""


def load_training_scenario(context: Context, data: dict[str, Any]) -> TrainingScenario | None:
    """Return the scenario, or None after noting every problem."""
    texts = {key: context.text(data, key) for key in ("title", "description")}
    cluster = load_cluster(context, data["cluster"]) if "cluster" in data else None
    training = load_training(context, data["training"], data.get("compare"))
    sound = not any(one.place.startswith("$.training") for one in (*context.document.problems, *context.problems))
    table = TrainingKeyTable(cluster, training=training)
    sweeps = load_sweeps(context, data["sweep"], table) if "sweep" in data else ()
    namer = None
    if training is not None:
        listed = data.get("compare", data["training"].get("strategies", [0]))
        whole = listed == ALL or len(training.strategies) == len(listed)
        fits = None if cluster is None or sweeps is None or not sound else TrainingFits(cluster, training)
        namer = TrainingNamer(context, table, sweeps or (), fits, whole, training=training)
        if fits is not None and not _check_points(context, namer, fits):
            namer = replace(namer, fits=None)
    measured = load_measured_steps(context, data["measured"], namer) if "measured" in data else ()
    if namer is not None:
        namer = replace(namer, measured=measured)
    expectations = load_expectations(context, data["expect"], namer, STEP_LANGUAGE) if "expect" in data else ()
    timelines = _timelines(context, data["timeline"], namer) if "timeline" in data else ()
    if training is None or cluster is None or texts["title"] is None:
        return None
    return TrainingScenario(
        file=context.document.source,
        title=texts["title"],
        description=texts["description"],
        cluster=cluster,
        training=training,
        sweeps=tuple(sweeps or ()),
        expectations=expectations,
        timelines=timelines,
        measured=measured or (),
        compares="compare" in data,
    )


def _check_points(context: Context, namer: TrainingNamer, fits: TrainingFits) -> bool:
    """Note every strategy that does not run at a point, at most ten; return whether there is none."""
    before = len(context.problems)
    if not namer.sweeps:
        for problem in (problem for entry in namer.entries for problem in fits.problems(entry, EMPTY)):
            written = problem.place in context.document.data["training"]
            context.add(("training", problem.place) if written else ("training",), problem.message)
    for index, sweep in enumerate(namer.sweeps):
        several = isinstance(context.document.data.get("sweep"), list)
        path: Path = ("sweep", index) if several else ("sweep",)
        points = itertools.islice(sweep_points([sweep]), _LOOKED_AT)
        found = (fits.reason(entry, point) for point in points for entry in namer.entries)
        context.limited(path, found, lambda: fits.worn)
    return len(context.problems) == before


def _timelines(context: Context, value: Any, namer: TrainingNamer | None) -> tuple[Selector, ...]:
    """Return the steps to draw; a mapping or a list of mappings is written."""
    path: Path = ("timeline",)
    several = isinstance(value, list)
    found = []
    for index, raw in enumerate(value if several else [value]):
        here: Path = (*path, index) if several else path
        if not isinstance(raw, dict):
            context.add(here, f"{shown(raw)} is not a mapping; write {{strategy: ddp}}")
            continue
        parsed = context.validate(here, raw, StepSelector)
        selector = None
        if parsed is not None and namer is not None:
            selector = namer.selector(here, parsed.strategy, raw, ("strategy",), {})
        if selector is not None:
            found.append(selector)
    return tuple(found)
