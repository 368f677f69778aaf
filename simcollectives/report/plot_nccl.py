"""Pictures of NCCL's choice: which algorithm and protocol over messages and nodes, and the time of every candidate."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simcollectives.measured.nccl import Prediction, Range, candidate_seconds, kinks
from simcollectives.report.rows import byte_family
from simcollectives.report.style import (
    COLOURS,
    GREY,
    INK,
    SMALL_SIZE,
    TEXT_SIZE,
    decade_ticks,
    dress,
    log_limits,
    new_figure,
    octave_ticks,
    set_heading,
    set_ticks,
)
from simcollectives.report.table_nccl import nodes_text
from simcollectives.units import ByteFamily, format_bytes, format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = dict(
    zip(("tree", "ring", "nvls", "collnet_chain", "collnet_direct", "nvls_tree", "pat"), COLOURS, strict=True)
)  # so that no shade of a tree is like nvls
_SHADES = {"LL": 0.3, "LL128": 0.6, "Simple": 1.0}
_DASHES: dict[str, Any] = {"LL": (0, (1.5, 1)), "LL128": (0, (5, 1.5)), "Simple": "-"}
_WIDTH_OF_A_CHARACTER = 0.0105
_ROOM_OF_A_SIZE = 0.1
_POINTS = 160
MAX_TIMES = 4
"""Clusters of which the times of all candidates are drawn."""


def nccl_figures(predictions: Sequence[Prediction], title: str | None = None) -> "list[tuple[str, Figure]]":
    """Return the figures of predictions, each with the stem of its file's name."""
    if not predictions:
        return []
    return [("nccl_choice", choice_figure(predictions, title)), ("nccl_times", times_figure(predictions, title))]


def _colour(label: str) -> str:
    return _COLOURS[label.partition("/")[0]]


def _shade(label: str) -> tuple[float, float, float]:
    """The algorithm's colour; the lighter, the lower the latency of the protocol."""
    from matplotlib.colors import to_rgb

    strength = _SHADES[label.partition("/")[2]]
    red, green, blue = (1 - strength * (1 - part) for part in to_rgb(_colour(label)))
    return red, green, blue


def choice_figure(predictions: Sequence[Prediction], title: str | None = None) -> "Figure":
    """Draw what is picked: a row for each cluster, a bar for each range of messages."""
    figure = new_figure(1.6 + 0.42 * len(predictions))
    axes = figure.add_subplot()
    dress(axes)
    axes.grid(False)
    least, most = _span(predictions)
    for row, prediction in enumerate(predictions):
        for one in prediction.ranges:
            _draw_range(axes, row, one, (least, most))
    axes.set_ylim(len(predictions) - 0.5, -0.5)
    axes.set_yticks(range(len(predictions)), [nodes_text(one) for one in predictions])
    _message_axis(axes, predictions)
    legend = "colour: algorithm; shade: protocol, from LL (light) over LL128 to Simple (full)"
    set_heading(axes, [title, f"What NCCL picks for {predictions[0].model.collective}", legend], own_figure=True)
    _name_the_rest(axes, predictions, (least, most))
    return figure


def _span(predictions: Sequence[Prediction]) -> tuple[float, float]:
    starts = [one.first for prediction in predictions for one in prediction.ranges]
    ends = [one.last for prediction in predictions for one in prediction.ranges]
    return float(max(1, min(starts))), float(max(2, *ends))


def _message_axis(axes: "Axes", predictions: Sequence[Prediction]) -> None:
    """Label the messages, of all predictions together."""
    least, most = _span(predictions)
    family = _family(predictions)
    axes.set_xscale("log")
    axes.set_xlim(least, most)
    ticks = octave_ticks(least, most) if family == "binary" else decade_ticks(least, most)
    set_ticks(axes.xaxis, ticks, lambda size: format_bytes(size, 3, family=family))
    axes.set_xlabel("message size")


def _family(predictions: Sequence[Prediction]) -> ByteFamily:
    return byte_family([one.message_bytes for prediction in predictions for one in prediction.choices] or [1024])


def _share(one: Range, span: tuple[float, float]) -> float:
    """The part of the axis that a range takes."""
    return math.log((one.last + 1) / max(one.first, 1)) / math.log(span[1] / span[0])


def _has_room(one: Range, span: tuple[float, float]) -> bool:
    return _share(one, span) > _WIDTH_OF_A_CHARACTER * (len(one.label) + 1)


def _draw_range(axes: "Axes", row: int, one: Range, span: tuple[float, float]) -> None:
    start, end = max(one.first, 1), one.last + 1
    shade = _shade(one.label)
    axes.barh(row, end - start, left=start, height=0.8, color=shade, edgecolor="white", linewidth=0.8)
    if _has_room(one, span):
        dark = 0.3 * shade[0] + 0.6 * shade[1] + 0.1 * shade[2] < 0.55
        colour = "white" if dark else INK
        axes.text((start * end) ** 0.5, row, one.label, ha="center", va="center", fontsize=SMALL_SIZE, color=colour)


