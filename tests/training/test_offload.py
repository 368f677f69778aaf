"""Parts of offloading, worked by hand.

A node of two devices: 20 B/s to the host for each, 60 B/s of host memory, 32 and 24 B/s of drives to read and to write,
so that a rank has 20, 30, 16 and 12. A sub-group of one element is read in 1 s, written in 1 s and updated in 1 s, and
its parameters of 2 B are copied in 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.errors import InputError
from simcollectives.training.offload import (
    Host,
    HostOptimizer,
    accumulate_on_host,
    buffer_problems,
    copy_to_device,
    gradient_to_host,
    host_of,
    host_problems,
    on_device,
)
from simcollectives.training.passes import GRADIENT_COPY
from simcollectives.training.pricing import Price
from simcollectives.training.program import Builder, Call
from simcollectives.training.setup import Training
from simcollectives.training.streams import play
from simcollectives.training.timeline import StepTimeline, most_of_each
from tests.training.steps import uniform_training

DEVICE = Device(
    memory_bandwidth=60.0,
    host_link_bandwidth=20.0,
    cpu_memory_bandwidth=60.0,
    nvme_read_bandwidth=32.0,
    nvme_write_bandwidth=24.0,
)
HOST = Host(link=20.0, memory=30.0, read=16.0, write=12.0)
OPTIONS = {
    "offload_optimizer": "cpu",
    "offload_param": "none",
    "pin_memory": True,
    "buffer_count": 12,
    "pipeline_read": False,
    "pipeline_write": False,
}


def training(device: Device = DEVICE, nodes: int = 1) -> Training:
    link = Link(0.0, 1.0)
    return uniform_training(8, 2, 1, cluster=Cluster.two_level(nodes, 2, link, link, device=device))


def played(write: Callable[[Builder], object]) -> StepTimeline:
    def free(_call: Call) -> Price:
        return Price(0.0, 0.0, "none", "none", 0, {})

    builder = Builder()
    write(builder)
    return play({0: builder.program()}, free)


def optimizer(builder: Builder, **options: Any) -> HostOptimizer:
    return HostOptimizer(builder, training(), HOST, {**OPTIONS, **options}, "bfloat16", "compute", blocks=True)


def test_what_a_rank_has_of_its_host() -> None:
    """Memory and drives are shared by the ranks of a node, however many nodes; the link is a rank's own."""
    assert host_of(training(), {**OPTIONS, "offload_optimizer": "nvme"}) == HOST
    assert host_of(training(nodes=3), {**OPTIONS, "offload_optimizer": "nvme"}) == HOST


def test_copies_are_bound_by_the_memory_of_the_host_and_by_paging() -> None:
    assert host_of(training(replace(DEVICE, cpu_memory_bandwidth=10.0)), OPTIONS).link == 5.0
    assert host_of(training(), {**OPTIONS, "pin_memory": False}).link == 10.0


def test_what_the_cluster_must_say() -> None:
    with pytest.raises(InputError) as caught:
        host_of(training(Device()), {**OPTIONS, "offload_optimizer": "nvme"})
    assert [str(problem) for problem in caught.value.problems] == [
        f"offload_optimizer: the device has no known {name}; write device: {{{name}: {example}}} under cluster:"
        for name, example in (
            ("host_link", "31.5 GB/s"),
            ("cpu_memory_bandwidth", "410 GB/s"),
            ("nvme_read", "28 GB/s"),
            ("nvme_write", "14 GB/s"),
        )
    ]
    assert [p.place for p in host_problems(training(Device()), {**OPTIONS, "offload_param": "cpu"})] == [
        *["offload_optimizer"] * 2,
        *["offload_param"] * 2,
    ]
    assert host_problems(training(Device()), {"offload_optimizer": "none"}) == ()


def test_a_gradient_is_cast_on_the_device() -> None:
    """30 elements: 2 B read and 4 written at 60 B/s, 3 s; then 4 B each at 20 B/s, 6 s, while the cast stands."""
    timeline = played(lambda b: gradient_to_host(b, training(), HOST, "g", 30, "bfloat16", stream="compute"))
    assert [(s.operation.kind, s.start, s.end) for s in timeline.spans] == [("compute", 0, 3), ("copy", 3, 9)]
    assert most_of_each(timeline.memory) == {GRADIENT_COPY: 120}
    assert sum(change.bytes for change in timeline.memory) == 0


def test_a_float32_gradient_is_only_copied() -> None:
    timeline = played(lambda b: gradient_to_host(b, training(), HOST, "g", 30, "float32", stream="compute"))
    assert [(s.operation.kind, s.end) for s in timeline.spans] == [("copy", 6)]


