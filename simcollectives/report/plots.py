"""Figures of a result. Everything matplotlib is imported when a figure is made, and pyplot never.

``plot`` draws into axes that are given, or into a new figure; ``figures`` makes all figures of a result for files.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simcollectives.engines import Run, Timeline
from simcollectives.errors import InputError, Problem, show_value
from simcollectives.report.curves import axis_keys
from simcollectives.report.numerics import is_numerics, numerics_figures, numerics_plot
from simcollectives.report.plot_bars import bar_height, draw_bytes, draw_bytes_per_rank, draw_parts, largest_point
from simcollectives.report.plot_curves import curves_heading, draw_curves, finish_curves
from simcollectives.report.plot_measured import draw_fitted, draw_measured, draw_several, fitted_text
from simcollectives.report.plot_nccl import nccl_figures
from simcollectives.report.plot_timeline import draw_timeline, rank_count, timeline_height
from simcollectives.report.rows import Row, point_text, rows_of
from simcollectives.report.style import GREY, TEXT_SIZE, legend_below, log_limits, new_figure, root_figure, set_heading
from simcollectives.report.training import training_figures, training_plot
from simcollectives.scenario.build import build_cluster, label_at, message_at
from simcollectives.scenario.keys import is_option
from simcollectives.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("time", "busbw", "scaling", "parts", "bytes", "timeline", "measured")
_CURVE_HEIGHT = 4.6


_MAX_STEM_BYTES = 80


def plot(result_or_rows: Any, ax: "Axes | None" = None, kind: str = "time") -> "Axes":
    """Draw one picture of a result, of rows, or of a run, and return its Axes (``.figure`` is the Figure).

    ``kind`` is time or busbw (against the message size), scaling (time against world size or what else was swept),
    parts (latency, bandwidth, reduction at one point), bytes, timeline or measured. Where the message was not swept,
    time shows what was. Raises ``InputError`` where the result has nothing of that kind.
    """
    if getattr(result_or_rows, "steps", ()):
        return training_plot(result_or_rows, ax, kind)
    if is_numerics(result_or_rows):
        return numerics_plot(result_or_rows, ax, kind)
    if kind not in KINDS:
        raise InputError([Problem("kind", f"{show_value(kind)} is no kind of plot; write one of {', '.join(KINDS)}")])
    if isinstance(result_or_rows, Run):
        return _plot_run(result_or_rows, ax, kind)
    rows = rows_of(result_or_rows)
    title = getattr(getattr(result_or_rows, "scenario", None), "title", None)
    measured = getattr(result_or_rows, "measured", ())
    if kind == "timeline":
        timelines = getattr(result_or_rows, "timelines", ())
        if not timelines:
            raise InputError([Problem("kind", "no timeline was recorded; name a run under timeline: in the scenario")])
        return _plot_timeline(result_or_rows, 0, ax)
    if kind == "measured":
        if not measured:
            raise InputError([Problem("kind", "there are no measurements; write measured: in the scenario")])
        return _plot_measured(measured, title, ax)
    if kind in ("parts", "bytes"):
        return _plot_bars(rows, title, kind, ax)
    keys = axis_keys(rows)
    if kind == "scaling":
        keys = tuple(key for key in keys if key != "message")
    if kind == "busbw" and "message" not in keys:
        raise InputError([Problem("kind", "busbw is drawn against the message, which was not swept; take kind time")])
    if not keys:
        return _plot_bars(rows, title, "parts", ax)
    return _plot_curves(rows, keys[0], "busbw" if kind == "busbw" else "seconds", title, ax, measured)


def figures(result: Any) -> Iterator[tuple[str, "Figure"]]:
    """Make the figures of a result one by one, each with the stem of its file's name."""
    if getattr(result, "steps", ()):
        yield from training_figures(result)
        return
    if is_numerics(result):
        yield from numerics_figures(result)
        return
    rows = rows_of(result)
    title = getattr(getattr(result, "scenario", None), "title", None)
    measured = getattr(result, "measured", ())
    keys = axis_keys(rows)
    if "message" in keys:
        yield "time", root_figure(_plot_curves(rows, "message", "seconds", title, None, measured))
        yield "busbw", root_figure(_plot_curves(rows, "message", "busbw", title, None))
    elif not keys:
        yield "time", root_figure(_plot_bars(rows, title, "parts", None))
    for number, key in enumerate(key for key in keys if key != "message"):
        stem = "scaling" if number == 0 else f"scaling_{file_stem(key)}"
        yield stem, root_figure(_plot_curves(rows, key, "seconds", title, None))
    yield "bytes", root_figure(_plot_bars(rows, title, "bytes", None))
    if measured:
        yield "measured", root_figure(_plot_measured(measured, title, None))
    yield from nccl_figures(getattr(result, "nccl", ()), title)
    stems: dict[str, int] = {}
    for number, (label, _) in enumerate(getattr(result, "timelines", ())):
        stem = f"timeline_{file_stem(label)}"
        stems[stem] = stems.get(stem, 0) + 1
        again = "" if stems[stem] == 1 else f"_{stems[stem]}"
        yield stem + again, root_figure(_plot_timeline(result, number, None))