def _name_the_rest(axes: "Axes", predictions: Sequence[Prediction], span: tuple[float, float]) -> None:
    """A legend of what is named nowhere in the picture, for want of room."""
    from matplotlib.patches import Patch

    drawn = [one for prediction in predictions for one in prediction.ranges]
    written = {one.label for one in drawn if _has_room(one, span)}
    rest = [label for label in dict.fromkeys(one.label for one in drawn) if label not in written]
    if rest:
        patches = [Patch(color=_shade(label), label=label) for label in rest]
        axes.figure.legend(handles=patches, loc="outside lower center", ncols=6, fontsize=TEXT_SIZE, frameon=False)


def times_figure(predictions: Sequence[Prediction], title: str | None = None) -> "Figure":
    """Draw the time of every candidate against the message, with the switches marked, for up to four clusters."""
    drawn = _evenly(predictions)
    figure = new_figure(0.9 + 3.1 * len(drawn))
    several = figure.subplots(len(drawn), squeeze=False)[:, 0]
    for axes, prediction in zip(several, drawn, strict=True):
        _draw_times(axes, prediction)
    few = "" if len(drawn) == len(predictions) else f" ({len(drawn)} of {len(predictions)} clusters)"
    legend = "thick: what is picked; dotted: LL, dashed: LL128, solid: Simple; at the top: where the choice changes"
    heading = f"Time of {predictions[0].model.collective} by NCCL's own model{few}"
    set_heading(several[0], [title, heading, legend], own_figure=True)
    return figure


def _evenly(predictions: Sequence[Prediction]) -> list[Prediction]:
    if len(predictions) <= MAX_TIMES:
        return list(predictions)
    places = {round(place * (len(predictions) - 1) / (MAX_TIMES - 1)) for place in range(MAX_TIMES)}
    return [predictions[place] for place in sorted(places)]


def _draw_times(axes: "Axes", prediction: Prediction) -> None:
    dress(axes)
    model = prediction.model
    least, most = (int(end) for end in _span([prediction]))
    sizes = _sizes(least, most, [*kinks(model), *(one.message_bytes for one in prediction.switches)])
    ends = []
    for candidate in model.available:
        times = [candidate_seconds(model, candidate, size) for size in sizes]
        dashes = _DASHES[candidate.protocol]
        axes.plot(sizes, times, color=_colour(candidate.label), linestyle=dashes, linewidth=1.0, alpha=0.75)
        ends.append((times[-1], candidate.label))
    by_label = {candidate.label: candidate for candidate in model.available}
    for one in prediction.ranges:
        mine = [size for size in sizes if one.first <= size <= one.last]
        times = [candidate_seconds(model, by_label[one.label], size) for size in mine]
        axes.plot(mine, times, color=_colour(one.label), linestyle=_DASHES[one.label.partition("/")[2]], linewidth=3)
    axes.set_yscale("log")
    values = [candidate_seconds(model, one, size) for one in model.available for size in (sizes[0], sizes[-1])]
    axes.set_ylim(*log_limits([value for value in values if value > 0] or [1e-6]))
    set_ticks(axes.yaxis, decade_ticks(*axes.get_ylim()), format_seconds)
    _message_axis(axes, [prediction])
    axes.set_title(nodes_text(prediction), loc="left", fontsize=TEXT_SIZE, color=INK, pad=18)
    axes.set_ylabel("time")
    _label_ends(axes, ends)
    _mark_switches(axes, prediction)


def _sizes(least: int, most: int, kept: Sequence[int]) -> list[int]:
    """Messages to draw at: evenly in logarithm, and both sides of every jump."""
    even = [round(least * (most / least) ** (place / (_POINTS - 1))) for place in range(_POINTS)]
    jumps = [size + side for size in kept for side in (-1, 0)]
    return sorted({size for size in (*even, *jumps, least, most) if least <= size <= most})


def _label_ends(axes: "Axes", ends: Sequence[tuple[float, str]]) -> None:
    """Name every line right of its end, moved apart where lines are close."""
    low, high = (math.log(value) for value in axes.get_ylim())
    gap, ordered = 0.07, sorted(ends)
    places = [max(0.0, (math.log(max(seconds, 1e-12)) - low) / (high - low)) for seconds, _ in ordered]
    for number in range(1, len(places)):
        places[number] = max(places[number], places[number - 1] + gap)
    top = 1.0
    for number in reversed(range(len(places))):
        places[number] = min(places[number], top)
        top = places[number] - gap
    for place, (_, label) in zip(places, ordered, strict=True):
        axes.text(1.01, place, label, transform=axes.transAxes, fontsize=SMALL_SIZE, color=_colour(label), va="center")


def _mark_switches(axes: "Axes", prediction: Prediction) -> None:
    """A line at every switch, named above the axes where there is room."""
    family, span, last = _family([prediction]), _span([prediction]), -1.0
    for one in prediction.switches:
        axes.axvline(one.message_bytes, color=GREY, linewidth=0.8, linestyle=":")
        axes.plot(one.message_bytes, one.seconds, marker="o", markersize=4, color=INK)
        place = math.log(one.message_bytes / span[0]) / math.log(span[1] / span[0])
        if place - last > _ROOM_OF_A_SIZE:
            text = format_bytes(one.message_bytes, 3, family=family)
            axes.text(place, 1.02, text, transform=axes.transAxes, fontsize=SMALL_SIZE, color=GREY, ha="center")
            last = place
