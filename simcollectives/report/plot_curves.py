"""Curves: time and bus bandwidth against message size, world size, or whatever else was swept."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simcollectives.metrics import busbw
from simcollectives.report.crossing_marks import CROSSING_STYLE, mark_crossings
from simcollectives.report.curves import Curve, Picture, crossings_of, filled, picture
from simcollectives.report.fastest import Crossing
from simcollectives.report.rows import Row, is_number, value_text
from simcollectives.report.style import (
    GREY,
    NOTE_CHARACTERS,
    decade_ticks,
    dress,
    even_ticks,
    label_share,
    lay_out,
    line_style,
    log_limits,
    octave_ticks,
    plain,
    root_figure,
    set_ticks,
    thinned,
    wrapped,
)
from simcollectives.scenario.keys import is_size
from simcollectives.units import ByteFamily, format_bandwidth, format_bytes, format_seconds, parse_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKED_POINTS = 26
_AXIS_NAMES = {"message": "message size", "world_size": "world size (ranks)"}


@dataclass(frozen=True)
class Metric:
    """What the y axis shows."""

    key: str
    name: str
    bound_name: str
    format: Callable[..., str]


METRICS = {
    "seconds": Metric("seconds", "time", "lower bound", format_seconds),
    "busbw": Metric("busbw", "bus bandwidth (busbw)", "upper bound", format_bandwidth),
    "algbw": Metric("algbw", "algorithm bandwidth (algbw)", "upper bound", format_bandwidth),
}


def draw_curves(
    axes: "Axes", rows: Sequence[Row], key: str, metric: str, sizes: Sequence[float] = ()
) -> tuple[Picture, tuple[Crossing, ...]]:
    """Draw ``metric`` against ``key``, one line a label; returns the crossings for ``finish_curves`` to mark.

    ``sizes`` are bytes that will be written into the plot, too.
    """
    what = METRICS[metric]
    found = crossings_of(picture(rows, key)) if metric == "seconds" else _bandwidth_crossings(rows, key, metric)
    sizes = [*sizes, *(crossing.at for crossing in found if key == "message")]
    drawn = picture(rows, key, metric, sizes=sizes)
    dress(axes)
    axes.set_xlabel(_AXIS_NAMES.get(key, plain(key)))
    axes.set_ylabel(what.name)
    if not drawn.curves:
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"nothing to draw: no {what.name} is more than zero", ha="center", transform=axes.transAxes)
        return drawn, ()
    categories = categories_of(drawn.curves)
    for curve in drawn.curves:
        _draw_curve(axes, curve, key, categories, what)
        _draw_band(axes, curve, key, categories)
    low_bound = _draw_bound(axes, drawn.curves, key, categories, what)
    _set_x_axis(axes, drawn, categories)
    values = [y for curve in drawn.curves for y in (*curve.y, *curve.high)] + low_bound
    axes.set_yscale("log")
    axes.set_ylim(*log_limits(values))
    if found:
        axes.plot([], [], label="the fastest changes", **CROSSING_STYLE)
    return drawn, found


def curves_heading(rows: Sequence[Row], drawn: Picture) -> str:
    """Return what all curves share, in words."""
    return ", ".join(part for part in (str(rows[0]["collective"]), drawn.fixed) if part)


def finish_curves(axes: "Axes", drawn: Picture, found: Sequence[Crossing], metric: str) -> None:
    """Label the y axis, mark the crossings and say what is not drawn; the limits and the layout must stand."""
    low, high = axes.get_ylim()
    if not drawn.curves:
        return
    what = METRICS[metric]
    set_ticks(axes.yaxis, decade_ticks(low, high), what.format)
    notes = list(drawn.notes)
    if found:
        left_out = mark_crossings(
            axes, found, lambda at: value_text(drawn.key, at, drawn.family), at_top=metric != "seconds"
        )
        if left_out:
            notes.append(f"{left_out} more crossings marked without a label")
    if notes:
        axes.set_xlabel("\n".join([axes.get_xlabel(), *(wrapped(note, NOTE_CHARACTERS) for note in notes)]))


def _bandwidth_crossings(rows: Sequence[Row], key: str, metric: str) -> tuple[Crossing, ...]:
    """The crossings of the times, at the height of the bandwidth that they mean."""
    if key != "message":
        return ()
    times = picture(rows, key, "seconds")
    shown = picture(rows, key, metric)
    if not shown.curves or len({curve.rest for curve in times.curves}) > 1:
        return ()
    collective, world_size = rows[0]["collective"], dict(times.curves[0].rest)["world_size"]
    found = []
    for crossing in crossings_of(times):
        if metric == "busbw":
            height = busbw(collective, world_size, crossing.at, crossing.seconds)
        else:
            height = crossing.at / crossing.seconds
        if height:
            found.append(Crossing(crossing.at, height, crossing.before, crossing.after))
    return tuple(found)


def categories_of(curves: Sequence[Curve]) -> list[Any] | None:
    """Return the x values in order if any is a text, so that they stand at equal distances; else None."""
    values = list(dict.fromkeys(x for curve in curves for x in curve.x))
    return None if all(is_number(x) for x in values) else values


def _positions(values: Sequence[Any], categories: list[Any] | None) -> list[float]:
    return [float(x) if categories is None else float(categories.index(x)) for x in values]


def _draw_curve(axes: "Axes", curve: Curve, key: str, categories: list[Any] | None, what: Metric) -> None:
    style = line_style(curve.number)
    points = _positions(curve.x, categories)
    x, y = filled(key, points, curve.y, is_time=what.key == "seconds")
    marked = len(points) <= _MARKED_POINTS and not curve.level
    axes.plot(
        x,
        y,
        color=style.color,
        linestyle=":" if curve.level else style.linestyle,
        marker=style.marker if marked else None,
        markevery=max(1, (len(x) - 1) // max(1, len(points) - 1)),
        markersize=4.5,
        linewidth=1.6,
        label=plain(curve.label),
    )


def _draw_band(axes: "Axes", curve: Curve, key: str, categories: list[Any] | None) -> None:
    """Shade from the median to the 99th percentile."""
    if not curve.high:
        return
    points = _positions(curve.x, categories)
    color = line_style(curve.number).color
    if len(points) == 1:
        axes.vlines(points, curve.y, curve.high, color=color, alpha=0.35, linewidth=5)
        return
    x, low = filled(key, points, curve.y, is_time=True)
    _, high = filled(key, points, curve.high, is_time=True)
    axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)


def _draw_bound(
    axes: "Axes", curves: Sequence[Curve], key: str, categories: list[Any] | None, what: Metric
) -> list[float]:
    """Draw the bound for each group of curves; returns its values, where the axis can show them."""
    shown: list[float] = []
    best = min if what.key == "seconds" else max
    for number, rest in enumerate(dict.fromkeys(curve.rest for curve in curves)):
        at: dict[Any, list[float]] = {}
        for curve in (curve for curve in curves if curve.rest == rest):
            for x, bound in zip(curve.x, curve.bound, strict=True):
                at.setdefault(x, []).append(bound)
        points = [(x, best(bounds)) for x, bounds in at.items() if best(bounds) > 0]
        points.sort(key=lambda point: _positions([point[0]], categories)[0])
        shown += [bound for _, bound in points]
        at_points = _positions([x for x, _ in points], categories)
        axes.plot(
            *filled(key, at_points, [bound for _, bound in points], is_time=what.key == "seconds", is_bound=True),
            color=GREY,
            linewidth=0.9,
            linestyle=(0, (6, 4)),
            marker="_" if len(points) == 1 else None,
            markersize=14,
            zorder=1.5,
            label=what.bound_name if number == 0 and points else "_bound",
        )
    return shown


def _set_x_axis(axes: "Axes", drawn: Picture, categories: list[Any] | None) -> None:
    if categories is not None:
        axes.set_xlim(-0.5, len(categories) - 0.5)
        set_ticks(axes.xaxis, range(len(categories)), lambda at: plain(value_text(drawn.key, categories[round(at)])))
        return
    values = sorted({float(x) for curve in drawn.curves for x in curve.x})
    set_number_axis(axes, drawn.key, values, drawn.family)


def set_number_axis(axes: "Axes", key: str, values: Sequence[float], family: ByteFamily) -> None:
    """Scale the x axis for these ascending values of a key, and label it in units; ``family`` is that of messages."""
    low, high = values[0], values[-1]
    logarithmic = key == "message" or (low > 0 and high / low >= 6 and not _evenly_spaced(values))
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(*log_limits(values, pad=0.03, least=1.0))
        ticks = _message_ticks(values, family) if key == "message" else _log_ticks(key, values)
    else:
        pad = 0.04 * (high - low) or max(abs(high), 1.0) / 2
        axes.set_xlim(low - pad, high + pad)
        whole = all(value == int(value) for value in values)
        ticks = list(values) if whole or len(values) <= 8 else even_ticks(low, high)

    def show(value: float) -> str:
        return value_text(key, int(value) if value == int(value) else value, family)

    lay_out(root_figure(axes))
    first, last = axes.get_xlim()
    widths = [label_share(show(tick), axes) for tick in ticks]
    place = _log_place(first, last) if logarithmic else lambda value: (value - first) / (last - first)
    set_ticks(axes.xaxis, thinned(ticks, place, widths), show)


def _log_place(first: float, last: float) -> Callable[[float], float]:
    return lambda value: math.log(value / first) / math.log(last / first)


def _evenly_spaced(values: Sequence[float]) -> bool:
    """Whether values are nearer to equal steps than to equal factors."""
    steps = [b - a for a, b in itertools.pairwise(values)]
    factors = [math.log(b / a) for a, b in itertools.pairwise(values)]
    return max(steps) / min(steps) < max(factors) / min(factors) if len(values) > 2 else False


def _message_ticks(values: Sequence[float], family: ByteFamily) -> list[float]:
    """The values where they are few and short in these units, else round sizes."""
    if len(values) <= 6 and all(parse_bytes(format_bytes(value, family=family)) == value for value in values):
        return list(values)
    low, high = values[0], values[-1]
    return octave_ticks(low, high) if family == "binary" else decade_ticks(low, high)


def _log_ticks(key: str, values: Sequence[float]) -> list[float]:
    counted = key == "world_size" or is_size(key)
    most = 16 if counted else 6
    if len(values) <= most:
        return list(values)
    return (octave_ticks if counted else decade_ticks)(values[0], values[-1])