def file_stem(text: str) -> str:
    """Return a text as part of a file's name.

    >>> file_stem("rabenseifner (order: far), 4 KiB")
    'rabenseifner_order_far_4_KiB'
    """
    stem = re.sub(r"[^\w.-]+", "_", text).strip("_.")
    if stem and len(stem.encode()) <= _MAX_STEM_BYTES:
        return stem
    # What is cut, or has nothing left, is told apart by a short hash of the whole.
    mark = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:8]
    return f"{stem[:40]}_{mark}" if stem else f"unnamed_{mark}"


def _on_axes(ax: "Axes | None", title: str | None, height: float, draw: Callable[["Axes"], str]) -> "Axes":
    """Draw into axes: given ones get a legend inside, those of a new figure one below. ``draw`` returns the heading."""
    axes = new_figure(height).add_subplot() if ax is None else ax
    set_heading(axes, [title, draw(axes)], own_figure=ax is None)
    _legend(axes, own_figure=ax is None)
    return axes


def _legend(axes: "Axes", *, own_figure: bool) -> None:
    if own_figure:
        legend_below(root_figure(axes), axes)
    elif axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=TEXT_SIZE - 1, frameon=True, framealpha=0.85, edgecolor=GREY)


def _plot_curves(
    rows: Sequence[Row], key: str, metric: str, title: str | None, ax: "Axes | None", measured: Sequence[Any] = ()
) -> "Axes":
    axes = new_figure(_CURVE_HEIGHT).add_subplot() if ax is None else ax
    laid = measured[0] if len(measured) == 1 and key == "message" and metric == "seconds" else None
    sizes = [laid.fit.errors.largest_at_bytes] if laid is not None else []
    drawn, found = draw_curves(axes, rows, key, metric, sizes)
    if laid is not None and drawn.curves:
        limits = axes.get_ylim()
        draw_fitted(axes, laid.sweep, laid.fit, laid.label)
        drawn = replace(drawn, notes=(*drawn.notes, fitted_text(laid.fit, laid.label, drawn.family)))
        axes.set_ylim(*log_limits([*limits, *laid.sweep.seconds], pad=0.01))
    set_heading(axes, [title, curves_heading(rows, drawn)], own_figure=ax is None)
    if ax is None:
        _legend(axes, own_figure=True)
    finish_curves(axes, drawn, found, metric)
    if ax is not None:  # where a legend inside is least in the way depends on the marks
        _legend(axes, own_figure=False)
    return axes


def _plot_bars(rows: Sequence[Row], title: str | None, kind: str, ax: "Axes | None") -> "Axes":
    draw = draw_bytes if kind == "bytes" else draw_parts
    return _on_axes(ax, title, bar_height(largest_point(rows)[0]), lambda axes: draw(axes, rows))


def _plot_timeline(result: Any, number: int, ax: "Axes | None") -> "Axes":
    scenario, (_, timeline) = result.scenario, result.timelines[number]
    selector = scenario.timelines[number]
    point = selector.point
    world_size = build_cluster(scenario.cluster, point).world_size
    shown = {"message": message_at(scenario.collective, point), "world_size": world_size} | {
        key: value for key, value in point.items() if key not in ("message", "devices") and not is_option(key)
    }
    label = label_at(scenario.collective, selector.entry, point)
    heading = f"{scenario.collective.name}, {label}, {point_text(shown)}"
    return _timeline_axes(timeline, scenario.title, heading, world_size, ax)


def _timeline_axes(
    timeline: Timeline, title: str | None, heading: str, world_size: int | None, ax: "Axes | None"
) -> "Axes":
    def draw(axes: "Axes") -> str:
        draw_timeline(axes, timeline, world_size)
        return heading

    return _on_axes(ax, title, timeline_height(rank_count(timeline)), draw)


def _plot_measured(measured: Sequence[Any], title: str | None, ax: "Axes | None") -> "Axes":
    def draw(axes: "Axes", below: "Axes | None") -> str:
        if len(measured) > 1:
            return draw_several(axes, below, measured)
        return draw_measured(axes, below, measured[0].sweep, measured[0].fit, measured[0].label)

    if ax is not None:
        return _on_axes(ax, title, 0, lambda axes: draw(axes, None))
    figure = new_figure(_CURVE_HEIGHT + 1.2)
    axes, below = figure.subplots(2, 1, height_ratios=[2.2, 1])
    set_heading(axes, [title, draw(axes, below)], own_figure=True)
    _legend(axes, own_figure=True)
    return axes  # type: ignore[no-any-return]


def _plot_run(run: Run, ax: "Axes | None", kind: str) -> "Axes":
    """Draw one run: its timeline, or the bytes that each rank sends."""
    if kind == "bytes":
        return _on_axes(ax, None, 3.6, lambda axes: draw_bytes_per_rank(axes, run))
    if kind != "timeline":
        raise InputError([Problem("kind", f"a run has no plot of kind {kind}; write timeline or bytes")])
    if run.timeline is None:
        raise InputError([Problem("timeline", "the run recorded no timeline; simulate with timeline=True")])
    what = f"{run.collective}, {run.label}, message {format_bytes(run.message_bytes)}, {run.world_size} ranks"
    return _timeline_axes(run.timeline, None, what, run.world_size, ax)
