"""The section ``collective:``, checked against the table of algorithms."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from simcollectives.algorithms import ALGORITHMS, find_algorithm, label, resolve_options
from simcollectives.engines.job import count_elements
from simcollectives.errors import AlgorithmError, InputError, nearest, show_value, suggestion
from simcollectives.scenario.context import Context
from simcollectives.scenario.places import Path, place_text
from simcollectives.scenario.schema import CollectiveModel
from simcollectives.scenario.schema_values import Reference, read_algorithm
from simcollectives.scenario.types import AlgorithmEntry, CollectiveSettings
from simcollectives.schedule.collectives import COLLECTIVES

PATH: Path = ("collective",)


def load_collective(context: Context, value: Any) -> CollectiveSettings | None:
    """Return the settings of a collective, without the entries that do not exist; None where none is left."""
    listed = value.get("algorithms") if isinstance(value, dict) else None
    references = readable(listed if isinstance(listed, list) else [], read_algorithm)
    model = context.validate(PATH, value, CollectiveModel)
    if model is None and references:  # what is wrong is noted; the other entries may be wrong, too
        rest = {**value, "algorithms": [value["algorithms"][index] for index in references]}
        model = context.validate(PATH, rest, CollectiveModel)
    if model is None:
        _check_names(context, value, references)
        return None
    rooted = COLLECTIVES[model.name].rooted
    if model.root is not None and not rooted:
        context.add((*PATH, "root"), f"{model.name} has no root; leave it out")
    message = None
    if model.message is not None and not context.is_unusable((*PATH, "dtype")):
        message = whole_message(context, (*PATH, "message"), model.message, model.dtype)
    entries = _entries(context, model.name, references)
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


def readable(listed: list[Any], read: Callable[[object], Reference]) -> dict[int, Reference]:
    """Return the items that may be names, each with its position."""
    found = {}
    for index, one in enumerate(listed):
        with contextlib.suppress(PydanticCustomError):
            found[index] = read(one)
    return found


def _check_names(context: Context, value: Any, references: Mapping[int, Reference]) -> None:
    """Note what is wrong with the algorithms of a collective that is none, as if it were the nearest one."""
    name = nearest(value.get("name"), COLLECTIVES) if isinstance(value, dict) else None
    if name is not None:
        _entries(context, name, references)
        return
    known = list(dict.fromkeys(algorithm.name for algorithm in ALGORITHMS))
    for index, reference in references.items():
        if reference.name not in known:
            rule = f"{show_value(reference.name)} is no algorithm of any collective"
            context.add((*PATH, "algorithms", index), f"{rule}; {suggestion(reference.name, known)}")


def whole_message(context: Context, path: Path, message_bytes: float, dtype: str) -> int | None:
    """Return the bytes of a message, or note that they are no whole number of elements and return None."""
    try:
        count_elements(message_bytes, dtype)
    except InputError as error:
        context.add_error(path, error)
        return None
    return int(message_bytes)


def _entries(context: Context, collective: str, references: Mapping[int, Reference]) -> list[AlgorithmEntry]:
    paths: dict[Path, Reference] = {(*PATH, "algorithms", index): one for index, one in references.items()}
    return listed_once(context, paths, lambda path, reference: _entry(context, path, collective, reference))


def listed_once(
    context: Context,
    references: Mapping[Path, Reference],
    load: Callable[[Path, Reference], AlgorithmEntry | None],
) -> list[AlgorithmEntry]:
    """Return the entries that load, each once; a problem for every repetition."""
    seen: dict[str, Path] = {}
    entries = []
    for path, reference in references.items():
        entry = load(path, reference)
        if entry is None:
            continue
        if entry.label in seen:
            context.add(path, f"{entry.label} is listed twice, first at [{seen[entry.label][-1]}]; keep one")
            continue
        seen[entry.label] = path
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
