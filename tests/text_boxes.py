"""Whether the text of a figure is readable: no two texts overlap, none is cut off by an edge."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text
    from matplotlib.transforms import BboxBase

EDGE = "the edge of the figure"
_TOLERANCE_PX = 0.5


def text_overlaps(figure: "Figure") -> list[tuple[str, str]]:
    """Return the pairs of visible texts whose boxes overlap; the second is ``EDGE`` for a text that is cut off.

    A legend is cut off where a text or a line sample of it is; it is named after its first text. Draws the figure.
    Boxes are upright rectangles in pixels; touching is allowed.
    """
    figure.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in _visible_texts(figure)]
    edges = figure.bbox
    legends = [
        (f"legend: {legend.get_texts()[0].get_text()}", legend.get_window_extent()) for legend in _legends(figure)
    ]
    found = [(name, EDGE) for name, box in [*boxes, *legends] if not _inside(box, edges)]
    for number, (name, box) in enumerate(boxes):
        found += [(name, other) for other, its in boxes[number + 1 :] if _overlap(box, its)]
    return found


def _overlap(first: "BboxBase", second: "BboxBase") -> bool:
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return bool(width > _TOLERANCE_PX and height > _TOLERANCE_PX)


def _inside(box: "BboxBase", edges: "BboxBase") -> bool:
    low = box.x0 >= edges.x0 - _TOLERANCE_PX and box.y0 >= edges.y0 - _TOLERANCE_PX
    return bool(low and box.x1 <= edges.x1 + _TOLERANCE_PX and box.y1 <= edges.y1 + _TOLERANCE_PX)


def _legends(figure: "Figure") -> list["Legend"]:
    from matplotlib.legend import Legend

    legends: list[Any] = figure.findobj(Legend)
    return [legend for legend in legends if legend.get_visible() and legend.get_texts()]


def _visible_texts(figure: "Figure") -> list["Text"]:
    from matplotlib.text import Text

    hidden = {id(text) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for text in _outside(axis)}
    texts: list[Any] = figure.findobj(Text)
    return [text for text in texts if text.get_visible() and text.get_text().strip() and id(text) not in hidden]


def _outside(axis: Any) -> list[Any]:
    """Labels of ticks that matplotlib keeps but does not draw, because they are outside of the axis' limits."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * max(abs(low), abs(high))
    ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
    shown = axis.get_visible() and axis.axes.axison
    out = [tick for tick in ticks if not shown or not low - slack <= tick.get_loc() <= high + slack]
    labels = [label for tick in out for label in (tick.label1, tick.label2)]
    return labels if shown else [*labels, axis.label, axis.get_offset_text()]
