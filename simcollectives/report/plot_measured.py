"""Measured sweeps over their predictions: as given, and one sweep with the alpha and bandwidth that fit it best."""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcollectives.measured import Errors, Fit, MeasuredSweep
from simcollectives.measured.spread import LARGE_FROM, RANGES, SMALL_BELOW, spread
from simcollectives.report.curves import filled
from simcollectives.report.plot_curves import set_number_axis
from simcollectives.report.rows import byte_family
from simcollectives.report.style import (
    COLOURS,
    FAINT,
    GREY,
    INK,
    SMALL_SIZE,
    decade_ticks,
    dress,
    line_style,
    log_limits,
    plain,
    set_ticks,
)
from simcollectives.report.table_errors import worst_text
from simcollectives.report.table_measured import titles
from simcollectives.scenario import MeasuredComparison
from simcollectives.units import ByteFamily, format_bandwidth, format_bytes, format_ratio, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GIVEN, FITTED = COLOURS[0], COLOURS[1]
_ROOM = 0.14
"""A share of the axis that is wide enough for the name of a range."""


def errors_text(errors: Errors, family: ByteFamily) -> str:
    """Return errors as text: "error: median 3.2%, 90th percentile 20%, largest 41% at 1 KiB"."""
    largest = f"{format_ratio(errors.largest, 3)} at {format_bytes(errors.largest_at_bytes, family=family)}"
    p90 = f"90th percentile {format_ratio(errors.p90, 3)}"
    return f"error: median {format_ratio(errors.median, 3)}, {p90}, largest {largest}"


def link_text(fit: Fit) -> str:
    """Return the fitted parameters as text: "intra: alpha 3.4 us, 450 GB/s"."""
    return f"{fit.level}: alpha {format_seconds(fit.alpha)}, {format_bandwidth(fit.bandwidth)}"


def draw_times(axes: "Axes", sweep: MeasuredSweep, fit: Fit, label: str, family: ByteFamily) -> None:
    """Draw measured and predicted times against the message size."""
    given = fit.given_predicted
    _curve(axes, sweep, given, GIVEN, (0, (5, 1.5)), f"{label}, as given; {errors_text(fit.given_errors, family)}")
    _curve(axes, sweep, fit.predicted, FITTED, "-", fitted_text(fit, label, family))
    draw_points(axes, sweep)
    _set_times(axes, [*(time for time in (*given, *fit.predicted) if time > 0), *sweep.seconds])


def draw_points(axes: "Axes", sweep: MeasuredSweep) -> None:
    """Draw the measured times as points."""
    axes.plot(
        sweep.message_bytes,
        sweep.seconds,
        linestyle="none",
        marker="x",
        markersize=5,
        markeredgewidth=1.1,
        color=INK,
        zorder=4,
        label=plain(f"measured: {sweep.name}"),
    )


def draw_fitted(axes: "Axes", sweep: MeasuredSweep, fit: Fit, label: str) -> None:
    """Draw measured points and the fitted curve over a plot of predictions, which ``fitted_text`` describes."""
    draw_points(axes, sweep)
    _curve(axes, sweep, fit.predicted, INK, (0, (1, 1.2)), f"{label}, fitted")


def fitted_text(fit: Fit, label: str, family: ByteFamily) -> str:
    """Return the fit and its errors in words."""
    return f"{label}, fitted ({link_text(fit)}); {errors_text(fit.errors, family)}"


def draw_several(axes: "Axes", below: "Axes | None", measured: Sequence[MeasuredComparison]) -> str:
    """Draw sweeps as points on the lines of their predictions as given, and below how far off; returns the heading."""
    dress(axes)
    sizes = sorted({float(size) for one in measured for size in one.sweep.message_bytes})
    family = byte_family(sizes)
    values: list[float] = []
    ratios: list[float] = []
    if below is not None:
        dress(below)
    for number, (title, one) in enumerate(zip(titles(measured), measured, strict=True)):
        style, sweep = line_style(number), one.sweep
        found = spread(one.relative)
        worst = worst_text(found, sweep.message_bytes, family)
        words = f"median {format_ratio(found.median, 3)}, 90th percentile {format_ratio(found.p90, 3)}, worst {worst}"
        _curve(axes, sweep, one.fit.given_predicted, style.color, style.linestyle, f"{title}: {words}")
        points: dict[str, Any] = {"linestyle": "none", "marker": style.marker, "color": style.color, "markersize": 5}
        axes.plot(sweep.message_bytes, sweep.seconds, **points, markerfacecolor="white", zorder=4)
        values += [*(time for time in one.fit.given_predicted if time > 0), *sweep.seconds]
        mine = [1 + error for error in one.relative]
        ratios += [ratio for ratio in mine if ratio > 0]
        if below is not None:
            marks: dict[str, Any] = {"marker": style.marker, "markersize": 4, "markerfacecolor": "white"}
            below.plot(sweep.message_bytes, mine, color=style.color, linestyle=style.linestyle, linewidth=1.4, **marks)
    axes.plot([], [], linestyle="none", marker="o", color=INK, markerfacecolor="white", label="measured (points)")
    axes.plot([], [], color=INK, label="predicted (lines)")
    _set_times(axes, values)
    if below is not None:
        set_ratio_axis(below, ratios)
    return _finish(axes, below, sizes, f"{' and '.join(dict.fromkeys(one.label for one in measured))} against measured")


