"""The timeline of one collective: a row for each rank, a box for each transfer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simcollectives.engines import Timeline
from simcollectives.report.style import (
    COLOURS,
    DOTS_PER_INCH,
    FAINT,
    GREY,
    INK,
    dress,
    even_ticks,
    lay_out,
    plain,
    root_figure,
    set_ticks,
)
from simcollectives.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_RANKS = 64
_MAX_NAMES = 400
_MERGED_FROM = 3
_NAME_POINTS = 7.0
_NAME_PX = _NAME_POINTS / 72 * DOTS_PER_INCH
_LEVEL_COLOURS = {"link": COLOURS[0], "intra": COLOURS[0], "inter": COLOURS[1]}
_LANES = {"send": (0.06, 0.49), "receive": (0.51, 0.94), "reduce": (0.51, 0.94)}


@dataclass(frozen=True)
class _Box:
    """One entry of a timeline with its place on the y axis, from ``low`` to ``high``."""

    stream: str
    name: str
    start: float
    end: float
    low: float
    high: float


def timeline_height(ranks: int) -> float:
    """Inches of a figure with rows for this many ranks."""
    return 1.6 + min(max(0.42 * min(ranks, MAX_RANKS), 1.6), 7.5)


def rank_count(timeline: Timeline) -> int:
    """Number of rows: ranks and dedicated servers that take part."""
    return max(timeline.rank, default=0) + 1


def draw_timeline(axes: "Axes", timeline: Timeline, world_size: int | None = None) -> None:
    """Draw the transfers of a run. In each row sends stand above receives; reductions are hatched.

    ``world_size`` tells the ranks from the dedicated servers after them.
    """
    ranks = rank_count(timeline)
    shown = min(ranks, MAX_RANKS)
    dress(axes)
    axes.grid(False, axis="y")
    end = max(timeline.end, default=0.0)
    if end <= 0:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "nothing to draw: no transfer takes time", ha="center", transform=axes.transAxes)
        return
    boxes = _boxes(timeline, shown)
    for stream in sorted({box.stream for box in boxes}, key=_stream_order):
        _draw_stream(axes, stream, [box for box in boxes if box.stream == stream], end)
    axes.hlines(range(shown + 1), 0, end, color=FAINT, linewidth=0.6, zorder=0.5)
    axes.set_xlim(0, end * 1.005)
    axes.set_ylim(shown, 0)
    set_ticks(axes.xaxis, even_ticks(0, end), format_seconds)
    _set_rank_axis(axes, shown, world_size or ranks)
    note = "a box is a transfer, its latency included; sends above, receives below"
    if shown < ranks:
        note += f"\nranks {shown} to {ranks - 1} not drawn"
    axes.set_xlabel(f"time\n{note}")
    _name_boxes(axes, boxes, end, shown)


def _set_rank_axis(axes: "Axes", shown: int, world_size: int) -> None:
    height_px = root_figure(axes).get_figheight() * DOTS_PER_INCH * 0.7
    step = next(step for step in (1, 2, 4, 8, 16) if shown / step * 16 <= height_px or step == 16)

    def name(row: int) -> str:
        return str(row) if row < world_size else f"server {row - world_size}"

    rows = range(0, shown, step)
    axes.set_yticks([row + 0.5 for row in rows], labels=[name(row) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_ylabel("rank")


def _boxes(timeline: Timeline, shown: int) -> list[_Box]:
    """Place every entry: those of one lane that overlap in time share its height."""
    lanes: dict[tuple[int, str], list[int]] = {}
    for entry, (rank, stream) in enumerate(zip(timeline.rank, timeline.stream, strict=True)):
        if rank < shown:
            lanes.setdefault((rank, stream.partition(" ")[0]), []).append(entry)
    found = []
    for (rank, lane), entries in lanes.items():
        spans: dict[tuple[str, float, float], list[str]] = {}
        for entry in entries:
            alike = (timeline.stream[entry], timeline.start[entry], timeline.end[entry])
            spans.setdefault(alike, []).append(timeline.name[entry])
        merged = [(*alike, name) for alike, names in spans.items() for name in _names(names)]
        low, high = _LANES.get(lane, (0.06, 0.94))
        rows = _stacked([(start, end) for _, start, end, _ in merged])
        for (stream, start, end, name), (row, depth) in zip(merged, rows, strict=True):
            height = (high - low) / depth
            bottom = rank + low + row * height
            found.append(_Box(stream, name, start, end, bottom, bottom + height))
    return found


def _names(names: Sequence[str]) -> list[str]:
    """Names of transfers from the same start to the same end: of many, one for all.

    >>> _names(["to 1", "to 2"]), _names(["to 1", "to 2", "to 3"])
    (['to 1', 'to 2'], ['to 3 devices'])
    """
    if len(names) < _MERGED_FROM:
        return list(names)
    return [f"{names[0].partition(' ')[0]} {len(names)} devices"]


def _stacked(spans: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    """Return for each span its row and the number of rows of the cluster of overlapping spans that it is in.

    >>> _stacked([(0, 2), (1, 3), (3, 4)])
    [(0, 2), (1, 2), (0, 1)]
    """
    placed = [(0, 1)] * len(spans)
    order = sorted(range(len(spans)), key=lambda number: spans[number])
    group: list[int] = []
    rows: list[float] = []
    reach = -math.inf
    for number in [*order, -1]:
        start = spans[number][0] if number >= 0 else math.inf
        slack = 1e-9 * abs(reach) if math.isfinite(reach) else 0.0
        if start >= reach - slack:
            for member in group:
                placed[member] = (placed[member][0], len(rows))
            group, rows = [], []
        if number < 0:
            break
        row = next((row for row, end in enumerate(rows) if start >= end - slack), len(rows))
        rows[row : row + 1] = [spans[number][1]]
        placed[number] = (row, 1)
        group.append(number)
        reach = max(reach, spans[number][1])
    return placed


def _stream_order(stream: str) -> tuple[bool, str, bool]:
    """Level by level, sends before receives; reductions last."""
    kind, _, level = stream.partition(" ")
    return kind == "reduce", level, kind == "receive"


def _draw_stream(axes: "Axes", stream: str, boxes: Sequence[_Box], end: float) -> None:
    from matplotlib.collections import PolyCollection

    kind, _, level = stream.partition(" ")
    colour = _LEVEL_COLOURS.get(level, COLOURS[2])
    corners = [[(box.start, box.low), (box.end, box.low), (box.end, box.high), (box.start, box.high)] for box in boxes]
    px_per_second = axes.get_window_extent().width / end
    narrowest_px = min(box.end - box.start for box in boxes) * px_per_second
    collection = PolyCollection(
        corners,
        facecolors="white" if kind == "reduce" else colour,
        edgecolors=GREY if kind == "reduce" else "white",
        linewidths=0.5 if narrowest_px > 3 else 0.15,
        alpha=0.5 if kind == "receive" else 1.0,
        hatch="/////" if kind == "reduce" else None,
        label=plain("reduction" if kind == "reduce" else f"{kind}, {level}"),
    )
    axes.add_collection(collection, autolim=False)


def _name_boxes(axes: "Axes", boxes: Sequence[_Box], end: float, shown: int) -> None:
    """Write the peer into every box with room for it, unless there are so many that they would blur."""
    lay_out(root_figure(axes))
    extent = axes.get_window_extent()
    width_px, row_px = extent.width * 0.97 / end, extent.height * 0.8 / shown  # title and legend are still to come
    named = [
        box
        for box in boxes
        if not box.stream.startswith("reduce")
        and (box.end - box.start) * width_px > (len(box.name.replace("to ", "from ")) + 1) * _NAME_PX * 0.62
        and (box.high - box.low) * row_px > _NAME_PX * 1.25
    ]
    for box in named if len(named) <= _MAX_NAMES else ():
        dark = box.stream.startswith("send")
        axes.text(
            (box.start + box.end) / 2,
            (box.low + box.high) / 2,
            plain(box.name),
            ha="center",
            va="center",
            fontsize=_NAME_POINTS,
            color="white" if dark else INK,
            clip_on=True,
        )
