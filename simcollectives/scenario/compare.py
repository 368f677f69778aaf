"""Scenarios that ask which strategy to train with, from those that do not, or from a few words."""

import os
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from simcollectives.errors import InputError, Problem
from simcollectives.scenario.loading import load_document
from simcollectives.scenario.training.schema import ALL
from simcollectives.scenario.training.types import AnyScenario
from simcollectives.scenario.yaml_text import parse_document, read_document
from simcollectives.training.comparison import COMPARED
from simcollectives.training.strategies.table import STRATEGIES

_OF_ONE_STRATEGY = ("expect", "timeline")


def read_comparison(path: str | os.PathLike[str], strategies: str | None = None) -> AnyScenario:
    """Load a training scenario as a comparison of strategies, instead of what it says of its own.

    Its expectations, its timelines, and sweeps over options of other strategies are left out. ``strategies`` are names
    with commas between, or "all"; without them, those that it compares already, or its own and all others.

    Raises:
        InputError: the file cannot be read, or is not a valid training scenario; all problems at once, with lines.
    """
    document = read_document(path)
    data = dict(document.data)
    if "training" not in data:
        rule = "there is no training: in it, so that there are no strategies to compare"
        raise InputError([Problem("$", rule)], document.source)
    if "compare" not in data or strategies is not None:
        for key in _OF_ONE_STRATEGY:
            data.pop(key, None)
        own: list[Any] = []
        if isinstance(data["training"], dict):
            section = dict(data["training"])
            alone, several = section.pop("strategy", None), section.pop("strategies", None)
            own = several if isinstance(several, list) else [] if alone is None else [alone]
            data["training"] = section
        data["compare"] = _beside(own) if strategies in (None, ALL) else _listed(strategies or ALL)
        left_out = {one.name for one in STRATEGIES} - {*map(_name, data["compare"])}
        if isinstance(data.get("sweep"), dict):
            kept = {key: one for key, one in data["sweep"].items() if key.partition(".")[0] not in left_out}
            data |= {"sweep": kept} if kept else {}
            if not kept:
                del data["sweep"]
    return load_document(replace(document, data=data))


def write_comparison(
    settings: Mapping[str, Any], machine: str, nodes: int, strategies: str = ALL, folder: Path = Path()
) -> str:
    """Return a scenario that compares strategies: ``settings`` are those of ``training:`` that are not None.

    A model may be the path of a config.json, which the scenario names from its own ``folder``.
    """
    cluster = {"machine": machine, "nodes": nodes}
    training = {key: value for key, value in settings.items() if value is not None}
    if Path(str(training["model"])).suffix == ".json":
        training["model"] = {"config": os.path.relpath(training["model"], folder)}
    where = f"{nodes} x {machine}" if nodes != 1 else machine
    data = {
        "title": f"Which strategy trains {settings['model']} on {where}?",
        "cluster": cluster,
        "training": training,
        "compare": _listed(strategies),
    }
    text = StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(data, text)
    return text.getvalue()


def load_comparison(text: str, source: str | None) -> AnyScenario:
    """Load what ``write_comparison`` has written; ``source`` is where it stands, None where it stands nowhere.

    Raises:
        InputError: it is not a valid scenario; all problems at once, of a scenario that stands nowhere at its options.
    """
    try:
        return load_document(parse_document(text, source or "comparison.yaml"))
    except InputError as error:
        if source is not None:
            raise
        raise InputError([Problem(_option(one.place), one.message) for one in error.problems]) from None


def _option(place: str) -> str:
    """Return the option that a place of the scenario comes from.

    >>> _option("$.training.micro_batch"), _option("$.compare[1]"), _option("$.training")
    ('--micro-batch', '--strategies', '')
    """
    if place.startswith("$.compare"):
        return "--strategies"
    section, _, key = place.removeprefix("$.").partition(".")
    return f"--{key.partition('.')[0].replace('_', '-')}" if section in ("training", "cluster") and key else ""


def _beside(own: list[Any]) -> list[Any]:
    """Strategies as a file writes them, and those of ``COMPARED`` that are not among them."""
    names = [*map(_name, own)]
    return [*own, *(name for name in COMPARED if name not in names)]


def _name(written: Any) -> Any:
    return next(iter(written)) if isinstance(written, dict) and written else str(written)


def _listed(strategies: str) -> list[str]:
    return list(COMPARED) if strategies == ALL else [name.strip() for name in strategies.split(",")]