@pytest.mark.parametrize(
    ("held", "returns", "out", "back"),
    [(False, False, 1, 0), (True, False, 1, 1), (False, True, 1, 1), (True, True, 1, 1)],
)
def test_gradients_add_up_on_the_device(held: bool, returns: bool, out: int, back: int) -> None:
    """Stages 1 and 2 copy out, and from the second micro-batch on, in and out; stage 3 always both ways."""
    timeline = played(
        lambda b: accumulate_on_host(b, training(), HOST, "g", 100, held=held, returns=returns, stream="compute")
    )
    copies = [span.operation.name for span in timeline.spans if span.operation.kind == "copy"]
    assert [copies.count(f"g to the {end}") for end in ("host", "device")] == [out, back]
    assert timeline.end_of(0) == 5.0 * (out + back) + (300 / 60 if held else 0)


def test_copies_stop_the_host_where_memory_is_not_pinned() -> None:
    def write(builder: Builder, host: Host) -> None:
        copy_to_device(builder, host, "p", 20, stream="copy")
        builder.compute("kernel", 1.0)

    ends = [
        played(lambda b, pinned=pinned: write(b, Host(20.0, 30.0, pinned=pinned))).end_of(0) for pinned in (True, False)
    ]  # type: ignore[misc]
    assert ends == [1.0, 2.0]


def test_the_cpu_takes_thirty_bytes_a_parameter() -> None:
    """28 of Adam and 2 of the 16-bit copy, at 30 B/s; the parameters follow, and the device waits for nothing else."""
    timeline = played(lambda b: optimizer(b).run([7]))
    seconds = {span.operation.name: span.seconds for span in timeline.spans}
    assert seconds["optimizer of sub-group 0"] == pytest.approx(30 * 7 / 30)
    assert seconds["parameters of sub-group 0 to the device"] == pytest.approx(2 * 7 / 20)


def test_nothing_overlaps_the_cpu() -> None:
    def write(builder: Builder) -> None:
        optimizer(builder).run([7])
        builder.compute("forward", 1.0)

    assert played(write).end_of(0) == pytest.approx(7 + 0.7 + 1)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ({}, 5 * (1 + 1.1 + 1)),  # in turn: read, update and copy, write
        ({"pipeline_read": True}, 1 + 5 * (1.1 + 1)),  # later reads behind updates
        ({"pipeline_write": True}, 5 * (1 + 1.1) + 1),  # writes but the last behind the next read and update
        ({"pipeline_read": True, "pipeline_write": True}, 1 + 5 * 1.1 + 1),
    ],
)
def test_drives(options: dict[str, bool], seconds: float) -> None:
    timeline = played(lambda b: optimizer(b, offload_optimizer="nvme", **options).run([1] * 5))
    assert timeline.end_of(0) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("read", "write", "seconds"),
    [
        (3.0, 1.0, 5 * 3 + 1.1 + 1),  # bound by reading
        (1.0, 3.0, 1 + 1.1 + 5 * 3),  # bound by writing: a write waits for the one before
    ],
)
def test_the_slower_way_sets_the_pace(read: float, write: float, seconds: float) -> None:
    def run(builder: Builder) -> None:
        one = optimizer(builder, offload_optimizer="nvme", pipeline_read=True, pipeline_write=True)
        one.host = Host(20.0, 30.0, read=16 / read, write=12 / write)
        one.run([1] * 5)

    assert played(run).end_of(0) == pytest.approx(seconds)


def test_buffers_hold_what_is_in_flight() -> None:
    """Four buffers for each sub-group that is read, updated or written: DeepSpeed runs out of them otherwise."""
    nvme = {**OPTIONS, "offload_optimizer": "nvme", "buffer_count": 4, "pipeline_read": True}
    assert buffer_problems(nvme, [5]) == ()
    assert [p.message for p in buffer_problems(nvme, [5, 5])] == [
        "4 buffers do not hold 2 sub-groups of 4; write 8 or more"
    ]
    assert buffer_problems({**nvme, "buffer_count": 8}, [5, 5]) == ()
    assert len(buffer_problems({**nvme, "buffer_count": 8, "pipeline_write": True}, [5, 5])) == 1
    assert buffer_problems({**nvme, "offload_optimizer": "cpu"}, [5, 5]) == ()


def test_some_sub_groups_stay() -> None:
    assert [on_device([1] * 4, ratio) for ratio in (1.0, 0.9, 0.75, 0.0)] == [0, 0, 1, 4]
