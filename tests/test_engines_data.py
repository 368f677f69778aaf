"""The data engine: shapes, the lecture's trace, what it refuses, and that a wrong schedule is caught."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simcollectives.cluster import Cluster, Link
from simcollectives.engines import DTYPES, Job, contributions, execute, make_job, verify, verify_job
from simcollectives.engines.bytes_sent import count_bytes_sent
from simcollectives.engines.contributions import counted
from simcollectives.engines.data import held_bytes, play, random_inputs
from simcollectives.errors import InputError, ScheduleError
from simcollectives.schedule import Phase, Round, Schedule, make_round

LINK = Link(1e-6, 1e9)


def test_shapes_are_kept_where_inputs_and_outputs_have_one() -> None:
    arrays = [np.full((2, 3), rank, dtype=np.int64) for rank in range(4)]
    for name, results in {
        "all_reduce": [6] * 4,
        "broadcast": [0] * 4,
        "reduce": [6, 1, 2, 3],
    }.items():
        outputs = execute(name, "tree", arrays)
        assert [o.tolist() for o in outputs] == [[[value] * 3] * 2 for value in results]
        assert all(output is not array for output, array in zip(outputs, arrays, strict=True))


def test_parts_are_flat_and_the_longer_ones_first() -> None:
    arrays = [np.arange(7) * 10**rank for rank in range(3)]
    scattered = execute("reduce_scatter", "ring", arrays)
    assert [part.tolist() for part in scattered] == [[0, 111, 222], [333, 444], [555, 666]]
    gathered = execute("all_gather", "ring", scattered)
    assert [whole.tolist() for whole in gathered] == [[0, 111, 222, 333, 444, 555, 666]] * 3
    exchanged = execute("all_to_all", "pairwise", arrays)
    assert exchanged[1].tolist() == [3, 4, 30, 40, 300, 400]


def test_lists_are_taken_as_arrays() -> None:
    assert [o.tolist() for o in execute("all_reduce", "ring", [[1, 2], [3, 4]])] == [[4, 6], [4, 6]]


def test_the_lecture_adds_1_10_100_1000_around_a_ring() -> None:
    """CMU 15-779, lecture 12: four devices hold 1, 10, 100, 1000 in each of four chunks.

    After the reduce-scatter each device has one chunk with 1111, after the all-gather all four. Here device i ends the
    reduce-scatter with chunk i; the lecture's labels are shifted by one.
    """
    job = make_job("all_reduce", "ring", Cluster.flat(4, LINK), 4, None, "int8")
    state: list[dict[int, Any]] = [{c: np.array([10**rank]) for c in range(4)} for rank in range(4)]
    seen: list[list[list[int]]] = []
    play(job, state, lambda _number, now: seen.append([[int(held[c][0]) for c in range(4)] for held in now]))
    assert len(seen) == 6
    # Round 0: device i sends chunk i - 1 to i + 1.
    assert seen[0] == [[1, 1, 1001, 1], [10, 10, 10, 11], [110, 100, 100, 100], [1000, 1100, 1000, 1000]]
    # Round 1: device 1 passes chunk 3, which has 11, to device 2, and so on.
    assert seen[1] == [[1, 1101, 1001, 1], [10, 10, 1011, 11], [110, 100, 100, 111], [1110, 1100, 1000, 1000]]
    assert [seen[2][i][i] for i in range(4)] == [1111] * 4
    assert sum(value == 1111 for row in seen[2] for value in row) == 4
    assert [sum(value == 1111 for row in now for value in row) for now in seen[2:]] == [4, 8, 12, 16]


def test_trace_as_text() -> None:
    """Which ranks' data each chunk holds; worked by hand for three ranks."""
    blocks = contributions("all_reduce", "ring", Cluster.flat(3, LINK)).split("\n\n")
    lines = [[line.split() for line in block.splitlines()] for block in blocks]
    assert blocks[0] == "ring all_reduce, 3 ranks"
    assert lines[1][0] == ["before"]
    assert lines[1][1] == ["chunk", "0", "chunk", "1", "chunk", "2"]
    assert lines[1][2:] == [["rank", str(r), str(r), str(r), str(r)] for r in range(3)]
    assert lines[2][0] == ["after", "round", "1"]
    assert lines[2][2:] == [
        ["rank", "0", "0", "0+2", "0"],
        ["rank", "1", "1", "1", "0+1"],
        ["rank", "2", "1+2", "2", "2"],
    ]
    assert lines[3][2:] == [
        ["rank", "0", "0+1+2", "0+2", "0"],
        ["rank", "1", "1", "0+1+2", "0+1"],
        ["rank", "2", "1+2", "2", "0+1+2"],
    ]
    assert lines[5][2:] == [["rank", str(r), "0+1+2", "0+1+2", "0+1+2"] for r in range(3)]
    assert len(blocks) == 6


def test_trace_shows_servers_and_what_is_not_held() -> None:
    text = contributions("all_reduce", "parameter_server", Cluster.flat(2, LINK), {"servers": 2})
    before, pushed = (block.splitlines() for block in text.split("\n\n")[1:3])
    assert [line.split() for line in before[-2:]] == [["server", "0", "-", "-"], ["server", "1", "-", "-"]]
    assert [line.split() for line in pushed[-2:]] == [["server", "0", "0+1", "-"], ["server", "1", "-", "0+1"]]


