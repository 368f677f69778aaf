"""simulate: what it answers, and what it refuses before any work is done."""

from __future__ import annotations

import math
import pickle
import re
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.engines import (
    DTYPES,
    ENGINES,
    Conditions,
    Jitter,
    LogGP,
    closed_form,
    contributions,
    execute,
    make_job,
    simulate,
    verify,
)
from simcollectives.errors import AlgorithmError, InputError, NoClosedFormError

FLAT = Cluster.flat(8, Link(5e-6, 450e9))
TWO_LEVEL = Cluster.two_level(2, 4, Link(5e-6, 450e9), Link(10e-6, 50e9))


def refusal(*arguments: Any, **more: Any) -> str:
    with pytest.raises(InputError) as error:
        simulate(*arguments, **more)
    return str(error.value)


def test_answer() -> None:
    run = simulate("all_reduce", "ring", FLAT, 4096, timeline=True, engine="event")
    assert (run.collective, run.algorithm, run.label, run.world_size) == ("all_reduce", "ring", "ring", 8)
    assert (run.message_bytes, run.dtype, run.rounds) == (4096, "float32", 14)
    assert run.seconds == pytest.approx(14 * (5e-6 + 512 / 450e9), rel=1e-12)
    assert run.latency_seconds == pytest.approx(70e-6, rel=1e-12)
    assert run.bandwidth_seconds == pytest.approx(14 * 512 / 450e9, rel=1e-9)
    assert run.reduction_seconds == 0
    assert run.bottleneck == "link latency"
    assert run.bytes_sent.tolist() == [14 * 512] * 8
    assert run.closed_form_seconds == closed_form("all_reduce", "ring", FLAT, 4096)
    assert run.timeline is not None
    assert len(run.timeline) == 2 * 14 * 8
    assert simulate("all_reduce", "ring", FLAT, 4096, engine="event").timeline is None


@pytest.mark.parametrize(
    ("message", "gamma", "bottleneck"),
    [(64, 0.0, "link latency"), (2**30, 0.0, "link bandwidth"), (2**30, 1e-9, "reduction")],
)
def test_bottleneck(message: int, gamma: float, bottleneck: str) -> None:
    cluster = Cluster.flat(8, Link(5e-6, 450e9), device=Device(reduction_seconds_per_byte=gamma))
    for engine in ("event", "lockstep", "closed_form"):
        assert simulate("all_reduce", "ring", cluster, message, engine).bottleneck == bottleneck


def test_bottleneck_names_the_level() -> None:
    assert simulate("all_reduce", "hierarchical", TWO_LEVEL, 2**30, "event").bottleneck == "inter bandwidth"
    fast_network = TWO_LEVEL.with_link("inter", Link(10e-6, 900e9))
    assert simulate("all_reduce", "hierarchical", fast_network, 2**30, "event").bottleneck == "intra bandwidth"


def test_bytes_by_level() -> None:
    """2 nodes x 4, M bytes: inside 2 x 3/4 M a device, between 2 x 1/2 of M/4."""
    run = simulate("all_reduce", "hierarchical", TWO_LEVEL, 4096, "event")
    assert run.bytes_sent_max_on("intra") == 2 * 3 * 4096 // 4
    assert run.bytes_sent_max_on("inter") == 4096 // 4
    assert run.bytes_sent_max_on("link") is None


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_says_which_it_is_and_why(engine: str) -> None:
    run = simulate("all_reduce", "ring", FLAT, 4096, engine)
    assert run.engine in ENGINES
    assert run.engine != "auto"
    assert run.engine_reason
    assert engine in ("auto", run.engine)


def test_dedicated_servers_are_counted_after_the_ranks() -> None:
    run = simulate("all_reduce", "parameter_server", FLAT, 4096, options={"servers": 2})
    assert run.world_size == 8
    assert run.bytes_sent.tolist() == [4096] * 8 + [8 * 2048] * 2


@pytest.mark.parametrize("message", [1e9, 1_000_000_000, np.int64(10**9), np.float32(2**20), "1 GB", "64 kbit"])
def test_messages_are_whole_numbers_of_bytes(message: Any) -> None:
    job = make_job("all_reduce", "ring", FLAT, message)
    assert isinstance(job.message_bytes, int)
    assert job.message_bytes % 4 == 0


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (1001, "1001 B is not a whole number of float32 elements of 4 B; write 1000 B or 1004 B"),
        (0.5, "0.5 B is not a whole number"),
        (-4, "-4 B is out of range"),
        (math.nan, "nan B is out of range"),
        (math.inf, "inf B is out of range"),
        (2**60, "out of range"),
        (True, "true is not a number of bytes"),
        (None, "null is not a number of bytes"),
        ([4], "is not a number of bytes"),
        ("1 GiB/s", "1 GiB/s"),
    ],
)
def test_what_is_not_a_message(message: Any, text: str) -> None:
    assert text in refusal("all_reduce", "ring", FLAT, message)


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_item_sizes(dtype: str) -> None:
    assert DTYPES[dtype] == (2 if dtype == "bfloat16" else np.dtype(dtype).itemsize)
    assert make_job("all_reduce", "ring", FLAT, 80, None, dtype).layout.elements == 80 // DTYPES[dtype]


def test_what_is_not_known() -> None:
    assert '"allreduce" is not a collective; did you mean "all_reduce"?' in refusal("allreduce", "ring", FLAT, 4)
    assert 'has no algorithm "rings"; did you mean "ring"?' in refusal("all_reduce", "rings", FLAT, 4)
    assert 'ring has no option "order"' in refusal("all_reduce", "ring", FLAT, 4, options={"order": "near"})
    assert 'not a known dtype; did you mean "bfloat16"?' in refusal("all_reduce", "ring", FLAT, 4, dtype="bfloat61")
    assert '"fast" is not an engine; write one of: auto, ' in refusal("all_reduce", "ring", FLAT, 4, "fast")
    assert "lockstep has no timeline" in refusal("all_reduce", "ring", FLAT, 4, "lockstep", timeline=True)


