"""The section ``collective:``, checked against the table of algorithms."""

from collections.abc import Mapping
from typing import Any

from simcollectives.algorithms import find_algorithm, label, resolve_options
from simcollectives.engines.job import count_elements
from simcollectives.errors import AlgorithmError, InputError
from simcollectives.scenario.context import Context
from simcollectives.scenario.places import Path, place_text
from simcollectives.scenario.schema import CollectiveModel
from simcollectives.scenario.schema_values import Reference
from simcollectives.scenario.types import AlgorithmEntry, CollectiveSettings
from simcollectives.schedule.collectives import COLLECTIVES

PATH: Path = ("collective",)


def load_collective(context: Context, value: Any) -> CollectiveSettings | None:
    """Return the settings of a collective, without the entries that do not exist; None where none is left."""
    model = context.validate(PATH, value, CollectiveModel)
    if model is None:
        return None
    rooted = COLLECTIVES[model.name].rooted
    if model.root is not None and not rooted:
        context.add((*PATH, "root"), f"{model.name} has no root; leave it out")
    message = None
    if model.message is not None:
        message = whole_message(context, (*PATH, "message"), model.message, model.dtype)
    entries = _entries(context, model)
    if not entries:
        return None
    if model.root is not None and rooted and all("root" in entry.options for entry in entries):
        context.add((*PATH, "root"), "every algorithm is given a root of its own; leave it out here or there")
    return CollectiveSettings(
        name=model.name,
        algorithms=tuple(entries),
        message_bytes=message,
        dtype=model.dtype,
        root=model.root if rooted else None,
    )


def whole_message(context: Context, path: Path, message_bytes: float, dtype: str) -> int | None:
    """Return the bytes of a message, or note that they are no whole number of elements and return None."""
    try:
        count_elements(message_bytes, dtype)
    except InputError as error:
        context.add_error(path, error)
        return None
    return int(message_bytes)


def _entries(context: Context, model: CollectiveModel) -> list[AlgorithmEntry]:
    entries: list[AlgorithmEntry] = []
    seen: dict[str, int] = {}
    for index, reference in enumerate(model.algorithms):
        path = (*PATH, "algorithms", index)
        entry = _entry(context, path, model.name, reference)
        if entry is None:
            continue
        if entry.label in seen:
            context.add(path, f"{entry.label} is listed twice, first at [{seen[entry.label]}]; keep one")
            continue
        seen[entry.label] = index
        entries.append(entry)
    return entries


def _entry(context: Context, path: Path, collective: str, reference: Reference) -> AlgorithmEntry | None:
    try:
        algorithm = find_algorithm(collective, reference.name)
    except AlgorithmError as error:
        context.add_error(path, error)
        return None
    options = checked_options(context, (*path, reference.name), collective, reference)
    if options is None:
        return None
    given = {name: options[name] for name in reference.options}
    line = context.document.line(path)
    return AlgorithmEntry(reference.name, given, label(algorithm, options), place_text(path), line)


def checked_options(context: Context, path: Path, collective: str, reference: Reference) -> Mapping[str, Any] | None:
    """Return all options of an algorithm, or note which do not exist and return None."""
    try:
        return resolve_options(find_algorithm(collective, reference.name), reference.options)
    except AlgorithmError as error:
        for problem in error.problems:
            context.add((*path, problem.place), problem.message)
    return None
