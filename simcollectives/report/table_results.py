"""The table of results: times, why they are what they are, and rates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from simcollectives.errors import counted
from simcollectives.report.fastest import same
from simcollectives.report.rows import (
    Row,
    byte_family,
    common_text,
    labels_of,
    message_family,
    named_text,
    seeds_text,
    value_text,
)
from simcollectives.report.text import NOTHING, Block, Column, TextTable, caption, heading, with_unit
from simcollectives.scenario.keys import is_option
from simcollectives.units import format_bandwidth, format_bytes, format_seconds

MAX_DETAILED_ROWS = 40
MAX_POINTS = 60
LABEL_WIDTH = 36

Point = tuple[tuple[str, Any], ...]


def results_blocks(rows: Sequence[Row], *, full: bool = False) -> list[Block]:
    """Return the rows as tables. Many rows become a table of times, and details at the first and last point.

    ``full`` gives details of every row. Whatever is not shown is named in a caption.
    """
    points = _by_point(rows)
    if full or len(rows) <= MAX_DETAILED_ROWS:
        return [heading(common_text(rows)), *_details(points), *map(caption, captions(rows))]
    blocks: list[Block] = [heading(f"Time: {common_text(rows)}")]
    by_sweep: dict[tuple[str, ...], dict[Point, list[Row]]] = {}
    for point, some in points.items():
        by_sweep.setdefault(tuple(key for key, _ in point), {})[point] = some
    for number, sweep in enumerate(by_sweep.values()):
        blocks += [*([Text("")] if number else []), *_times(sweep, _varying(points))]
    ends = {point: points[point] for point in (next(iter(points)), next(reversed(points)))}
    kept = {point: some[: MAX_DETAILED_ROWS // 2] for point, some in ends.items()}
    blocks += [heading("\nWhy, at the first and the last point"), *_details(kept), *map(caption, captions(rows))]
    shown = sum(map(len, kept.values()))
    return [*blocks, caption(f"details of {shown} of {len(rows)} rows; all are in rows.csv (-o DIR) and in --json")]


def _by_point(rows: Sequence[Row]) -> dict[Point, list[Row]]:
    """Rows grouped by point; options of single algorithms are no part of it, for the label tells them."""
    found: dict[Point, list[Row]] = {}
    for row in rows:
        point = tuple((key, value) for key, value in row["point"].items() if not is_option(key))
        found.setdefault(point, []).append(row)
    return found


def _details(points: Mapping[Point, Sequence[Row]]) -> list[Block]:
    """All columns: rows grouped by point, or a row for each point where there is one algorithm."""
    varying = _varying(points)
    ordered = [row for some in points.values() for row in some]
    one_each = all(len(some) == 1 for some in points.values())
    if len(labels_of(ordered)) == 1 and one_each and varying:
        names = _point_columns(list(points), varying)
        only = labels_of(ordered)[0]
        table = TextTable([*names, *_columns(ordered, [[row] for row in ordered])], fixed=len(names))
        return [caption(only), table]
    family = message_family(ordered)
    headings: dict[int, str] = {}
    groups: list[Sequence[Row]] = []
    for point, some in points.items():
        named = [named_text(key, value, family) for key, value in point if key in varying]
        headings[len(groups)] = ", ".join(named) or "as given"
        groups += [some] * len(some)
    several = len(points) > 1
    labels = [f"  {row['label']}" if several else str(row["label"]) for row in ordered]
    first = Column("algorithm", labels, right=False, wrap_at=LABEL_WIDTH)
    return [TextTable([first, *_columns(ordered, groups)], headings=headings if several else {})]


def _columns(rows: Sequence[Row], groups: Sequence[Sequence[Row]]) -> list[Column]:
    """The columns after the label; a group holds the rows at the point of a row."""
    best = [min(float(row["seconds"]) for row in group) for group in groups]
    columns = [with_unit("time", [format_seconds(row["seconds"]) for row in rows])]
    if any(row.get("seeds") is not None for row in rows):
        for name in ("p95", "p99"):
            columns.append(with_unit(name, [_seconds_text(f"seconds_{name}", row) for row in rows]))
    if any(len(group) > 1 for group in groups):
        against = [_times_text(row["seconds"], least) for row, least in zip(rows, best, strict=True)]
        columns.append(Column("times\nfastest", against))
    for part in ("latency", "bandwidth", "reduction"):
        if part != "reduction" or any(row["reduction_seconds"] > 0 for row in rows):
            columns.append(Column(f"{part}\n(%)", [_share_text(f"{part}_seconds", row) for row in rows]))
    family = byte_family({row["bytes_sent_max"] for row in rows})
    columns += [
        Column("limited by", [str(row["bottleneck"]) for row in rows], right=False),
        Column("times\nbound", [_times_text(row["seconds"], row["lower_bound_seconds"]) for row in rows]),
        Column("rounds", [str(row["rounds"]) for row in rows]),
        with_unit("most\nsent", [format_bytes(row["bytes_sent_max"], family=family) for row in rows]),
        with_unit("algbw", [_rate_text(row["algbw"]) for row in rows]),
        with_unit("busbw", [_rate_text(row["busbw"]) for row in rows]),
    ]
    if len({(row["label"], row["engine"]) for row in rows}) > len(labels_of(rows)):  # else the caption tells
        columns.append(Column("engine", [str(row["engine"]) for row in rows], right=False))
    return columns


def _times_text(seconds: float, reference: float) -> str:
    """How many times a reference, with three digits; "1" for a tie."""
    if reference <= 0:
        return "1" if seconds <= 0 else NOTHING
    ratio = seconds / reference
    if same(seconds, reference):
        return "1"
    return f"{ratio:.3g}" if ratio < 1000 else f"{ratio:.0f}"


def _share_text(key: str, row: Row) -> str:
    """The share of a part in the time, in percent with one decimal."""
    if row["seconds"] <= 0:
        return NOTHING
    share = 100 * row[key] / row["seconds"]
    return "<0.1" if 0 < share < 0.05 else f"{share:.1f}"


def _seconds_text(key: str, row: Row) -> str:
    return NOTHING if row.get(key) is None else format_seconds(row[key])


def _rate_text(rate: float | None) -> str:
    return NOTHING if rate is None else format_bandwidth(rate)


def _varying(points: Mapping[Point, Sequence[Row]]) -> list[str]:
    """Keys that tell the points apart, in the order in which they appear."""
    keys = dict.fromkeys(key for point in points for key, _ in point)
    return [key for key in keys if len({dict(point).get(key) for point in points}) > 1]


def _point_columns(points: Sequence[Point], varying: Sequence[str]) -> list[Column]:
    columns = []
    for key in varying:
        values = [dict(point).get(key) for point in points]
        family = byte_family(value for value in values if value is not None) if key == "message" else None
        cells = [NOTHING if value is None else value_text(key, value, family) for value in values]
        columns.append(with_unit(key, cells))
    return columns


def _times(points: Mapping[Point, Sequence[Row]], varying: Sequence[str]) -> list[Block]:
    """A row for each point, a column for each algorithm; the fastest is marked."""
    rows = [row for some in points.values() for row in some]
    shown = dict(points)
    notes = ["* fastest at this point (several where times are equal)"] if len(labels_of(rows)) > 1 else []
    if len(points) > MAX_POINTS:
        step = (len(points) - 1) / (MAX_POINTS - 1)
        kept = {round(number * step) for number in range(MAX_POINTS)}
        shown = {point: some for number, (point, some) in enumerate(points.items()) if number in kept}
        notes.append(f"{len(shown)} of {len(points)} points, evenly chosen; all are in rows.csv (-o DIR) and in --json")
    keys = [key for key in varying if any(key in dict(point) for point in points)]
    names = _point_columns(list(shown), keys)
    columns = []
    for label in labels_of(rows):
        cells = []
        for some in shown.values():
            mine = next((row for row in some if row["label"] == label), None)
            cells.append(NOTHING if mine is None else _marked(mine, some, notes != []))
        columns.append(Column(label.replace(" (", "\n("), cells))
    return [TextTable([*names, *columns], fixed=len(names)), *map(caption, notes)]


def _marked(row: Row, group: Sequence[Row], mark: bool) -> str:
    text = format_seconds(row["seconds"])
    if not mark:
        return text
    best = min(float(other["seconds"]) for other in group)
    return f"{text}{'*' if len(group) > 1 and same(row['seconds'], best) else ' '}"


def captions(rows: Sequence[Row]) -> list[str]:
    """Return what holds of all rows, in sentences: what the columns mean, the engine, what was verified."""
    found = [
        "times bound: time over the lower bound, which nothing can beat; %: share of the time; most sent: by one device"
    ]
    if (seeds := seeds_text(rows)) is not None:
        found.append(f"time: the median run of {seeds}; p95, p99: percentiles, by nearest rank")
    exact = [row for row in rows if row["closed_form_seconds"] is not None and row["engine"] != "closed_form"]
    equal = sum(same(row["seconds"], row["closed_form_seconds"]) for row in exact)
    engine = f"engine: {_engines_text(rows)}"
    if exact:
        engine += (
            f"; equal to the closed form in {equal} of the {counted(len(exact), 'row')} that {_has(len(exact))} one"
        )
    found.append(engine)
    verified = sum(row["verified"] is True for row in rows)
    if verified == len(rows):
        found.append("verified: every row was executed on arrays, with the right result")
    else:
        some = (
            f"{verified} of {counted(len(rows), 'row')} executed on arrays, with the right result"
            if verified
            else ("no row was executed on arrays")
        )
        found.append(f"verified: {some} (auto executes up to 64 ranks and 1 MiB; verify: always executes all)")
    return found


def _engines_text(rows: Sequence[Row]) -> str:
    """The engine; or each engine with the algorithms that it ran, and in how many of their rows if not in all."""
    ran = Counter((str(row["engine"]), str(row["label"])) for row in rows)
    of_label = Counter(str(row["label"]) for row in rows)
    by_engine: dict[str, list[str]] = {}
    for (engine, label), number in ran.items():
        part = "" if number == of_label[label] else f" in {number} of {of_label[label]} rows"
        by_engine.setdefault(engine, []).append(label + part)
    if len(by_engine) == 1:
        return next(iter(by_engine))
    return ", ".join(f"{engine} ({', '.join(labels)})" for engine, labels in by_engine.items())


def _has(number: int) -> str:
    return "has" if number == 1 else "have"
