"""Expectations on a crossover: which two curves, along which key, and where they are compared."""

import math
from typing import Any

from simcollectives.errors import InputError
from simcollectives.scenario.bounds import load_bound
from simcollectives.scenario.build import restricted
from simcollectives.scenario.keys import INDEX, SEED, SEEDS, Kind, value_text
from simcollectives.scenario.load_points import BaseNamer
from simcollectives.scenario.places import Path
from simcollectives.scenario.points import expand_points, expand_step, rounded, unique
from simcollectives.scenario.types import Common, CrossoverExpectation, Selector

_GRID = 33
"""Curves are compared at so many places at least, so that two crossings close together are told apart."""

_MOST_WHOLE = 65


def load_crossover(
    namer: BaseNamer, path: Path, raw: dict[str, Any], parsed: Any, shared: dict[str, Any], common: Common
) -> CrossoverExpectation | None:
    """Return the expectation, or note why it cannot be checked."""
    one, other = (namer.entry((*path, "crossover", index), name) for index, name in enumerate(parsed.crossover))
    kind = _along_kind(namer, (*path, "along"), parsed.along)
    if kind is None:
        return None
    bound = load_bound(namer.context, path, parsed, kind, read=True)
    ends = _ends(namer, path, parsed, kind)
    if parsed.along in raw:
        namer.context.add((*path, parsed.along), f"{parsed.along} varies along the crossover; leave the key out")
        return None
    if one is None or other is None or bound is None or ends is None:
        return None
    (first, first_point), (second, second_point) = one, other
    if first.label == second.label and first_point == second_point:
        namer.context.add((*path, "crossover"), f"{first.label} does not cross itself; name two algorithms")
        return None
    points = [namer.complete(path, {**shared, **fixed}, [entry], parsed.along) for entry, fixed in (one, other)]
    if points[0] is None or points[1] is None:
        return None
    grid = _grid(namer, parsed.along, kind, *ends)
    pair = Selector(first, restricted(points[0], first)), Selector(second, restricted(points[1], second))
    if not _all_fit(namer, path, pair, parsed.along, grid):
        return None
    return CrossoverExpectation(*common, *pair, parsed.along, grid, bound)


def _along_kind(namer: BaseNamer, path: Path, along: str) -> Kind | None:
    try:
        kind = namer.table.kind(along)
    except InputError as error:
        namer.context.add_error(path, error)
        return None
    if kind in (INDEX, SEED, SEEDS) or (kind.name == "option" and not kind.whole):
        namer.context.add(path, f"{along} is no quantity that times could cross along")
        return None
    return kind


def _ends(namer: BaseNamer, path: Path, parsed: Any, kind: Kind) -> tuple[Any, Any] | None:
    """Return the least and the largest value of the key."""
    swept = [value for value in namer.swept.get(parsed.along, ()) if not isinstance(value, str)]
    ends: list[Any] = []
    for name, written, default in (("from", parsed.from_, min), ("to", parsed.to, max)):
        here = (*path, name)
        if written is None and not swept:
            what = f"the scenario does not sweep {parsed.along}"
            namer.context.add(path, f"{what}; write from: and to: with the values to look between")
            return None
        value = default(swept) if written is None else namer.read(here, parsed.along, written, kind)
        if isinstance(value, str):
            namer.context.add(here, f"{value} is not a number; write one")
            value = None
        ends.append(value)
    if None in ends:
        return None
    if not ends[0] < ends[1]:
        low, high = (value_text(parsed.along, end) for end in ends)
        namer.context.add(path, f"between {low} and {high} nothing can cross; write from: and to: wider apart")
        return None
    return ends[0], ends[1]


def _grid(namer: BaseNamer, along: str, kind: Kind, low: Any, high: Any) -> tuple[Any, ...]:
    """Return ascending values from low to high: the swept ones, and where these are few, others between them."""
    inside = [v for v in namer.swept.get(along, ()) if not isinstance(v, str) and low <= v <= high]
    if kind.whole:
        if along in namer.swept:
            return tuple(sorted({low, high, *inside}))
        step = max(1, math.ceil((high - low) / (_MOST_WHOLE - 1)))
        return unique(rounded(expand_step(low, high, step), 1))
    more = [] if len(inside) >= _GRID else expand_points(low, high, _GRID) if low > 0 else _linear(low, high)
    quantum = namer.quantum(along)
    if quantum is not None:
        more = list(rounded(more, quantum)) if more else []
    return tuple(sorted({low, high, *inside, *more}))


def _linear(low: float, high: float) -> list[float]:
    return expand_step(low, high, (high - low) / (_GRID - 1))


def _all_fit(namer: BaseNamer, path: Path, pair: tuple[Selector, Selector], along: str, grid: tuple[Any, ...]) -> bool:
    fits = namer.fits
    if fits is None:
        return False
    found = (fits.reason(run.entry, {**run.point, along: value}) for value in grid for run in pair)
    return not namer.context.limited(path, found, lambda: fits.worn)