def test_no_closed_form_is_said() -> None:
    with pytest.raises(NoClosedFormError, match="tree all_reduce has no exact closed form on links of several kinds"):
        closed_form("all_reduce", "tree", TWO_LEVEL, 4096)
    assert issubclass(NoClosedFormError, AlgorithmError)
    assert simulate("all_reduce", "tree", TWO_LEVEL, 4096).closed_form_seconds is None


def test_what_is_too_large_is_refused_at_once() -> None:
    huge = Cluster.flat(1 << 20, Link(1e-6, 1e9))
    assert "messages at once" in refusal("all_reduce", "naive", huge, 4)
    assert "too many for event" in refusal("all_reduce", "ring", huge, 4, "event")
    assert "more than can be counted" in refusal("all_reduce", "ring", huge, 2**48)


def test_a_run_does_not_change_and_travels() -> None:
    run = simulate("all_reduce", "rabenseifner", FLAT, 4096, options=(options := {"order": "far"}))
    options["order"] = "near"
    assert run.options == {"order": "far"}
    for copy in (run, pickle.loads(pickle.dumps(run)), deepcopy(run), replace(run, label="x")):
        assert copy.options == run.options
        assert copy.bytes_sent.tolist() == run.bytes_sent.tolist()
        with pytest.raises(TypeError, match="does not support item assignment"):
            copy.options["order"] = "near"
        with pytest.raises(ValueError, match="read-only"):
            copy.bytes_sent_by_level[0, 0] = 1


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"options": "order"}, '"order" are not options; write {"order": "far"}'),
        ({"options": {5: 6}}, "ring has no option 5; it has: none"),
        ({"algorithm": ["ring"]}, "all_reduce has no algorithm ['ring']; it has: naive, "),
        ({"collective": ["all_reduce"]}, "['all_reduce'] is not a collective; known: all_reduce, "),
        ({"cluster": "flat"}, '"flat" is not a Cluster; make one with Cluster.flat'),
        ({"dtype": ["float32"]}, "['float32'] is not a known dtype; known: float64, float32, float16, bfloat16, "),
        ({"engine": ["event"]}, "['event'] is not an engine; write one of: auto"),
        ({"conditions": 5}, "5 are not Conditions; write Conditions(random_skew=20e-6)"),
        ({"time": 5}, "5 is not a time model; write one of: default"),
        ({"time": LogGP, "engine": "auto"}, "is not a time model"),
        ({"message_bytes": 10**5000}, "a whole number of 16610 bits B is out of range"),
    ],
)
def test_what_has_the_wrong_type_is_said(wrong: dict[str, Any], text: str) -> None:
    right = {"collective": "all_reduce", "algorithm": "ring", "cluster": FLAT, "message_bytes": 1024}
    assert text in refusal(**{**right, **wrong})


def test_everything_wrong_is_told_at_once() -> None:
    wrong = {"engine": "evnt", "dtype": "floot", "time": "loggpp", "conditions": 3}
    found = refusal("all_reduce", "rign", "flat", 4096, **wrong).splitlines()
    parts = ("is not a Cluster", "not Conditions", "has no algorithm", "known dtype", "time model", "is not an engine")
    assert len(found) == len(parts)
    for line, part in zip(found, parts, strict=True):
        assert part in line


@pytest.mark.parametrize("call", [closed_form, verify, make_job])
def test_other_ways_in_say_what_has_the_wrong_type(call: Any) -> None:
    with pytest.raises(InputError, match='"flat" is not a Cluster'):
        call("all_reduce", "ring", "flat", 4096)


def test_traces_and_execution_say_what_has_the_wrong_type() -> None:
    with pytest.raises(InputError, match='"flat" is not a Cluster'):
        contributions("all_reduce", "ring", "flat")  # type: ignore[arg-type]
    with pytest.raises(InputError, match='"flat" is not a Cluster'):
        execute("all_reduce", "ring", [np.zeros(2)], cluster="flat")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="5 is not a list of arrays; give one array a rank"):
        execute("all_reduce", "ring", 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"skew": "late"}, '"late" s is not a start'),
        ({"skew": (1e-6, None)}, "null s is not a start"),
        ({"random_skew": 10**400}, "bits s is not a start; it must be 0 or more, at most 1e+09 s"),
        ({"alpha": 0.2}, 'alpha: 0.2 is not a Jitter; write Jitter("lognormal", 0.2)'),
        ({"seed": "one"}, 'seed: "one" is not a seed'),
    ],
)
def test_conditions_say_what_is_wrong(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        Conditions(**wrong)
    with pytest.raises(InputError, match='"much" is not a spread'):
        Jitter("gamma", "much")  # type: ignore[arg-type]


def test_a_remedy_is_no_engine_that_refuses_too() -> None:
    """Direct on 4,096 ranks sends too much in one round for event, and has no closed form on two kinds of links."""
    nodes = Cluster.two_level(512, 8, Link(5e-6, 450e9), Link(10e-6, 50e9))
    for engine in ("auto", "event", "vectorized"):
        assert refusal("all_to_all", "direct", nodes, 1 << 30, engine).endswith("; use engine lockstep")
    huge = Cluster.flat(1 << 20, Link(1e-6, 1e9))
    assert refusal("all_reduce", "ring", huge, 4, "event").endswith("; take fewer devices")
    variant = refusal("all_to_all", "direct", Cluster.flat(4096, Link(1e-6, 1e9)), 1 << 30, time="one_port")
    assert variant.endswith("; use engine closed_form")
