"""The table of the fastest algorithm over message and world size, with its margin to the runner-up."""

import itertools
from collections.abc import Callable, Sequence

from rich.text import Text

from simcollectives.report.fastest import Fastest, fastest
from simcollectives.report.rows import Row, labels_of, named_text, value_text
from simcollectives.report.text import NOTHING, Block, Column, TextTable, caption, heading
from simcollectives.units import format_bytes, format_ratio

_MARGINS = "margin: how much longer the runner-up takes"
_CELL_WIDTH = 30
_DENSE = 0.6


def fastest_blocks(rows: Sequence[Row]) -> list[Block]:
    """Return which algorithm is fastest where: a grid over message and world size, or ranges of what was swept.

    Nothing where only one algorithm ran.
    """
    if len(labels_of(rows)) < 2:
        return []
    found = fastest(rows)
    if len(found) == 1:
        return [_sentence(found[0])]
    rests = list(dict.fromkeys(one.rest for one in found))
    if len(rests) == len(found):
        return [heading("Fastest"), *_ranges(found, "at", _rest_text), caption(_MARGINS)]
    parts: list[Block] = []
    for rest in rests:
        some = [one for one in found if one.rest == rest]
        at = f" at {_rest_text(some[0])}" if len(rests) > 1 and rest else ""
        parts += [heading(f"Fastest{at}"), *_over_sizes(some)]
    return [*parts, caption(_MARGINS)]


def _rest_text(one: Fastest) -> str:
    return ", ".join(named_text(key, value) for key, value in one.rest)


def _over_sizes(found: Sequence[Fastest]) -> list[Block]:
    messages = {one.message_bytes for one in found}
    sizes = {one.world_size for one in found}
    if len(found) > _DENSE * len(messages) * len(sizes) and min(len(messages), len(sizes)) > 1:
        return _grid(found)
    blocks: list[Block] = []
    for size in sorted(sizes):
        some = [one for one in found if one.world_size == size]
        if len(some) > 1 or len(messages) == 1 == len(sizes):
            at = [caption(f"at {named_text('world_size', size)}")] if len(sizes) > 1 else []
            blocks += [*at, *_ranges(some, "message", lambda one: format_bytes(one.message_bytes))]
    for message in sorted(messages):
        some = [one for one in found if one.message_bytes == message]
        if len(some) > 1:
            at = [caption(f"at message {format_bytes(message)}")] if len(messages) > 1 else []
            blocks += [*at, *_ranges(some, "ranks", lambda one: value_text("world_size", one.world_size))]
    return blocks


def _sentence(one: Fastest) -> Text:
    best = " = ".join(one.labels)
    if one.runner_up is None:
        return caption(f"fastest: {best}, all equal")
    return caption(f"fastest: {best}; margin to {one.runner_up}: {margin_text(one.margin)}")


def margin_text(margin: float | None) -> str:
    """Return how much longer the runner-up takes.

    >>> margin_text(0.12), margin_text(0.0004), margin_text(4.0), margin_text(None)
    ('+12%', '+0.04%', '5x', '-')
    """
    if margin is None:
        return NOTHING
    return f"+{format_ratio(margin, 2)}" if margin < 1 else f"{1 + margin:.3g}x"


def _ranges(found: Sequence[Fastest], name: str, show: Callable[[Fastest], str]) -> list[Block]:
    """One row for each run of neighbouring points with the same fastest algorithm."""
    groups = [list(some) for _, some in itertools.groupby(found, key=lambda one: one.labels)]
    spans = [_span([show(one) for one in some]) for some in groups]
    rivals = []
    for some in groups:
        near = min((one for one in some if one.margin is not None), key=lambda one: one.margin or 0.0, default=None)
        rivals.append(NOTHING if near is None or near.runner_up is None else near.runner_up)
    columns = [
        Column(name, spans, right=False, wrap_at=44),
        Column("fastest", [" = ".join(some[0].labels) for some in groups], right=False, wrap_at=44),
        Column("nearest runner-up", rivals, right=False, wrap_at=36),
        Column("margin", [_margins(some) for some in groups], right=False),
    ]
    return [TextTable(columns)]


def _span(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def _margins(found: Sequence[Fastest]) -> str:
    margins = [one.margin for one in found if one.margin is not None]
    if not margins:
        return NOTHING
    ends = [margin_text(min(margins)), margin_text(max(margins))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _grid(found: Sequence[Fastest]) -> list[Block]:
    """Messages down, world sizes across; neighbouring messages with the same answers share a row."""
    sizes = sorted({one.world_size for one in found})
    cells = {(one.message_bytes, one.world_size): one for one in found}
    messages = sorted({one.message_bytes for one in found})

    def answers(message: int) -> tuple[tuple[str, ...], ...]:
        return tuple(cells[message, size].labels if (message, size) in cells else () for size in sizes)

    groups = [list(some) for _, some in itertools.groupby(messages, key=answers)]
    columns = [Column("message", [_span([format_bytes(message) for message in some]) for some in groups], right=False)]
    for size in sizes:
        texts = []
        for some in groups:
            there = [cells[message, size] for message in some if (message, size) in cells]
            texts.append(f"{' = '.join(there[0].labels)} {_margins(there)}" if there else NOTHING)
        columns.append(Column(named_text("world_size", size), texts, right=False, wrap_at=_CELL_WIDTH))
    return [TextTable(columns)]
