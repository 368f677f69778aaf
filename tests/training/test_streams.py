"""Programs on streams as CUDA plays them, worked by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simcollectives.errors import ScheduleError
from simcollectives.training.pricing import Price
from simcollectives.training.program import Builder, Call, Operation, Program
from simcollectives.training.streams import play
from simcollectives.training.timeline import Span, StepTimeline

Spans = dict[str, tuple[float, float, float]]


def call(seconds: int, group: str = "world", kind: str = "all_reduce") -> Call:
    """A collective that lasts as many seconds as it has elements."""
    return Call(kind, group, 2, seconds, "float32")


def price(one: Call) -> Price:
    return Price(float(one.elements), 0.0, "ring", "none", 0, {})


def sharing(one: Call) -> Price:
    """Alone, a collective uses its ports all the time."""
    return Price(float(one.elements), 0.0, "ring", "none", 0, {"link": 1.0})


def times(timeline: StepTimeline, rank: int = 0) -> Spans:
    return {span.operation.name: (span.start, span.begins, span.end) for span in timeline.of_rank(rank)}


def alone(builder: Builder) -> Spans:
    """Start, begin and end of each operation."""
    return times(play({0: builder.program()}, price))


def test_a_stream_is_first_in_first_out_and_streams_overlap() -> None:
    b = Builder()
    b.compute("a", 2)
    b.compute("b", 1)
    b.compute("side", 2.5, stream="side")
    b.compute("c", 1)
    found = alone(b)
    assert found == {"a": (0, 0, 2), "b": (2, 2, 3), "side": (0, 0, 2.5), "c": (3, 3, 4)}


def test_after_waits_for_other_streams() -> None:
    b = Builder()
    a = b.compute("a", 2)
    reduced = b.collective("reduced", call(3), after=[a])
    b.compute("b", 1)
    b.compute("c", 1, after=[reduced])
    found = alone(b)
    assert found == {"a": (0, 0, 2), "reduced": (2, 2, 5), "b": (2, 2, 3), "c": (5, 5, 6)}


def test_the_host_stops_issuing() -> None:
    """Nothing that is issued after the host's wait starts before it ends, on any stream; what was issued goes on."""
    b = Builder()
    a = b.compute("a", 2)
    b.compute("b", 4)
    b.host("wait", 1, after=[a])
    b.compute("side", 1, stream="side")
    b.collective("reduced", call(1))
    b.compute("c", 1)
    found = alone(b)
    assert found["wait"] == (2, 2, 3)
    assert found["side"] == (3, 3, 4)
    assert found["reduced"] == (3, 3, 4)
    assert found["b"] == (2, 2, 6)
    assert found["c"] == (6, 6, 7)


def test_one_group_keeps_the_order_of_issue_from_two_streams() -> None:
    """The first waits for compute; the second could go at once, and has the same communicator."""
    b = Builder()
    a = b.compute("a", 5)
    b.collective("first", call(2), stream="one", after=[a])
    b.collective("second", call(2), stream="two")
    b.collective("other group", call(2, "shard"), stream="three")
    found = alone(b)
    assert found["first"] == (5, 5, 7)
    assert found["second"] == (7, 7, 9)
    assert found["other group"] == (0, 0, 2)


def test_groups_share_links() -> None:
    """Both use the ports all the time: each at half speed while both run. 2 and 5 s of work end after 4 and 7 s."""
    b = Builder()
    b.collective("short", call(2, "shard"))
    b.collective("long", call(5, "replicate"))
    found = times(play({0: b.program()}, sharing))
    assert found == {"short": (0, 0, 4), "long": (0, 0, 7)}


def test_a_group_may_start_when_another_ends() -> None:
    """At 4 s one collective ends, and compute that ends then, too, lets another group start."""
    b = Builder()
    a = b.compute("a", 4)
    b.collective("first", call(4, "shard"))
    b.collective("second", call(3, "replicate"), after=[a])
    found = times(play({0: b.program()}, sharing))
    assert found["first"] == (0, 0, 4)
    assert found["second"] == (4, 4, 7)


def test_what_takes_no_time() -> None:
    """A long chain of nothing takes none, and does not nest."""
    b = Builder()
    for number in range(5000):
        b.compute(f"nothing {number}", 0.0)
    b.collective("empty", call(0))
    assert set(alone(b).values()) == {(0, 0, 0)}


