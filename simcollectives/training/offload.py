"""Model states on the host: copies, the optimizer on the CPU, and NVMe drives; what waits for what.

These are the parts from which a strategy that offloads is made, in the order in which DeepSpeed has them. A rank's
copies run at the bandwidth of its own link to the host, or at its share of the host's memory bandwidth if that is less.
The optimizer runs on the CPU, bound by that memory; meanwhile the host issues nothing, so that nothing overlaps it:

    seconds = (16 bytes read + 12 written + the model's copy: 30 for 16-bit parameters) x elements / share of the memory

On NVMe, states are read and written by sub-groups: for Adam 12 bytes an element each way, and 4 read for the gradient.

Reference: Ren et al. 2021, arXiv:2101.06840 (ZeRO-Offload); Rajbhandari et al. 2021, arXiv:2104.07857 (ZeRO-Infinity);
DeepSpeed edaa7221: runtime/zero/stage_1_and_2.py, stage3.py and runtime/swap_tensor. Assumes that all ranks of a node
use its memory and drives at once and get equal parts, that scaling the gradients is free and that casting is fused with
Adam, and that copies from memory that is not pinned reach half the link and stop the host.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simcollectives.cluster.link import Device
from simcollectives.engines.job import DTYPES
from simcollectives.errors import InputError, Problem
from simcollectives.training.passes import GRADIENT_COPY
from simcollectives.training.program import Builder, Item
from simcollectives.training.setup import Training

NVME_READ, NVME_WRITE = "NVMe read", "NVMe write"
PAGEABLE = 0.5
"""Share of the link that copies from memory reach which is not pinned: a third to a half is reported."""
GRADIENT_BYTES = 4
"""Bytes an element on a drive: float32 weights and Adam's two states; the gradient."""
BUFFERS_OF_A_GROUP = 4
LEAST_ON_DRIVE = 1 << 20
"""Bytes of a parameter's shard from which on it goes to a drive; smaller ones stay in the host's memory."""


@dataclass(frozen=True)
class Host:
    """What a rank has of its host, in bytes per second: ``link`` each way, ``memory``, and drives to read and write."""

    link: float
    memory: float
    read: float = 0.0
    write: float = 0.0
    pinned: bool = True


def offloads(options: Mapping[str, Any]) -> tuple[str, str]:
    """Return where the optimizer states are, and where the parameters: none (the device), cpu or nvme."""
    return options.get("offload_optimizer", "none"), options.get("offload_param", "none")


def host_of(training: Training, options: Mapping[str, Any]) -> Host:
    """Return what a rank has of its host.

    Raises:
        InputError: the cluster does not say what the options need; all problems at once.
    """
    if problems := host_problems(training, options):
        raise InputError(problems)
    device, ranks, pinned = training.cluster.device, training.cluster.gpus_per_node, bool(options["pin_memory"])
    memory = (device.cpu_memory_bandwidth or 0.0) / ranks
    return Host(
        link=min((device.host_link_bandwidth or 0.0) * (1.0 if pinned else PAGEABLE), memory),
        memory=memory,
        read=(device.nvme_read_bandwidth or 0.0) / ranks,
        write=(device.nvme_write_bandwidth or 0.0) / ranks,
        pinned=pinned,
    )


