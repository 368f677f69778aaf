"""The report of a training scenario: tables, figures and traces of its steps."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from simcollectives.errors import InputError, Problem, show_value
from simcollectives.report.plot_comparison import comparison_figure
from simcollectives.report.plot_measured_steps import draw_measured_steps, measured_steps_figure
from simcollectives.report.plot_memory import draw_memory, memory_figure
from simcollectives.report.plot_step import draw_step, step_figure
from simcollectives.report.plot_training import (
    draw_efficiency,
    draw_strategies,
    draw_sweep,
    efficiency_figure,
    strategies_figure,
    sweep_figure,
)
from simcollectives.report.table_comparison import comparison_blocks
from simcollectives.report.table_estimate import estimate_blocks
from simcollectives.report.table_training import Labelled, advice_blocks, collectives_blocks, memory_blocks, step_blocks
from simcollectives.report.text import Block, caption
from simcollectives.scenario.keys import point_text, value_text, without_options
from simcollectives.scenario.results import PlayedStep, ScenarioResult
from simcollectives.scenario.types import Point
from simcollectives.training.step import Step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRAINING_KINDS = ("time", "efficiency", "timeline", "memory", "measured")
MAX_ROWS, MAX_MEMORY_ROWS = 60, 12


def training_blocks(result: ScenarioResult, *, full: bool = False) -> list[Block]:
    """Return the steps as tables, then their memory, collectives where there is one step, and advice on sweeps."""
    rows, steps = result.rows, _labelled(result)
    blocks: list[Block] = []
    if len(steps) > MAX_ROWS and not full:
        kept = sorted({round(i * (len(steps) - 1) / (MAX_ROWS - 1)) for i in range(MAX_ROWS)})
        note = f"{len(kept)} of {len(steps)} steps, evenly chosen; all are in rows.csv (-o DIR) and in --json"
        rows, steps, blocks = tuple(rows[i] for i in kept), [steps[i] for i in kept], [caption(note)]
    counted = [caption(note) for note in result.notes if note.startswith("MFU")]
    blocks = [*step_blocks(steps, [row["mfu"] for row in rows]), *counted, *blocks]
    if len(steps) <= MAX_MEMORY_ROWS:
        blocks += [caption(""), *memory_blocks(steps)]
    if len(steps) == 1:
        if estimated := estimate_blocks(steps[0][1]):
            blocks += [caption(""), *estimated]
        blocks += [caption(""), *collectives_blocks(steps[0][1])]
    for compared in result.comparisons:
        where = point_text(compared.point) if len(result.comparisons) > 1 else ""
        blocks += [caption(""), *comparison_blocks(compared.comparison, compared.steps, where)]
    several = len({one.label for one in result.advice}) > 1
    for one in result.advice:
        name = f"{one.key} of {one.label}" if several else one.key
        blocks += [caption(""), *advice_blocks(one.advice, name, partial(value_text, one.key))]
    return blocks


def _labelled(result: ScenarioResult) -> list[Labelled]:
    """Steps with what tells them apart: strategy, point, or both."""
    varying = _varying(result)
    alone = len({one.label for one in result.steps}) == 1
    named = []
    for one in result.steps:
        where = _where({key: value for key, value in one.point.items() if key in varying})
        named.append((where if alone and where else f"{one.label}, {where}" if where else one.label, one.step))
    return named


def _where(point: Point) -> str:
    """A point without options, which labels say."""
    return ", ".join(f"{key} {value_text(key, value)}" for key, value in without_options(point).items())


def _varying(result: ScenarioResult) -> list[str]:
    """The keys that tell the points apart."""
    keys = {key: None for one in result.steps for key in one.point}
    return [key for key in keys if len({one.point.get(key) for one in result.steps}) > 1]


def _axis(result: ScenarioResult) -> str | None:
    """The key that tells the points apart, where there is one."""
    varying = _varying(result)
    return varying[0] if len(varying) == 1 else None


def _series(result: ScenarioResult, key: str) -> Mapping[str, list[tuple[Any, Step]]]:
    """Points of each strategy along a key."""
    found: dict[str, list[tuple[Any, Step]]] = {}
    for one in result.steps:
        if key in one.point:
            found.setdefault(one.entry, []).append((one.point[key], one.step))
    return found


def training_figures(result: ScenarioResult) -> Iterator[tuple[str, "Figure"]]:
    """Make the figures one by one, each with the stem of its file's name."""
    from simcollectives.report.plots import file_stem

    title, key = result.scenario.title, _axis(result)
    if key is None and not result.comparisons:
        yield "steps", strategies_figure(_labelled(result), title)
    elif key is not None:
        series = _series(result, key)
        for number, (label, points) in enumerate(series.items()):
            advice = next((one.advice for one in result.advice if (one.key, one.label) == (key, label)), None)
            stem = "steps" if number == 0 else f"steps_{file_stem(label)}"
            heading = title if len(series) == 1 else f"{title}\n{label}"
            yield stem, sweep_figure(points, key, partial(value_text, key), heading, advice)
        if len(series) > 1:
            yield "efficiency", efficiency_figure(series, key, partial(value_text, key), title)
    for compared in result.comparisons:
        point = point_text(compared.point) if len(result.comparisons) > 1 else ""
        heading = f"{title}\n{point}" if point else title
        stem = f"comparison_{file_stem(point)}" if point else "comparison"
        yield stem, comparison_figure(compared.comparison, compared.steps, heading)
    figure = measured_steps_figure(result.measured_steps, title) if result.measured_steps else None
    if figure is not None:
        yield "measured", figure
    several = len(result.drawn) > 1
    for one in result.drawn:
        name = drawn_title(one)
        end = f"_{file_stem(name)}" if several else ""
        yield f"timeline{end}", step_figure(one.step, f"{title}\n{name}")
        yield f"memory{end}", memory_figure(one.step, f"{title}\n{name}")


