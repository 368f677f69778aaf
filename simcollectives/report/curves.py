"""Rows as curves: what is drawn against a message size, a world size or any other swept key, and what is left out."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simcollectives.report.fastest import Crossing, crossings
from simcollectives.report.rows import (
    Row,
    ascending,
    byte_family,
    family_name,
    is_number,
    labels_of,
    named_text,
    seeds_text,
    size_keys,
    swept_values,
)
from simcollectives.scenario.keys import LINK_KEYS, SECTION_WORDS, is_option, is_size, owner
from simcollectives.units import ByteFamily

MAX_LINES = 10
MAX_ALGORITHMS = 20
_STEPS = 32
_ALIKE = 1e-6  # relative; far below what a line's width shows

Rest = tuple[tuple[str, Any], ...]
Path = tuple[list[float], list[float]]


@dataclass(frozen=True)
class Curve:
    """One line of a plot. ``x`` ascends (numbers) or is in the order given (texts).

    ``name`` is the algorithm, ``at`` what else it is drawn at where curves differ in that; ``level`` tells that the key
    of the axis does not concern it; ``number`` is that of its style; ``high`` are the times' 99th percentiles, where
    there are seeds.
    """

    name: str
    rest: Rest
    x: tuple[Any, ...]
    y: tuple[float, ...]
    bound: tuple[float, ...]
    level: bool = False
    number: int = 0
    at: str = ""
    high: tuple[float, ...] = ()

    @property
    def label(self) -> str:
        """What the legend says."""
        return ", ".join(part for part in (self.name, self.at) if part)


@dataclass(frozen=True)
class Picture:
    """The curves of one plot, their common part in words, and what the plot has to say of points it leaves out.

    ``family`` is how all its messages are written, which labels and notes are already.
    """

    key: str
    curves: tuple[Curve, ...]
    fixed: str
    notes: tuple[str, ...]
    family: ByteFamily


def axis_keys(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return what rows can be drawn against: message, world_size, and every other swept key."""
    swept = swept_values(rows)
    keys = [key for key in swept if not is_size(key)]
    if len(keys) < len(swept):
        keys.insert(1 if keys[:1] == ["message"] else 0, "world_size")
    return tuple(sorted(keys, key=lambda key: key != "message"))


def picture(
    rows: Sequence[Row], key: str, metric: str = "seconds", *, log: bool = True, sizes: Sequence[float] = ()
) -> Picture:
    """Return the curves of ``metric`` against ``key``; zeros are left out where an axis is logarithmic.

    ``sizes`` are bytes that will stand in the plot beside the messages of the rows.
    """
    family = byte_family([*(row["message_bytes"] for row in rows), *sizes])
    drawn, level = _rows_on_axis(rows, key)
    numbers = {label: number for number, label in enumerate(labels_of(rows))}
    found, dropped = _curves(drawn, key, metric, numbers, log)
    notes = []
    if dropped:
        reason = "the axes have no zero" if log else "no value"
        notes.append(f"not drawn ({reason}): {_some(_dropped_texts(dropped, found, key, family))}")
    curves, fixed, sliced = _slice(found, family)
    alike = {row["label"]: row for row in level if curves and _matches(row, curves)}
    flat = [_level_curve(row, curves, metric, numbers) for row in alike.values()]
    curves = [*curves, *(curve for curve in flat if curve is not None)]
    notes += sliced
    seeds = seeds_text(drawn)
    if seeds is not None and any(curve.high for curve in curves):
        notes.append(f"bands: from the median to the 99th percentile of {seeds}")
    if len(curves) > MAX_ALGORITHMS:
        notes.append(f"{len(curves) - MAX_ALGORITHMS} of {len(curves)} lines not drawn; the table has all")
        curves = curves[:MAX_ALGORITHMS]
    return Picture(key, tuple(_merged(_named(curves, family))), fixed, tuple(notes), family)


def _rows_on_axis(rows: Sequence[Row], key: str) -> tuple[list[Row], list[Row]]:
    """Rows of the sweeps over ``key``; and, for an option, those of other algorithms, which it leaves the same."""
    if key == "world_size":
        swept = [name for name in swept_values(rows) if is_size(name)]
        return [row for row in rows if any(name in row["point"] for name in swept)], []
    drawn = [row for row in rows if key in row["point"]]
    if not is_option(key):
        return drawn, []
    owners = {row["algorithm"] for row in drawn}
    return drawn, [row for row in rows if row["algorithm"] not in owners]


def _rest(row: Row, key: str, kept: Sequence[str]) -> Rest:
    """What else a row depends on, beside the axis and the options, which its label tells."""
    rest = {} if key == "message" else {"message": row["message_bytes"]}
    if key != "world_size":
        rest["world_size"] = row["world_size"]
    for name, value in row["point"].items():
        if name not in (key, "message") and not is_option(name) and (not is_size(name) or name in kept):
            rest[name] = value
    return tuple(rest.items())


