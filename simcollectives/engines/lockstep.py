"""The textbook's model (CMU 15-779, lecture 12): rounds are global barriers.

A round lasts its largest alpha, plus its busiest resource, plus gamma times the most bytes reduced by one rank.
Concurrent channels share each round.
"""

import numpy as np

from simcollectives.cluster.network import FloatArray
from simcollectives.engines.job import Job, Messages, messages_of
from simcollectives.engines.pricing import drawn_alpha, flow_bytes, reduction_seconds
from simcollectives.engines.run import Parts
from simcollectives.engines.watch import Watch
from simcollectives.schedule.types import IntArray, Round


def lockstep(job: Job, watch: Watch | None = None) -> tuple[Parts, IntArray]:
    """Return the parts of the time and the bytes sent [level, device]."""
    network = job.full_cluster.network
    names = tuple(level.name for level in job.full_cluster.levels)
    latency, bandwidth, reduction = [0.0] * len(names), [0.0] * len(names), 0.0
    sent = np.zeros((len(names), job.schedule.devices), dtype=np.int64)
    if job.schedule.rounds:
        latency[0] += float(job.conditions.starts(job.schedule.devices).max())
    streams = [job.schedule.rounds_of(channel) for channel in range(len(job.schedule.channels))]
    for number in range(job.schedule.rounds):
        rounds = [
            (channel, round_) for channel, stream in enumerate(streams) if (round_ := next(stream, None)) is not None
        ]
        messages, alpha, flowing, reduced = _joined(job, number, rounds)
        if len(messages.src) == 0:
            continue
        routes = network.routes(messages.src, messages.dst)
        np.add.at(sent, (routes.level, messages.src), messages.bytes)
        slowest = int(np.argmax(alpha))
        latency[routes.level[slowest]] += float(alpha[slowest])
        hops = routes.resources.shape[1]
        flat = routes.resources.reshape(-1)
        capacity = network.capacity
        overhead_bytes = np.bincount(flat, np.repeat(routes.overhead * routes.bandwidth, hops), len(capacity))
        message_bytes = np.bincount(flat, np.repeat(flowing, hops), len(capacity))
        busiest = int(np.argmax((overhead_bytes + message_bytes) / capacity))
        level = int(network.level_of[busiest])
        latency[level] += float(overhead_bytes[busiest] / capacity[busiest])
        bandwidth[level] += float(message_bytes[busiest] / capacity[busiest])
        reduction += reduced
        if watch is not None:
            watch(len(messages.src))
    return Parts(names, tuple(latency), tuple(bandwidth), reduction), sent


def _joined(job: Job, number: int, rounds: list[tuple[int, Round]]) -> tuple[Messages, FloatArray, FloatArray, float]:
    """All messages of one round of all channels, their latencies and bytes, and the longest reduction."""
    parts, alphas, flows, reduction = [], [], [], 0.0
    for channel, round_ in rounds:
        messages = messages_of(job, round_)
        ends = (channel, number, messages.src, messages.dst)
        parts.append(messages)
        alphas.append(drawn_alpha(job, *ends, job.full_cluster.routes(messages.src, messages.dst).alpha))
        flows.append(flow_bytes(job, *ends, messages.bytes))
        reduced = reduction_seconds(job, channel, number, messages.dst, messages.reduced_bytes)
        reduction = max(reduction, 0.0 if reduced is None else float(reduced.max()))
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS)
    return Messages(*columns), np.concatenate(alphas), np.concatenate(flows), reduction


_COLUMNS = ("src", "dst", "bytes", "reduced_bytes")
