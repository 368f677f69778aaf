"""ZeRO with offloading, as DeepSpeed has it: bytes by direction, memory of the device, seconds of the CPU.

A uniform model of 2^22 bfloat16 parameters on 4 ranks of one node, n = 2^20 each; the link to the host carries 2^30 B/s
each way, and a rank's share of the host's memory is 2^32 B/s.
"""

from __future__ import annotations

from typing import Any

import pytest

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.errors import InputError
from simcollectives.training.step import Step, simulate_step
from tests.training.steps import uniform_training

RANKS, PARAMETERS = 4, 1 << 22
N = PARAMETERS // RANKS
LINK, MEMORY = float(1 << 30), float(1 << 32)
DEVICE = Device(
    memory_bandwidth=2.0**40,
    host_link_bandwidth=LINK,
    cpu_memory_bandwidth=RANKS * MEMORY,
    nvme_read_bandwidth=RANKS * float(1 << 29),
    nvme_write_bandwidth=RANKS * float(1 << 29),
)


def step(
    strategy: str, options: dict[str, Any] | None = None, *, elements: int = PARAMETERS, layers: int = 4, **more: Any
) -> Step:
    cluster = Cluster.flat(RANKS, Link(1e-6, 1e11), device=more.pop("device", DEVICE))
    training = uniform_training(elements, layers, 4, cluster=cluster, **more)
    given = {"implementation": "deepspeed", "offload_optimizer": "cpu", **(options or {})}
    if strategy == "zero3":
        given = {"param_persistence_threshold": 0, **given}
    return simulate_step(training, strategy, given)


def copied(found: Step) -> tuple[int, int]:
    """Bytes to the host and to the device."""
    copies = [s for s in found.timeline.of_rank(0) if s.operation.kind == "copy"]
    ends = [sum(s.seconds for s in copies if s.operation.name.endswith(f"to the {end}")) for end in ("host", "device")]
    return round(ends[0] * LINK), round(ends[1] * LINK)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("strategy", ["zero1", "zero2"])
def test_stages_1_and_2_copy_float32_out_and_16_bits_in(strategy: str, overlap: bool) -> None:
    assert copied(step(strategy, {"overlap_comm": overlap, "reduce_bucket_size": 500_000})) == (4 * N, 2 * N)


def test_accumulation_in_stage_2_goes_out_and_in() -> None:
    """Three micro-batches: 2 bytes out each time, in again for the second and third; then as always."""
    assert copied(step("zero2", accumulation=3)) == ((3 * 2 + 4) * N, (2 * 2 + 2) * N)


def test_stage_1_adds_up_on_the_device() -> None:
    """Only the last micro-batch is reduced; what the host holds, zeros, is added to it all the same."""
    assert copied(step("zero1", accumulation=3)) == ((2 + 4) * N, (2 + 2) * N)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_stage_3_keeps_the_sum_on_the_host(accumulation: int) -> None:
    """Every micro-batch out and in; in the end 4 bytes out, and 2 in for the parameters."""
    found = step("zero3", accumulation=accumulation)
    assert copied(found) == ((2 * accumulation + 4) * N, (2 * accumulation + 2) * N)


def test_parameters_on_the_host_are_copied_before_every_gather() -> None:
    """Forward and backward, as nothing is kept in between; after the step they stay where they are."""
    nothing_kept = {"max_live_parameters": 0, "max_reuse_distance": 0}
    found = step("zero3", {"offload_param": "cpu", **nothing_kept})
    assert copied(found) == ((2 + 4) * N, 2 * N + 2 * 2 * N)
    kept = step("zero3", {"offload_param": "cpu"})
    assert copied(kept) == ((2 + 4) * N, 2 * N + 2 * N)


def test_parameters_alone_are_offloaded() -> None:
    """The optimizer is on the device: its 16-bit parameters are copied out."""
    found = step("zero3", {"offload_param": "cpu", "offload_optimizer": "none"})
    assert copied(found) == (2 * N, 2 * N)
    assert found.memory["optimizer states"] == 12 * N


def seconds_of(found: Step, name: str) -> float:
    return sum(s.seconds for s in found.timeline.of_rank(0) if s.operation.name.startswith(name))


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_the_cpu_takes_thirty_bytes_a_parameter(strategy: str) -> None:
    """And is shared by the four ranks of the node."""
    found = step(strategy)
    assert seconds_of(found, "optimizer of sub-group") == pytest.approx(30 * N / MEMORY)
    assert found.idle_seconds >= 30 * N / MEMORY


STATES = ("parameters", "gradients", "optimizer states", "gradients in float32")


@pytest.mark.parametrize(
    ("strategy", "options", "expected"),
    [
        ("zero2", {}, {"parameters": 2 * PARAMETERS, "gradients in float32": 4 * N}),
        ("zero3", {}, {"parameters": 2 * N, "gradients in float32": 4 * N}),
        ("zero3", {"offload_param": "cpu"}, {"gradients in float32": 4 * N}),
    ],
)
def test_what_is_left_on_the_device(strategy: str, options: dict[str, Any], expected: dict[str, int]) -> None:
    """One bucket: while the rank's part leaves, it stands in float32; neither states nor gradients of its own do."""
    most = step(strategy, options).most_bytes
    assert {item: most[item] for item in STATES if item in most} == expected


