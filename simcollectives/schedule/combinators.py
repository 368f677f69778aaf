"""Ways to make schedules from schedules. Each keeps rounds lazy: nothing is generated until an engine asks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from simcollectives.schedule.types import (
    IntArray,
    Phase,
    Phases,
    Regular,
    Round,
    common,
    constant,
    make_round,
    single,
)


def _mapped(phases: Phases, change: Callable[[Round], Round], *, regular: bool, scale: int = 1) -> Phases:
    """Change every round; ``regular`` tells that regular rounds stay so, with ``scale`` times the chunks."""

    def wrap(phase: Phase) -> Phase:
        kept = None
        if regular and phase.regular is not None:
            chunks = phase.regular.chunks
            kept = replace(phase.regular, chunks=lambda step: chunks(step) * scale)
        return replace(phase, round_at=lambda step: change(phase.round_at(step)), regular=kept, rotation=None)

    return tuple(wrap(phase) for phase in phases)


def reverse(phases: Phases) -> Phases:
    """Run backwards with source and destination swapped: copies become additions.

    Turns an all-gather into a reduce-scatter and a broadcast into a reduce, with the same rounds and bytes.
    """

    def backwards(phase: Phase) -> Phase:
        last, regular = phase.steps - 1, phase.regular

        def round_at(step: int) -> Round:
            r = phase.round_at(last - step)
            adds = common(r.reduce)
            adds = ~r.reduce if adds is r.reduce else constant(not adds, len(r.reduce))
            return Round(r.dst, r.src, r.first, r.count, r.stride, adds)

        if regular is not None:
            chunks = regular.chunks
            regular = Regular(regular.messages, lambda step: chunks(last - step), not regular.reduces)
        return replace(phase, round_at=round_at, regular=regular, rotation=None)

    return tuple(backwards(phase) for phase in reversed(phases))


def concatenate(*parts: Phases) -> Phases:
    """One after another, over the same chunks."""
    return tuple(phase for part in parts for phase in part)


def relabel(phases: Phases, ranks: IntArray) -> Phases:
    """Run with rank ``ranks[i]`` in the place of rank i."""
    sender, receiver = _remembering(ranks.__getitem__), _remembering(ranks.__getitem__)

    def change(r: Round) -> Round:
        return Round(sender(r.src), receiver(r.dst), r.first, r.count, r.stride, r.reduce)

    return _mapped(phases, change, regular=False)


def share(phases: Phases, channel: int, channels: int, rank_at: Callable[[IntArray], IntArray]) -> Phases:
    """One of ``channels`` that divide a message, played with rank ``rank_at(i)`` in the place of rank i.

    The phases move chunks one by one, chunk i being rank i's part. Of each rank's part this channel moves chunk number
    ``channel`` of ``channels``.
    """

    def change(r: Round) -> Round:
        first = rank_at(r.first) * channels + channel
        return Round(rank_at(r.src), rank_at(r.dst), first, r.count, r.stride, r.reduce)

    return _mapped(phases, change, regular=True)


def embed(phases: Phases, groups: IntArray, chunk_base: IntArray, chunk_scale: int = 1) -> Phases:
    """Run the same phases in several disjoint groups at once.

    ``groups`` is [group, member]: the rank that plays each member. Chunk c of the phases becomes the ``chunk_scale``
    chunks from ``chunk_base[group] + c * chunk_scale`` on.
    """
    sender, receiver = (_remembering(lambda members: groups[:, members].reshape(-1)) for _ in range(2))

    def change(r: Round) -> Round:
        if chunk_scale > 1 and np.count_nonzero((common(r.stride) > 1) & (common(r.count) > 1)):
            r = _one_chunk_a_row(r)
        rows = len(groups) * len(r.src)
        return Round(
            sender(r.src),
            receiver(r.dst),
            (chunk_base[:, None] + r.first * chunk_scale).reshape(-1),
            _tiled(common(r.count) * chunk_scale, len(groups), rows),
            _tiled(common(r.stride), len(groups), rows) if chunk_scale == 1 else constant(1, rows),
            _tiled(common(r.reduce), len(groups), rows),
        )

    return _mapped(phases, change, regular=True, scale=chunk_scale)


def _remembering(change: Callable[[IntArray], IntArray]) -> Callable[[IntArray], IntArray]:
    """Answer with the same array when asked for the same again: rounds that have the ends of the last one stay so."""
    asked: IntArray | None = None
    answer: IntArray | None = None

    def remembered(ranks: IntArray) -> IntArray:
        nonlocal asked, answer
        if answer is None or asked is not ranks:
            asked, answer = ranks, change(ranks)
        return answer

    return remembered


def _tiled(values: Any, times: int, rows: int) -> Any:
    """Return a column of ``rows`` rows that repeats ``values``."""
    return np.tile(values, times) if isinstance(values, np.ndarray) else constant(values, rows)


def _one_chunk_a_row(r: Round) -> Round:
    row = np.repeat(np.arange(len(r.src)), r.count)
    position = np.arange(len(row)) - np.repeat(np.cumsum(r.count) - r.count, r.count)
    return make_round(r.src[row], r.dst[row], first=r.first[row] + position * r.stride[row], reduce=r.reduce[row])


def fold_in(world_size: int, chunks: int, power: int, inner: Phases) -> Phases:
    """Run ``inner``, made for ``power`` ranks, on any ``world_size`` from ``power`` to ``2 * power - 1``.

    Each of the first ``world_size - power`` even ranks adds its whole vector to its odd neighbour, waits, and is sent
    the result: two more rounds.
    """
    extra = world_size - power
    if extra == 0:
        return inner
    active = np.concatenate([np.arange(extra) * 2 + 1, np.arange(2 * extra, world_size)]).astype(np.int64)
    even = np.arange(extra) * 2
    fold = single(make_round(even, even + 1, count=chunks, reduce=True))
    unfold = single(make_round(even + 1, even, count=chunks))
    return concatenate((fold,), relabel(inner, active), (unfold,))
