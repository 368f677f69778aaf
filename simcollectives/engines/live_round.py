"""What the event engine keeps of a round while ranks are in it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from simcollectives.cluster.network import FloatArray
from simcollectives.engines.durations import alone_seconds
from simcollectives.engines.job import Job, Messages, messages_of
from simcollectives.engines.pricing import drawn_alpha, flow_bytes, reduction_seconds
from simcollectives.schedule.types import IntArray

Path = list[float]
"""Seconds so far along a critical path: latency and bandwidth by level in turn, then reduction."""

Batch = tuple[float, list[int]]
"""Messages of one round that start at one instant and wait equally long: one timeout serves them all."""


@dataclass(slots=True)
class _Pairs:
    """What follows from who sends to whom, kept while rounds repeat it. Lists are by message.

    ``shares`` tells which messages may meet others, ``resources`` where, and ``cap`` the least capacity of the rest of
    their routes.
    """

    src_ranks: IntArray
    dst_ranks: IntArray
    level_numbers: IntArray
    alpha: FloatArray
    overhead: FloatArray
    bandwidth: FloatArray
    src: list[int]
    dst: list[int]
    level: list[int]
    overhead_bytes: list[float]
    messages_at: dict[int, list[int]]
    shares: list[bool]
    resources: list[tuple[int, ...]]
    cap: list[float]

    def are_of(self, messages: Messages) -> bool:
        """Whether these messages go from and to the same ranks, in the same order."""
        return np.array_equal(self.src_ranks, messages.src) and np.array_equal(self.dst_ranks, messages.dst)


@dataclass(slots=True)
class LiveRound:
    """A round while ranks are in it. Lists are by message, but for those by rank.

    By rank are ``pending``, ``last``, ``reduced_bytes`` and ``reduction`` seconds (either may be empty).
    """

    number: int
    channel: int
    pairs: _Pairs
    src: list[int]
    dst: list[int]
    bytes: list[int]
    messages_at: dict[int, list[int]]
    shares: list[bool]
    alpha: list[float]
    latency: list[float]
    alone: list[float]
    flow_bytes: list[float]
    reduced_bytes: list[int]
    reduction: list[float]
    ranks_left: int
    entered: list[bool] = field(init=False)
    started: list[float] = field(init=False)
    path: list[Path] = field(init=False)
    pending: list[int] = field(init=False)
    last: list[int] = field(init=False)
    batches: dict[float, Batch] = field(default_factory=dict)
    waiting: dict[float, Batch] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nobody has entered yet."""
        count, devices = len(self.src), self.ranks_left
        self.entered = [False] * count
        self.started = [0.0] * count
        self.path = [[]] * count
        self.pending = [0] * devices
        self.last = [0] * devices


def live_rounds(job: Job, channel: int, sent: IntArray, *, record: bool) -> Iterator[LiveRound]:
    """Make the rounds of one channel in turn, adding the bytes they send to ``sent`` [level, device].

    ``record`` also counts the bytes that are reduced.
    """
    pairs: _Pairs | None = None
    for number, round_ in enumerate(job.schedule.rounds_of(channel)):
        messages = messages_of(job, round_)
        if pairs is None or not pairs.are_of(messages):
            pairs = _pairs(job, messages.src, messages.dst)
        np.add.at(sent, (pairs.level_numbers, messages.src), messages.bytes)
        ends = (channel, number, messages.src, messages.dst)
        alpha = drawn_alpha(job, *ends, pairs.alpha)
        flowing = flow_bytes(job, *ends, messages.bytes)
        reduction = reduction_seconds(job, channel, number, messages.dst, messages.reduced_bytes)
        latency = alpha + pairs.overhead
        yield LiveRound(
            number=number,
            channel=channel,
            pairs=pairs,
            src=pairs.src,
            dst=pairs.dst,
            bytes=messages.bytes.tolist(),
            messages_at=pairs.messages_at,
            shares=pairs.shares,
            alpha=alpha.tolist(),
            latency=latency.tolist(),
            alone=alone_seconds(latency, flowing, pairs.bandwidth).tolist(),
            flow_bytes=flowing.tolist(),
            reduced_bytes=_reduced(job, messages) if record else [],
            reduction=[] if reduction is None else reduction.tolist(),
            ranks_left=job.schedule.devices,
        )


def _reduced(job: Job, messages: Messages) -> list[int]:
    total: IntArray = np.zeros(job.schedule.devices, dtype=np.int64)
    np.add.at(total, messages.dst, messages.reduced_bytes)
    return list(total.tolist())


def _pairs(job: Job, src_ranks: IntArray, dst_ranks: IntArray) -> _Pairs:
    network = job.full_cluster.network
    routes = network.routes(src_ranks, dst_ranks)
    # What one device owns carries one round of a channel at a time: there only this round's messages can meet.
    load = np.bincount(routes.resources.reshape(-1), minlength=len(network.capacity))
    meet = (load > 1) | ~network.owned | (len(job.schedule.channels) > 1)
    meet[-1] = False  # stands for no resource
    meets = meet[routes.resources]
    shares = np.asarray(meets.any(axis=1))
    src, dst = src_ranks.tolist(), dst_ranks.tolist()
    messages_at: dict[int, list[int]] = {}
    for i, (s, d) in enumerate(zip(src, dst, strict=True)):
        messages_at.setdefault(s, []).append(i)
        messages_at.setdefault(d, []).append(i)
    resources: list[tuple[int, ...]] = []
    cap: list[float] = []
    if shares.any():
        cap = np.where(meets, np.inf, network.capacity[routes.resources]).min(axis=1).tolist()
        same: dict[tuple[int, ...], tuple[int, ...]] = {}
        for row in zip(routes.resources.tolist(), meets.tolist(), strict=True):
            route = tuple([resource for resource, here in zip(*row, strict=True) if here])
            resources.append(same.setdefault(route, route))
    return _Pairs(
        src_ranks=src_ranks,
        dst_ranks=dst_ranks,
        level_numbers=routes.level,
        alpha=routes.alpha,
        overhead=routes.overhead,
        bandwidth=routes.bandwidth,
        src=src,
        dst=dst,
        level=routes.level.tolist(),
        overhead_bytes=(routes.overhead * routes.bandwidth).tolist(),
        messages_at=messages_at,
        shares=shares.tolist(),
        resources=resources,
        cap=cap,
    )