def test_stage_1_frees_what_has_left() -> None:
    """Rank 0 owns the first quarter of the gradients: by the optimizer three quarters are left."""
    found = step("zero1")
    freed = [size for span in found.timeline.of_rank(0) for item, size in span.operation.frees if item == "gradients"]
    assert freed == [2 * N, 2 * (PARAMETERS - N)]


def test_some_sub_groups_stay() -> None:
    """Four sub-groups, half of them on the device, with their states and gradients."""
    found = step("zero3", {"ratio": 0.5, "sub_group_size": N // 4})
    assert found.memory["optimizer states"] == 12 * N // 2
    assert seconds_of(found, "optimizer of sub-group") == pytest.approx(30 * N / 2 / MEMORY)
    assert copied(found) == ((2 + 2) * N, (2 + 1) * N)


def test_drives() -> None:
    """Gradients are written during the backward pass; then 16 bytes are read and 12 written for each parameter."""
    found = step("zero3", {"offload_optimizer": "nvme", "sub_group_size": N // 4})
    writes = [s for s in found.timeline.of_rank(0) if s.operation.stream == "NVMe write"]
    reads = [s for s in found.timeline.of_rank(0) if s.operation.stream == "NVMe read"]
    assert sum(s.seconds for s in writes) == pytest.approx((4 + 12) * N / 2**29)
    assert sum(s.seconds for s in reads) == pytest.approx(16 * N / 2**29)


def test_pipelining_hides_drives() -> None:
    """Four equal sub-groups: later reads behind updates and writes, and writes but the last behind reads."""
    given = {"offload_optimizer": "nvme", "sub_group_size": N // 4, "buffer_count": 12}
    group = N // 4
    read, write = 16 * group / 2**29, 12 * group / 2**29
    update = 30 * group / MEMORY + 2 * group / LINK
    plain = step("zero3", given).step_seconds
    behind = step("zero3", {**given, "pipeline_read": True}).step_seconds
    both = step("zero3", {**given, "pipeline_read": True, "pipeline_write": True}).step_seconds
    assert plain - behind == pytest.approx(3 * min(read, update + write), rel=1e-6)
    # The drives are slower than the CPU: reads and writes follow one another without a pause.
    assert plain - both == pytest.approx(4 * (read + update + write) - (4 * read + update + write), rel=1e-6)


LARGE = 1 << 26  # 4 layers of 4 tensors of 4 M: shards of 2 MiB, which go to drives


def test_parameters_on_drives() -> None:
    """Shards are read once a gather, and written once a step."""
    options = {"offload_optimizer": "nvme", "offload_param": "nvme", "max_live_parameters": 0, "max_reuse_distance": 0}
    found = step("zero3", options, elements=LARGE)
    reads = [s for s in found.timeline.of_rank(0) if s.operation.stream == "NVMe read"]
    shards = [s for s in reads if not s.operation.name.startswith("sub-group")]
    assert len(shards) == 2 * 16
    assert sum(s.seconds for s in shards) == pytest.approx(2 * 2 * LARGE / RANKS / 2**29)
    written = seconds_of(found, "parameters of sub-group")
    assert written == pytest.approx(2 * LARGE / RANKS / 2**29)


def test_reading_ahead_hides_drives() -> None:
    """With one buffer a shard is read when it is needed; with more, while the one before is copied to the device."""
    options = {"offload_param": "nvme", "max_reuse_distance": 0}
    seconds = [
        step("zero3", {**options, "param_buffer_count": count}, elements=LARGE).step_seconds for count in (1, 5, 8)
    ]
    assert seconds == sorted(set(seconds), reverse=True)


def test_buffers_that_are_never_free() -> None:
    """Parameters that are kept on the device keep their buffers on the host: DeepSpeed stops with an assertion."""
    with pytest.raises(InputError) as caught:
        step("zero3", {"offload_param": "nvme"}, elements=LARGE)
    assert [problem.place for problem in caught.value.problems] == ["param_buffer_count"]


@pytest.mark.parametrize(
    ("strategy", "options", "place", "text"),
    [
        ("zero2", {"implementation": "paper"}, "offload_optimizer", "write implementation: deepspeed"),
        ("zero2", {"offload_optimizer": "nvme"}, "offload_optimizer", "is not a choice"),
        ("zero3", {"ratio": 2}, "ratio", "from 0 to 1"),
        (
            "zero3",
            {"offload_optimizer": "nvme", "pipeline_read": True, "sub_group_size": 5},
            "buffer_count",
            "write 8 or more",
        ),
        ("zero3", {"offload_param": "cpu", "zero_hpz_partition_size": 2}, "zero_hpz_partition_size", "not modelled"),
    ],
)
def test_what_does_not_run(strategy: str, options: dict[str, Any], place: str, text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        step(strategy, options)
    assert [problem.place for problem in caught.value.problems] == [place]


def test_the_host_must_be_known() -> None:
    with pytest.raises(InputError, match="no known cpu_memory_bandwidth"):
        step("zero1", device=Device(host_link_bandwidth=1e9))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"contiguous_gradients": False}, "contiguous_gradients: false does nothing with offload_optimizer"),
        ({"offload_optimizer": "none", "pin_memory": False}, "pin_memory does nothing without"),
    ],
)
def test_warnings(options: dict[str, Any], text: str) -> None:
    assert any(text in warning for warning in step("zero2", options).warnings)
