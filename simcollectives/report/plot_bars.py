"""Bars: what a time consists of, and how many bytes devices send."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from simcollectives.engines import Run
from simcollectives.metrics import required_bytes
from simcollectives.report.curves import MAX_ALGORITHMS
from simcollectives.report.rows import Row, byte_family, is_number, labels_of, point_text
from simcollectives.report.style import (
    COLOURS,
    FAINT,
    GREY,
    INK,
    SMALL_SIZE,
    byte_ticks,
    dress,
    even_ticks,
    lay_out,
    line_style,
    plain,
    root_figure,
    set_ticks,
    wrapped,
)
from simcollectives.scenario.keys import is_option
from simcollectives.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PARTS = (
    ("latency_seconds", "latency (alpha, overhead)", COLOURS[0], ""),
    ("bandwidth_seconds", "bandwidth", COLOURS[5], ""),
    ("reduction_seconds", "reduction (gamma)", COLOURS[2], "///"),
)
_LABEL_CHARACTERS = 32


def bar_height(rows: Sequence[Row]) -> float:
    """Inches of a figure with a bar for each of these rows."""
    lines = max(_bar_label(row).count("\n") + 1 for row in rows)
    return 1.5 + max(0.36, 0.1 + 0.17 * lines) * min(len(rows), MAX_ALGORITHMS)


def _bar_label(row: Row) -> str:
    return wrapped(str(row["label"]), _LABEL_CHARACTERS)


def largest_point(rows: Sequence[Row]) -> tuple[list[Row], dict[str, Any]]:
    """Return the rows of one point, that of the largest message and then world size, and the point."""
    top = max((row["message_bytes"], row["world_size"]) for row in rows)
    there = [row for row in rows if (row["message_bytes"], row["world_size"]) == top]
    rests = [{key: value for key, value in row["point"].items() if not is_option(key)} for row in there]
    chosen = rests[-1]
    kept = [row for row, rest in zip(there, rests, strict=True) if rest == chosen]
    shown = {"message": top[0], "world_size": top[1]} | {
        key: value for key, value in chosen.items() if key not in ("message", "devices")
    }
    return list({row["label"]: row for row in kept}.values()), shown


def draw_parts(axes: "Axes", rows: Sequence[Row]) -> str:
    """Draw the time of every algorithm at one point as a bar of its parts; returns the heading."""
    chosen, point, more = _begin(axes, rows)
    left = [0.0] * len(chosen)
    for key, name, colour, hatch in _PARTS:
        widths = [float(row[key]) for row in chosen]
        if any(widths):
            axes.barh(
                range(len(chosen)),
                widths,
                left=left,
                height=0.62,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0.5,
                label=name,
            )
        left = [a + b for a, b in zip(left, widths, strict=True)]
    bounds = [float(row["lower_bound_seconds"]) for row in chosen]
    _mark_bounds(axes, bounds, "lower bound")
    texts = [format_seconds(row["seconds"]) for row in chosen]
    largest = max([*left, *bounds])
    _finish(axes, chosen, [*left], texts, "time", even_ticks(0, largest), format_seconds, largest)
    return f"{chosen[0]['collective']}, {point_text(point)}{more}"


def draw_bytes(axes: "Axes", rows: Sequence[Row]) -> str:
    """Draw the most bytes that one device sends, one bar an algorithm, at one point; returns the heading."""
    chosen, point, more = _begin(axes, rows)
    labels = labels_of(rows)
    colours = [line_style(labels.index(row["label"])).color for row in chosen]
    most = [float(row["bytes_sent_max"]) for row in chosen]
    axes.barh(range(len(chosen)), most, height=0.62, color=colours)
    required = [_required(row) for row in chosen]
    _mark_bounds(axes, required, "what the busiest device must send or receive at least")
    total = [float(row["bytes_sent_total"]) for row in chosen]
    family = byte_family([chosen[0]["message_bytes"], *most, *total])
    show = partial(format_bytes, family=family)
    texts = [f"{show(one)} (all: {show(every)})" for one, every in zip(most, total, strict=True)]
    name = "bytes sent by the device that sends most (all: by all devices together)"
    largest = max([*most, *required])
    _finish(axes, chosen, most, texts, name, byte_ticks(largest, family), show, largest)
    return f"{chosen[0]['collective']}, {point_text(point, family)}{more}"


def _required(row: Row) -> float:
    """Bytes that must go through the busiest device: with dedicated servers to help, each rank's vector and the sum."""
    if row["algorithm"] == "parameter_server" and is_number(row["options"].get("servers")) and row["world_size"] > 1:
        return float(row["message_bytes"])
    return required_bytes(row["collective"], row["world_size"], row["message_bytes"])


