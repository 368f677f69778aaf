"""The report of training in numbers: a table of its rows, and a picture of the drift over steps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.report.rows import Row, byte_family
from simcollectives.report.style import (
    GREY,
    dress,
    legend_below,
    line_style,
    new_figure,
    plain,
    root_figure,
    set_heading,
    set_ticks,
)
from simcollectives.report.text import Block, Column, TextTable, caption, heading, with_unit
from simcollectives.scenario import NumericsScenario, ScenarioResult
from simcollectives.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NUMERICS_KINDS = ("drift",)
MAX_ROWS = 60
_FLOOR, _TOP = 1e-17, 1.0
"""No difference between numbers of order one lies between 0 and the floor, where 0 is drawn."""

_PANELS = (
    ("difference_from_one_device", "from one device"),
    ("difference_between_replicas", "between replicas"),
)


def is_numerics(result: Any) -> bool:
    """Whether a result is of training in numbers."""
    return isinstance(getattr(result, "scenario", None), NumericsScenario)


def numerics_blocks(result: ScenarioResult, *, full: bool = False) -> list[Block]:
    """Return a row for each variant and recorded step."""
    rows: Sequence[Row] = result.rows
    notes = [
        "differences: the largest over parameters, elements and ranks; loss: of the step's batch, before the update; "
        "sent: in a step, by the device that sends most"
    ]
    if len(rows) > MAX_ROWS and not full:
        kept = sorted({round(i * (len(rows) - 1) / (MAX_ROWS - 1)) for i in range(MAX_ROWS)})
        notes.insert(0, f"{len(kept)} of {len(rows)} rows, evenly chosen; all are in rows.csv (-o DIR) and in --json")
        rows = [rows[index] for index in kept]
    names = [row["label"] for row in rows]
    starts = [index for index, name in enumerate(names) if index == 0 or names[index - 1] != name]
    columns = [
        Column("", [name if index in starts else "" for index, name in enumerate(names)], right=False, wrap_at=36),
        Column("step", [str(row["step"]) for row in rows]),
        Column("loss", [f"{row['loss']:.4g}" for row in rows]),
        Column("of one\ndevice", [f"{row['loss_of_one_device']:.4g}" for row in rows]),
        Column("difference from\none device", [_difference(row["difference_from_one_device"]) for row in rows]),
        Column("of\ngradients", [_difference(row["gradient_difference"]) for row in rows]),
        Column("between\nreplicas", [_difference(row["difference_between_replicas"]) for row in rows]),
        Column("same\nbits", ["yes" if row["bit_identical"] else "no" for row in rows]),
        *(_ddp_columns(rows) if _any_sharded(rows) else ()),
        _bytes_column("sent", [row["bytes_sent_max"] for row in rows]),
        _bytes_column("peak\nmemory", [row["peak_bytes"] for row in rows]),
    ]
    size = rows[0]["world_size"]
    ranks = "1 rank" if size == 1 else f"{size} ranks"
    return [
        heading(f"Training on {ranks}, compared with one device"),
        TextTable(columns, fixed=2),
        *map(caption, notes),
        *(_account(result.rows) if _any_sharded(rows) else ()),
    ]


def _any_sharded(rows: Sequence[Row]) -> bool:
    return any(row["strategy"] != "ddp" for row in rows)


def _ddp_columns(rows: Sequence[Row]) -> list[Column]:
    return [
        Column("difference\nfrom ddp", [_difference(row["difference_from_ddp"]) for row in rows]),
        Column("same bits\nas ddp", ["yes" if row["same_bits_as_ddp"] else "no" for row in rows]),
    ]


def _account(rows: Sequence[Row]) -> list[Block]:
    """Return what each variant sends by collective, and holds item by item."""
    variants = list({row["label"]: row for row in rows}.values())
    blocks: list[Block] = []
    for title, key, note in (
        ("Sent in a step, by collective", "sent_bytes", "by the device that sends most"),
        ("Most held, item by item", "most_held", "at any time, by the rank that holds most of the item"),
    ):
        items = dict.fromkeys(item for row in variants for item, size in row[key].items() if size)
        columns = [Column("", [row["label"] for row in variants], right=False, wrap_at=36)]
        for item in items:
            header = item if key == "sent_bytes" else item.replace(" ", "\n")
            columns.append(_bytes_column(header, [row[key].get(item, 0) for row in variants]))
        blocks += [heading(title), TextTable(columns, fixed=1), caption(note)]
    return blocks


def _difference(value: float) -> str:
    return f"{value:.2g}"


def _bytes_column(header: str, sizes: Sequence[int]) -> Column:
    family = byte_family(sizes)
    return with_unit(header, [format_bytes(size, family=family) for size in sizes])


def numerics_plot(result: ScenarioResult, ax: "Axes | None", kind: str) -> "Axes":
    """Draw the drift from one device into axes; without axes, the whole figure, and return its first axes.

    Raises:
        InputError: there is no such kind; time, the default of ``plot``, stands for drift.
    """
    if kind not in (*NUMERICS_KINDS, "time"):
        what = f"training in numbers has no plot of kind {show_value(kind)}"
        raise InputError([Problem("kind", f"{what}; write {', '.join(NUMERICS_KINDS)}")])
    if ax is None:
        return drift_figure(result).axes[0]
    draw_drift(ax, result.rows, *_PANELS[0])
    ax.legend()
    return ax


def numerics_figures(result: ScenarioResult) -> Iterator[tuple[str, "Figure"]]:
    """Make the figures of a result one by one, each with the stem of its file's name."""
    yield "drift", drift_figure(result)


