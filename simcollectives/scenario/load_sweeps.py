"""The section ``sweep:``: one mapping, or a list of them, each from keys of a point to values."""

from collections.abc import Callable, Sequence
from typing import Any

from simcollectives.engines import DTYPES
from simcollectives.errors import InputError, UnitError, nearest
from simcollectives.scenario.build import is_free
from simcollectives.scenario.context import Context, unknown_key
from simcollectives.scenario.keys import Kind, is_option, owner
from simcollectives.scenario.load_collective import whole_message
from simcollectives.scenario.places import Path, place_text, shown
from simcollectives.scenario.point_keys import KeyTable
from simcollectives.scenario.points import (
    MAX_POINTS,
    RangeError,
    count_points,
    expand_factor,
    expand_points,
    expand_step,
    rounded,
    unique,
)
from simcollectives.scenario.schema import RANGE_STEPS
from simcollectives.scenario.types import Sweep

PATH: Path = ("sweep",)
_EXAMPLE = "write a list of values, or {from: 1 KiB, to: 1 GiB, factor: 2}"


def load_sweeps(context: Context, value: Any, table: KeyTable) -> tuple[Sweep, ...] | None:
    """Return the sweeps, or note every problem and return None."""
    several = isinstance(value, list)
    if several and not value:
        context.add(PATH, "the list is empty; write a sweep, or leave the key out")
        return None
    before = len(context.problems)
    sweeps = []
    lacking = False
    for index, one in enumerate(value if several else [value]):
        path: Path = (*PATH, index) if several else PATH
        if not isinstance(one, dict) or not one:
            context.add(path, f"{shown(one)} is not a sweep; write {{message: [4 KiB, 1 MiB]}}")
            continue
        values = {key: _values(context, (*path, key), key, raw, table) for key, raw in one.items()}
        found = {key: some for key, some in values.items() if some is not None}
        lacking = lacking or len(found) < len(values)
        sweeps.append(Sweep(found, place_text(path), {key: context.document.line((*path, key)) for key in found}))
    total = count_points([sweep.values for sweep in sweeps])
    if total > MAX_POINTS:
        context.add(PATH, f"{total} points; at most {MAX_POINTS}: take fewer values")
    return None if lacking or len(context.problems) > before else tuple(sweeps)


def _values(context: Context, path: Path, key: str, raw: Any, table: KeyTable) -> tuple[Any, ...] | None:
    """Return the values of one key, each once."""
    if context.is_unusable(path):
        return None
    try:
        kind = table.kind(key)
    except InputError as error:
        context.add_error(path, error)
        return None
    _check_not_given(context, path, key, table)
    if isinstance(raw, list):
        found = _list(context, path, raw, kind)
        read = None if found is None else _whole(context, path, key, found, table)
    elif isinstance(raw, dict):
        read = _range(context, path, key, raw, kind, table)
    else:
        context.add(path, f"{shown(raw)} is one value; {_EXAMPLE}")
        return None
    return None if read is None else unique(read)


def _check_not_given(context: Context, path: Path, key: str, table: KeyTable) -> None:
    """An option that is swept must be left open by an entry."""
    if table.collective is not None and key == "root":
        if all("root" in entry.options for entry in table.collective.algorithms):
            context.add(path, "every algorithm is given a root of its own; leave it out there, or do not sweep it")
        return
    if not is_option(key):
        return
    mine = [entry for entry in table.entries if entry.name == owner(key)]
    if mine and not any(is_free(key, entry) for entry in mine):
        name = key.partition(".")[2]
        rule = f"{name} is given with {mine[0].name} in line {mine[0].line}, and swept here"
        context.add(path, f"{rule}; keep one")


def _list(context: Context, path: Path, raw: list[Any], kind: Kind) -> list[Any] | None:
    if not raw:
        context.add(path, f"the list is empty; {_EXAMPLE}")
        return None
    found = [context.quantity((*path, index), one, kind.parse) for index, one in enumerate(raw)]
    return None if any(one is None for one in found) else found


def _whole(context: Context, path: Path, key: str, values: list[Any], table: KeyTable) -> list[Any] | None:
    """Return messages as whole bytes; the values of other keys as they are."""
    if key != "message" or table.collective is None:
        return [int(value) for value in values] if key == "message" else values
    dtype = table.collective.dtype
    whole = [whole_message(context, (*path, index), value, dtype) for index, value in enumerate(values)]
    return None if None in whole else whole


def _range(
    context: Context, path: Path, key: str, raw: dict[str, Any], kind: Kind, table: KeyTable
) -> list[Any] | None:
    """Return the values of {from, to, factor}, {from, to, step} or {from, to, points}."""
    how = _range_form(context, path, raw)
    if how is None:
        return None
    if kind.name == "option" and not kind.whole:
        context.add(path, "the values of this option are no whole numbers, so it has no range; write a list of them")
        return None
    low = context.quantity((*path, "from"), raw["from"], kind.parse)
    high = context.quantity((*path, "to"), raw["to"], kind.parse)
    amount = context.quantity((*path, how), raw[how], kind.parse if how == "step" else _number(how))
    if low is None or high is None or amount is None:
        return None
    if any(isinstance(end, str) for end in (low, high, amount)):
        context.add(path, "a range needs numbers; write a list of values instead")
        return None
    if key == "message" and not _ends_whole(context, path, low, high, table):
        return None
    expand: Callable[..., list[float]] = {"factor": expand_factor, "step": expand_step, "points": expand_points}[how]
    try:
        values = expand(low, high, amount)
    except RangeError as error:
        context.add(path, str(error))
        return None
    if key == "message":
        return list(rounded(values, DTYPES[table.collective.dtype] if table.collective is not None else 1))
    return list(rounded(values, 1)) if kind.whole else values


def _range_form(context: Context, path: Path, raw: dict[str, Any]) -> str | None:
    """Return which of factor, step and points is given."""
    before = len(context.problems)
    for key in raw:
        if key not in ("from", "to", *RANGE_STEPS):
            context.add((*path, key), unknown_key(key, ["from", "to", *RANGE_STEPS]))
    for end in ("from", "to"):
        if end not in raw:
            context.add(path, f"the key {end} is missing; {_EXAMPLE}")
    given = [how for how in RANGE_STEPS if how in raw]
    misspelt = any(nearest(key, RANGE_STEPS) for key in raw if key not in ("from", "to", *RANGE_STEPS))
    if len(given) != 1 and not misspelt:
        what = f"{' and '.join(given)} cannot stand together" if given else "nothing says how wide the steps are"
        context.add(path, f"{what}; write one of factor, step and points")
    return given[0] if given and len(context.problems) == before else None


def _number(how: str) -> Callable[[object], Any]:
    def parse(value: object) -> Any:
        fits = isinstance(value, int) if how == "points" else isinstance(value, int | float)
        if not fits or isinstance(value, bool):
            what = "a whole number, such as 20" if how == "points" else "a bare number, such as 2"
            raise UnitError(f"{shown(value)} is not a {how} of steps; write {what}".replace("a points", "a number"))
        return value

    return parse


def _ends_whole(context: Context, path: Path, low: float, high: float, table: KeyTable) -> bool:
    if table.collective is None:
        return True
    ends: Sequence[tuple[str, float]] = (("from", low), ("to", high))
    found = [whole_message(context, (*path, end), value, table.collective.dtype) for end, value in ends]
    return None not in found