def _set_times(axes: "Axes", values: Sequence[float]) -> None:
    axes.set_yscale("log")
    axes.set_ylim(*log_limits(values))
    set_ticks(axes.yaxis, decade_ticks(*axes.get_ylim()), format_seconds)
    axes.set_ylabel("time")


def _finish(axes: "Axes", below: "Axes | None", sizes: Sequence[float], heading: str) -> str:
    """Set the horizontal axes, and shade the ranges of messages below."""
    family = byte_family(sizes)
    set_number_axis(axes, "message", sizes, family)
    lowest = axes
    if below is not None:
        set_number_axis(below, "message", sizes, family)
        _shade_ranges(below)
        axes.tick_params(axis="x", labelbottom=False)
        lowest = below
    lowest.set_xlabel("message size")
    return heading


def _shade_ranges(axes: "Axes") -> None:
    """Shade the middle range of messages, name all that have room, and say which way is which."""
    low, high = axes.get_xlim()
    edges = (low, max(low, SMALL_BELOW), min(high, LARGE_FROM), high)
    if edges[1] < edges[2]:
        axes.axvspan(edges[1], edges[2], color=FAINT, alpha=0.6, linewidth=0, zorder=0)
    small: dict[str, Any] = {"fontsize": SMALL_SIZE, "color": GREY, "va": "bottom", "ha": "center", "clip_on": False}
    for (start, end), where in zip(itertools.pairwise(edges), RANGES.values(), strict=True):
        if start < end and math.log(end / start) > _ROOM * math.log(high / low):
            axes.text(math.sqrt(start * end), 1.02, where, transform=axes.get_xaxis_transform(), **small)
    for height, word in ((0.94, "too slow"), (0.06, "too fast")):
        va = "top" if height > 0.5 else "bottom"
        axes.text(0.995, height, word, transform=axes.transAxes, fontsize=SMALL_SIZE, color=GREY, va=va, ha="right")


def draw_ratios(axes: "Axes", sweep: MeasuredSweep, fit: Fit) -> None:
    """Draw predicted over measured time against the message size; 1 is right."""
    dress(axes)
    both = []
    for predicted, colour, dashes in ((fit.given_predicted, GIVEN, (0, (5, 1.5))), (fit.predicted, FITTED, "-")):
        ratios = [p / m for p, m in zip(predicted, sweep.seconds, strict=True)]
        pairs = [(x, ratio) for x, ratio in zip(sweep.message_bytes, ratios, strict=True) if ratio > 0]
        axes.plot(
            [x for x, _ in pairs],
            [ratio for _, ratio in pairs],
            color=colour,
            linestyle=dashes,
            linewidth=1.4,
            marker="o",
            markersize=2.5,
        )
        both += [ratio for _, ratio in pairs]
    set_ratio_axis(axes, both)


def set_ratio_axis(axes: "Axes", ratios: Sequence[float]) -> None:
    """Set the vertical axis for predicted over measured times, with a line at 1."""
    axes.axhline(1, color=GREY, linewidth=0.9)
    axes.set_yscale("log")
    low, high = log_limits([*ratios, 0.8, 1.25], pad=0.06)
    axes.set_ylim(low, high)
    set_ticks(axes.yaxis, decade_ticks(low, high), lambda ratio: f"{ratio:.4g}x")
    axes.set_ylabel("predicted / measured")


def draw_measured(axes: "Axes", below: "Axes | None", sweep: MeasuredSweep, fit: Fit, label: str) -> str:
    """Draw times, and below them (where there are axes) predicted over measured; returns the heading."""
    dress(axes)
    sizes = sorted({float(size) for size in sweep.message_bytes})
    family = byte_family(sizes)
    draw_times(axes, sweep, fit, label, family)
    if below is not None:
        draw_ratios(below, sweep, fit)
    return _finish(axes, below, sizes, f"{label} against measurements: {sweep.name}")


def _curve(axes: "Axes", sweep: MeasuredSweep, seconds: Sequence[float], colour: str, dashes: Any, label: str) -> None:
    """A closed form is a straight line over the message between two measured points, as chunks are."""
    times = {size: time for size, time in zip(sweep.message_bytes, seconds, strict=True) if time > 0}
    x, y = filled("message", list(times), list(times.values()), is_time=True)
    axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.6, label=plain(label))
