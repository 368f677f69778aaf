"""Measured sweeps: what a collective took at each message size on a real machine.

A sweep is one of the sets shipped with this package (:data:`SHIPPED`), or comes from a CSV file of the same columns
(``data/README.md`` says what they mean). Times are kept in seconds and sizes in bytes, as everywhere in this project.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from importlib import resources
from pathlib import Path
from typing import IO, NamedTuple

from simcollectives.engines.job import MAX_MESSAGE_BYTES
from simcollectives.errors import InputError, Problem, listing, nearest, show_value, suggestion
from simcollectives.measured.table import Problems, Row, read_rows
from simcollectives.metrics import COLLECTIVES
from simcollectives.units import format_bytes

_DATA = resources.files(__package__) / "data"


PLACES: tuple[str, ...] = ("out", "in")
"""Where the result goes: into another buffer than the input's, or into the same."""

TIMING_COLUMNS = ("set", "size_bytes", "time_us", "place")
SET_COLUMNS = ("name", "n_gpus", "collective")

_Lines = Mapping[str, Sequence[Row]]
"""Lines of a table by the set that they are of."""


@cache
def _shipped_lines(file: str, required: tuple[str, ...]) -> _Lines:
    """Lines of a shipped table, read once; what a set's own say is looked at when it is asked for."""
    problems = Problems()
    with (_DATA / file).open("rb") as stream:
        found = _by_column(required[0], read_rows(stream, required, file, problems))
    problems.raise_if_any(f"measured/data/{file}")
    return found


def _by_column(column: str, rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.get(column), []).append(row)
    return found


SHIPPED: tuple[str, ...] = tuple(_shipped_lines("sets.csv", SET_COLUMNS))
"""Names of the sweeps that come with the package."""

MAX_FILE_BYTES = 4 * 2**20
"""A larger file is refused unread: this is room for fifty thousand measured points."""

_MIN_TIME_US = 1e-6
_MAX_TIME_US = 1e12
_SPELLINGS = {name.replace("_", ""): name for name in COLLECTIVES}


@dataclass(frozen=True)
class MeasuredSweep:
    """Measured times of one collective over message sizes.

    ``message_bytes`` (B, ascending; a size may stand twice) and ``seconds`` are of one length. ``collective`` and
    ``world_size`` are None, and the texts empty, where a file has no ``sets.csv`` beside it that says them.
    ``algorithm`` is what the source says ran, in words. ``dropped`` tells which lines were left out, and why; ``noted``
    what to know of those that were taken.
    """

    name: str
    collective: str | None
    algorithm: str
    world_size: int | None
    nodes: int | None
    gpu: str
    intra_link: str
    nic: str
    nccl_version: str
    source: str
    caveats: str
    message_bytes: tuple[int, ...]
    seconds: tuple[float, ...]
    place: str
    dropped: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()


class _Point(NamedTuple):
    set_name: str
    size_bytes: int
    seconds: float
    place: str
    line: int


def load_set(set_name_or_path: str | os.PathLike[str], set: str | None = None, place: str = "out") -> MeasuredSweep:
    """A shipped set, or a set of a CSV file: what ``load_sweep`` gives for all that is no log."""
    name = os.fspath(set_name_or_path)
    if place not in PLACES:
        raise InputError([Problem("place", f"{show_value(place)} is no place; write {' or '.join(PLACES)}")])
    if name in SHIPPED:
        if set not in (None, name):
            message = f"{show_value(name)} is one shipped set and holds no {show_value(set)}; leave `set` out"
            raise InputError([Problem("set", message)])
        return _load_shipped(name, place)
    if isinstance(set_name_or_path, os.PathLike) or _looks_like_a_path(name):
        return _load_file(Path(name), set, place)
    near = nearest(name, SHIPPED)
    known = f"did you mean {show_value(near)}?" if near else f"{len(SHIPPED)} are shipped, such as {SHIPPED[0]}"
    message = f"{show_value(name)} is no shipped measured set, and no file; {known}"
    raise InputError([Problem("set", message)])


def restrict(sweep: MeasuredSweep, min_bytes: float | None = None, max_bytes: float | None = None) -> MeasuredSweep:
    """The points from ``min_bytes`` to ``max_bytes``, both included; ``dropped`` says how many others there were.

    Raises :class:`InputError` where no point is left.
    """
    low = 0.0 if min_bytes is None else min_bytes
    high = math.inf if max_bytes is None else max_bytes
    kept = [point for point in zip(sweep.message_bytes, sweep.seconds, strict=True) if low <= point[0] <= high]
    out = len(sweep.message_bytes) - len(kept)
    if out == 0:
        return sweep
    wanted = f"from {format_bytes(low)} to {format_bytes(high) if max_bytes is not None else 'any size'}"
    if not kept:
        span = f"{format_bytes(sweep.message_bytes[0])} to {format_bytes(sweep.message_bytes[-1])}"
        raise InputError(f"measured set {show_value(sweep.name)} has no message {wanted}; it has {span}")
    dropped = f"{out} of {len(sweep.message_bytes)} points left out: only messages {wanted} were asked for"
    return with_points(sweep, kept, dropped)


