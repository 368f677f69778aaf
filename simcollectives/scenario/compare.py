"""Scenarios that ask which strategy to train with, from those that do not, or from a few words."""

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from simcollectives.errors import InputError, Problem
from simcollectives.scenario.keys import owner
from simcollectives.scenario.load_collective import readable
from simcollectives.scenario.loading import load_document
from simcollectives.scenario.training.schema import ALL, read_strategy
from simcollectives.scenario.training.types import AnyScenario
from simcollectives.scenario.yaml_text import parse_document, read_document
from simcollectives.training.comparison import COMPARED
from simcollectives.training.strategies.table import STRATEGIES

_OF_ONE_STRATEGY = ("expect", "timeline", "measured")


def read_comparison(path: str | os.PathLike[str], strategies: str | None = None) -> AnyScenario:
    """Load a training scenario as a comparison of strategies, instead of what it says of its own.

    Its expectations, its timelines, and sweeps over options of other strategies are left out. ``strategies`` are names
    with commas between, or "all"; without them, those that it compares already, or its own and all others.

    Raises:
        InputError: the file cannot be read, or is not a valid training scenario; all problems at once, with lines.
    """
    document = read_document(path)
    if "training" not in document.data:
        rule = "there is no training: in it, so that there are no strategies to compare"
        raise InputError([Problem("$", rule)], document.source)
    if "compare" in document.data and strategies is None:
        return load_document(document)
    return load_document(replace(document, data=_comparing(document.data, strategies)))


def _comparing(written: Mapping[str, Any], strategies: str | None) -> dict[str, Any]:
    """Return a training scenario with ``compare:``, without what it says of strategies of its own or left out."""
    data = {key: one for key, one in written.items() if key not in _OF_ONE_STRATEGY}
    own: list[Any] = []
    if isinstance(data["training"], dict):
        section = dict(data["training"])
        alone, several = section.pop("strategy", None), section.pop("strategies", None)
        own = several if isinstance(several, list) else [] if alone is None else [alone]
        data["training"] = section
    data["compare"] = _beside(own) if strategies is None or strategies == ALL else _listed(strategies)
    left_out = {one.name for one in STRATEGIES} - _names(data["compare"])
    if isinstance(data.get("sweep"), dict | list):
        sweep = _swept(data.pop("sweep"), left_out)
        data |= {"sweep": sweep} if sweep else {}
    return data


def _swept(sweep: Any, left_out: Collection[str]) -> Any:
    """Return one sweep, or a list of them, without options of some strategies and what is empty then."""
    if isinstance(sweep, list):
        return [one for one in (_swept(one, left_out) for one in sweep) if one]
    if isinstance(sweep, dict):
        return {key: one for key, one in sweep.items() if owner(key) not in left_out}
    return sweep


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
    names = _names(own)
    return [*own, *(name for name in COMPARED if name not in names)]


def _names(written: list[Any]) -> set[str]:
    return {one.name for one in readable(written, read_strategy).values()}


def _listed(strategies: str) -> list[str]:
    return list(COMPARED) if strategies == ALL else [name.strip() for name in strategies.split(",")]
