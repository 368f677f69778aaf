"""Bounds of expectations: equals with a tolerance, at_most, at_least or between."""

from typing import Any

from simcollectives.errors import UnitError
from simcollectives.scenario.context import Context
from simcollectives.scenario.keys import Kind
from simcollectives.scenario.places import Path
from simcollectives.scenario.types import Bound, Relation

RELATIONS: tuple[Relation, ...] = ("equals", "at_most", "at_least", "between")
BOUND_KEYS = (*RELATIONS, "rel", "abs")


def load_bound(context: Context, path: Path, parsed: Any, kind: Kind, *, read: bool = False) -> Bound | None:
    """Return the bound among the fields of a parsed expectation, or note what is wrong with it and return None.

    With ``read`` its values are still as written, and are read as numbers of `kind`.
    """
    if any(context.is_unusable((*path, key)) for key in BOUND_KEYS):
        return None
    given = [relation for relation in RELATIONS if getattr(parsed, relation) is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} cannot stand together" if given else "no bound is given"
        context.add(path, f"{what}; write one of equals (with rel or abs), at_most, at_least, between")
        return None
    relation = given[0]
    written = getattr(parsed, relation)
    values = _read(context, (*path, relation), written if relation == "between" else [written], kind, read)
    tolerances = _tolerances(context, path, parsed, relation, kind, read)
    if values is None or tolerances is None:
        return None
    if relation == "between" and values[0] > values[1]:
        context.add((*path, relation), "the range ends below its beginning; swap the two values")
        return None
    return Bound(relation, values, *tolerances)


def _read(context: Context, path: Path, written: list[Any], kind: Kind, read: bool) -> tuple[float, ...] | None:
    if not read:
        return tuple(written)
    values = [context.quantity(path, one, lambda value: _anywhere(kind, value)) for one in written]
    return None if None in values else tuple(value for value in values if value is not None)


def _anywhere(kind: Kind, value: object) -> float:
    """Read a bound: of a count it may lie between two whole numbers."""
    if kind.whole and isinstance(value, float) and value >= 0:
        return value
    return kind.parse(value)


def _tolerances(
    context: Context, path: Path, parsed: Any, relation: str, kind: Kind, read: bool
) -> tuple[float | None, float | None] | None:
    """Return (relative, absolute), of which exactly one is given with equals, and none with the others."""
    given = [name for name in ("rel", "abs") if getattr(parsed, name) is not None]
    if relation != "equals":
        for name in given:
            context.add((*path, name), f"a tolerance belongs to equals, not to {relation}; leave it out")
        return None if given else (None, None)
    if kind.exact and not given:
        return None, None
    if len(given) != 1:
        what = "rel and abs cannot stand together" if given else "equals has no tolerance"
        context.add((*path, relation), f"{what}; write rel: 0.1%, or abs: {kind.example}")
        return None
    if given == ["rel"]:
        return parsed.rel, None
    if not read:
        return None, parsed.abs
    try:
        return None, _anywhere(kind, parsed.abs)
    except UnitError as error:
        context.add_error((*path, "abs"), error)
    return None
