"""A measured sweep over its predictions: as given, and with the alpha and bandwidth that fit it best."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcollectives.measured import Errors, Fit, MeasuredSweep
from simcollectives.report.curves import filled
from simcollectives.report.plot_curves import set_number_axis
from simcollectives.report.rows import byte_family
from simcollectives.report.style import (
    COLOURS,
    GREY,
    INK,
    decade_ticks,
    dress,
    log_limits,
    plain,
    set_ticks,
)
from simcollectives.units import ByteFamily, format_bandwidth, format_bytes, format_ratio, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GIVEN, FITTED = COLOURS[0], COLOURS[1]


def errors_text(errors: Errors, family: ByteFamily) -> str:
    """Return errors as text: "error: median 3.2%, largest 41% at 1 KiB"."""
    largest = f"{format_ratio(errors.largest, 3)} at {format_bytes(errors.largest_at_bytes, family=family)}"
    return f"error: median {format_ratio(errors.median, 3)}, largest {largest}"


def link_text(fit: Fit) -> str:
    """Return the fitted parameters as text: "intra: alpha 3.4 us, 450 GB/s"."""
    return f"{fit.level}: alpha {format_seconds(fit.alpha)}, {format_bandwidth(fit.bandwidth)}"


def draw_times(axes: "Axes", sweep: MeasuredSweep, fit: Fit, label: str, family: ByteFamily) -> None:
    """Draw measured and predicted times against the message size."""
    given = fit.given_predicted
    _curve(axes, sweep, given, GIVEN, (0, (5, 1.5)), f"{label}, as given; {errors_text(fit.given_errors, family)}")
    _curve(axes, sweep, fit.predicted, FITTED, "-", fitted_text(fit, label, family))
    draw_points(axes, sweep)
    axes.set_yscale("log")
    values = [*(time for time in given if time > 0), *(time for time in fit.predicted if time > 0), *sweep.seconds]
    axes.set_ylim(*log_limits(values))
    set_ticks(axes.yaxis, decade_ticks(*axes.get_ylim()), format_seconds)
    axes.set_ylabel("time")


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
    set_number_axis(axes, "message", sizes, family)
    lowest = axes
    if below is not None:
        draw_ratios(below, sweep, fit)
        set_number_axis(below, "message", sizes, family)
        axes.tick_params(axis="x", labelbottom=False)
        lowest = below
    lowest.set_xlabel("message size")
    return f"{label} against measurements: {sweep.name}"


def _curve(axes: "Axes", sweep: MeasuredSweep, seconds: Sequence[float], colour: str, dashes: Any, label: str) -> None:
    """A closed form is a straight line over the message between two measured points, as chunks are."""
    times = {size: time for size, time in zip(sweep.message_bytes, seconds, strict=True) if time > 0}
    x, y = filled("message", list(times), list(times.values()), is_time=True)
    axes.plot(x, y, color=colour, linestyle=dashes, linewidth=1.6, label=plain(label))
