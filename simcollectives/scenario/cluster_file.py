"""A cluster in a file of its own, such as `simcollectives fit` writes: ``cluster: {file: cluster.yaml}``."""

from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

from simcollectives.errors import InputError, listing, show_value
from simcollectives.measured.logs.formats import detect
from simcollectives.scenario.context import Context
from simcollectives.scenario.places import Path, shown
from simcollectives.scenario.types import ClusterSettings
from simcollectives.scenario.yaml_text import Document, read_document

PATH: Path = ("cluster", "file")
_SECTIONS = ("cluster", "fitted")
_REFUSED = ("file", "slow")


def read_cluster_file(
    context: Context, value: dict[str, Any], load: Callable[[Context, Any], ClusterSettings | None]
) -> tuple[dict[str, Any], str, dict[str, str]] | None:
    """Return the file's cluster with what stands beside ``file:`` over it, a note of its fit, and as what it was made.

    Notes every problem of the file, and returns None, where it holds no cluster that can exist.
    """
    name = value["file"]
    if not isinstance(name, str) or not name:
        context.add(PATH, f"{shown(name)} is no file; write file: cluster.yaml, as simcollectives fit -o writes it")
        return None
    path, said = FilePath(context.document.source).parent / name, show_value(name)[1:-1]
    try:
        document = read_document(path)
        written = _cluster_of(document, load)
    except InputError as error:
        if (log := _log_format(path)) is not None:
            rule = f"no cluster, but measurements ({log}); fit them first: simcollectives fit {said} -o cluster.yaml"
            context.add(PATH, f"{said}: {rule}")
            return None
        for problem in error.problems:
            context.add(PATH, f"{said}: {problem}")
        return None
    merged = {**written, **{key: one for key, one in value.items() if key != "file"}}
    return merged, _note(name, document.data), _fitted_as(document.data)


def _log_format(path: FilePath) -> str | None:
    """What log of measurements a file is; None where it is none, or cannot be read."""
    try:
        found = detect(path)
    except InputError:
        return None
    return None if found is None else found.name


def _cluster_of(document: Document, load: Callable[[Context, Any], ClusterSettings | None]) -> dict[str, Any]:
    inner = Context(document)
    data = document.data
    for key in data:
        if key not in _SECTIONS:
            inner.add((key,), f"a cluster file has the sections {' and '.join(_SECTIONS)}; leave it out")
    written = data.get("cluster")
    if not isinstance(written, dict):
        inner.add((), "the file has no section cluster: with the keys of a cluster")
        inner.finish()
        return {}
    for key in _REFUSED:
        if key in written:
            inner.add(("cluster", key), f"{key}: belongs into the scenario, not into a cluster file")
    inner.finish()
    load(inner, written)
    inner.finish()
    return written


def _fitted_as(data: dict[str, Any]) -> dict[str, str]:
    """By level, the collectives and algorithms as which measured times were simulated."""
    fitted = data.get("fitted")
    levels = fitted.items() if isinstance(fitted, dict) else ()
    return {str(level): str(one["simulated"]) for level, one in levels if isinstance(one, dict) and "simulated" in one}


def _note(name: str, data: dict[str, Any]) -> str:
    """What the file says of its fit: sets and error of each level, and which links were not fitted."""
    fitted = data.get("fitted")
    fitted = fitted if isinstance(fitted, dict) else {}
    parts = []
    for level, facts in fitted.items():
        if isinstance(facts, dict):
            sets = facts.get("sets")
            to = f" fitted to {listing([str(one) for one in sets])}" if isinstance(sets, list) else ""
            ran = f" ({facts['simulated']})" if "simulated" in facts else ""
            parts.append(f"{level}{to}{ran}; error: {facts.get('error', 'not said')}")
    if parts:
        written = [level for level in ("intra", "inter") if level in data["cluster"]]
        parts += [f"{level} not fitted" for level in written if level not in fitted]
    return f"{name}: {'; '.join(parts)}" if parts else f"{name}: a cluster file that does not say what it was fitted to"