def _kept_keys(rows: Sequence[Row]) -> list[str]:
    """Of several keys that change the world size, those that the world size does not tell."""
    return list(size_keys(rows)[1:])


def _x(row: Row, key: str) -> Any:
    if key == "world_size":
        return row["world_size"]
    return row["message_bytes"] if key == "message" else row["point"][key]


def _curves(
    rows: Sequence[Row], key: str, metric: str, numbers: Mapping[str, int], log: bool
) -> tuple[list[Curve], list[tuple[Rest, Any]]]:
    """The curves, and the rest and x of each point that has no place in them."""
    kept = _kept_keys(rows)
    groups: dict[tuple[str, Rest], dict[Any, Row]] = {}
    for row in rows:
        name = family_name(row, key if is_option(key) else None)
        groups.setdefault((name, _rest(row, key, kept)), {})[_x(row, key)] = row
    known = dict(numbers)
    curves, dropped = [], []
    for (name, rest), by_x in groups.items():
        number = known.setdefault(name, len(known))
        good = []
        for x in ascending(by_x):
            y = by_x[x][metric]
            if y is None or (log and (y <= 0 or (key == "message" and x <= 0))):
                dropped.append((rest, x))
            else:
                good.append(x)
        if good:
            y = tuple(float(by_x[x][metric]) for x in good)
            bound = tuple(_bound(by_x[x], metric) for x in good)
            last = [by_x[x].get("seconds_p99") for x in good if metric == "seconds"]
            high = tuple(float(value) for value in last if value is not None)
            high = high if len(high) == len(good) else ()
            curves.append(Curve(name, rest, tuple(good), y, bound, number=number, high=high))
    return curves, dropped


def _dropped_texts(
    dropped: Sequence[tuple[Rest, Any]], curves: Sequence[Curve], key: str, family: ByteFamily
) -> list[str]:
    """What is left out, in words: whole curves by what makes them differ from the others, else single points."""
    drawn = {curve.rest for curve in curves}
    varying = _varying(list({*drawn, *(rest for rest, _ in dropped)}))
    texts: dict[str, None] = {}
    for rest, x in dropped:
        at = [named_text(name, value, family) for name, value in rest if name in varying]
        whole = rest not in drawn and at and not (key == "message" and x <= 0)
        texts[", ".join(at) if whole else named_text(key, x, family)] = None
    return list(texts)


def _bound(row: Row, metric: str) -> float:
    """The bound in terms of the metric: least seconds, or the bus bandwidth that they allow."""
    least = float(row["lower_bound_seconds"])
    if metric == "seconds":
        return least
    return float(row[metric]) * float(row["seconds"]) / least if least > 0 else 0.0


def _slice(curves: Sequence[Curve], family: ByteFamily) -> tuple[list[Curve], str, list[str]]:
    """Few enough curves to read: all, or those at the last of the other swept values. The fixed part in words."""
    rests = list(dict.fromkeys(curve.rest for curve in curves))
    notes: list[str] = []
    if len(rests) > 1 and len(curves) > MAX_LINES:
        chosen = max(rests, key=lambda rest: [(value if is_number(value) else 0) for _, value in rest])
        curves = [curve for curve in curves if curve.rest == chosen]
        varying = _varying(rests)
        at = ", ".join(named_text(key, value, family) for key, value in chosen if key in varying)
        notes.append(f"drawn at {at}: 1 of {len(rests)} such points; the table has all")
        rests = [chosen]
    varying = _varying(rests)
    shared = [(key, value) for key, value in (rests[0] if rests else ()) if key not in varying]
    fixed = ", ".join(named_text(key, value, family) for key, value in shared)
    return list(curves), fixed, notes


def _varying(rests: Sequence[Rest]) -> set[str]:
    """Keys in which the rests differ."""
    values: dict[str, set[Any]] = {}
    for rest in rests:
        for key in {name for other in rests for name, _ in other}:
            values.setdefault(key, set()).add(dict(rest).get(key))
    return {key for key, found in values.items() if len(found) > 1}


def _named(curves: Sequence[Curve], family: ByteFamily) -> list[Curve]:
    """Curves whose labels tell in what they differ, each number (style) once."""
    varying = _varying(list(dict.fromkeys(curve.rest for curve in curves if not curve.level)))
    if not varying:
        return list(curves)
    several = len({curve.name for curve in curves}) > 1
    named = []
    for number, curve in enumerate(curves):
        at = ", ".join(named_text(key, value, family) for key, value in curve.rest if key in varying)
        named.append(replace(curve, name=curve.name if several or not at else "", at=at, number=number))
    return named