def _begin(axes: "Axes", rows: Sequence[Row]) -> tuple[list[Row], dict[str, Any], str]:
    """The rows to draw, the point they are at, and what is not drawn in words."""
    chosen, point = largest_point(rows)
    dress(axes)
    axes.grid(False, axis="y")
    more = len(chosen) - MAX_ALGORITHMS
    return chosen[:MAX_ALGORITHMS], point, f"; {more} of {len(chosen)} algorithms not drawn" if more > 0 else ""


def _mark_bounds(axes: "Axes", bounds: Sequence[float], name: str) -> None:
    known = [(bound, number) for number, bound in enumerate(bounds) if bound > 0]
    if known:
        axes.vlines(
            [b for b, _ in known],
            [n - 0.42 for _, n in known],
            [n + 0.42 for _, n in known],
            color=INK,
            linewidth=1.4,
            label=name,
        )


def _finish(
    axes: "Axes",
    rows: Sequence[Row],
    ends: Sequence[float],
    texts: Sequence[str],
    name: str,
    ticks: Sequence[float],
    show: Callable[[float], str],
    largest: float,
) -> None:
    """Name the bars, write the texts after their ends, and make the axis long enough for them."""
    axes.set_yticks(range(len(rows)), labels=[_bar_label(row) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(name)
    if largest <= 0:
        axes.set_xlim(0, 1)
        axes.set_xticks([])
        axes.set_xlabel(f"{name}: nothing is sent")
        return
    axes.set_xlim(0, largest * 1.02)
    labels = [
        axes.annotate(
            text,
            (end, number),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL_SIZE,
            color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.3},
        )
        for number, (end, text) in enumerate(zip(ends, texts, strict=True))
    ]
    set_ticks(axes.xaxis, ticks, show)
    lay_out(root_figure(axes))
    width = axes.get_window_extent().width
    room = [max(width - label.get_window_extent().width - 12, 60) for label in labels]
    need = max(end / pixels for end, pixels in zip(ends, room, strict=True))
    axes.set_xlim(0, max(largest * 1.02, need * width))


def draw_bytes_per_rank(axes: "Axes", run: Run) -> str:
    """Draw the bytes that each rank (and each dedicated server) sends in one run; returns the heading."""
    sent = [float(value) for value in run.bytes_sent.tolist()]
    dress(axes)
    axes.grid(False, axis="x")
    ranks, servers = run.world_size, len(sent) - run.world_size
    axes.bar(range(ranks), sent[:ranks], color=COLOURS[0], width=0.8, label="ranks")
    if servers:
        axes.bar(range(ranks, ranks + servers), sent[ranks:], color=COLOURS[1], width=0.8, label="dedicated servers")
    required = required_bytes(run.collective, ranks, run.message_bytes)
    if required > 0 and not servers:  # ranks send less where servers do the rest
        axes.axhline(
            required,
            color=GREY,
            linewidth=0.9,
            linestyle=(0, (6, 4)),
            label="what the busiest rank must send or receive at least",
        )
    show = partial(format_bytes, family=(family := byte_family([run.message_bytes, *sent])))
    what = f"{run.collective}, {run.label}, message {show(run.message_bytes)}, {ranks} ranks"
    axes.set_xlabel("rank, then servers" if servers else "rank")
    axes.set_ylabel("bytes sent")
    step = max(1, -(-len(sent) // 16))
    set_ticks(axes.xaxis, range(0, len(sent), step), lambda n: plain(f"{n:.0f}" if n < ranks else f"s{n - ranks:.0f}"))
    axes.set_xlim(-0.7, len(sent) - 0.3)
    top = max([*sent, required]) * 1.05 or 1.0
    axes.set_ylim(0, top)
    set_ticks(axes.yaxis, byte_ticks(top, family), show)
    axes.tick_params(axis="x", color=FAINT)
    return what
