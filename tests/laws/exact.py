"""The meaning of a time, played a second time: rational numbers, no SimPy, nothing skipped and nothing batched.

Slow and simple on purpose; an oracle for the engines. Rules (README, "what a time means"): a message starts when both
ends have entered the round; first its alpha passes, then its bytes and overhead flow over both ports and the uplinks
between them, shared max-min fairly; a rank leaves when its last message is done and pays gamma for what it received to
reduce.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from simcollectives.algorithms import find_algorithm
from simcollectives.cluster import Cluster
from simcollectives.engines import Job
from simcollectives.schedule import Layout, Phase, Schedule, make_round

Port = tuple[str, int, str]


@dataclass(eq=False)
class Message:
    src: int
    dst: int
    bytes: int
    reduced: int
    alpha: Fraction
    work: Fraction
    ports: tuple[Port, ...]
    entered: int = 0
    ready: Fraction | None = None
    left: Fraction | None = None


def messages_of_job(job: Job) -> list[list[list[Message]]]:
    """[channel][round]: messages, joined by (src, dst) row by row."""
    network = job.full_cluster
    sizes = job.layout.chunk_elements()
    node = [int(device) // network.gpus_per_node for device in network.device_of_rank]
    channels = []
    for channel in range(len(job.schedule.channels)):
        rounds = []
        for r in job.schedule.rounds_of(channel):
            total: Counter[tuple[int, int]] = Counter()
            reduced: Counter[tuple[int, int]] = Counter()
            for i in range(len(r.src)):
                pair = (int(r.src[i]), int(r.dst[i]))
                chunks = [int(r.first[i] + k * r.stride[i]) for k in range(r.count[i])]
                total[pair] += sum(int(sizes[c]) for c in chunks) * job.itemsize
                reduced[pair] += sum(int(sizes[c]) for c in chunks) * job.itemsize if r.reduce[i] else 0
            rounds.append([])
            for (src, dst), size in total.items():
                level = network.levels[0 if node[src] == node[dst] else -1]
                ports = ports_between(network, level.name, src, dst)
                bandwidth = min(capacity(network, port) for port in ports)
                work = size + Fraction(level.link.overhead) * bandwidth
                alpha = Fraction(level.link.alpha)
                rounds[-1].append(Message(src, dst, size, reduced[src, dst], alpha, work, ports))
        channels.append(rounds)
    return channels


def ports_between(network: Cluster, level: str, src: int, dst: int) -> tuple[Port, ...]:
    """The port of either rank, and, where they differ, the uplinks of their runs of devices."""
    ports: list[Port] = [(level, src, "out"), (level, dst, "in")]
    names = [x.name for x in network.levels]
    for uplink in network.uplinks:
        out, into = (int(network.device_of_rank[rank]) // uplink.devices for rank in (src, dst))
        if names.index(level) >= names.index(uplink.level) and out != into:
            ports += [(uplink.name, out, "out"), (uplink.name, into, "in")]
    return tuple(ports)


def capacity(network: Cluster, port: Port) -> Fraction:
    """Bytes a second of an uplink, or of a rank's port with all that changes it."""
    name, owner, _ = port
    for uplink in network.uplinks:
        if uplink.name == name:
            return Fraction(uplink.bandwidth)
    changed = [
        Fraction(change.bandwidth)
        for change in network.changes
        if change.rank == owner and change.level in (None, name)
    ]
    return prod(changed, start=Fraction(network.level(name).link.bandwidth))


def fair(flows: list[Message], network: Cluster) -> dict[Message, Fraction]:
    """Max-min: the port with the least share for each of its flows stops them; go on with what is left."""
    left = {port: capacity(network, port) for flow in flows for port in flow.ports}
    rates: dict[Message, Fraction] = {}
    while len(rates) < len(flows):
        moving = [flow for flow in flows if flow not in rates]
        count = Counter(port for flow in moving for port in flow.ports)
        tightest = min(count, key=lambda port: left[port] / count[port])
        rate = left[tightest] / count[tightest]
        for flow in moving:
            if tightest in flow.ports:
                rates[flow] = rate
                for port in flow.ports:
                    left[port] -= rate
    return rates


def play(job: Job) -> Fraction:
    """Seconds of a job, exactly."""
    gamma = Fraction(job.cluster.device.reduction_seconds_per_byte)
    rounds = messages_of_job(job)
    now = end = Fraction(0)
    at: dict[tuple[int, int], int] = {}
    wake: dict[tuple[int, int], Fraction] = {
        (c, rank): now for c in range(len(rounds)) for rank in range(job.schedule.devices)
    }
    latent: list[Message] = []
    flowing: list[Message] = []
    pending: dict[tuple[int, int], list[Message]] = {}

    def enter(who: tuple[int, int]) -> None:
        channel, rank = who
        number = at.get(who, -1) + 1
        while number < len(rounds[channel]):
            mine = [m for m in rounds[channel][number] if rank in (m.src, m.dst)]
            if mine:
                break
            number += 1
        at[who] = number
        if number == len(rounds[channel]):
            return
        pending[who] = mine
        for message in mine:
            message.entered += 1
            if message.entered == 2:
                message.ready = now + message.alpha
                latent.append(message)

    while wake or latent or flowing:
        rates = fair(flowing, job.full_cluster)
        ends = [now + m.left / rates[m] for m in flowing if m.left is not None]
        following = min([*wake.values(), *(m.ready for m in latent if m.ready is not None), *ends])
        for message in flowing:
            message.left = (message.left or Fraction(0)) - rates[message] * (following - now)
        now = following
        for message in [m for m in latent if m.ready == now]:
            latent.remove(message)
            message.left = message.work
            flowing.append(message)
        for message in [m for m in flowing if m.left == 0]:
            flowing.remove(message)
            for channel, rank in list(pending):
                mine = pending[channel, rank]
                if message in mine and all(m.left == 0 for m in mine):
                    del pending[channel, rank]
                    wake[channel, rank] = now + gamma * sum(m.reduced for m in mine if m.dst == rank)
        for who in [who for who, when in wake.items() if when == now]:
            del wake[who]
            end = max(end, now)
            enter(who)
    return end


def arbitrary_job(cluster: Cluster, channels: list[list[list[tuple[int, int, int, bool]]]]) -> Job:
    """A job of any traffic: [channel][round] of (src, dst, bytes, reduce). It computes nothing of use."""
    phases = tuple(
        tuple(Phase(1, lambda _step, rows=rows: _round(rows)) for rows in rounds if rows)  # type: ignore[misc]
        for rounds in channels
    )
    chunks = max((size for rounds in channels for rows in rounds for _, _, size, _ in rows), default=1) or 1
    schedule = Schedule("all_reduce", cluster.world_size, chunks, phases)
    return Job(find_algorithm("all_reduce", "naive"), {}, cluster, cluster, schedule, Layout(chunks, chunks), "int8")


def _round(rows: list[tuple[int, int, int, bool]]) -> object:
    src, dst, size, reduce = (np.array(column) for column in zip(*rows, strict=True))
    return make_round(src, dst, count=size, reduce=reduce)