def with_points(sweep: MeasuredSweep, points: Sequence[tuple[int, float]], *dropped: str) -> MeasuredSweep:
    """A sweep with these points, (message in bytes, seconds), in place of its own, and what else was dropped."""
    return replace(
        sweep,
        message_bytes=tuple(size for size, _ in points),
        seconds=tuple(seconds for _, seconds in points),
        dropped=(*sweep.dropped, *dropped),
    )


def _looks_like_a_path(text: str) -> bool:
    return "/" in text or os.sep in text or Path(text).suffix != "" or is_file(Path(text))


def is_file(path: Path) -> bool:
    """Whether there is a regular file; no name makes this fail."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _load_shipped(name: str, place: str) -> MeasuredSweep:
    problems = Problems()
    points = _points(_shipped_lines("timings.csv", TIMING_COLUMNS).get(name, ()), problems)
    found = _of_place(_describe(_shipped_lines("sets.csv", SET_COLUMNS), name, problems), points, place, problems)
    problems.raise_if_any("measured/data/timings.csv")
    return found


def _load_file(path: Path, set_name: str | None, place: str) -> MeasuredSweep:
    problems = Problems()
    points = _points_by_set(path, problems)
    chosen = _choose_set(list(points), set_name, problems)
    described = _describe(_sets_beside(path, problems), chosen, problems)
    found = _of_place(described, points.get(chosen, ()), place, problems)
    problems.raise_if_any(str(path))
    return found


def load_all(path: Path) -> tuple[MeasuredSweep, ...]:
    """Every set of a CSV file, each place of it that has points; raises what ``load_set`` does."""
    problems = Problems()
    points = _points_by_set(path, problems)
    sets = _sets_beside(path, problems)
    found = []
    for name, mine in points.items():
        described = _describe(sets, name, problems)
        if problems.full:
            break
        places = {point.place for point in mine}
        found += [_of_place(described, mine, place, problems) for place in PLACES if place in places]
    problems.raise_if_any(str(path))
    return tuple(found)


def _points_by_set(path: Path, problems: Problems) -> dict[str, list[_Point]]:
    before = len(problems.found)
    found: dict[str, list[_Point]] = {}
    with open_regular(path, MAX_FILE_BYTES) as stream:
        for point in _points(read_rows(stream, TIMING_COLUMNS, "", problems), problems):
            found.setdefault(point.set_name, []).append(point)
    if not found and len(problems.found) == before:
        problems.add("", "no line below the header; add measured points")
    return found


def _sets_beside(path: Path, problems: Problems) -> _Lines | None:
    """The lines of the ``sets.csv`` in a file's folder; None where there is none, or it cannot be read."""
    beside = path.with_name("sets.csv")
    if beside == path or not is_file(beside):
        return None
    before = len(problems.found)
    with open_regular(beside, MAX_FILE_BYTES) as stream:
        found = _by_column("name", read_rows(stream, SET_COLUMNS, "sets.csv", problems))
    return found if len(problems.found) == before else None


def open_regular(path: Path, limit: int | None) -> IO[bytes]:
    """A file, opened for reading; InputError where it is no regular file or longer than ``limit`` bytes."""
    try:
        if path.is_dir():
            raise InputError([Problem("", "this is a folder; name the file in it")], str(path))
        if not path.exists():
            raise InputError([Problem("", "there is no such file; mend the path")], str(path))
        if not path.is_file():
            raise InputError([Problem("", "this is no regular file; save it as a file first")], str(path))
        size = path.stat().st_size
        if limit is not None and size > limit:
            message = f"{size} bytes are more than the {limit} that are read; keep only the sets you need"
            raise InputError([Problem("", message)], str(path))
        return path.open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        message = f"cannot be read ({reason}); check the path and its permissions"
        raise InputError([Problem("", message)], str(path)) from error


def _of_place(described: MeasuredSweep, points: Sequence[_Point], place: str, problems: Problems) -> MeasuredSweep:
    """A set's points that are in one place, in a sweep that describes the set."""
    here = [point for point in points if point.place == place]
    moving = sorted((point.size_bytes, point.seconds) for point in here if point.size_bytes > 0)
    if not moving and not problems.found:
        problems.add("place", _nothing_left(described.name, points, here, place))
    return replace(
        described,
        message_bytes=tuple(size for size, _ in moving),
        seconds=tuple(seconds for _, seconds in moving),
        place=place,
        dropped=_explain_dropped([point.line for point in here if point.size_bytes == 0]),
    )