def drift_figure(result: ScenarioResult) -> "Figure":
    """Return a figure: how far each variant is from one device above, its replicas from each other below."""
    figure = new_figure(6.4)
    above, below = figure.subplots(2, 1, sharex=True)
    set_heading(above, [result.scenario.title, "largest difference of any parameter"], own_figure=True)
    for axes, panel in zip((above, below), _PANELS, strict=True):
        draw_drift(axes, result.rows, *panel)
    above.set_xlabel("")
    above.tick_params(axis="x", labelbottom=False)
    legend_below(figure, below)
    return root_figure(below)


def draw_drift(axes: "Axes", rows: Sequence[Row], metric: str, name: str) -> None:
    """Draw a difference over steps, a line for each variant, on logarithmic axes; 0 stands at the foot.

    Where one step is recorded, the variants stand side by side.
    """
    dress(axes)
    steps = sorted({row["step"] for row in rows})
    series: dict[str, list[Row]] = {}
    for row in rows:
        series.setdefault(row["label"], []).append(row)
    for number, (label, found) in enumerate(series.items()):
        style = line_style(number)
        axes.plot(
            [row["step"] if len(steps) > 1 else number for row in found],
            [max(row[metric], _FLOOR) for row in found],
            color=style.color,
            linestyle=style.linestyle,
            marker=style.marker,
            markersize=4.5,
            linewidth=1.6,
            label=plain(label),
            clip_on=False,
        )
    axes.set_yscale("log")
    top = max([_TOP, *(10 * row[metric] for row in rows)])
    axes.set_ylim(_FLOOR / 2, top)
    axes.axhline(2.0**-52, color=GREY, linewidth=0.8, linestyle=":")
    texts: Mapping[float, str] = {_FLOOR: "0", 2.0**-52: "2^-52"}
    set_ticks(axes.yaxis, [_FLOOR, 2.0**-52, 1e-12, 1e-8, 1e-4, 1.0], lambda tick: texts.get(tick, f"{tick:g}"))
    axes.set_ylabel(name)
    if len(steps) == 1:
        axes.set_xlim(-0.5, len(series) - 0.5)
        set_ticks(axes.xaxis, [], str)
        axes.set_xlabel(f"step {steps[0]}, the only one recorded")
        return
    axes.set_xscale("log")
    set_ticks(axes.xaxis, _spread(steps), lambda tick: f"{tick:g}")
    axes.set_xlim(steps[0] / 1.1, steps[-1] * 1.1)
    axes.set_xlabel("step")


def _spread(steps: Sequence[int]) -> list[float]:
    """Return steps that are far enough apart on a logarithmic axis for their labels; the last is always one.

    >>> _spread([1, 2, 190, 200])
    [1, 2, 200]
    """
    kept: list[float] = []
    share = (steps[-1] / steps[0]) ** 0.07
    for step in reversed(steps):
        if not kept or step * share <= kept[-1]:
            kept.append(step)
    return kept[::-1]
