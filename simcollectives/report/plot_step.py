"""The timeline of a training step: a row for each stream, a box for each piece of work."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING

from simcollectives.errors import counted
from simcollectives.report.style import (
    COLOURS,
    DOTS_PER_INCH,
    FAINT,
    GREY,
    INK,
    dress,
    even_ticks,
    lay_out,
    legend_below,
    new_figure,
    plain,
    root_figure,
    set_heading,
    set_ticks,
)
from simcollectives.training.program import COMPUTE, HOST
from simcollectives.training.step import Step
from simcollectives.training.timeline import Span, union, without
from simcollectives.units import format_ratio, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_RANKS = 4
_MAX_NAMES = 300
_NAME_POINTS = 7.0
_NAME_PX = _NAME_POINTS / 72 * DOTS_PER_INCH
_TOUCHING_PX, _NARROW_PX = 1.0, 5.0
_LEAST_PX, _FEW = 0.8, 40
_MOST = 0.9
_STRIP = 0.62
"""Height of the strip of phases, in rows."""

FORWARD, BACKWARD, RECOMPUTED, OPTIMIZER = "forward", "backward", "recomputation", "optimizer"
PASSES = (FORWARD, BACKWARD, RECOMPUTED)
DEVICE_COPIES, HOST_COPIES, HOST_WORK = "copies on the device", "copies to and from the host", "work of the host"
STALL, RANKS = "compute waits for communication", "a collective waits for other ranks"
_COLOUR_OF = {
    FORWARD: COLOURS[0],
    BACKWARD: COLOURS[1],
    RECOMPUTED: COLOURS[5],
    OPTIMIZER: COLOURS[2],
    DEVICE_COPIES: COLOURS[6],
    HOST_COPIES: "#44AA99",
    HOST_WORK: "#9a9a9a",
    "all_reduce": COLOURS[3],
    "all_gather": COLOURS[4],
    "reduce_scatter": "#6A3D9A",
    "broadcast": "#999933",
    "reduce": "#882255",
    "all_to_all": "#332288",
    STALL: "white",
    RANKS: "white",
}
_HATCHES = {STALL: "/////", RANKS: "....."}


@dataclass(frozen=True)
class _Row:
    """A stream of a rank, with its work in the order in which it was issued."""

    rank: int
    stream: str
    spans: tuple[Span, ...]


@dataclass(frozen=True)
class _Box:
    """Work of one category on one row: one operation, or several that are too narrow to be told apart."""

    category: str
    name: str
    row: float
    start: float
    end: float
    count: int = 1
    is_layer: bool = False


def step_figure(step: Step, title: str | None = None) -> "Figure":
    """Return the timeline of a step as a figure."""
    figure = new_figure(1.8 + 0.52 * max(len(_rows(step)), 1))
    axes = figure.add_subplot()
    set_heading(axes, [title, step_text(step)], own_figure=True)
    draw_step(axes, step)
    legend_below(figure, axes)
    return figure


def step_text(step: Step) -> str:
    """Return a step in words: its strategy, how long it takes, and what of it is exposed."""
    parts = [f"exposed {format_seconds(step.exposed_seconds, 3)}"]
    if step.idle_seconds > 0:
        parts.append(f"idle {format_seconds(step.idle_seconds, 3)}")
    if step.efficiency is not None:
        parts.append(f"efficiency {format_ratio(step.efficiency, 3)}")
    ranks = counted(step.training.world_size, "rank")
    return f"{step.strategy}, {ranks}: step {format_seconds(step.step_seconds)}, {', '.join(parts)}"


def draw_step(axes: "Axes", step: Step) -> None:
    """Draw streams as rows and work as boxes; what waits is hatched. Boxes too narrow to be told apart are joined."""
    dress(axes)
    axes.grid(False, axis="y")
    rows = _rows(step)
    if not rows:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "nothing to draw: no operation takes time", ha="center", transform=axes.transAxes)
        return
    end = max(span.end for row in rows for span in row.spans)
    axes.set_xlim(0, end)
    axes.set_ylim(len(rows), -_STRIP)
    set_ticks(axes.xaxis, even_ticks(0, end), format_seconds)
    axes.set_yticks([number + 0.5 for number in range(len(rows))], labels=_row_names(rows))
    axes.tick_params(axis="y", length=0)
    axes.hlines(range(len(rows) + 1), 0, end, color=FAINT, linewidth=0.6, zorder=0.5)
    axes.set_xlabel(f"time\n{_note(step)}")
    figure = root_figure(axes)
    lay_out(figure)
    pixel = end / max(axes.get_window_extent().width, 50.0)
    boxes = [box for number, row in enumerate(rows) for box in _boxes(row, number, step, pixel)]
    boxes += [
        box for number, row in enumerate(rows) if row.stream == COMPUTE for box in _stalls(step, row.rank, number)
    ]
    phases = _phases(rows[0])
    _draw_boxes(axes, boxes, pixel)
    _draw_phases(axes, phases, len(rows))
    _name_boxes(axes, [*phases, *boxes], pixel)


def _rows(step: Step) -> list[_Row]:
    """The compute stream first, then others as they are first used, the host last; only those that take time."""
    rows = []
    for rank in _played(step)[:MAX_RANKS]:
        streams: dict[str, list[Span]] = {}
        for span in sorted(step.timeline.of_rank(rank), key=lambda span: span.place):
            streams.setdefault(span.operation.stream, []).append(span)
        order = sorted(streams, key=lambda name: (name != COMPUTE, name == HOST))
        rows += [_Row(rank, name, tuple(streams[name])) for name in order if any(s.seconds > 0 for s in streams[name])]
    return rows


def _played(step: Step) -> list[int]:
    return sorted({span.rank for span in step.timeline.spans})


def _row_names(rows: Sequence[_Row]) -> list[str]:
    several = len({row.rank for row in rows}) > 1
    names = [row.stream.replace("communication ", "communication\n") for row in rows]
    return [plain(f"rank {row.rank}: {name}" if several else name) for row, name in zip(rows, names, strict=True)]


def _note(step: Step) -> str:
    ranks = _played(step)
    note = "boxes too narrow to be told apart are drawn as one"
    if len(ranks) == 1 and step.training.world_size > 1:
        return f"{note}; rank {ranks[0]} stands for all {step.training.world_size}, which are alike"
    left = ranks[MAX_RANKS:]
    return f"{note}\nnot drawn: ranks {', '.join(map(str, left[:8]))}{', ...' if left[8:] else ''}" if left else note


def category_of(span: Span, step: Step) -> str:
    """Return what kind of work a span is, by which it is coloured."""
    operation = span.operation
    if operation.call is not None:
        return operation.call.kind
    if operation.kind in ("copy", "host"):
        return HOST_COPIES if operation.kind == "copy" else HOST_WORK
    if operation.phase == "optimizer":
        return OPTIMIZER
    if operation.name.endswith(" recompute"):
        return RECOMPUTED
    if operation.name.removesuffix(" backward") not in step.training.seconds:
        return DEVICE_COPIES
    return FORWARD if operation.phase == "forward" else BACKWARD


def _boxes(row: _Row, number: int, step: Step, pixel: float) -> Iterator[_Box]:
    """The boxes of a row, category by category."""
    layers = {module.name: layer.name for layer in step.training.model.layers for module in layer.modules}
    boxes: list[_Box] = []
    for span in row.spans:
        name = span.operation.name.removesuffix(" backward").removesuffix(" recompute")
        boxes.append(_Box(RANKS, "", number, span.start, span.begins))
        boxes.append(_Box(category_of(span, step), name, number, span.begins, span.end))
    boxes = [box for box in boxes if box.end > box.start]
    for category in dict.fromkeys(box.category for box in boxes):
        mine = [box for box in boxes if box.category == category]
        if not _narrow(mine, pixel):
            yield from mine
        elif category in PASSES:
            by_layer = _joined(
                [replace(box, name=layers.get(box.name, box.name), is_layer=True) for box in mine], pixel
            )
            found = by_layer if not _narrow(by_layer, pixel) else _joined([_unnamed(box) for box in mine], pixel)
            yield from found
        else:
            yield from (box for box in _neighbours_joined(boxes, pixel) if box.category == category)


def _unnamed(box: _Box) -> _Box:
    return replace(box, name=box.category, is_layer=False)


def _neighbours_joined(boxes: Sequence[_Box], pixel: float) -> list[_Box]:
    """Join what is of one category with nothing else between: what stands between may be most of the time."""
    found: list[_Box] = []
    for _, some in groupby(sorted(boxes, key=lambda box: box.start), key=lambda box: box.category):
        found += [
            replace(box, name=f"{box.count} x {box.category}" if box.category not in _HATCHES else "")
            for box in _joined([_unnamed(one) for one in some], pixel)
        ]
    return found


def _narrow(boxes: Sequence[_Box], pixel: float) -> bool:
    return median(box.end - box.start for box in boxes) < _NARROW_PX * pixel


def _joined(boxes: Sequence[_Box], pixel: float) -> list[_Box]:
    """Join boxes of one name that follow each other within a pixel."""
    found: list[_Box] = []
    for box in sorted(boxes, key=lambda box: box.start):
        last = found[-1] if found else None
        if last and box.name == last.name and box.start - last.end < _TOUCHING_PX * pixel:
            found[-1] = replace(last, end=max(last.end, box.end), count=last.count + box.count)
        else:
            found.append(box)
    return found


def _stalls(step: Step, rank: int, number: int) -> list[_Box]:
    """When collectives of other streams run, or wait, and nothing on the stream of the kernels does."""
    spans = step.timeline.of_rank(rank)
    others = [s for s in spans if s.operation.kind == "collective" and s.operation.stream != COMPUTE]
    taking = union((span.start, span.end) for span in others)
    own = [s for s in spans if s.operation.kind == "compute" or s.operation.stream == COMPUTE]
    compute = union((span.start, span.end) for span in own)
    return [_Box(STALL, "exposed", number, start, end) for start, end in without(taking, compute)]


def _phases(row: _Row) -> list[_Box]:
    """A strip above the rows: forward, backward and optimizer of each micro-batch on the first stream."""
    reach: dict[tuple[int, str], tuple[float, float]] = {}
    for span in row.spans:
        key = span.operation.micro_batch, span.operation.phase
        start, end = reach.get(key, (span.start, span.end))
        reach[key] = min(start, span.start), max(end, span.end)
    several = len({micro_batch for micro_batch, _ in reach}) > 1
    return [
        _Box("phase", f"{phase} {micro_batch}" if several and phase != "optimizer" else phase, -_STRIP, start, end)
        for (micro_batch, phase), (start, end) in reach.items()
        if end > start
    ]


def _draw_boxes(axes: "Axes", boxes: Sequence[_Box], pixel: float) -> None:
    from matplotlib.collections import PolyCollection

    passes = {box.row for box in boxes if box.category in PASSES}
    for category, colour in _COLOUR_OF.items():
        mine = [box for box in boxes if box.category == category]
        if not mine:
            continue
        hatched, narrow = category in _HATCHES, _narrow(mine, pixel)
        corners = []
        for box in mine:
            # Many slivers on top of a pass would hide it if they were widened.
            least = 0.0 if len(mine) > _FEW and box.row in passes else _LEAST_PX * pixel
            low, high, end = box.row + 0.1, box.row + 0.9, max(box.end, box.start + least)
            corners.append([(box.start, low), (end, low), (end, high), (box.start, high)])
        collection = PolyCollection(
            corners,
            facecolors=colour,
            edgecolors=GREY if hatched else "white",
            linewidths=0.5 if hatched else 0.0 if narrow else 0.5,
            hatch=_HATCHES.get(category),
            label=plain(category),
            zorder=1.2 if category in PASSES else 1.4,
        )
        collection.set_snap(False if narrow else None)
        axes.add_collection(collection, autolim=False)


def _draw_phases(axes: "Axes", phases: Sequence[_Box], rows: int) -> None:
    for box in phases:
        axes.broken_barh([(box.start, box.end - box.start)], (-_STRIP, _STRIP - 0.14), facecolor="#eeeeee")
        axes.vlines([box.start, box.end], -_STRIP, rows, color=GREY, linewidth=0.5, linestyle=(0, (2, 3)), zorder=1.1)


def _name_boxes(axes: "Axes", boxes: Sequence[_Box], pixel: float) -> None:
    """Write into every box what fits, unless there are so many names that they would blur."""
    named = _names(boxes, pixel)
    for box, name in named if len(named) <= _MAX_NAMES else [pair for pair in named if pair[0].category == "phase"]:
        middle = box.row + (0.5 if box.category != "phase" else (_STRIP - 0.14) / 2)
        axes.text(
            (box.start + box.end) / 2,
            middle,
            plain(name),
            ha="center",
            va="center",
            fontsize=_NAME_POINTS,
            color="white" if _dark(_COLOUR_OF.get(box.category, "#eeeeee")) else INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6} if box.category in _HATCHES else None,
            clip_on=True,
        )


def _names(boxes: Sequence[_Box], pixel: float) -> list[tuple[_Box, str]]:
    """Boxes with their names, or else with short ones where most of the boxes alike have room for theirs."""
    found = [(box, box.name) for box in boxes if _fits(box, box.name, pixel)]
    others = sorted((box for box in boxes if not _fits(box, box.name, pixel)), key=_alike)
    for _, some in groupby(others, key=_alike):
        short = [(box, name) for box in some if (name := _short(box))]
        room = [(box, name) for box, name in short if _fits(box, name, pixel)]
        phases = bool(short) and short[0][0].category == "phase"
        found += room if phases or len(room) >= _MOST * len(short) else []
    return found


def _alike(box: _Box) -> tuple[float, str]:
    return box.row, box.category


def _fits(box: _Box, name: str, pixel: float) -> bool:
    room = (box.end - box.start) / pixel * 0.95  # names of rows and a legend may still take some
    return bool(name) and (len(name) + 1) * 0.62 * _NAME_PX < room


def _short(box: _Box) -> str:
    """The word that tells a phase; the number at the end of the name of a layer or of what is no layer's module."""
    if box.category == "phase":
        return box.name.partition(" ")[0]
    number = re.search(r"\d+$", box.name)
    return number[0] if number and (box.is_layer or box.category not in PASSES) else ""


def _dark(colour: str) -> bool:
    """Whether white is easier to read on a colour than black."""
    if not colour.startswith("#"):
        return False
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 140
