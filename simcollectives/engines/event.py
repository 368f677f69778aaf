"""The event engine: SimPy plays every message, one process a rank and channel.

A message starts when both its ends have entered the round. Where each of its ports carries nothing else in the round,
one timeout completes it; where several messages meet on a port, their flows share it max-min fairly.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import simpy
from simpy.core import EmptySchedule

from simcollectives.engines.durations import alone_seconds
from simcollectives.engines.fair_sharing import FairNetwork
from simcollectives.engines.job import Job, Messages, messages_of
from simcollectives.engines.pricing import drawn_alpha, flow_bytes, reduction_seconds
from simcollectives.engines.run import Parts, Timeline
from simcollectives.engines.watch import Watch
from simcollectives.errors import ScheduleError
from simcollectives.schedule.types import IntArray, Round

Path = list[float]
"""Seconds so far along a critical path: latency and bandwidth by level in turn, then reduction."""


@dataclass(slots=True)
class _LiveRound:
    """A round while ranks are in it. Lists are by message, but for ``pending`` and ``last``, which are by rank."""

    number: int
    channel: int
    src: list[int]
    dst: list[int]
    bytes: list[int]
    level: list[int]
    alpha: list[float]
    latency: list[float]
    alone: list[float]
    shares: list[bool]
    resources: list[list[int]]
    overhead_bytes: list[float]
    messages_at: dict[int, list[int]]
    flow_bytes: list[float]
    reduced_bytes: list[int]
    reduction: list[float]
    ranks_left: int
    entered: list[bool]
    started: list[float]
    path: list[Path]
    pending: list[int]
    last: list[int]
    batches: dict[float, "_Batch"] = field(default_factory=dict)


_Batch = tuple[float, list[int]]
"""Messages of one round that start at one instant and last equally long: one timeout serves them all."""


EVENTS_BETWEEN_LOOKS = 16
"""Events between two calls of a watch; one event may end the messages of all ranks."""


class _Gate(simpy.Event):
    """What a rank waits on at the end of a round; used again for every round.

    Opening it runs the waiting process at once, as SimPy would after a trip through its queue at the same instant.
    """

    def __init__(self, env: simpy.Environment) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None

    def open(self) -> None:
        waiting, self.callbacks = self.callbacks or [], []
        for resume in waiting:
            resume(self)


class _Play:
    """State of one evaluation."""

    def __init__(self, job: Job, record: bool) -> None:
        self.job = job
        self.cluster, self.network = job.full_cluster, job.full_cluster.network
        self.env = simpy.Environment()
        self.flows = FairNetwork(self.env, self.network.capacity, self._flow_done)
        self.sent = np.zeros((len(job.full_cluster.levels), job.schedule.devices), dtype=np.int64)
        channels = job.schedule.channels
        self.rounds = [sum(phase.steps for phase in channel) for channel in channels]
        self.streams: list[Iterator[Round]] = [job.schedule.rounds_of(c) for c in range(len(channels))]
        self.live: list[dict[int, _LiveRound]] = [{} for _ in channels]
        self.gates = [[_Gate(self.env) for _ in range(job.schedule.devices)] for _ in channels]
        self.made = [0 for _ in channels]
        self.starts = job.conditions.starts(job.schedule.devices).tolist()
        self.ends: list[tuple[float, Path]] = []
        self.rows: list[tuple[Any, ...]] | None = [] if record else None
        self.completed = 0

    def run(self, watch: Watch | None = None) -> Parts:
        levels = len(self.cluster.levels)
        processes = 0
        for channel, rounds in enumerate(self.rounds):
            if rounds:
                for rank in range(self.job.schedule.devices):
                    self.env.process(self._rank(rank, channel, [0.0] * (2 * levels + 1)))
                    processes += 1
        self.env.run() if watch is None else self._run_watched(watch)
        if len(self.ends) != processes:
            raise ScheduleError(f"{self.job.label}: {processes - len(self.ends)} ranks never finished")
        seconds, path = max(self.ends, key=lambda end: end[0], default=(0.0, [0.0] * (2 * levels + 1)))
        names = tuple(level.name for level in self.cluster.levels)
        return _parts(names, seconds, path)

    def _run_watched(self, watch: Watch) -> None:
        step, told = self.env.step, 0
        try:
            while True:
                for _ in range(EVENTS_BETWEEN_LOOKS):
                    step()
                told, new = self.completed, self.completed - told
                watch(new)
        except EmptySchedule:
            watch(self.completed - told)

    def _rank(self, rank: int, channel: int, path: Path) -> Generator[simpy.Event, None, None]:
        env, live_rounds, gate = self.env, self.live[channel], self.gates[channel][rank]
        try:
            if self.starts[rank]:
                path[0] = self.starts[rank]
                yield env.timeout(self.starts[rank])
            for number in range(self.rounds[channel]):
                live = live_rounds.get(number) or self._next_round(channel)
                live.ranks_left -= 1
                if live.ranks_left == 0:
                    del live_rounds[number]
                mine = live.messages_at.get(rank)
                if mine is None:
                    continue
                live.pending[rank] = len(mine)
                entered = live.entered
                for i in mine:
                    if entered[i]:
                        self._start(live, i, path)
                    else:
                        entered[i] = True
                yield gate
                path = self._path_after(live, live.last[rank])
                if live.reduction and live.reduction[rank]:
                    seconds = live.reduction[rank]
                    if self.rows is not None:
                        row = (rank, "reduce", "reduce", env.now, env.now + seconds, live.reduced_bytes[rank], -1)
                        self.rows.append((*row, number, channel))
                    path[-1] += seconds
                    yield env.timeout(seconds)
            self.ends.append((env.now, path))
        except KeyboardInterrupt:
            # SimPy makes this an event that fails, after all that happens at the same instant: that may be a lot.
            env._queue.clear()
            raise

    def _start(self, live: _LiveRound, i: int, path: Path) -> None:
        """Both ends have entered; the later one's path is the message's."""
        now = self.env.now
        live.path[i] = path
        live.started[i] = now
        if live.shares[i]:
            simpy.Timeout(self.env, live.alpha[i], (live, i)).callbacks.append(self._flow_start)
            return
        seconds = live.alone[i]
        batch = live.batches.get(seconds)
        if batch is not None and batch[0] == now:
            batch[1].append(i)
            return
        batch = live.batches[seconds] = (now, [i])
        simpy.Timeout(self.env, seconds, (live, seconds, batch)).callbacks.append(self._alone_done)

    def _alone_done(self, event: Any) -> None:
        live, seconds, batch = event.value
        if live.batches.get(seconds) is batch:
            del live.batches[seconds]
        self.completed += len(batch[1])
        for i in batch[1]:
            self._complete(live, i)

    def _flow_start(self, event: Any) -> None:
        live, i = event.value
        work = live.flow_bytes[i] + live.overhead_bytes[i]
        if work > 0:
            self.flows.start(live.resources[i], work, (live, i))
        else:
            self._flow_done((live, i))

    def _flow_done(self, token: tuple[_LiveRound, int]) -> None:
        live, i = token
        live.alone[i] = self.env.now - live.started[i]
        self.completed += 1
        self._complete(live, i)

    def _complete(self, live: _LiveRound, i: int) -> None:
        if self.rows is not None:
            self._record(live, i)
        pending = live.pending
        for rank in (live.src[i], live.dst[i]):
            left = pending[rank] - 1
            pending[rank] = left
            if left == 0:
                live.last[rank] = i
                self.gates[live.channel][rank].open()

    def _path_after(self, live: _LiveRound, i: int) -> Path:
        """The path of the rank that message i was the last for."""
        path = live.path[i].copy()
        level, seconds = 2 * live.level[i], live.alone[i]
        bandwidth = seconds - live.latency[i]
        if live.shares[i]:
            flowing = live.flow_bytes[i]
            share = flowing / (flowing + live.overhead_bytes[i]) if flowing else 0.0
            bandwidth = (seconds - live.alpha[i]) * share
        path[level] += seconds - bandwidth
        path[level + 1] += bandwidth
        return path

    def _record(self, live: _LiveRound, i: int) -> None:
        if self.rows is None:
            return
        src, dst, level = live.src[i], live.dst[i], self.cluster.levels[live.level[i]].name
        when = (live.started[i], self.env.now, live.bytes[i])
        self.rows.append((src, f"send {level}", f"to {dst}", *when, dst, live.number, live.channel))
        self.rows.append((dst, f"receive {level}", f"from {src}", *when, src, live.number, live.channel))

    def _reduced(self, messages: Messages) -> list[int]:
        total: IntArray = np.zeros(self.job.schedule.devices, dtype=np.int64)
        np.add.at(total, messages.dst, messages.reduced_bytes)
        return list(total.tolist())

    def _next_round(self, channel: int) -> _LiveRound:
        messages = messages_of(self.job, next(self.streams[channel]))
        number = self.made[channel]
        self.made[channel] += 1
        routes = self.network.routes(messages.src, messages.dst)
        np.add.at(self.sent, (routes.level, messages.src), messages.bytes)
        # What one device owns carries one round of a channel at a time: there only this round's messages can meet.
        load = np.bincount(routes.resources.reshape(-1), minlength=len(self.network.capacity))
        load[-1] = 0
        meet = (load > 1) | ~self.network.owned | (len(self.rounds) > 1)
        shares = np.any(meet[routes.resources], axis=1)
        ends = (channel, number, messages.src, messages.dst)
        alpha = drawn_alpha(self.job, *ends, routes.alpha)
        flowing = flow_bytes(self.job, *ends, messages.bytes)
        reduction = reduction_seconds(self.job, channel, number, messages.dst, messages.reduced_bytes)
        latency = alpha + routes.overhead
        src, dst = messages.src.tolist(), messages.dst.tolist()
        messages_at: dict[int, list[int]] = {}
        for i, (s, d) in enumerate(zip(src, dst, strict=True)):
            messages_at.setdefault(s, []).append(i)
            messages_at.setdefault(d, []).append(i)
        count = len(src)
        live = _LiveRound(
            number=number,
            channel=channel,
            src=src,
            dst=dst,
            bytes=messages.bytes.tolist(),
            level=routes.level.tolist(),
            latency=latency.tolist(),
            alone=alone_seconds(latency, flowing, routes.bandwidth).tolist(),
            shares=list(shares.tolist()),
            resources=routes.resources.tolist() if shares.any() else [],
            overhead_bytes=(routes.overhead * routes.bandwidth).tolist(),
            alpha=alpha.tolist(),
            messages_at=messages_at,
            flow_bytes=flowing.tolist(),
            reduced_bytes=self._reduced(messages) if self.rows is not None else [],
            reduction=[] if reduction is None else reduction.tolist(),
            ranks_left=self.job.schedule.devices,
            entered=[False] * count,
            started=[0.0] * count,
            path=[[]] * count,
            pending=[0] * self.job.schedule.devices,
            last=[0] * self.job.schedule.devices,
        )
        self.live[channel][number] = live
        return live


def _parts(names: tuple[str, ...], seconds: float, path: Path) -> Parts:
    """Sum the path; what rounding leaves between it and the clock goes to the largest bandwidth part."""
    latency, bandwidth = path[0:-1:2], path[1:-1:2]
    rest = seconds - sum(path)
    widest = max(range(len(bandwidth)), key=lambda level: bandwidth[level])
    if bandwidth[widest] > 0:
        bandwidth[widest] = max(bandwidth[widest] + rest, 0.0)
    return Parts(names, tuple(latency), tuple(bandwidth), path[-1])


def event(
    job: Job, *, record: bool = False, watch: Watch | None = None
) -> tuple[Parts, float, IntArray, Timeline | None]:
    """Play a job. Returns the parts, the seconds, the bytes sent [level, device], and the timeline if ``record``."""
    play = _Play(job, record)
    parts = play.run(watch)
    timeline = None
    if play.rows is not None:
        rows = sorted(play.rows, key=lambda row: (row[3], row[0], row[1], row[4]))
        columns = tuple(zip(*rows, strict=True)) if rows else ((),) * 9
        timeline = Timeline(*columns)
    seconds = max((end for end, _ in play.ends), default=0.0)
    return parts, seconds, play.sent, timeline
