"""Combinators, by what they do to the rows of a small schedule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.schedule import (
    Phase,
    Round,
    concatenate,
    embed,
    fold_in,
    make_round,
    relabel,
    repeated,
    reverse,
    share,
)

Row = tuple[int, int, tuple[int, ...], bool]


def rows(phases: tuple[Phase, ...]) -> list[list[Row]]:
    """[round]: (src, dst, chunks, reduce) of every row, in order."""
    return [rows_of(phase.round_at(step)) for phase in phases for step in range(phase.steps)]


def rows_of(r: Round) -> list[Row]:
    columns = (r.src.tolist(), r.dst.tolist(), r.first.tolist(), r.count.tolist(), r.stride.tolist(), r.reduce.tolist())
    return [(s, d, tuple(range(f, f + c * k, k)), a) for s, d, f, c, k, a in zip(*columns, strict=True)]


# Rank 0 tells rank 1 two chunks in one round and 1 tells 2 one chunk in the next.
CHAIN = (*repeated(1, lambda _s: make_round(0, 1, count=2)), *repeated(1, lambda _s: make_round(1, 2, first=1)))


def test_reverse_turns_copies_into_additions() -> None:
    assert rows(reverse(CHAIN)) == [[(2, 1, (1,), True)], [(1, 0, (0, 1), True)]]
    assert rows(reverse(reverse(CHAIN))) == rows(CHAIN)


def test_reverse_goes_backwards_inside_a_phase() -> None:
    phases = repeated(3, lambda step: make_round(0, 1, first=step))
    assert rows(reverse(phases)) == [[(1, 0, (step,), True)] for step in (2, 1, 0)]


def test_concatenate_is_one_after_another() -> None:
    assert rows(concatenate(CHAIN, (), CHAIN)) == rows(CHAIN) * 2


def test_relabel() -> None:
    ranks = np.array([5, 3, 4])
    assert rows(relabel(CHAIN, ranks)) == [[(5, 3, (0, 1), False)], [(3, 4, (1,), False)]]


@given(st.permutations(range(3)))
def test_relabel_there_and_back(order: list[int]) -> None:
    there = np.array(order)
    assert rows(relabel(relabel(CHAIN, there), np.argsort(there))) == rows(CHAIN)


def test_share_takes_one_chunk_of_each_part_that_goes_with_its_rank() -> None:
    ranks = np.array([2, 0, 1])
    phases = repeated(1, lambda _s: make_round([0, 1], [1, 2], first=[0, 2], reduce=True))
    # Rank 2 plays rank 0: its part is chunks 8 to 11 of four channels. Part 2 is that of rank 1, chunks 4 to 7.
    assert rows(share(phases, 3, 4, lambda i: ranks[i])) == [[(2, 0, (11,), True), (0, 1, (7,), True)]]
    assert rows(share(phases, 0, 1, lambda i: i)) == rows(phases)


def test_embed_runs_in_every_group_at_once() -> None:
    groups = np.array([[0, 2, 4], [1, 3, 5]])
    assert rows(embed(CHAIN, groups, np.array([0, 10]))) == [
        [(0, 2, (0, 1), False), (1, 3, (10, 11), False)],
        [(2, 4, (1,), False), (3, 5, (11,), False)],
    ]


def test_embed_makes_runs_of_chunks() -> None:
    groups = np.array([[0, 1, 2]])
    assert rows(embed(CHAIN, groups, np.array([6]), chunk_scale=3)) == [
        [(0, 1, (6, 7, 8, 9, 10, 11), False)],
        [(1, 2, (9, 10, 11), False)],
    ]


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_embed_keeps_strided_chunks_apart(scale: int) -> None:
    phases = repeated(1, lambda _s: make_round([0, 1], [1, 0], first=[0, 1], count=[3, 2], stride=2, reduce=True))
    (found,) = rows(embed(phases, np.array([[7, 9]]), np.array([0]), chunk_scale=scale))
    chunks = {7: [], 9: []}  # type: dict[int, list[int]]
    for src, _, some, adds in found:
        chunks[src] += some
        assert adds
    expected = {7: [0, 2, 4], 9: [1, 3]}
    assert {s: sorted(c) for s, c in chunks.items()} == {
        s: [c * scale + k for c in some for k in range(scale)] for s, some in expected.items()
    }


def test_fold_in_pairs_the_extra_ranks() -> None:
    inner = repeated(1, lambda _s: make_round([0, 1, 2, 3], [1, 0, 3, 2], reduce=True))
    # Six ranks, four active: 0 and 2 give their vectors to 1 and 3; 1, 3, 4, 5 play 0, 1, 2, 3.
    assert rows(fold_in(6, 2, 4, inner)) == [
        [(0, 1, (0, 1), True), (2, 3, (0, 1), True)],
        [(1, 3, (0,), True), (3, 1, (0,), True), (4, 5, (0,), True), (5, 4, (0,), True)],
        [(1, 0, (0, 1), False), (3, 2, (0, 1), False)],
    ]
    assert fold_in(4, 2, 4, inner) is inner
