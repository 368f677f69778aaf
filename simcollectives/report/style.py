"""One look for all figures: colours that colour-blind people tell apart, quiet axes, ticks with units.

Figures are made without pyplot, so that nothing global changes: safe in notebooks and in threads.
"""

import itertools
import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from simcollectives.errors import InputError
from simcollectives.units import ByteFamily

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_INCHES = 8.0
DOTS_PER_INCH = 100
TITLE_CHARACTERS = 92
LEGEND_CHARACTERS = 104
NOTE_CHARACTERS = 108
TITLE_SIZE, TEXT_SIZE, SMALL_SIZE = 10.5, 9.0, 8.0
INK, GREY, FAINT = "#222222", "#6b6b6b", "#e4e4e4"

# Okabe and Ito (2008), without the yellow, which is faint on white; black is kept for what was measured.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F5539")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (5, 1, 1, 1)))
MAX_STYLES = len(COLOURS) * len(_DASHES)


class LineStyle(NamedTuple):
    """How one curve is drawn."""

    color: str
    marker: str
    linestyle: Any


def line_style(number: int) -> LineStyle:
    """Return the style of the curve with this number, from 0; no two below ``MAX_STYLES`` are alike."""
    colour = number % len(COLOURS)
    turn = number // len(COLOURS)
    return LineStyle(COLOURS[colour], MARKERS[(colour + turn) % len(MARKERS)], _DASHES[turn % len(_DASHES)])


def new_figure(height_inches: float) -> "Figure":
    """Return an empty figure, 800 pixels wide, that draws itself with Agg."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1)
    figure = Figure(figsize=(WIDTH_INCHES, height_inches), dpi=DOTS_PER_INCH, layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def root_figure(axes: "Axes") -> "Figure":
    """Return the figure that axes are in, also where they are in a part of one. Raises InputError without a figure."""
    figure: Any = axes.figure
    while figure is not None and figure is not figure.figure:
        figure = figure.figure
    if figure is None:
        raise InputError("the axes belong to no figure; take axes that are in one")
    return figure  # type: ignore[no-any-return]


def lay_out(figure: "Figure") -> None:
    """Give the axes of a figure the place that they are drawn in, which says how wide they are; nothing is drawn."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)


def dress(axes: "Axes") -> None:
    """Give axes the common look."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
    axes.set_axisbelow(True)
    axes.grid(True, which="major", color=FAINT, linewidth=0.8)
    axes.tick_params(which="both", labelsize=TEXT_SIZE, labelcolor=INK, color=GREY)
    for axis in (axes.xaxis, axes.yaxis):
        axis.label.set_fontsize(TEXT_SIZE)
        axis.label.set_color(INK)


def set_heading(axes: "Axes", lines: Sequence[str | None], *, own_figure: bool) -> None:
    """Write a heading over the axes; in a figure of our own it begins at the figure's left edge."""
    text = "\n".join(wrapped(line) for line in lines if line)
    if own_figure:
        root_figure(axes).suptitle(text, x=0.012, ha="left", fontsize=TITLE_SIZE, color=INK)
    else:
        axes.set_title(text, loc="left", fontsize=TITLE_SIZE, color=INK)


def wrapped(text: str, characters: int = TITLE_CHARACTERS) -> str:
    """Return text broken into lines that fit into a figure; a dollar sign is no formula."""
    lines = [line for part in text.splitlines() for line in textwrap.wrap(part, characters)]
    return plain("\n".join(lines))


def wrapped_once(text: str, characters: int) -> str:
    """Return text that is plain already, broken into lines that fit into a legend."""
    return "\n".join(textwrap.wrap(text, characters))


def plain(text: str) -> str:
    """Return text that matplotlib does not take for a formula."""
    return text.replace("$", r"\$")


def set_ticks(axis: Any, ticks: Sequence[float], show: Callable[[float], str]) -> None:
    """Put labelled ticks at these places, and none elsewhere; of ticks with one label only the first."""
    from matplotlib.ticker import NullLocator

    by_label: dict[str, float] = {}
    for tick in ticks:
        by_label.setdefault(show(tick), tick)
    axis.set_ticks(list(by_label.values()), labels=list(by_label))
    axis.set_minor_locator(NullLocator())


