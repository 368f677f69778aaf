"""Tables of predictions against measured sweeps: where they are off and by how much, and the links that fit best."""

from collections.abc import Callable, Sequence
from functools import partial

from rich.text import Text

from simcollectives.measured.fit import Fit
from simcollectives.measured.spread import spread
from simcollectives.report.rows import byte_family
from simcollectives.report.table_errors import ERROR_WORDS, Errors, errors_table, ranks_text, signed, told_apart
from simcollectives.report.text import NOTHING, Block, Column, TextTable, caption, heading
from simcollectives.scenario import MeasuredComparison
from simcollectives.units import format_bandwidth, format_bytes, format_ratio, format_seconds

_MOST_BESIDE = 3
"""So many sweeps stand side by side with their times; of more only the errors do."""


def measured_blocks(measured: Sequence[MeasuredComparison]) -> list[Block]:
    """Return how far the predictions are from each sweep, as given and fitted, where, and every measured point."""
    if not measured:
        return []
    return _one(measured[0]) if len(measured) == 1 else _several(measured)


def _one(measured: MeasuredComparison) -> list[Block]:
    sweep, fit = measured.sweep, measured.fit
    show_bytes = partial(format_bytes, family=byte_family(sweep.message_bytes))
    where = ", ".join(text for text in (sweep.gpu, ranks_text(sweep.world_size, sweep.nodes)) if text)
    rows: list[Errors] = [
        (f"{measured.label}, as given", measured.relative, sweep.message_bytes),
        (f"{measured.label}, fitted", measured.fitted_relative, sweep.message_bytes),
    ]
    ran = f"measured algorithm: {sweep.algorithm}" if sweep.algorithm else ""
    caveats = f"caveats: {sweep.caveats}" if sweep.caveats else ""
    source = f"source: {sweep.source}" if sweep.source else ""
    notes = [f"fitted by least squares in relative error: {_link_text(fit)}", ERROR_WORDS]
    return [
        heading(f"Measured: {sweep.name}" + (f" ({where})" if where else "")),
        errors_table(rows, "prediction"),
        Text(""),
        _points_table(measured, show_bytes),
        *map(caption, [*notes, *(text for text in (source, ran, caveats) if text)]),
    ]


def _link_text(fit: Fit) -> str:
    level = next((level.link for level in fit.cluster.levels if level.name == fit.level), None)
    overhead = "" if level is None or level.overhead == 0 else f", overhead {format_seconds(level.overhead)} as given"
    return f"{fit.level} alpha {format_seconds(fit.alpha)}, bandwidth {format_bandwidth(fit.bandwidth)}{overhead}"


def _points_table(measured: MeasuredComparison, show_bytes: Callable[[float], str]) -> TextTable:
    sweep, fit = measured.sweep, measured.fit
    return TextTable(
        [
            Column("\nmessage", [show_bytes(size) for size in sweep.message_bytes]),
            Column("\nmeasured", [format_seconds(time) for time in sweep.seconds]),
            Column("predicted\nas given", [format_seconds(time) for time in fit.given_predicted]),
            Column("\noff by", [signed(one) for one in measured.relative]),
            Column("predicted\nfitted", [format_seconds(time) for time in fit.predicted]),
            Column("\noff by", [signed(one) for one in measured.fitted_relative]),
        ]
    )


def titles(measured: Sequence[MeasuredComparison]) -> list[str]:
    """Return what tells sweeps apart: ranks, label, and where these do not, the name of the set."""
    alone = len({one.label for one in measured}) == 1
    where = [ranks_text(one.world_size, one.nodes) for one in measured]
    short = [text if alone else f"{one.label}, {text}" for text, one in zip(where, measured, strict=True)]
    return told_apart(short, [one.sweep.name for one in measured])


def _several(measured: Sequence[MeasuredComparison]) -> list[Block]:
    names = titles(measured)
    rows: list[Errors] = [
        (name, one.relative, one.sweep.message_bytes) for name, one in zip(names, measured, strict=True)
    ]
    together = [error for _, errors, _ in rows for error in errors], [size for _, _, sizes in rows for size in sizes]
    worst = spread(together[0])
    place = [name for name, errors, _ in rows for _ in errors][worst.worst_at]
    size = format_bytes(together[1][worst.worst_at])
    sources = [
        f"{name}: {one.sweep.name}" + (f", {one.sweep.source}" if one.sweep.source else "")
        for name, one in zip(names, measured, strict=True)
    ]
    return [
        heading(f"Measured against predicted: {', '.join(dict.fromkeys(one.label for one in measured))}"),
        errors_table([*rows, ("all together", *together)], "prediction as given"),
        caption(ERROR_WORDS),
        caption(f"the worst: {signed(worst.worst)}, {place}, message {size}"),
        Text(""),
        _times_table(names, measured),
        Text(""),
        *_links_blocks(names, measured),
        *map(caption, sources),
        *map(caption, dict.fromkeys(f"caveats: {one.sweep.caveats}" for one in measured if one.sweep.caveats)),
    ]


def _times_table(names: Sequence[str], measured: Sequence[MeasuredComparison]) -> TextTable:
    """A row for each message: what was measured, what is predicted as given, and the error, sweep by sweep."""
    sizes = sorted({size for one in measured for size in one.sweep.message_bytes})
    family = byte_family(sizes)
    columns = [Column("\nmessage", [format_bytes(size, family=family) for size in sizes])]
    for name, one in zip(names, measured, strict=True):
        sweep = one.sweep
        values = zip(sweep.message_bytes, sweep.seconds, one.fit.given_predicted, one.relative, strict=True)
        rows = {size: (format_seconds(m), format_seconds(p), signed(error)) for size, m, p, error in values}
        cells = list(zip(*(rows.get(size, (NOTHING,) * 3) for size in sizes), strict=True))
        if len(measured) <= _MOST_BESIDE:
            columns += [Column(f"{name}\nmeasured", cells[0]), Column("\npredicted", cells[1])]
            columns.append(Column("\noff by", cells[2]))
        else:
            columns.append(Column(f"{name}\noff by", cells[2]))
    return TextTable(columns)


def _links_blocks(names: Sequence[str], measured: Sequence[MeasuredComparison]) -> list[Block]:
    """The link that comes nearest to each sweep by itself: where they differ, something else than links is missing."""
    fits = [one.fit for one in measured]
    shown = [format_bytes(fit.errors.largest_at_bytes) for fit in fits]
    table = TextTable(
        [
            Column("fitted to", list(names), right=False),
            Column("link", [fit.level for fit in fits], right=False),
            Column("alpha", [format_seconds(fit.alpha) for fit in fits]),
            Column("bandwidth", [format_bandwidth(fit.bandwidth) for fit in fits]),
            Column("median\nerror", [format_ratio(fit.errors.median, 3) for fit in fits]),
            Column("90th\npercentile", [format_ratio(fit.errors.p90, 3) for fit in fits]),
            Column("\nlargest", [format_ratio(fit.errors.largest, 3) for fit in fits]),
            Column("\nat message", shown),
        ]
    )
    note = (
        "the link with which the prediction comes nearest to one sweep alone; if links differ, more than links is off"
    )
    return [heading("Fitted to each sweep alone"), table, caption(note)]