def programs(*writers: Callable[[Builder], object]) -> dict[int, Program]:
    found = {}
    for rank, write in enumerate(writers):
        builder = Builder()
        write(builder)
        found[rank] = builder.program()
    return found


def work_and_meet(seconds: float) -> Callable[[Builder], object]:
    def write(builder: Builder) -> None:
        done = builder.compute("work", seconds)
        builder.collective("meet", call(2), after=[done])

    return write


def test_a_collective_begins_when_its_last_rank_has_come() -> None:
    timeline = play(programs(work_and_meet(1), work_and_meet(4)), price)
    assert times(timeline, 0)["meet"] == (1, 4, 6)
    assert times(timeline, 1)["meet"] == (4, 4, 6)
    assert timeline.end_of(0) == timeline.end_of(1) == 6
    assert timeline.end_of(2) == 0


def test_ranks_may_begin_later() -> None:
    timeline = play(programs(work_and_meet(1), work_and_meet(1)), price, {1: 2.5})
    assert times(timeline, 0)["meet"] == (1, 3.5, 5.5)
    assert times(timeline, 1)["work"] == (2.5, 2.5, 3.5)


def test_spans_know_rank_place_and_order() -> None:
    timeline = play(programs(work_and_meet(1), work_and_meet(4)), price)
    assert [(span.start, span.rank, span.place) for span in timeline.spans] == [
        (0, 0, 0),
        (0, 1, 0),
        (1, 0, 1),
        (4, 1, 1),
    ]
    meeting: Span = timeline.spans[2]
    assert meeting.seconds == 5
    assert meeting.price is not None


def test_memory_changes_at_starts_and_ends_of_the_lowest_rank() -> None:
    def hold(item: str) -> Callable[[Builder], object]:
        def write(builder: Builder) -> None:
            builder.stand("parameters", 7)
            a = builder.compute("a", 1, allocates=[(item, 3)])
            builder.collective("meet", call(1), after=[a], allocates=[("buffer", 2)], frees=[(item, 3), ("buffer", 2)])

        return write

    timeline = play(programs(hold("mine"), hold("others")), price)
    changes = [(change.time, change.item, change.bytes) for change in timeline.memory]
    assert changes == [(0, "parameters", 7), (0, "mine", 3), (1, "buffer", 2), (2, "mine", -3), (2, "buffer", -2)]


def operation(name: str, stream: str = "compute", after: tuple[int, ...] = (), one: Call | None = None) -> Operation:
    return Operation(stream, name, "compute" if one is None else "collective", "forward", call=one, after=after)


@pytest.mark.parametrize("after", [(0,), (1,), (-1,)])
def test_a_wait_for_itself_or_later(after: tuple[int, ...]) -> None:
    with pytest.raises(ScheduleError, match="selfish waits for itself, or for what is issued after it"):
        play({0: Program((operation("selfish", after=after), operation("other")))}, price)


def test_ranks_that_meet_for_different_collectives() -> None:
    with pytest.raises(ScheduleError, match=r"for different collectives: .*all_gather.*all_reduce"):
        play(
            programs(
                lambda b: b.collective("x", call(1, kind="all_gather")),
                lambda b: b.collective("x", call(1, kind="all_reduce")),
            ),
            price,
        )
    with pytest.raises(ScheduleError, match="different collectives"):
        play(programs(lambda b: b.collective("x", call(1)), lambda b: b.collective("x", call(2))), price)


def test_ranks_that_wait_for_each_other() -> None:
    """One stream, two groups, in another order on each rank: the first of each waits for the other rank."""

    def order(*groups: str) -> Callable[[Builder], object]:
        def write(builder: Builder) -> None:
            for group in groups:
                builder.collective(f"of {group}", call(1, group), stream="one")

        return write

    with pytest.raises(ScheduleError, match="4 operations never ran: the first is of a on rank 0"):
        play(programs(order("a", "b"), order("b", "a")), price)


def test_a_rank_that_never_comes() -> None:
    with pytest.raises(ScheduleError, match="1 operations never ran: the first is meet on rank 0"):
        play(programs(work_and_meet(1), lambda b: b.compute("work", 1)), price)


def test_an_empty_program() -> None:
    timeline = play({0: Builder().program()}, price)
    assert timeline.spans == ()
    assert timeline.end_of(0) == 0