def log_limits(values: Sequence[float], pad: float = 0.04, least: float = 1.1) -> tuple[float, float]:
    """Return limits of a logarithmic axis with a little room on both sides, by a factor of at least ``least``.

    >>> log_limits([10.0])
    (5.0, 20.0)
    """
    low, high = min(values), max(values)
    if high <= low * (1 + 1e-9):
        return low / 2, high * 2
    factor = max((high / low) ** pad, least)
    return low / factor, high * factor


def decade_ticks(low: float, high: float) -> list[float]:
    """Return round values for a logarithmic axis, about three to eight.

    >>> decade_ticks(1, 100)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
    >>> decade_ticks(1, 12)
    [1.0, 2.0, 5.0, 10.0]
    """
    if high / low < 6:
        return even_ticks(low, high)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{digit}e{exponent}") for exponent in range(first, last + 1) for digit in digits]
        inside = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(inside) <= 8:
            return inside
    return inside[:: math.ceil(len(inside) / 8)]


def octave_ticks(low: float, high: float) -> list[float]:
    """Return powers of two for a logarithmic axis, in steps that end at round binary sizes.

    >>> octave_ticks(1024, 8192)
    [1024.0, 2048.0, 4096.0, 8192.0]
    """
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    if last - first < 1:
        return even_ticks(low, high)
    step = next((step for step in (1, 2, 5, 10) if (last - first) / step <= 10), 20)
    return [2.0**exponent for exponent in range(first, last + 1) if exponent % step == 0]


def even_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return evenly spaced round values from low to high."""
    from matplotlib.ticker import MaxNLocator

    ticks = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    slack = 1e-9 * (high - low)
    return [
        round(float(tick), 15 - math.ceil(math.log10(max(abs(high), 1e-300))))
        for tick in ticks
        if low - slack <= tick <= high + slack
    ]


def thinned(ticks: Sequence[float], place: Callable[[float], float], widths: Sequence[float]) -> list[float]:
    """Return the ticks whose labels have room: every first, second, third, ... one, or what fits from the left.

    ``place`` and ``widths`` are shares of the axis.
    """
    width = dict(zip(ticks, widths, strict=True))

    def room(pair: Sequence[float]) -> bool:
        return place(pair[1]) - place(pair[0]) >= (width[pair[0]] + width[pair[1]]) / 2

    gaps = [place(b) - place(a) for a, b in itertools.pairwise(ticks)]
    if not gaps or max(gaps) < 1.5 * min(gaps):
        tries = (list(ticks[::step]) for step in range(1, len(ticks) + 1))
        return next(some for some in tries if all(map(room, itertools.pairwise(some))))
    kept: list[float] = []
    for tick in ticks:
        if not kept or room((kept[-1], tick)):
            kept.append(tick)
    return kept


def label_share(text: str, axes: "Axes") -> float:
    """Return about how much of the axes' width a tick label takes, with a gap; the figure must have been drawn."""
    return (len(text) + 1) * 0.6 * TEXT_SIZE / 72 * root_figure(axes).dpi / max(axes.get_window_extent().width, 50.0)


def byte_ticks(largest: float, family: ByteFamily) -> list[float]:
    """Return evenly spaced round sizes from 0 to the largest.

    >>> byte_ticks(4 * 2**20, "binary")[1] == 2**20, byte_ticks(4e6, "decimal")[1]
    (True, 1000000.0)
    """
    scale = 1024.0 ** int(math.log(max(largest, 1.0), 1024)) if family == "binary" else 1.0
    return [tick * scale for tick in even_ticks(0, largest / scale)]


def legend_below(figure: "Figure", *several: "Axes") -> None:
    """Put one legend of axes below them, in as many columns as fit, and make the figure higher by its height."""
    found = [axes.get_legend_handles_labels() for axes in several]
    handles = [handle for some, _ in found for handle in some]
    labels = [label for _, some in found for label in some]
    if not labels:
        return
    tries = [(LEGEND_CHARACTERS, rows) for rows in range(1, len(labels) + 1)]
    tries += [(characters, len(labels)) for characters in range(LEGEND_CHARACTERS - 8, 20, -8)]
    for characters, rows in tries:
        legend = figure.legend(
            handles,
            [wrapped_once(label, characters) for label in labels],
            loc="outside lower center",
            ncols=math.ceil(len(labels) / rows),
            fontsize=TEXT_SIZE,
            frameon=False,
            labelcolor=INK,
            columnspacing=1.6,
            handlelength=2.4,
        )
        box = legend.get_window_extent()
        if box.width <= figure.bbox.width or (characters, rows) == tries[-1]:
            break
        legend.remove()
    figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