def _nothing_left(set_name: str, mine: Sequence[_Point], here: Sequence[_Point], place: str) -> str:
    if here:
        return f"every line of set {show_value(set_name)} has size 0, which moves no bytes; measure larger messages"
    other = "".join(sorted({point.place for point in mine}))
    return f"set {show_value(set_name)} has no line with place {show_value(place)}; take place {show_value(other)}"


def _explain_dropped(lines: Sequence[int]) -> tuple[str, ...]:
    if not lines:
        return ()
    rows = "1 row" if len(lines) == 1 else f"{len(lines)} rows"
    where = ", ".join(map(str, lines[:10])) + (", ..." if len(lines) > 10 else "")
    return (f"{rows} of size 0 left out (line {where}): no bytes move, so only a launch was timed",)


def _points(rows: Iterable[Row], problems: Problems) -> list[_Point]:
    points = []
    for row in rows:
        set_name, place = row.get("set"), row.get("place")
        if not set_name:
            problems.add(row.place("set"), "empty; every line names the set it belongs to", row.line)
        if place not in PLACES:
            problems.add(row.place("place"), f"{show_value(place)} is no place; write {' or '.join(PLACES)}", row.line)
        size = _whole_number(row, "size_bytes", 0, problems)
        seconds = _seconds(row, problems)
        if set_name and place in PLACES and size is not None and seconds is not None:
            points.append(_Point(set_name, size, seconds, place, row.line))
    return points


def _whole_number(row: Row, column: str, least: int, problems: Problems) -> int | None:
    text = row.get(column)
    if re.fullmatch(r"[0-9]{1,19}", text) and least <= int(text) <= MAX_MESSAGE_BYTES:
        return int(text)
    rule = f"no whole number from {least} to {MAX_MESSAGE_BYTES}"
    message = f"{show_value(text)} is {rule}; write it in digits, such as {max(least, 8)}"
    problems.add(row.place(column), message, row.line)
    return None


def _seconds(row: Row, problems: Problems) -> float | None:
    text = row.get("time_us")
    try:
        time_us = float(text)
    except ValueError:
        time_us = math.nan
    if _MIN_TIME_US <= time_us <= _MAX_TIME_US:
        return float(Decimal(text).scaleb(-6))
    message = f"{show_value(text)} is no time from 1e-6 to 1e12 microseconds; write a positive number such as 12.9"
    problems.add(row.place("time_us"), message, row.line)
    return None


def wrong_set(names: Sequence[str], asked: str | None) -> str | None:
    """What is wrong with asking for a set of a file that holds these; None where it is clear which one is meant."""
    if asked is None:
        return f"the file holds {len(names)} sets; name one of them: {listing(names)}" if len(names) > 1 else None
    return None if asked in names else f"no set {show_value(asked)} in the file; {suggestion(asked, names)}"


def _choose_set(names: Sequence[str], asked: str | None, problems: Problems) -> str:
    wrong = wrong_set(names, asked) if names else None
    if wrong is not None:
        problems.add("set", wrong)
        return ""
    return asked or next(iter(names), "")


def _describe(sets: _Lines | None, name: str, problems: Problems) -> MeasuredSweep:
    """The set's line of ``sets.csv``, as a sweep that has no points yet."""
    bare = MeasuredSweep(name, None, "", None, None, "", "", "", "", "", "", (), (), "out")
    if sets is None or not name:
        return bare
    rows = sets.get(name, ())
    if len(rows) != 1:
        rule = "no line" if not rows else f"{len(rows)} lines (line {', '.join(str(row.line) for row in rows)})"
        problems.add("sets.csv", f"{rule} for set {show_value(name)}; keep exactly one, or take sets.csv away")
        return bare
    row = rows[0]
    return replace(
        bare,
        collective=_collective(row, problems),
        algorithm=row.get("algo"),
        world_size=_whole_number(row, "n_gpus", 1, problems),
        nodes=_whole_number(row, "n_nodes", 1, problems) if row.get("n_nodes") else None,
        gpu=row.get("gpu"),
        intra_link=row.get("intra_link"),
        nic=row.get("nic"),
        nccl_version=row.get("nccl_version"),
        source=row.get("source"),
        caveats=row.get("caveats"),
    )


def _collective(row: Row, problems: Problems) -> str | None:
    """The collective in this project's spelling: ``alltoall`` and ``AllToAll`` are ``all_to_all``."""
    text = row.get("collective")
    known = _SPELLINGS.get(text.replace("_", "").lower())
    if known is None:
        message = f"{show_value(text)} is no collective; {suggestion(text, COLLECTIVES)}"
        problems.add(row.place("collective"), message, row.line)
    return known
