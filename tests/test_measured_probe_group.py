"""What a probe's ranks do, with as much of PyTorch as that needs: sizes, how often, what is timed, who has failed."""

from __future__ import annotations

import math
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from simcollectives.errors import InputError
from simcollectives.measured.probe import PLACES_OF, Copied, Placement, Plan, Times, message_sizes
from simcollectives.measured.probe import collectives as right_results
from simcollectives.measured.probe.group import Group, chosen_backend
from simcollectives.measured.probe.local import copy
from simcollectives.measured.probe.plan import SPLIT
from simcollectives.measured.probe.spawn import RankError, _Failed, _raise, _Ranks


@pytest.mark.parametrize("collective", PLACES_OF)
def test_sizes_are_whole_parts(collective: str) -> None:
    plan = Plan((collective,), ("float16",), (1, 7, 64, 65, 1000))
    for ranks in (2, 3, 8):
        unit = 2 * ranks if collective in SPLIT else 2
        assert message_sizes(plan, collective, "float16", ranks) == tuple(
            dict.fromkeys(size // unit * unit for size in plan.sizes if size >= unit)
        )


def test_small_messages_are_timed_more_often() -> None:
    plan = Plan((), (), (), warmup=5, iterations=200, seconds_per_point=0.5)
    assert [plan.calls(seconds) for seconds in (0.0, 1e-6, 0.01, 0.1, 0.4, 7.0)] == [200, 200, 50, 5, 5, 2]
    assert [plan.warm_up_calls(seconds) for seconds in (1e-6, 0.05, 0.4, 7.0)] == [5, 2, 1, 0]


@pytest.mark.parametrize("ranks", [1, 2, 3, 7, 19, 20, 64, 1000])
def test_what_is_reduced_sums_to_what_int8_holds(ranks: int) -> None:
    whole = sum(right_results._summand(step) for step in range(ranks))
    for element in range(math.lcm(ranks, 3)):
        factor = 1 + element % 3
        assert sum(right_results._summand((element + rank) % ranks) * factor for rank in range(ranks)) == whole * factor
        assert whole * factor < 128


class FakeTorch:
    """As much of PyTorch as times calls on one GPU: a clock that only events read, and a list of what happened."""

    def __init__(self, gpus: int = 1, nccl: bool = True) -> None:
        self.happened: list[str] = []
        self.clock_ms = 0.0
        self.float64 = self.uint8 = None
        self.tensor = lambda values, dtype, device: SimpleNamespace(tolist=lambda: values)
        self.cuda = SimpleNamespace(
            Event=lambda enable_timing: FakeEvent(self),
            synchronize=lambda: self.happened.append("synchronize"),
            device_count=lambda: gpus,
        )
        self.distributed = SimpleNamespace(
            all_reduce=lambda held, op: self.happened.append("all_reduce"),
            ReduceOp=SimpleNamespace(MAX=None),
            is_available=lambda: True,
            is_nccl_available=lambda: nccl,
        )
        self.__version__ = "fake"

    def device(self, kind: str) -> SimpleNamespace:
        return SimpleNamespace(type=kind)

    def ones(self, size: int, dtype: object, device: SimpleNamespace, pin_memory: bool) -> SimpleNamespace:
        where = f"{device.type}{' pinned' if pin_memory else ''}"

        def copy_(source: SimpleNamespace, non_blocking: bool) -> None:
            self.happened.append(f"{source.where} to {where}")
            self.clock_ms += size / 1e6

        return SimpleNamespace(where=where, copy_=copy_)


class FakeEvent:
    def __init__(self, torch: FakeTorch) -> None:
        self.torch = torch
        self.at_ms = math.nan

    def record(self) -> None:
        self.torch.happened.append("record")
        self.at_ms = self.torch.clock_ms

    def elapsed_time(self, other: FakeEvent) -> float:
        return other.at_ms - self.at_ms


def fake_group(torch: FakeTorch) -> Group:
    return Group(torch, torch.device("cuda"), Placement(0, 2, 0, 2))


def test_calls_on_gpus_are_timed_between_events() -> None:
    torch = FakeTorch()

    def call() -> None:
        torch.happened.append("call")
        torch.clock_ms += 2.0

    found = fake_group(torch).time(call, Plan((), (), (), iterations=7, seconds_per_point=100.0))
    assert found == Times(2e-3, 2e-3, 2e-3, 7)
    # Once, 5 times to warm up, 7 times that count; idle before each of the three, and before times are read.
    assert torch.happened.count("call") == 1 + 5 + 7
    timed = torch.happened[-1 - 1 - 3 * 7 :]
    assert timed == ["record", "call", "record"] * 7 + ["synchronize", "all_reduce"]


def test_what_fails_on_any_rank_is_left_out_on_all() -> None:
    group = fake_group(FakeTorch())

    def fail() -> None:
        raise RuntimeError("[/x/y/ProcessGroup.cpp:1] no such thing\n#0 0x7f")

    assert group.attempt(lambda: 7) == (7, "")
    made, reason = group.attempt(fail)
    assert (made, reason) == (None, "no such thing")


def test_copies_on_gpus_go_both_ways_pinned_and_pageable() -> None:
    torch = FakeTorch()
    found = list(copy(fake_group(torch), Plan((), (), (), copies=True)))
    assert all(isinstance(one, Copied) and one.bandwidth == pytest.approx(1e9) for one in found)
    by_kind: dict[str, Any] = {one.kind: one for one in found if isinstance(one, Copied)}
    assert list(by_kind) == [
        f"{way}, {word}" for word in ("pinned", "pageable") for way in ("host to device", "device to host")
    ]
    ways = {text for text in torch.happened if " to " in text}
    assert ways == {"cpu pinned to cuda", "cuda to cpu pinned", "cpu to cuda", "cuda to cpu"}


def test_the_backend_is_nccl_where_there_are_gpus() -> None:
    assert chosen_backend(FakeTorch(8), "auto") == "nccl"
    assert chosen_backend(FakeTorch(8), "gloo") == "gloo"
    assert chosen_backend(FakeTorch(0), "auto") == "gloo"
    assert chosen_backend(FakeTorch(8, nccl=False), "auto") == "gloo"
    with pytest.raises(InputError, match="PyTorch sees no GPU; write --backend gloo"):
        chosen_backend(FakeTorch(0), "nccl")
    with pytest.raises(InputError, match="is built without NCCL"):
        chosen_backend(FakeTorch(8, nccl=False), "nccl")


def ended(rank: int, code: int | None, failed: _Failed | None = None) -> Any:
    return SimpleNamespace(rank=rank, code=code, failed=failed)


def test_the_rank_that_failed_first_is_named() -> None:
    lost = ended(0, 1, _Failed("Connection closed by peer"))
    killed = ended(1, -signal.SIGKILL)
    with pytest.raises(InputError, match=r"^rank 1: was killed by SIGKILL"):
        _raise(_Ranks([lost, killed], [lost, killed]))
    with pytest.raises(InputError, match=r"^rank 0: Connection closed by peer; it waited for rank 2, which did not"):
        _raise(_Ranks([lost, ended(2, None)], [lost]))
    with pytest.raises(InputError, match="ended with exit code 7"):
        _raise(_Ranks([ended(1, 7)], [ended(1, 7)]))
    with pytest.raises(RankError, match="KeyError: 1"):
        _raise(_Ranks([lost], [ended(0, 1, _Failed("KeyError: 1", bug=True))]))
