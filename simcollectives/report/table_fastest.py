"""The table of the fastest algorithm over message and world size, with its margin to the runner-up."""

import itertools
from collections.abc import Callable, Sequence

from rich.text import Text

from simcollectives.report.fastest import Fastest, fastest
from simcollectives.report.rows import Row, labels_of, message_family, named_text, value_text
from simcollectives.report.text import NOTHING, Block, Column, TextTable, caption, heading, spaced
from simcollectives.units import ByteFamily, format_bytes, format_ratio

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
    family = message_family(rows)
    rests = list(dict.fromkeys(one.rest for one in found))
    if len(rests) == len(found):
        return [
            heading("Fastest"),
            _ranges(found, "at", lambda some: _rest_span(some) or "as given"),
            caption(_MARGINS),
        ]
    sections: list[list[Block]] = []
    for some in _alike(found):
        for at, table in _over_sizes(some, family):
            where = ", ".join(text for text in (_rest_span(some), at) if text)
            sections.append([heading(f"Fastest at {where}" if where else "Fastest"), table])
    return [*spaced(sections), caption(_MARGINS)]


def _alike(found: Sequence[Fastest]) -> list[list[Fastest]]:
    """The points by what they are at beside message and world size; neighbours in one value with equal answers join."""
    groups: list[list[Fastest]] = []
    for _, same_rest in itertools.groupby(found, key=lambda one: one.rest):
        some = list(same_rest)
        if groups and _answers(groups[-1]) == _answers(some) and _changed([*groups[-1], *some]) is not None:
            groups[-1] = sorted([*groups[-1], *some], key=lambda one: (one.message_bytes, one.world_size))
        else:
            groups.append(some)
    return groups


def _answers(found: Sequence[Fastest]) -> dict[tuple[int, int], tuple[str, ...]]:
    return {(one.message_bytes, one.world_size): one.labels for one in found}


def _changed(found: Sequence[Fastest]) -> str | None:
    """The one key in which the rests of these points differ; None where it is not one."""
    rests = [dict(one.rest) for one in found]
    if any(rest.keys() != rests[0].keys() for rest in rests):
        return None
    keys = [key for key in rests[0] if len({rest[key] for rest in rests}) > 1]
    return keys[0] if len(keys) == 1 else None


def _rest_span(found: Sequence[Fastest]) -> str:
    """The rest of the first of these points, to that of the last.

    >>> from dataclasses import replace
    >>> first = Fastest(1024, 8, (("gamma", 0.0), ("link.alpha", 5e-6)), ("ring",), 1.0, None, None)
    >>> _rest_span([first, replace(first, rest=(("gamma", 2e-12), ("link.alpha", 5e-6)))])
    'gamma 0 s/B to 2 ps/B, link.alpha 5 us'
    """
    rests = list(dict.fromkeys(one.rest for one in found))
    changed, last = _changed(found), dict(rests[-1])
    if len(rests) > 1 and changed is None:
        return _span([", ".join(named_text(*item) for item in rest) for rest in rests])
    ends = {changed: f" to {value_text(changed, last[changed])}"} if changed else {}
    return ", ".join(named_text(key, value) + ends.get(key, "") for key, value in rests[0])


def _over_sizes(found: Sequence[Fastest], family: ByteFamily) -> list[tuple[str, TextTable]]:
    """Tables of these points over message and world size, each with the world size or the message it is at."""
    messages = {one.message_bytes for one in found}
    sizes = {one.world_size for one in found}
    answers = _answers(found)
    if len(answers) > _DENSE * len(messages) * len(sizes) and min(len(messages), len(sizes)) > 1:
        return [("", _grid(found, family))]

    def message_span(some: Sequence[Fastest]) -> str:
        return _span([format_bytes(one.message_bytes, family=family) for one in some])

    tables = []
    for size in sorted(sizes):
        some = [one for one in found if one.world_size == size]
        if len({one.message_bytes for one in some}) > 1 or len(messages) == 1 == len(sizes):
            at = named_text("world_size", size) if len(sizes) > 1 else ""
            tables.append((at, _ranges(some, "message", message_span)))
    for message in sorted(messages):
        some = [one for one in found if one.message_bytes == message]
        if len({one.world_size for one in some}) > 1:
            at = f"message {format_bytes(message, family=family)}" if len(messages) > 1 else ""
            tables.append((at, _ranges(some, "ranks", lambda some: _span([str(one.world_size) for one in some]))))
    return tables


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


def _ranges(found: Sequence[Fastest], name: str, span: Callable[[Sequence[Fastest]], str]) -> TextTable:
    """One row for each run of neighbouring points with the same fastest algorithm, and the same swept keys."""

    def alike(one: Fastest) -> tuple[tuple[str, ...], list[str]]:
        return one.labels, [key for key, _ in one.rest]

    groups = [list(some) for _, some in itertools.groupby(found, key=alike)]
    rivals = []
    for some in groups:
        near = min((one for one in some if one.margin is not None), key=lambda one: one.margin or 0.0, default=None)
        rivals.append(NOTHING if near is None or near.runner_up is None else near.runner_up)
    return TextTable(
        [
            Column(name, [span(some) for some in groups], right=False, wrap_at=44),
            Column("fastest", [" = ".join(some[0].labels) for some in groups], right=False, wrap_at=44),
            Column("nearest runner-up", rivals, right=False, wrap_at=36),
            Column("margin", [_margins(some) for some in groups], right=False),
        ]
    )


def _span(texts: Sequence[str]) -> str:
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def _margins(found: Sequence[Fastest]) -> str:
    margins = [one.margin for one in found if one.margin is not None]
    if not margins:
        return NOTHING
    ends = [margin_text(min(margins)), margin_text(max(margins))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def _grid(found: Sequence[Fastest], family: ByteFamily) -> TextTable:
    """Messages down, world sizes across; neighbouring messages with the same answers share a row."""
    sizes = sorted({one.world_size for one in found})
    labels = _answers(found)
    messages = sorted({one.message_bytes for one in found})

    def answers(message: int) -> tuple[tuple[str, ...], ...]:
        return tuple(labels.get((message, size), ()) for size in sizes)

    groups = [list(some) for _, some in itertools.groupby(messages, key=answers)]
    spans = [_span([format_bytes(message, family=family) for message in some]) for some in groups]
    columns = [Column("message", spans, right=False)]
    for size in sizes:
        texts = []
        for some in groups:
            there = [one for one in found if one.world_size == size and one.message_bytes in some]
            texts.append(f"{' = '.join(there[0].labels)} {_margins(there)}" if there else NOTHING)
        columns.append(Column(named_text("world_size", size), texts, right=False, wrap_at=_CELL_WIDTH))
    return TextTable(columns)