def host_problems(training: Training, options: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Tell what the cluster does not say of the host, at the option that needs it."""
    found = []
    for option, place in zip(("offload_optimizer", "offload_param"), offloads(options), strict=True):
        if place != "none":
            found += [Problem(option, rule) for rule in _lacking(training.cluster.device, drives=place == "nvme")]
    return tuple(found)


def _lacking(device: Device, *, drives: bool) -> list[str]:
    needed = [("host_link", device.host_link_bandwidth, "31.5 GB/s")]
    needed.append(("cpu_memory_bandwidth", device.cpu_memory_bandwidth, "410 GB/s"))
    if drives:
        needed.append(("nvme_read", device.nvme_read_bandwidth, "28 GB/s"))
        needed.append(("nvme_write", device.nvme_write_bandwidth, "14 GB/s"))
    remedy = "write device: {{{}: {}}} under cluster:"
    return [
        f"the device has no known {name}; {remedy.format(name, example)}"
        for name, value, example in needed
        if not value
    ]


def buffer_problems(options: Mapping[str, Any], groups: Sequence[int]) -> tuple[Problem, ...]:
    """Tell when the buffers do not hold all sub-groups that are read, updated and written at once."""
    if options["offload_optimizer"] != "nvme":
        return ()
    at_once = 1
    if len(groups) > 1:
        at_once += options["pipeline_read"] + options["pipeline_write"]
    need, have = BUFFERS_OF_A_GROUP * at_once, options["buffer_count"]
    if have >= need:
        return ()
    rule = f"{have} buffers do not hold {at_once} sub-groups of {BUFFERS_OF_A_GROUP}; write {need} or more"
    return (Problem("buffer_count", rule),)


def copy_to_host(
    builder: Builder,
    host: Host,
    name: str,
    size: int,
    *,
    stream: str,
    after: Iterable[int] = (),
    frees: Iterable[Item] = (),
    blocks: bool = False,
) -> int:
    """Copy bytes from the device to the host; with ``blocks`` the host waits in any case."""
    return _copied(builder, host, f"{name} to the host", size, stream, after, frees, blocks=blocks)


def copy_to_device(
    builder: Builder,
    host: Host,
    name: str,
    size: int,
    *,
    stream: str,
    after: Iterable[int] = (),
    blocks: bool = False,
) -> int:
    """Copy bytes from the host to the device; with ``blocks`` the host waits in any case."""
    return _copied(builder, host, f"{name} to the device", size, stream, after, (), blocks=blocks)


def _copied(
    builder: Builder,
    host: Host,
    name: str,
    size: int,
    stream: str,
    after: Iterable[int],
    frees: Iterable[Item],
    *,
    blocks: bool,
) -> int:
    """The host waits for what is not pinned, too."""
    end = builder.copy(name, size / host.link, stream=stream, after=after, frees=frees)
    return builder.host(f"wait for {name}", after=[end]) if blocks or not host.pinned else end


def gradient_to_host(
    builder: Builder,
    training: Training,
    host: Host,
    name: str,
    elements: int,
    dtype: str,
    *,
    stream: str,
    after: Iterable[int] = (),
    blocks: bool = False,
) -> int:
    """Cast a reduced gradient to float32 on the device and copy it out: 4 bytes an element, whatever its dtype."""
    frees: list[Item] = []
    if dtype != "float32":
        frees = [(GRADIENT_COPY, 4 * elements)]
        seconds = training.memory_seconds((DTYPES[dtype] + 4) * elements)
        after = [builder.compute(f"{name} to float32", seconds, stream=stream, after=after, allocates=frees)]
    return copy_to_host(builder, host, name, 4 * elements, stream=stream, after=after, frees=frees, blocks=blocks)


def accumulate_on_host(
    builder: Builder,
    training: Training,
    host: Host,
    name: str,
    size: int,
    *,
    held: bool,
    returns: bool,
    stream: str,
    after: Iterable[int] = (),
) -> int:
    """Add a gradient of ``size`` bytes to what the host has ``held`` of it, on the device, and copy the sum out.

    ``returns``: a gradient to which nothing had to be added comes back to the device at once (stage 3).
    """
    if held:
        back = copy_to_device(builder, host, name, size, stream=stream, after=after)
        after = [builder.compute(f"{name} added", training.memory_seconds(3 * size), stream=stream, after=[back])]
    end = copy_to_host(builder, host, name, size, stream=stream, after=after)
    return copy_to_device(builder, host, name, size, stream=stream, after=[end]) if returns and not held else end


def gradient_to_drive(builder: Builder, host: Host, name: str, elements: int, after: Iterable[int]) -> int:
    """Write a float32 gradient that is on the host to a drive, while everything goes on."""
    return builder.copy(f"{name} written", GRADIENT_BYTES * elements / host.write, stream=NVME_WRITE, after=after)


def on_device(groups: Sequence[int], ratio: float) -> int:
    """Return how many of the sub-groups, the first, stay on the device.

    >>> on_device([10, 10, 10], 0.5)
    1
    """
    return int((1 - ratio) * len(groups))


@dataclass
class HostOptimizer:
    """The optimizer on the CPU, sub-group by sub-group; parameters are copied to the device on ``stream``.

    ``blocks``: the host waits for that, as in stage 3. Parameters that live on the host stay there, and those that live
    on drives are written to them.
    """

    builder: Builder
    training: Training
    host: Host
    options: Mapping[str, Any]
    parameter_dtype: str
    stream: str
    blocks: bool = False

    def run(self, groups: Sequence[int], after: Iterable[int] = ()) -> int:
        """Issue the step of all sub-groups, ``after`` the gradients are on the host, or on the drives."""
        if self.options["offload_optimizer"] == "nvme":
            return self._from_drives(groups, after)
        end = self.builder.host("wait for gradients", after=after)
        for number, elements in enumerate(groups):
            end = self._update(number, elements)
        return end

    @property
    def state_bytes(self) -> int:
        """Bytes of an element on the drives: a float32 parameter, which the CPU always has, and its states."""
        return 4 + self.training.optimizer.state_bytes

    def _update(self, number: int, elements: int) -> int:
        """Let the CPU update a sub-group, and copy its parameters to the device."""
        optimizer = replace(self.training.optimizer, master=True, gradient_copy=False)
        moved = elements * optimizer.moved_bytes(DTYPES[self.parameter_dtype], GRADIENT_BYTES)
        end = self.builder.host(f"optimizer of sub-group {number}", moved / self.host.memory)
        size, name = elements * DTYPES[self.parameter_dtype], f"parameters of sub-group {number}"
        place = offloads(self.options)[1]
        if place == "cpu":
            return end
        if place == "nvme":
            written = self.builder.copy(f"{name} written", size / self.host.write, stream=NVME_WRITE, after=[end])
            return self.builder.host(f"wait for {name}", after=[written])
        return copy_to_device(self.builder, self.host, name, size, stream=self.stream, after=[end], blocks=self.blocks)

    def _from_drives(self, groups: Sequence[int], after: Iterable[int]) -> int:
        """Read, update and write each: ahead with ``pipeline_read``, behind with ``pipeline_write``, else in turn."""
        end = self.builder.host("wait for gradients", after=after)
        reads: dict[int, int] = {}
        behind: list[int] = []
        for number, elements in enumerate(groups):
            if number not in reads:
                reads[number] = self._read(number, elements)
            self.builder.host(f"wait for sub-group {number}", after=[reads[number]])
            last = number == len(groups) - 1
            if self.options["pipeline_read"] and not last:
                reads[number + 1] = self._read(number + 1, groups[number + 1])
            end = self._update(number, elements)
            if behind:
                self.builder.host("wait for what was written", after=behind)
            written = self._write(number, elements)
            behind = [written]
            if last or not self.options["pipeline_write"]:
                end = self.builder.host(f"wait for sub-group {number}, written", after=[written, end])
                behind = []
        return end

    def _read(self, number: int, elements: int) -> int:
        seconds = (self.state_bytes + GRADIENT_BYTES) * elements / self.host.read
        return self.builder.copy(f"sub-group {number} read", seconds, stream=NVME_READ)

    def _write(self, number: int, elements: int) -> int:
        seconds = self.state_bytes * elements / self.host.write
        return self.builder.copy(f"sub-group {number} written", seconds, stream=NVME_WRITE)
