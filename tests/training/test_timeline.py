"""Intervals against counting seconds one by one, and the peak of the memory against a sum."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcollectives.errors import ScheduleError
from simcollectives.training.timeline import Change, most_of_each, peak, total, union, without

INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda ends: (min(ends), max(ends))))


def seconds_of(intervals: list[tuple[int, int]]) -> set[int]:
    """The whole seconds that are covered."""
    return {second for start, end in intervals for second in range(start, end)}


def is_union(intervals: list[tuple[float, float]]) -> bool:
    """Whether intervals are in order, none is empty, and none touches the next."""
    ends = [end for interval in intervals for end in interval]
    return all(before < after for before, after in itertools.pairwise(ends))


@given(INTERVALS)
def test_union(intervals: list[tuple[int, int]]) -> None:
    joined = union(intervals)
    assert is_union(joined)
    assert seconds_of(joined) == seconds_of(intervals)  # type: ignore[arg-type]
    assert total(joined) == len(seconds_of(intervals))


@given(INTERVALS, INTERVALS)
def test_without(intervals: list[tuple[int, int]], taken: list[tuple[int, int]]) -> None:
    left = without(union(intervals), union(taken))
    assert is_union(left)
    assert seconds_of(left) == seconds_of(intervals) - seconds_of(taken)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), min_size=1), st.randoms(use_true_random=False))
def test_peak(allocated: list[tuple[str, int]], random: object) -> None:
    """Everything is freed in some order; the peak is the largest running sum, and its items are those of its time."""
    changes = [Change(float(number), item, size) for number, (item, size) in enumerate(allocated)]
    back = allocated[:]
    random.shuffle(back)  # type: ignore[attr-defined]
    changes += [Change(float(len(changes)), item, -size) for item, size in back]
    standing = np.cumsum([change.bytes for change in changes])
    found = peak(changes)
    assert found.bytes == max(int(standing.max()), 0)
    assert sum(found.items.values()) == found.bytes
    if found.bytes:
        first = int(np.argmax(standing))
        assert found.time == changes[first].time
        assert most_of_each(changes) == {
            item: max(np.cumsum([change.bytes for change in changes if change.item == item]))
            for item in dict.fromkeys(item for item, _ in allocated)
        }


def test_no_memory_has_no_peak() -> None:
    assert peak([]).bytes == 0
    assert peak([]).items == {}


def test_more_is_freed_than_there_is() -> None:
    with pytest.raises(ScheduleError, match="3 B more of buckets are freed"):
        peak([Change(0.0, "buckets", 4), Change(0.0, "gradients", 9), Change(1.0, "buckets", -7)])
