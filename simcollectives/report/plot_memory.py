"""What stands in the memory of a device during a step: a stacked area for each item, and where the peak is."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simcollectives.report.plot_step import step_text
from simcollectives.report.style import (
    COLOURS,
    GREY,
    INK,
    TEXT_SIZE,
    byte_ticks,
    dress,
    even_ticks,
    legend_below,
    new_figure,
    plain,
    set_heading,
    set_ticks,
)
from simcollectives.training.passes import (
    ACTIVATIONS,
    BUCKETS,
    GRADIENT_COPY,
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    WORKING,
)
from simcollectives.training.step import Step
from simcollectives.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = npt.NDArray[np.float64]

OTHERS = "others"
_USUAL = (OPTIMIZER, PARAMETERS, BUCKETS, GRADIENTS, ACTIVATIONS, WORKING, GRADIENT_COPY)
_HEADROOM = 1.22
_NEAR = 1.7
"""A device's memory is drawn where it is no more than so many times the peak."""


def memory_figure(step: Step, title: str | None = None) -> "Figure":
    """Return the memory of a step over time as a figure."""
    figure = new_figure(3.8)
    axes = figure.add_subplot()
    set_heading(axes, [title, step_text(step)], own_figure=True)
    draw_memory(axes, step)
    legend_below(figure, axes)
    return figure


def draw_memory(axes: "Axes", step: Step) -> None:
    """Draw what stands in memory, what changes least at the bottom; the peak is marked, and named item by item."""
    dress(axes)
    names, times, sizes = held(step)
    end = step.step_seconds
    if not names or step.peak_bytes == 0 or end <= 0:
        why = "nothing stands in memory" if end > 0 else "the step takes no time"
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"nothing to draw: {why}", ha="center", transform=axes.transAxes)
        return
    low = np.zeros(len(times))
    colours = memory_colours(names)
    for name, row in zip(names, sizes, strict=True):
        label = plain(_label(step, name, names))
        axes.fill_between(times, low, low + row, step="post", color=colours[name], linewidth=0, label=label)
        low = low + row
    capacity = step.training.cluster.device.memory_bytes
    near = capacity is not None and capacity <= _NEAR * step.peak_bytes
    top = _HEADROOM * max(step.peak_bytes, capacity if capacity is not None and near else 0)
    axes.set_xlim(0, end)
    axes.set_ylim(0, top)
    set_ticks(axes.xaxis, even_ticks(0, end), format_seconds)
    set_ticks(axes.yaxis, byte_ticks(top, "binary"), partial(format_bytes, family="binary"))
    axes.set_ylabel("memory")
    axes.set_xlabel(f"time\n{_note(step, near)}")
    if capacity is not None and near:
        axes.axhline(capacity, color=INK, linewidth=1.2, linestyle=(0, (6, 3)), label=f"memory of {_device(step)}")
    _mark_peak(axes, step, end)


def held(step: Step) -> tuple[list[str], FloatArray, FloatArray]:
    """Return items, times in seconds and [item, time] bytes from each time on: the least changing item first.

    The last time is the end of the step. Of more items than there are colours the smallest are one.
    """
    items = list(dict.fromkeys(change.item for change in step.timeline.memory))
    if not items:
        return [], np.zeros(0), np.zeros((0, 0))
    changes = step.timeline.memory
    # Every change is a point of its own: several of one instant may hold the peak between them.
    sizes = np.zeros((len(items), len(changes)))
    for number, change in enumerate(changes):
        sizes[items.index(change.item), number] = change.bytes
    sizes = np.cumsum(sizes, axis=1)
    first = sum(change.time == 0 for change in changes)
    times = np.array([*(change.time for change in changes[first - 1 :]), step.step_seconds])
    sizes = np.hstack([sizes[:, first - 1 :], sizes[:, -1:]])
    if len(items) > len(COLOURS):
        largest = np.argsort(-sizes.max(axis=1), kind="stable")
        kept, left = largest[: len(COLOURS) - 1], largest[len(COLOURS) - 1 :]
        sizes = np.vstack([sizes[kept], sizes[left].sum(axis=0)])
        items = [*(items[number] for number in kept), OTHERS]
    moves = sizes.max(axis=1) - sizes.min(axis=1)
    order = sorted(range(len(items)), key=lambda number: (moves[number], -sizes[number].max()))
    return [items[number] for number in order], times, sizes[order]


def memory_colours(names: Sequence[str]) -> dict[str, str]:
    """An item has one colour in all pictures; what is not among the usual ones takes colours that are free."""
    usual = dict(zip(_USUAL, COLOURS, strict=False))
    free = iter(colour for colour in COLOURS if colour not in {usual[name] for name in names if name in usual})
    return {name: GREY if name == OTHERS else usual[name] if name in usual else next(free) for name in names}


def _label(step: Step, name: str, names: Sequence[str]) -> str:
    """An item and its size at the peak; of those that are drawn as one, their names too, the largest first."""
    if name != OTHERS:
        return f"{name}, {format_bytes(step.memory.get(name, 0), 3, family='binary')} at the peak"
    rest = {item: size for item, size in step.memory.items() if item not in names and size}
    which = f" ({', '.join(sorted(rest, key=lambda item: -rest[item]))})" if rest else ""
    return f"{OTHERS}, {format_bytes(sum(rest.values()), 3, family='binary')} at the peak{which}"


def _device(step: Step) -> str:
    device = step.training.cluster.device
    return plain(f"{device.name}, {format_bytes(device.memory_bytes or 0, 3, family='binary')}")


def _note(step: Step, drawn: bool) -> str:
    missing = "not included: the CUDA context, workspaces of libraries, fragmentation"
    if not step.training.activations:
        missing += ", activations (none are known)"
    if step.training.cluster.device.memory_bytes is not None and not drawn:
        missing += f"\nthe device has more: {_device(step)}"
    return missing


def _mark_peak(axes: "Axes", step: Step, end: float) -> None:
    """A mark at the peak, and its size, beside it where there is more room."""
    left = step.peak_seconds > end / 2
    size = format_bytes(step.peak_bytes, family="binary")
    decimal = format_bytes(step.peak_bytes, family="decimal")
    at = format_seconds(step.peak_seconds)
    axes.plot([step.peak_seconds], [step.peak_bytes], marker="v", color=INK, markersize=6, clip_on=False, zorder=4)
    axes.annotate(
        plain(f"peak {size} ({decimal}) at {at}"),
        (step.peak_seconds, step.peak_bytes),
        xytext=(-7 if left else 7, 5),
        textcoords="offset points",
        ha="right" if left else "left",
        va="bottom",
        fontsize=TEXT_SIZE,
        color=INK,
    )