def drawn_title(one: PlayedStep) -> str:
    """Return what a drawn step is called: its strategy and its point."""
    where = _where(one.point)
    return f"{one.label}, {where}" if where else one.label


def training_plot(result: ScenarioResult, ax: "Axes | None", kind: str) -> "Axes":
    """Draw one picture of training steps into given axes, or a new figure.

    Raises:
        InputError: there is no such kind of plot, or nothing of that kind.
    """
    if kind not in TRAINING_KINDS:
        rule = f"{show_value(kind)} is no kind of plot of training steps; write one of {', '.join(TRAINING_KINDS)}"
        raise InputError([Problem("kind", rule)])
    if kind in ("timeline", "memory") and not result.drawn:
        remedy = "name one under timeline: in the scenario, as in {strategy: ddp}"
        raise InputError([Problem("kind", f"no step is drawn; {remedy}")])
    if kind == "measured" and not result.measured_steps:
        raise InputError([Problem("kind", "there are no measurements; write measured: in the scenario")])
    if kind == "measured" and not any(one.relative for one in result.measured_steps):
        rule = "nothing that was measured has an error: it is 0, or not predicted"
        raise InputError([Problem("kind", f"{rule}; measure what is not, such as step_seconds")])
    axes = _new_axes(result.scenario.title) if ax is None else ax
    _draw(result, axes, kind)
    if ax is None and axes.get_legend_handles_labels()[1]:
        from simcollectives.report.style import legend_below, root_figure

        legend_below(root_figure(axes), axes)
    return axes


def _draw(result: ScenarioResult, axes: "Axes", kind: str) -> None:
    key = _axis(result)
    if kind == "timeline":
        draw_step(axes, result.drawn[0].step)
    elif kind == "memory":
        draw_memory(axes, result.drawn[0].step)
    elif kind == "measured":
        draw_measured_steps(axes, result.measured_steps)
    elif key is None:
        draw_strategies(axes, _labelled(result))
    elif kind == "time" and len(_series(result, key)) == 1:
        draw_sweep(axes, next(iter(_series(result, key).values())), partial(value_text, key))
        axes.set_xlabel(key)
    else:
        draw_efficiency(axes, _series(result, key), key, partial(value_text, key))


def _new_axes(title: str) -> "Axes":
    from simcollectives.report.style import new_figure, set_heading

    axes = new_figure(4.6).add_subplot()
    set_heading(axes, [title], own_figure=True)
    return axes


def traces(result: ScenarioResult) -> Iterator[tuple[str, str]]:
    """Make the Chrome traces of the drawn steps one by one, each with the stem of its file's name."""
    from simcollectives.interop.chrome_trace import trace_text
    from simcollectives.report.plots import file_stem

    for number, one in enumerate(result.drawn):
        yield "trace" if number == 0 else f"trace_{file_stem(drawn_title(one))}", trace_text(one.step)
