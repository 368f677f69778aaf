"""The choice of a time model: reading it, refusing it, and small cases worked out by hand."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from simcollectives import Cluster, Device, Link, closed_form, simulate
from simcollectives.engines import DEFAULT, LogGP, OnePort, parse_time
from simcollectives.errors import InputError, NoClosedFormError, ScheduleError

LINK = Link(alpha=10.0, bandwidth=2.0, overhead=1.0)


def test_parse() -> None:
    assert parse_time("default") == DEFAULT
    assert parse_time({"one_port": None}) == OnePort()
    assert parse_time({"loggp": {}}) == parse_time("loggp") == LogGP()
    given = {"overhead": "1.5 us", "gap": "1 us", "protocol": "rendezvous", "threshold": "64 KiB", "order": "event"}
    assert parse_time({"loggp": given}) == LogGP(1.5e-6, 1e-6, "rendezvous", 65536.0, "event")
    assert parse_time(LogGP(gap=1.0)) == LogGP(gap=1.0)


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("log_gp", ['$.time: "log_gp" is not a time model; did you mean "loggp"?']),
        (7, ["$.time: 7 is not a time model; write one of: default, one_port, loggp"]),
        ([], ["is not a time model"]),
        ({"loggp": 3}, ["$.time.loggp: 3 are not parameters; write time: {loggp: {overhead: 1.5 us}}"]),
        ({"one_port": {"gap": "1 us"}}, ['$.time.one_port.gap: "gap" is not a parameter; it has none']),
        (
            {"loggp": {"overhaed": "1 us", "gap": 3, "protocol": "Eagre", "order": 1}},
            [
                '$.time.loggp.overhaed: "overhaed" is not a parameter; did you mean "overhead"?',
                '$.time.loggp.gap: 3 has no unit; write "3 ',
                '$.time.loggp.protocol: "Eagre" is not a choice; did you mean "eager"?',
                "$.time.loggp.order: 1 is not a choice; write one of: program, event",
            ],
        ),
    ],
)
def test_wrong_times_are_refused_all_at_once(value: object, texts: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_time(value)
    assert len(caught.value.problems) == len(texts)
    for text in texts:
        assert text in str(caught.value)


def test_a_model_checks_its_values() -> None:
    wrong: dict[str, Any] = {"overhead": -1.0, "gap": float("nan"), "protocol": "x", "order": None, "threshold": True}
    with pytest.raises(InputError) as caught:
        LogGP(**wrong)
    assert [problem.place for problem in caught.value.problems] == [
        "overhead", "gap", "threshold", "protocol", "order",
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["lockstep", "vectorized"])
def test_other_engines_have_no_variants(engine: str) -> None:
    with pytest.raises(InputError, match="has no time one_port; write one of: auto, event, closed_form"):
        simulate("all_reduce", "ring", Cluster.flat(4, LINK), 16, engine, time="one_port")


def test_too_many_messages_are_refused() -> None:
    with pytest.raises(InputError, match="too many for event; use engine closed_form"):
        simulate("all_reduce", "ring", Cluster.flat(8192, LINK), 8192, time="one_port", dtype="int8")


def test_the_default_is_unchanged_and_rows_say_which_time() -> None:
    cluster = Cluster.flat(4, LINK)
    runs = [simulate("all_reduce", "direct", cluster, 16, time=time) for time in ("default", "one_port", "loggp")]
    assert [run.time for run in runs] == ["default", "one_port", "loggp"]
    assert runs[0].seconds == simulate("all_reduce", "direct", cluster, 16).seconds
    assert runs[1].engine_reason == "auto: time one_port is played message by message"


def test_closed_form_engine() -> None:
    cluster = Cluster.flat(4, LINK)
    run = simulate("all_reduce", "ring", cluster, 16, "closed_form", time="one_port")
    assert run.seconds == 6 * (10 + 1 + 2) == closed_form("all_reduce", "ring", cluster, 16, time="one_port")
    assert closed_form("all_reduce", "ring", cluster, 16, time="loggp") == 6 * (1 + 10 + 2 + 1)
    with pytest.raises(NoClosedFormError, match="naive all_reduce has no exact closed form under time loggp"):
        closed_form("all_reduce", "naive", cluster, 16, time="loggp")


def test_gamma_holds_the_receive_port() -> None:
    cluster = Cluster.flat(3, Link(10.0, 2.0), device=Device(reduction_seconds_per_byte=0.5))
    run = simulate("reduce", "direct", cluster, 8, time="one_port")
    assert run.seconds == 2 * (10 + 4 + 4)
    assert (run.latency_seconds, run.bandwidth_seconds, run.reduction_seconds) == (20, 8, 8)
    assert run.lower_bound_seconds == 20


def test_latency_bound_counts_the_ports() -> None:
    """On two levels a rank may send on both at once: 3 x 3 ranks can be reached in two latencies, not in one."""
    two = Cluster.two_level(3, 3, LINK, LINK)
    assert simulate("all_reduce", "ring", two, 36, time="one_port").lower_bound_seconds == 2 * 10
    assert simulate("all_reduce", "ring", Cluster.flat(9, LINK), 36, time="one_port").lower_bound_seconds == 4 * 10


def test_loggp_by_hand() -> None:
    """o 1, L 10, g 3, n G 2: the root sends at 0 and 5; heads at 11 and 16; received at 14 and 19."""
    model = LogGP(gap=3.0)
    run = simulate("broadcast", "direct", Cluster.flat(3, LINK), 4, time=model, timeline=True)
    assert run.seconds == 19
    assert run.timeline is not None
    assert list(zip(run.timeline.stream, run.timeline.start, run.timeline.end, strict=True)) == [
        ("send link", 0, 2), ("send link", 5, 7), ("receive link", 11, 14), ("receive link", 16, 19),
    ]  # fmt: skip


def test_rendezvous_waits_for_the_receiver_and_eager_does_not() -> None:
    """Reduce on 3 ranks. Round 0: 1 to 0, received at 14. Round 1: 2 to 0, posted there at 14.

    Eager: its head is there at 11 and is received from 14 to 17. Rendezvous: it starts at 14 and is received at 28.
    """
    cluster = Cluster.flat(3, LINK)
    assert simulate("reduce", "tree", cluster, 4, time=LogGP()).seconds == 17
    assert simulate("reduce", "tree", cluster, 4, time=LogGP(protocol="rendezvous")).seconds == 28
    assert simulate("reduce", "tree", cluster, 4, time=LogGP(protocol="rendezvous", threshold=4)).seconds == 17


def test_an_early_message_takes_the_cpu_on_arrival_in_event_order_only() -> None:
    """Reduce on 5 ranks: 4's message is at rank 0 at 11, with 1's. Event: received at 14 and 17. Program: it waits."""
    cluster = Cluster.flat(5, LINK)
    assert simulate("reduce", "tree", cluster, 4, time=LogGP(order="event")).seconds == 28
    assert simulate("reduce", "tree", cluster, 4, time=LogGP()).seconds == 28 + 3


def test_a_queue_that_runs_dry_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("simcollectives.engines.variants.loggp")
    put = module._Play.put
    monkeypatch.setattr(module._Play, "put", lambda self, kind, number, at: number == 3 or put(self, kind, number, at))
    for order in ("program", "event"):
        with pytest.raises(ScheduleError, match=r"ring: deadlock, \d+ messages were never received; the first, round"):
            simulate("all_reduce", "ring", Cluster.flat(4, LINK), 16, time={"loggp": {"order": order}})
