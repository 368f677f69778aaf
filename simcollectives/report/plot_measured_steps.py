"""Measured training steps beside predictions: pairs of bars, and below them which collectives or points are off."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcollectives.measured.step_comparison import PARTS, CollectiveMatch
from simcollectives.report.plot_training import MAX_BARS, PARTS_LOOK, set_point_axis, stack_bars
from simcollectives.report.rows import ascending
from simcollectives.report.style import (
    COLOURS,
    GREY,
    INK,
    SMALL_SIZE,
    dress,
    even_ticks,
    legend_below,
    line_style,
    new_figure,
    plain,
    set_heading,
    set_ticks,
    wrapped,
)
from simcollectives.report.table_errors import signed
from simcollectives.report.table_measured_steps import metric_name, step_titles
from simcollectives.scenario import MeasuredStepComparison
from simcollectives.scenario.keys import value_text, without_options
from simcollectives.units import format_bytes, format_ratio, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_MATCHES = 8
_UNTOLD = ("not told apart", "#b5b5b5", "...")


def measured_steps_figure(measured: Sequence[MeasuredStepComparison], title: str | None = None) -> "Figure | None":
    """Return measured steps beside simulated ones as a figure; None where there is nothing to draw."""
    drawn = _with_steps(measured)
    left = f"; of {len(drawn)} steps the first {MAX_BARS // 2} are drawn" if len(drawn) > MAX_BARS // 2 else ""
    drawn = drawn[: MAX_BARS // 2]
    several = len(measured) > 1
    matches = [] if several else [one for one in measured[0].collectives if one.difference][:_MOST_MATCHES]
    heights = [0.7 + 0.62 * len(drawn)] if drawn else []
    if several or matches:
        heights.append(2.4 if several else 0.8 + 0.5 * len(matches))
    if not heights:
        return None
    figure = new_figure(1.5 + sum(heights))
    panels = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    set_heading(panels[0], [title, f"measured steps against predicted{left}"], own_figure=True)
    if drawn:
        draw_step_pairs(panels[0], drawn)
    if several:
        draw_step_errors(panels[-1], measured)
    elif matches:
        _draw_matches(panels[-1], matches)
    legend_below(figure, *panels)
    return figure


def draw_measured_steps(axes: "Axes", measured: Sequence[MeasuredStepComparison]) -> None:
    """Draw into one place: of several measured steps their errors, of one the pair of bars."""
    drawn = _with_steps(measured)
    if len(measured) == 1 and drawn:
        draw_step_pairs(axes, drawn)
    else:
        draw_step_errors(axes, measured)


def _with_steps(measured: Sequence[MeasuredStepComparison]) -> list[tuple[str, MeasuredStepComparison]]:
    """Those of which the length of the step is known, each with its title."""
    return [(name, one) for name, one in zip(step_titles(measured), measured, strict=True) if _step(one)]


def _step(one: MeasuredStepComparison) -> tuple[float, float] | None:
    """Measured and predicted seconds of a step, if need be by its tokens per second: the tokens are the same."""
    if "step_seconds" in one.measured:
        return one.measured["step_seconds"], one.predicted["step_seconds"] or 0.0
    rate = one.relative.get("tokens_per_second")
    return None if rate is None or one.step_seconds <= 0 else (one.step_seconds * (1 + rate), one.step_seconds)


def draw_step_pairs(axes: "Axes", steps: Sequence[tuple[str, MeasuredStepComparison]]) -> None:
    """Draw each measured step above the predicted one; what is not known of a step's parts is one piece."""
    labels = [text for name, _ in steps for text in (f"{name}: measured", "predicted")]
    both = [pair for _, one in steps if (pair := _step(one)) is not None]
    widths = [[part for _, one in steps for part in (one.measured.get(key, 0.0), one.parts[key])] for key in PARTS]
    wholes = [whole for pair in both for whole in pair]
    rest = [max(whole - sum(parts), 0.0) for whole, *parts in zip(wholes, *widths, strict=True)]
    rest = [one if one > 1e-9 * whole else 0.0 for one, whole in zip(rest, wholes, strict=True)]
    parts = [(name, colour, hatch, mine) for (_, name, colour, hatch), mine in zip(PARTS_LOOK, widths, strict=True)]
    ends = stack_bars(axes, labels, [*parts, (*_UNTOLD, rest)])
    for row, (end, whole) in enumerate(zip(ends, wholes, strict=True)):
        measured = both[row // 2][0]
        text = format_seconds(whole, 4) + (f", {signed(whole / measured - 1)}" if row % 2 else "")
        axes.annotate(text, (end, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=SMALL_SIZE)
    longest = max(ends)
    set_ticks(axes.xaxis, even_ticks(0, longest), format_seconds)
    axes.set_xlim(0, 1.25 * longest)
    axes.set_xlabel("step")


def draw_step_errors(axes: "Axes", measured: Sequence[MeasuredStepComparison]) -> None:
    """Draw the error of each metric: against the key that varies, a line a strategy, or measurement by measurement."""
    dress(axes)
    key = _axis(measured)
    points: list[Any] = [one.point[key] for one in measured] if key else step_titles(measured)
    values = ascending(dict.fromkeys(points))
    labels = list(dict.fromkeys(one.label for one in measured))
    metrics = list(dict.fromkeys(metric for one in measured for metric in one.relative))
    series = [(label, metric) for metric in metrics for label in (labels if key else [""])]
    for number, (label, metric) in enumerate(series):
        mine = [
            (values.index(point), one.relative[metric])
            for point, one in zip(points, measured, strict=True)
            if metric in one.relative and label in ("", one.label)
        ]
        if not mine:
            continue
        style, mine = line_style(number), sorted(mine)
        words = f"error in {metric_name(metric)}" + (f", {label}" if label and len(labels) > 1 else "")
        axes.plot(
            [place for place, _ in mine],
            [error for _, error in mine],
            color=style.color,
            marker=style.marker,
            linestyle=style.linestyle if key else "none",
            linewidth=1.5,
            markersize=5,
            label=plain(words),
        )
    axes.axhline(0, color=GREY, linewidth=0.9)
    low, high = min([*axes.get_ylim(), -0.05]), max([*axes.get_ylim(), 0.05])
    axes.set_ylim(low, high)
    set_ticks(axes.yaxis, even_ticks(low, high, 5), lambda error: format_ratio(error, 3))
    axes.set_ylabel("predicted / measured - 1")
    axes.set_xlabel(plain(key) if key else "")
    room = 72 // len(values)
    names = {value: value_text(key, value) if key else wrapped(str(value), max(room, 12)) for value in values}
    if key or room < 12:
        set_point_axis(axes, values, lambda value: names[value])
    else:
        axes.set_xlim(-0.6, len(values) - 0.4)
        axes.set_xticks(range(len(values)), labels=list(names.values()))


def _axis(measured: Sequence[MeasuredStepComparison]) -> str | None:
    """The key that tells the points apart, where one does and all have it."""
    keys = dict.fromkeys(key for one in measured for key in without_options(one.point))
    varying = [key for key in keys if len({one.point.get(key) for one in measured}) > 1]
    whole = len(varying) == 1 and all(varying[0] in one.point for one in measured)
    return varying[0] if whole else None


def _draw_matches(axes: "Axes", matches: Sequence[CollectiveMatch]) -> None:
    """Draw the time of collectives that are alike, measured above predicted, those first that differ most."""
    dress(axes)
    axes.grid(False, axis="y")
    for shift, colour, side in ((-0.2, INK, "measured"), (0.2, COLOURS[2], "predicted")):
        widths = [float(getattr(one, f"{side}_seconds")) for one in matches]
        places = [place + shift for place in range(len(matches))]
        axes.barh(places, widths, height=0.36, color=colour, label=f"collectives, {side}")
    labels = []
    for one in matches:
        size = "" if one.bytes is None else f" of {format_bytes(one.bytes, 4)}"
        count = str(one.measured) if one.measured == one.predicted else f"{one.measured} / {one.predicted}"
        labels.append(f"{count} x {one.kind}{size}")
    axes.set_yticks(range(len(matches)), labels=labels)
    axes.set_ylim(len(matches) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    longest = max(max(one.measured_seconds, one.predicted_seconds) for one in matches)
    set_ticks(axes.xaxis, even_ticks(0, longest), format_seconds)
    axes.set_xlabel("time of the collectives that differ most, all of a sort")
