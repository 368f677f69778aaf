"""The lectures' model: rounds are global barriers.

A round lasts its largest alpha, plus its busiest resource, plus gamma times the most bytes reduced by one rank.
Concurrent channels share each round.
"""

import numpy as np

from simcollectives.engines.job import Job, Messages, messages_of
from simcollectives.engines.run import Parts
from simcollectives.schedule.types import IntArray


def lockstep(job: Job) -> tuple[Parts, IntArray]:
    """Return the parts of the time and the bytes sent [level, device]."""
    network, gamma = job.network.network, job.network.gamma_of_rank
    names = tuple(level.name for level in job.network.levels)
    latency, bandwidth, reduction = [0.0] * len(names), [0.0] * len(names), 0.0
    sent = np.zeros((len(names), job.schedule.devices), dtype=np.int64)
    streams = [job.schedule.rounds_of(channel) for channel in range(len(job.schedule.channels))]
    for _ in range(job.schedule.rounds):
        rounds = [messages_of(job, r) for r in (next(stream, None) for stream in streams) if r is not None]
        messages = _joined(rounds)
        if len(messages.src) == 0:
            continue
        routes = network.routes(messages.src, messages.dst)
        np.add.at(sent, (routes.level, messages.src), messages.bytes)
        slowest = int(np.argmax(routes.alpha))
        latency[routes.level[slowest]] += float(routes.alpha[slowest])
        hops = routes.resources.shape[1]
        flat = routes.resources.reshape(-1)
        capacity = network.capacity
        overhead_bytes = np.bincount(flat, np.repeat(routes.overhead * routes.bandwidth, hops), len(capacity))
        message_bytes = np.bincount(flat, np.repeat(messages.bytes, hops), len(capacity))
        busiest = int(np.argmax((overhead_bytes + message_bytes) / capacity))
        level = int(network.level_of[busiest])
        latency[level] += float(overhead_bytes[busiest] / capacity[busiest])
        bandwidth[level] += float(message_bytes[busiest] / capacity[busiest])
        if gamma.any():
            reduced = np.bincount(messages.dst, messages.reduced_bytes, len(gamma))
            reduction += float(np.max(gamma * reduced))
    return Parts(names, tuple(latency), tuple(bandwidth), reduction), sent


def _joined(rounds: list[Messages]) -> Messages:
    if len(rounds) == 1:
        return rounds[0]
    columns = [[getattr(r, name) for r in rounds] for name in ("src", "dst", "bytes", "reduced_bytes")]
    return Messages(*(np.concatenate(column) if column else np.zeros(0, dtype=np.int64) for column in columns))