def _merged(curves: Sequence[Curve]) -> list[Curve]:
    """Curves that lie upon each other become one, with both names: a hidden line would look like a missing one."""
    merged: list[Curve] = []
    for curve in curves:
        for place, other in enumerate(merged):
            if other.rest == curve.rest and other.level == curve.level and _alike(other, curve):
                merged[place] = replace(other, name=f"{other.name} = {curve.name}")
                break
        else:
            merged.append(curve)
    return merged


def _alike(first: Curve, second: Curve) -> bool:
    if first.x != second.x:
        return False
    return all(abs(a - b) <= _ALIKE * max(a, b) for a, b in zip(first.y, second.y, strict=True))


def _matches(row: Row, curves: Sequence[Curve]) -> bool:
    rest = dict(curves[0].rest)
    return bool(rest.get("message") == row["message_bytes"] and rest.get("world_size") == row["world_size"])


def _level_curve(row: Row, curves: Sequence[Curve], metric: str, numbers: Mapping[str, int]) -> Curve | None:
    """The curve of an algorithm that the swept option does not concern."""
    if row[metric] is None or row[metric] <= 0:
        return None
    x = tuple(ascending({x for curve in curves for x in curve.x}))
    label = str(row["label"])
    y, bound = float(row[metric]), _bound(row, metric)
    return Curve(label, curves[0].rest, x, (y,) * len(x), (bound,) * len(x), level=True, number=numbers[label])


def _some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:4]) + (f" and {len(texts) - 4} more" if len(texts) > 4 else "")


def crossings_of(picture: Picture) -> tuple[Crossing, ...]:
    """Return where the fastest of the curves changes, for keys on which a time depends as a straight line.

    Those are messages, latencies and gamma, and the reciprocal of a bandwidth. Curves are compared at the
    points that all have.
    """
    forward, back = straight(picture.key)
    if forward is None or back is None:
        return ()
    found = []
    for rest in dict.fromkeys(curve.rest for curve in picture.curves):
        curves = [curve for curve in picture.curves if curve.rest == rest]
        shared = [x for x in curves[0].x if all(x in curve.x for curve in curves)]
        times = {curve.name: [dict(zip(curve.x, curve.y, strict=True))[x] for x in shared] for curve in curves}
        at = f", {curves[0].at}" if curves[0].at else ""
        for crossing in crossings([forward(x) for x in shared], times):
            found.append(replace(crossing, at=back(crossing.at), after=crossing.after + at))
    return tuple(found)


def straight(key: str) -> tuple[Callable[[float], float] | None, Callable[[float], float] | None]:
    """Return what a time depends on as a straight line, as a function of a key's values, and the way back; or None.

    What is shared, slow or late shows only from some value on: between two values such a line has a kink.
    """
    if key in ("message", "gamma"):
        return float, float
    name = key.partition(".")[2]
    if name in LINK_KEYS and owner(key) not in SECTION_WORDS:
        return ((lambda x: -1 / x), (lambda x: -1 / x)) if name == "bandwidth" else (float, float)
    return None, None


def filled(key: str, x: Sequence[float], y: Sequence[float], *, is_time: bool, is_bound: bool = False) -> Path:
    """Return a curve with points between its points, where a time is a straight line between neighbours.

    On logarithmic axes such a line is bent; drawn straight it would cross others where the times do not. A bound is
    the larger of two such lines, a level one and one through the origin, and so has a kink.
    """
    forward, back = straight(key)
    if forward is None or back is None or (not is_time and key != "message"):
        return list(x), list(y)
    times = list(y) if is_time else [a / b for a, b in zip(x, y, strict=True)]
    kinked = is_bound and key in ("message", "link.alpha", "link.bandwidth")
    xs, found = list(x[:1]), times[:1]
    for (a, b), (start, end) in zip(itertools.pairwise(x), itertools.pairwise(times), strict=True):
        inner = _steps(a, b)
        slope = (end - start) / (forward(b) - forward(a))
        if kinked:
            (low, _), (top, at_top) = sorted(((start, forward(a)), (end, forward(b))), key=lambda p: (p[0], abs(p[1])))
            kink = back(low * at_top / top) if low > 0 else a
            inner = sorted([*inner, kink]) if a < kink < b else inner
            found += [max(low, top * forward(at) / at_top) for at in inner]
        else:
            found += [start + slope * (forward(at) - forward(a)) for at in inner]
        xs += [*inner, b]
        found.append(end)
    return xs, found if is_time else [at / time for at, time in zip(xs, found, strict=True)]


def _steps(a: float, b: float) -> list[float]:
    """Values between two others, by equal factors where there are any."""
    shares = [step / _STEPS for step in range(1, _STEPS)]
    return [a * (b / a) ** share if a > 0 else a + (b - a) * share for share in shares]