def test_trace_of_many_ranks_is_refused() -> None:
    with pytest.raises(InputError, match="17 ranks are too many to print, at most 16"):
        contributions("all_reduce", "ring", Cluster.flat(17, LINK))


# --- wrong schedules are bugs, and found


def with_rounds(job: Job, change: Any) -> Job:
    """The same job with every round changed."""
    phases = tuple(
        replace(phase, round_at=lambda step, phase=phase: change(phase.round_at(step)))
        for phase in job.schedule.channels[0]
    )
    return replace(job, schedule=replace(job.schedule, channels=(phases,)))


def as_copies(r: Round) -> Round:
    return Round(r.src, r.dst, r.first, r.count, r.stride, np.zeros_like(r.reduce))


def doubled(r: Round) -> Round:
    return Round(*(np.concatenate([x, x]) for x in (r.src, r.dst, r.first, r.count, r.stride, r.reduce)))


def test_a_copy_instead_of_an_addition_is_found() -> None:
    job = with_rounds(make_job("all_reduce", "ring", Cluster.flat(4, LINK), 64), as_copies)
    with pytest.raises(ScheduleError, match=r"ring.*: rank 0 .* wrong value at element"):
        verify_job(job)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_contribution_counted_twice_is_found(dtype: str) -> None:
    job = with_rounds(make_job("all_reduce", "ring", Cluster.flat(4, LINK), 64, None, dtype), doubled)
    with pytest.raises(ScheduleError, match="wrong value"):
        verify_job(job)
    assert max(counts.max() for held in counted(job)[-1] for counts in held.values()) > 1


def test_a_missing_round_is_found() -> None:
    job = make_job("all_gather", "ring", Cluster.flat(4, LINK), 64)
    (phase,) = job.schedule.channels[0]
    short = replace(job, schedule=replace(job.schedule, channels=((replace(phase, steps=2),),)))
    with pytest.raises(ScheduleError, match="rank 0 ends without chunk"):
        verify_job(short)


def test_sending_what_is_not_held_is_found() -> None:
    job = make_job("all_gather", "ring", Cluster.flat(2, LINK), 64)
    phase = Phase(1, lambda _step: make_round(0, 1, first=1))
    wrong = replace(job, schedule=Schedule("all_gather", 2, 2, ((phase,),)))
    with pytest.raises(ScheduleError, match="in round 0 rank 0 sends chunk 1, which it lacks"):
        verify_job(wrong)


def test_ranks_that_differ_in_bits_are_found() -> None:
    job = make_job("all_reduce", "naive", Cluster.flat(5, LINK), 4096)
    verify_job(job)
    with pytest.raises(ScheduleError, match="ranks end with different bits"):
        verify_job(replace(job, algorithm=replace(job.algorithm, same_bits=lambda _options: True)))


def test_bfloat16_is_executed_as_float32() -> None:
    """The bytes are those of two-byte elements, the arrays those of NumPy's float32, with its precision."""
    job = make_job("all_reduce", "ring", Cluster.flat(4, LINK), 2 * 4 * 3, None, "bfloat16")
    assert job.layout.elements == 12
    assert count_bytes_sent(job).tolist() == [[2 * 3 * 3 * 2] * 4]
    assert {array.dtype for array in random_inputs(job)} == {np.dtype(np.float32)}
    verify_job(job)
    assert held_bytes(4, 24, "bfloat16") == 3 * 4 * 12 * 4 == 2 * held_bytes(4, 24, "float16")


def test_verify_takes_what_fits_in_memory() -> None:
    verify("all_reduce", "ring", Cluster.flat(4, LINK), 1 << 16)
    with pytest.raises(InputError, match="do not fit in memory"):
        verify("all_reduce", "ring", Cluster.flat(64, LINK), 1 << 30)


# --- what execute refuses


def problems(arrays: Any, collective: str = "all_reduce", **more: Any) -> list[str]:
    with pytest.raises(InputError) as error:
        execute(collective, "ring", arrays, **more)
    return [problem.message for problem in error.value.problems]


def test_execute_wants_one_array_a_rank() -> None:
    assert problems([]) == ["no arrays; give one array a rank"]
    cluster = Cluster.flat(3, LINK)
    assert "2 arrays for 3 ranks" in problems([np.zeros(2), np.zeros(2)], cluster=cluster)[0]


def test_execute_names_every_array_that_does_not_fit() -> None:
    found = problems([np.zeros(2), np.zeros(3), np.zeros(2, dtype=np.float32)])
    assert len(found) == 2
    assert "array 1 has shape (3,)" in found[0]
    assert "array 2 has dtype float32, array 0 has float64" in found[1]


@pytest.mark.parametrize("dtype", ["float128", "int16", "complex128", "bool", "object", "U3"])
def test_execute_takes_what_numpy_has_of_them(dtype: str) -> None:
    found = problems([np.zeros(2, dtype=dtype)] * 2)
    assert "is not supported; use one of: float64, float32, float16, int64, int32, int8, uint8" in found[0]


def test_all_gather_wants_the_parts_of_one_array() -> None:
    found = problems([np.zeros(1), np.zeros(4)], "all_gather")
    assert found == ["array 0 has 1 elements; the parts of 5 elements on 2 ranks are 3 there"]
