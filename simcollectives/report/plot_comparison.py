"""Strategies side by side: their steps on the left, their memory at the peak on the right."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcollectives.report.plot_memory import OTHERS, memory_colours
from simcollectives.report.plot_training import MAX_BARS, draw_strategies, stack_bars
from simcollectives.report.style import (
    INK,
    byte_ticks,
    legend_below,
    new_figure,
    plain,
    set_heading,
    set_ticks,
    wrapped,
)
from simcollectives.report.table_training import Labelled, memory_items
from simcollectives.training.comparison import Comparison
from simcollectives.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ITEMS = 6
"""So many items have a colour of their own; the smaller ones are drawn as one."""


def comparison_figure(comparison: Comparison, steps: Sequence[Labelled], title: str | None = None) -> "Figure":
    """Return the steps of strategies and their memory as a figure; the advice is in the heading."""
    shown = steps[:MAX_BARS]
    figure = new_figure(2.4 + 0.75 * len(shown))
    above, below = figure.subplots(2, 1)
    set_heading(above, [title, *(wrapped(line) for line in comparison.advice)], own_figure=True)
    draw_strategies(above, shown)
    draw_memory_bars(below, shown)
    _emphasise([above, below], comparison.chosen)
    legend_below(figure, above, below)
    return figure


def draw_memory_bars(axes: "Axes", steps: Sequence[Labelled]) -> None:
    """Draw what stands at the peak of each step as a bar of its items, with the memory of the device as a line."""
    items = _items(steps)
    colours = memory_colours(items)
    parts = [(plain(item), colours[item], "", [_held(step.memory, item, items) for _, step in steps]) for item in items]
    ends = stack_bars(axes, [label for label, _ in steps], parts)
    capacity = steps[0][1].training.cluster.device.memory_bytes if steps else None
    longest = max([*ends, capacity or 0.0], default=0.0)
    if capacity is not None:
        axes.axvline(capacity, color=INK, linewidth=1.2, linestyle="--", label="memory of the device")
    axes.set_xlabel("memory at the peak")
    axes.set_xlim(0, 1.05 * longest or 1.0)
    set_ticks(axes.xaxis, byte_ticks(longest, "decimal") if longest else [], _bytes_text)


def _bytes_text(size: float) -> str:
    return format_bytes(size, family="decimal")


def _items(steps: Sequence[Labelled]) -> list[str]:
    """Items of all steps, the largest first; the smallest are ``OTHERS``."""
    ordered = memory_items(step for _, step in steps)
    return ordered if len(ordered) <= MOST_ITEMS + 1 else [*ordered[:MOST_ITEMS], OTHERS]


def _held(memory: Any, item: str, items: Sequence[str]) -> float:
    if item == OTHERS:
        return float(sum(size for name, size in memory.items() if name not in items))
    return float(memory.get(item, 0))


def _emphasise(several: Sequence["Axes"], chosen: int | None) -> None:
    for axes in several:
        for place, label in enumerate(axes.get_yticklabels()):
            label.set_fontweight("bold" if place == chosen else "normal")
