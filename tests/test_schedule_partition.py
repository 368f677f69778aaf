"""Chunks: whole elements, counts that differ by at most one, and sums over runs of chunks against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.schedule import Layout, make_round, partition


@given(st.integers(0, 10**12), st.integers(1, 500))
def test_partition(elements: int, chunks: int) -> None:
    sizes = partition(elements, chunks).tolist()
    assert sum(sizes) == elements
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    assert sizes == [len(part) for part in np.array_split(np.arange(elements), chunks)] if elements < 1000 else True


@given(st.integers(0, 200), st.integers(1, 40))
def test_layout_sizes(elements: int, chunks: int) -> None:
    layout = Layout(elements, chunks)
    sizes = layout.chunk_elements()
    assert sizes.tolist() == partition(elements, chunks).tolist()
    assert layout.even == (len(set(sizes.tolist())) == 1)
    assert layout.floor == min(sizes)
    assert layout.remainder == sum(size > layout.floor for size in sizes)


@given(st.integers(0, 300), st.integers(1, 12), st.integers(1, 6))
def test_parts_are_cut_first_and_then_chunks_out_of_each(elements: int, parts: int, channels: int) -> None:
    layout = Layout(elements, parts * channels, parts=parts)
    sizes = layout.chunk_elements().reshape(parts, channels)
    assert sizes.sum(axis=1).tolist() == partition(elements, parts).tolist()
    assert sizes.tolist() == [partition(part, channels).tolist() for part in partition(elements, parts).tolist()]
    assert sizes.max() - sizes.min() <= 1
    assert layout.even == (sizes.max() == sizes.min())
    assert layout.head(1) == sizes.max()


@st.composite
def grouped_runs(draw: st.DrawFn) -> tuple[Layout, int, int]:
    """A layout and a run of ``count`` groups of chunks, ``stride`` apart, that fits."""
    group, groups = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    stride = draw(st.integers(1, groups))
    count = draw(st.integers(0, (groups - 1) // stride + 1))
    return Layout(draw(st.integers(0, 200)), group * groups, group), count, stride


@given(grouped_runs())
def test_head_is_the_largest_run(run: tuple[Layout, int, int]) -> None:
    layout, count, stride = run
    sizes = layout.chunk_elements().reshape(-1, layout.group).sum(axis=1)
    last = len(sizes) - max(count - 1, 0) * stride
    runs = [int(sizes[start : start + count * stride : stride][:count].sum()) for start in range(last)]
    assert layout.head(count, stride) == runs[0] == max(runs)


@given(
    elements=st.integers(0, 300),
    chunks=st.integers(1, 24),
    cut=st.sampled_from(["plain", "period", "parts"]),
    data=st.data(),
)
def test_row_elements(elements: int, chunks: int, cut: str, data: st.DataObject) -> None:
    period = cut == "period"
    layout = Layout(elements, chunks * chunks, period=chunks) if period else Layout(elements, chunks)
    if cut == "parts":
        layout = Layout(elements, 3 * chunks, parts=chunks)
    rows = []
    for _ in range(data.draw(st.integers(1, 5))):
        first, stride = data.draw(st.integers(0, layout.chunks - 1)), data.draw(st.integers(1, 4))
        rows.append((first, data.draw(st.integers(0, (layout.chunks - 1 - first) // stride + 1)), stride))
    first, count, stride = (list(column) for column in zip(*rows, strict=True))
    sizes = layout.chunk_elements()
    assert int(sizes.sum()) == elements * (chunks if period else 1)
    expected = [int(sizes[f : f + c * s : s][:c].sum()) for f, c, s in rows]
    round_ = make_round(0, np.arange(1, len(rows) + 1), first=first, count=count, stride=stride)
    assert layout.row_elements(round_).tolist() == expected
