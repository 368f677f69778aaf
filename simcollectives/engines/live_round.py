"""What the event engine keeps of a round while ranks are in it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from simcollectives.engines.durations import alone_seconds
from simcollectives.engines.job import Job, Messages, messages_of
from simcollectives.engines.pricing import FloatArray, drawn_alpha, flow_bytes, reduction_seconds
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
    entered: list[bool]
    started: list[float]
    path: list[Path]
    pending: list[int]
    last: list[int]
    batches: dict[float, Batch] = field(default_factory=dict)
    waiting: dict[float, Batch] = field(default_factory=dict)


class LiveRounds:
    """Makes the rounds of one channel in turn; adds the bytes they send to ``sent`` [level, device]."""

    def __init__(self, job: Job, channel: int, sent: IntArray, *, record: bool) -> None:
        """Start before the first round; ``record`` also counts the bytes that are reduced."""
        self._job, self._channel, self._sent, self._record = job, channel, sent, record
        self._stream = job.schedule.rounds_of(channel)
        self._number = 0
        self._pairs: _Pairs | None = None

    def __iter__(self) -> Iterator[LiveRound]:
        """Go on."""
        return self

    def __next__(self) -> LiveRound:
        """Return the next round."""
        job, channel, number = self._job, self._channel, self._number
        messages = messages_of(job, next(self._stream))
        self._number += 1
        pairs = self._pairs_of(messages)
        np.add.at(self._sent, (pairs.level_numbers, messages.src), messages.bytes)
        ends = (channel, number, messages.src, messages.dst)
        alpha = drawn_alpha(job, *ends, pairs.alpha)
        flowing = flow_bytes(job, *ends, messages.bytes)
        reduction = reduction_seconds(job, channel, number, messages.dst, messages.reduced_bytes)
        latency = alpha + pairs.overhead
        count, devices = len(pairs.src), job.schedule.devices
        return LiveRound(
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
            reduced_bytes=self._reduced(messages) if self._record else [],
            reduction=[] if reduction is None else reduction.tolist(),
            ranks_left=devices,
            entered=[False] * count,
            started=[0.0] * count,
            path=[[]] * count,
            pending=[0] * devices,
            last=[0] * devices,
        )

    def _reduced(self, messages: Messages) -> list[int]:
        total: IntArray = np.zeros(self._job.schedule.devices, dtype=np.int64)
        np.add.at(total, messages.dst, messages.reduced_bytes)
        return list(total.tolist())

    def _pairs_of(self, messages: Messages) -> _Pairs:
        pairs = self._pairs
        if (
            pairs is None
            or not np.array_equal(pairs.src_ranks, messages.src)
            or not np.array_equal(pairs.dst_ranks, messages.dst)
        ):
            pairs = self._pairs = self._new_pairs(messages.src, messages.dst)
        return pairs

    def _new_pairs(self, src_ranks: IntArray, dst_ranks: IntArray) -> _Pairs:
        network = self._job.full_cluster.network
        routes = network.routes(src_ranks, dst_ranks)
        # What one device owns carries one round of a channel at a time: there only this round's messages can meet.
        load = np.bincount(routes.resources.reshape(-1), minlength=len(network.capacity))
        meet = (load > 1) | ~network.owned | (len(self._job.schedule.channels) > 1)
        meet[-1] = False
        meets = meet[routes.resources]
        shares = meets.any(axis=1)
        src, dst = src_ranks.tolist(), dst_ranks.tolist()
        messages_at: dict[int, list[int]] = {}
        for i, (s, d) in enumerate(zip(src, dst, strict=True)):
            messages_at.setdefault(s, []).append(i)
            messages_at.setdefault(d, []).append(i)
        resources: list[tuple[int, ...]] = []
        cap: list[float] = []
        if shares.any():
            cap = np.where(meets, np.inf, network.capacity[routes.resources]).min(axis=1).tolist()
            rows = zip(routes.resources.tolist(), meets.tolist(), strict=True)
            routes_seen: dict[tuple[int, ...], tuple[int, ...]] = {}
            for row in rows:
                route = tuple([r for r, here in zip(*row, strict=True) if here])
                resources.append(routes_seen.setdefault(route, route))
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
