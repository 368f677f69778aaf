"""Many training steps in one picture: a sweep, or strategies side by side; their parts, and their efficiency."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simcollectives.report.style import (
    COLOURS,
    INK,
    SMALL_SIZE,
    dress,
    even_ticks,
    label_share,
    lay_out,
    legend_below,
    line_style,
    new_figure,
    plain,
    root_figure,
    set_heading,
    set_ticks,
    thinned,
    wrapped,
)
from simcollectives.report.table_training import Labelled
from simcollectives.training.advice import Advice
from simcollectives.training.step import Step
from simcollectives.units import format_ratio, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[Any, Step]
Show = Callable[[Any], str]

MAX_BARS = 24
PARTS_LOOK = (
    ("compute_seconds", "compute", COLOURS[0], ""),
    ("exposed_seconds", "exposed communication", COLOURS[1], "///"),
    ("idle_seconds", "idle", "#cccccc", ""),
)
_LABEL_CHARACTERS = 34


def sweep_figure(
    points: Sequence[Point], key: str, show: Show = str, title: str | None = None, advice: Advice | None = None
) -> "Figure":
    """Return the steps of a sweep as a figure: their parts above, efficiency below; the advice is in the heading."""
    figure = new_figure(5.4)
    above, below = figure.subplots(2, 1, height_ratios=[1.7, 1], sharex=True)
    set_heading(above, [title, _advice_text(advice, key, show)], own_figure=True)
    draw_sweep(above, points, show, best=None if advice is None else advice.optimum)
    draw_efficiency(below, {"": points}, key, show)
    above.tick_params(axis="x", labelbottom=False)
    legend_below(figure, above)
    return figure


def strategies_figure(steps: Sequence[Labelled], title: str | None = None) -> "Figure":
    """Return strategies, or other labelled steps, side by side as a figure."""
    lines = sum(wrapped(label, _LABEL_CHARACTERS).count("\n") + 1 for label, _ in steps[:MAX_BARS])
    figure = new_figure(1.5 + 0.2 * min(len(steps), MAX_BARS) + 0.17 * lines)
    axes = figure.add_subplot()
    left = f"the first {MAX_BARS} of {len(steps)} steps" if len(steps) > MAX_BARS else None
    set_heading(axes, [title, left], own_figure=True)
    draw_strategies(axes, steps)
    legend_below(figure, axes)
    return figure


def efficiency_figure(
    series: Mapping[str, Sequence[Point]], key: str, show: Show = str, title: str | None = None
) -> "Figure":
    """Return the efficiency of several strategies over the swept key as a figure."""
    figure = new_figure(3.8)
    axes = figure.add_subplot()
    set_heading(axes, [title], own_figure=True)
    draw_efficiency(axes, series, key, show)
    legend_below(figure, axes)
    return figure


def _advice_text(advice: Advice | None, key: str, show: Show) -> str | None:
    if advice is None:
        return None
    sides = {"smaller": advice.reason_below, "larger": advice.reason_above}
    told = [f"{side}: {reason}" for side, reason in sides.items() if reason != "end of sweep"]
    return f"shortest at {key} {show(advice.optimum)}{'; why not ' if told else ''}{', '.join(told)}"


def draw_sweep(axes: "Axes", points: Sequence[Point], show: Show = str, best: Any = None) -> None:
    """Stack compute, exposed communication and idle time over the points; many points become areas.

    ``best`` is the value to mark.
    """
    dress(axes)
    axes.grid(False, axis="x")
    places = range(len(points))
    low = [0.0] * len(points)
    for attribute, name, colour, hatch in PARTS_LOOK:
        heights = [float(getattr(step, attribute)) for _, step in points]
        high = [a + b for a, b in zip(low, heights, strict=True)]
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5, "label": name}
        if any(heights) and len(points) <= MAX_BARS:
            axes.bar(places, heights, bottom=low, width=0.72, **look)
        elif any(heights):
            axes.fill_between(places, low, high, **look)
        low = high
    longest = max(low, default=0.0)
    axes.set_ylim(0, 1.12 * longest or 1.0)
    set_ticks(axes.yaxis, even_ticks(0, longest) if longest else [], format_seconds)
    axes.set_ylabel("step")
    set_point_axis(axes, [value for value, _ in points], show)
    marked = [(place, low[place]) for place, (value, _) in enumerate(points) if best is not None and value == best]
    for place, top in marked[:1]:
        look = {"marker": "v", "color": INK, "markersize": 6, "linestyle": "", "label": "shortest"}
        axes.plot([place], [top + 0.04 * longest], **look)


def draw_efficiency(axes: "Axes", series: Mapping[str, Sequence[Point]], key: str, show: Show = str) -> None:
    """Draw compute over step, a line for each label; steps that take no time are left out."""
    dress(axes)
    values = list(dict.fromkeys(value for points in series.values() for value, _ in points))
    shares = []
    for number, (label, points) in enumerate(series.items()):
        known = [(values.index(value), step.efficiency) for value, step in points if step.efficiency is not None]
        style = line_style(number)
        axes.plot(
            [place for place, _ in known],
            [share for _, share in known],
            color=style.color,
            linestyle=style.linestyle,
            marker=style.marker if len(values) <= MAX_BARS else None,
            markersize=4.5,
            linewidth=1.6,
            label=plain(label) if label else "_efficiency",
        )
        shares += [share for _, share in known]
    low = min(shares, default=0.0)
    low = 0.0 if low < 0.5 else min(low - 0.15 * (1 - low), 0.95)
    axes.set_ylim(low, 1 + 0.06 * (1 - low))
    set_ticks(axes.yaxis, even_ticks(low, 1.0, 5), lambda share: format_ratio(share, 6))
    axes.set_ylabel("efficiency")
    axes.set_xlabel(f"{plain(key)}\nefficiency: compute over step")
    set_point_axis(axes, values, show)


def set_point_axis(axes: "Axes", values: Sequence[Any], show: Show) -> None:
    """Put points at equal distances, whatever their values, and write as many values as there is room for."""
    axes.set_xlim(-0.6, len(values) - 0.4)
    lay_out(root_figure(axes))
    texts = [plain(show(value)) for value in values]
    widths = [label_share(text, axes) for text in texts]
    places = thinned(range(len(values)), lambda place: place / max(len(values), 1), widths) if values else []
    axes.set_xticks(places, labels=[texts[int(place)] for place in places])


def stack_bars(
    axes: "Axes", labels: Sequence[str], parts: Sequence[tuple[str, str, str, Sequence[float]]]
) -> list[float]:
    """Draw a bar for each label, one below another, of its parts; return where the bars end.

    A part has a name, a colour, a hatch and a width in each bar; one that has none anywhere is left out.
    """
    dress(axes)
    axes.grid(False, axis="y")
    ends = [0.0] * len(labels)
    for name, colour, hatch, widths in parts:
        if any(widths):
            look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
            axes.barh(range(len(labels)), widths, left=ends, height=0.62, label=name, **look)
        ends = [a + b for a, b in zip(ends, widths, strict=True)]
    axes.set_yticks(range(len(labels)), labels=[wrapped(label, _LABEL_CHARACTERS) for label in labels])
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    return ends


def draw_strategies(axes: "Axes", steps: Sequence[Labelled]) -> None:
    """Draw each step as a bar of its parts, with its length and its efficiency."""
    shown = steps[:MAX_BARS]
    parts = [
        (name, colour, hatch, [float(getattr(step, attribute)) for _, step in shown])
        for attribute, name, colour, hatch in PARTS_LOOK
    ]
    ends = stack_bars(axes, [label for label, _ in shown], parts)
    axes.set_xlabel("step\nper cent: efficiency, compute over step")
    longest = max(ends, default=0.0)
    if longest <= 0:
        axes.set_xticks([])
        return
    texts = [f"{format_seconds(step.step_seconds)}, {_share(step)}" for _, step in shown]
    labels = [
        axes.annotate(text, (end, row), xytext=(5, 0), textcoords="offset points", va="center", fontsize=SMALL_SIZE)
        for row, (end, text) in enumerate(zip(ends, texts, strict=True))
    ]
    set_ticks(axes.xaxis, even_ticks(0, longest), format_seconds)
    axes.set_xlim(0, longest)
    lay_out(root_figure(axes))
    width = axes.get_window_extent().width
    room = [max(width - label.get_window_extent().width - 12, 60) for label in labels]
    axes.set_xlim(0, max(longest * 1.02, max(end / pixels for end, pixels in zip(ends, room, strict=True)) * width))


def _share(step: Step) -> str:
    return "-" if step.efficiency is None else format_ratio(step.efficiency, 3)
