"""The event engine: SimPy plays every message, one process a rank and channel.

A message starts when both its ends have entered the round. Where each of its ports carries nothing else in the round,
one timeout completes it; where several messages meet on a port, their flows share it max-min fairly.
"""

from collections.abc import Generator
from typing import Any

import numpy as np
import simpy
from simpy.core import EmptySchedule

from simcollectives.engines.fair_sharing import FairNetwork
from simcollectives.engines.filling import Flow
from simcollectives.engines.job import Job
from simcollectives.engines.live_round import LiveRound, Path, live_rounds
from simcollectives.engines.run import Parts, Timeline
from simcollectives.engines.watch import Watch
from simcollectives.errors import ScheduleError
from simcollectives.schedule.types import IntArray

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
        self.flows = FairNetwork(self.env, self.network.capacity.tolist(), self._flows_done)
        self.sent = np.zeros((len(job.full_cluster.levels), job.schedule.devices), dtype=np.int64)
        channels = job.schedule.channels
        self.rounds = [sum(phase.steps for phase in channel) for channel in channels]
        self.streams = [live_rounds(job, channel, self.sent, record=record) for channel in range(len(channels))]
        self.live: list[dict[int, LiveRound]] = [{} for _ in channels]
        self.gates = [[_Gate(self.env) for _ in range(job.schedule.devices)] for _ in channels]
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
        return Parts.of_path(names, seconds, path[0:-1:2], path[1:-1:2], path[-1])

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
                live = live_rounds.get(number)
                if live is None:
                    live = live_rounds[number] = next(self.streams[channel])
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

    def _start(self, live: LiveRound, i: int, path: Path) -> None:
        """Both ends have entered; the later one's path is the message's."""
        now = self.env.now
        live.path[i] = path
        live.started[i] = now
        if live.shares[i]:
            batches, seconds, then = live.waiting, live.alpha[i], self._start_flows
        else:
            batches, seconds, then = live.batches, live.alone[i], self._alone_done
        batch = batches.get(seconds)
        if batch is not None and batch[0] == now:
            batch[1].append(i)
            return
        batch = batches[seconds] = (now, [i])
        simpy.Timeout(self.env, seconds, (live, seconds, batch)).callbacks.append(then)

    def _alone_done(self, event: Any) -> None:
        live, seconds, batch = event.value
        if live.batches.get(seconds) is batch:
            del live.batches[seconds]
        self.completed += len(batch[1])
        for i in batch[1]:
            self._complete(live, i)

    def _start_flows(self, event: Any) -> None:
        """The latency of messages that share has passed."""
        live, seconds, batch = event.value
        if live.waiting.get(seconds) is batch:
            del live.waiting[seconds]
        resources, cap, overhead_bytes = live.pairs.resources, live.pairs.cap, live.pairs.overhead_bytes
        flows = []
        for i in batch[1]:
            work = live.flow_bytes[i] + overhead_bytes[i]
            flow = Flow(resources[i], work, (live, i), cap[i])
            if work == 0:
                self._flows_done([flow])
            else:
                flows.append(flow)
        self.flows.start(flows)

    def _flows_done(self, flows: list[Flow]) -> None:
        now, complete = self.env.now, self._complete
        self.completed += len(flows)
        for flow in flows:
            live, i = flow.token
            live.alone[i] = now - live.started[i]
            complete(live, i)

    def _complete(self, live: LiveRound, i: int) -> None:
        if self.rows is not None:
            self._record(live, i)
        pending = live.pending
        for rank in (live.src[i], live.dst[i]):
            left = pending[rank] - 1
            pending[rank] = left
            if left == 0:
                live.last[rank] = i
                self.gates[live.channel][rank].open()

    def _path_after(self, live: LiveRound, i: int) -> Path:
        """The path of the rank that message i was the last for."""
        path = live.path[i].copy()
        level, seconds = 2 * live.pairs.level[i], live.alone[i]
        bandwidth = seconds - live.latency[i]
        if live.shares[i]:
            flowing = live.flow_bytes[i]
            share = flowing / (flowing + live.pairs.overhead_bytes[i]) if flowing else 0.0
            bandwidth = (seconds - live.alpha[i]) * share
        path[level] += seconds - bandwidth
        path[level + 1] += bandwidth
        return path

    def _record(self, live: LiveRound, i: int) -> None:
        if self.rows is None:
            return
        src, dst, level = live.src[i], live.dst[i], self.cluster.levels[live.pairs.level[i]].name
        when = (live.started[i], self.env.now, live.bytes[i])
        self.rows.append((src, f"send {level}", f"to {dst}", *when, dst, live.number, live.channel))
        self.rows.append((dst, f"receive {level}", f"from {src}", *when, src, live.number, live.channel))


def event(
    job: Job, *, record: bool = False, watch: Watch | None = None
) -> tuple[Parts, float, IntArray, Timeline | None]:
    """Play a job. Returns the parts, the seconds, the bytes sent [level, device], and the timeline if ``record``.

    Raises:
        ScheduleError: ranks that never finish, messages that would never end, or a path that is not the time's.
    """
    play = _Play(job, record)
    parts = play.run(watch)
    timeline = None
    if play.rows is not None:
        rows = sorted(play.rows, key=lambda row: (row[3], row[0], row[1], row[4]))
        columns = tuple(zip(*rows, strict=True)) if rows else ((),) * 9
        timeline = Timeline(*columns)
    seconds = max((end for end, _ in play.ends), default=0.0)
    return parts, seconds, play.sent, timeline
