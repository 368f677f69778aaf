"""Marks where the fastest algorithm changes, with labels in a strip that is kept free of curves."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from simcollectives.report.fastest import Crossing
from simcollectives.report.style import GREY, INK, SMALL_SIZE, lay_out, plain, root_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

_MAX_STRIP = 0.45  # share of the height of the axes
_GAP_PX = 3.0
_LONG_LABEL = 44
CROSSING_STYLE: dict[str, Any] = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 8,
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "markeredgewidth": 1.2,
    "zorder": 4,
}


def mark_crossings(axes: "Axes", crossings: Sequence[Crossing], show: Callable[[float], str], *, at_top: bool) -> int:
    """Mark all crossings on logarithmic axes and label as many as fit; returns how many have no label.

    The limits of the y axis grow by a strip below (or above) the curves, where the labels stand in rows.
    """
    axes.plot(
        [crossing.at for crossing in crossings],
        [crossing.seconds for crossing in crossings],
        label="_crossings",
        **CROSSING_STYLE,
    )
    lay_out(root_figure(axes))
    texts = [_label(axes, crossing, show) for crossing in crossings]
    box = axes.get_window_extent()
    sizes = [text.get_window_extent() for text in texts]
    height = max(size.height for size in sizes) + _GAP_PX
    most_rows = max(1, int(_MAX_STRIP * box.height / height))
    placed = _rows(
        [_centre(axes, crossing.at) for crossing in crossings],
        [(size.width + 2 * _GAP_PX) / box.width for size in sizes],
        most_rows,
    )
    rows = 1 + max((row for place in placed if place for row in place[:1]), default=0)
    _make_room(axes, min(0.6, (rows * height + 2 * _GAP_PX) / box.height), at_top)
    for text, crossing, place in zip(texts, crossings, placed, strict=True):
        if place is None:
            text.remove()
            continue
        row, centre = place
        share = (_GAP_PX + (row + 0.5) * height) / box.height
        text.set_position((centre, 1 - share if at_top else share))
        _leader(axes, crossing, share, at_top)
    return sum(place is None for place in placed)


def _label(axes: "Axes", crossing: Crossing, show: Callable[[float], str]) -> "Text":
    names = f"{_short(crossing.before)} → {_short(crossing.after)}"
    at = show(crossing.at)
    content = f"{at}\n{names}" if len(names) > _LONG_LABEL else f"{at}: {names}"
    text = axes.text(
        0.5,
        0.5,
        plain(content),
        transform=axes.transAxes,
        ha="center",
        va="center",
        fontsize=SMALL_SIZE,
        color=INK,
        zorder=5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )
    if text.get_window_extent().width > 0.9 * axes.get_window_extent().width:
        text.set_text(plain(at))
    return text


def _short(label: str) -> str:
    """The first of several names of one curve; the legend has them all."""
    return label.split(" = ", maxsplit=1)[0]


def _centre(axes: "Axes", at: float) -> float:
    """Where a value stands on the x axis, as a share of its width."""
    x: float = axes.transAxes.inverted().transform(axes.transData.transform((at, axes.get_ylim()[0])))[0]
    return float(x)


def _rows(centres: Sequence[float], widths: Sequence[float], most: int) -> list[tuple[int, float] | None]:
    """Row and centre for each label, so that no two in a row touch and none leaves the axes; None without room."""
    taken: list[list[tuple[float, float]]] = []
    places: list[tuple[int, float] | None] = []
    for centre, width in zip(centres, widths, strict=True):
        inside = min(max(centre, width / 2), max(1 - width / 2, width / 2))
        low, high = inside - width / 2, inside + width / 2
        free = [row for row, spans in enumerate(taken) if all(high <= a or low >= b for a, b in spans)]
        row = free[0] if free else len(taken)
        if row >= most:
            places.append(None)
            continue
        if not free:
            taken.append([])
        taken[row].append((low, high))
        places.append((row, inside))
    return places


def _make_room(axes: "Axes", share: float, at_top: bool) -> None:
    """Let ``share`` of the y axis be free of data."""
    low, high = axes.get_ylim()
    grown = (high / low) ** (share / (1 - share))
    axes.set_ylim((low, high * grown) if at_top else (low / grown, high))


def _leader(axes: "Axes", crossing: Crossing, share: float, at_top: bool) -> None:
    low, high = axes.get_ylim()
    end = low * (high / low) ** (1 - share if at_top else share)
    axes.plot(
        [crossing.at] * 2, [crossing.seconds, end], color=GREY, linewidth=0.8, linestyle=":", zorder=2, label="_leader"
    )
