"""What a collective of a training step costs: seconds, bytes, and how much of the ports it uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from simcollectives.algorithms import ALGORITHMS, has_algorithm
from simcollectives.cluster import Cluster
from simcollectives.engines.bytes_sent import count_bytes_sent, repeats
from simcollectives.engines.closed_form import closed_form_parts
from simcollectives.engines.job import Job, make_job
from simcollectives.engines.simulate import simulate_job
from simcollectives.schedule.types import Phase
from simcollectives.training.groups import all_together, members_of, seen_alone, undisturbed
from simcollectives.training.program import Call

Choice = tuple[str, Mapping[str, Any]]
"""An algorithm's name and its options."""

WORLD = "world"

MOST_PLAYED_MESSAGES = 20_000
"""A collective of more messages is priced with equal chunks, where those have a closed form."""


@dataclass(frozen=True)
class Price:
    """A collective alone. ``sent_bytes`` are of the rank that sends most.

    ``use`` is the share of ``seconds`` in which the busiest port of each level is in use; where chunks differ, as if
    all were as large as the largest. ``latency_seconds`` do not depend on its bytes, along the critical path.
    """

    seconds: float
    latency_seconds: float
    algorithm: str
    engine: str
    sent_bytes: int
    use: Mapping[str, float]


@dataclass(frozen=True)
class Traffic:
    """What a schedule of equal chunks sends for every byte of a chunk.

    Bytes of the rank that sends most; by level, seconds in which the busiest port is in use.
    """

    sent_bytes: int
    port_seconds: Mapping[str, float]

    def use(self, chunk_bytes: int, seconds: float) -> dict[str, float]:
        """Return for each level the share of some seconds in which the busiest port is in use; at most 1."""
        return {level: min(busy * chunk_bytes / seconds, 1.0) for level, busy in self.port_seconds.items()}


FREE = Price(0.0, 0.0, "none", "none", 0, {})


def default_choices(cluster: Cluster) -> dict[str, Choice]:
    """The algorithm of each collective where none is named.

    Where nodes have several devices, an all-reduce goes in two steps, all-gather and reduce-scatter by rings over all
    network ports; elsewhere all three by a ring. Broadcast and reduce go by binomial trees, all-to-all pairwise.
    """
    two = cluster.nodes > 1 and cluster.gpus_per_node > 1
    chosen: dict[str, Choice] = {}
    for collective in dict.fromkeys(algorithm.collective for algorithm in ALGORITHMS):
        names = (["hierarchical", "rotated_rings"] if two else []) + ["ring", "tree", "pairwise"]
        chosen[collective] = next(name for name in names if has_algorithm(collective, name)), {}
    return chosen


def most_sent(job: Job) -> int:
    """The most that one rank sends, in bytes; dedicated servers are no ranks."""
    return int(count_bytes_sent(job).sum(axis=0)[: job.cluster.world_size].max())


def traffic_of(job: Job) -> Traffic:
    """Count what a schedule sends, were its chunks of one byte each."""
    job = replace(job, layout=replace(job.layout, elements=job.layout.period or job.layout.chunks), dtype="int8")
    network = job.full_cluster.network
    moved = np.zeros(network.count)
    for channel in job.schedule.channels:
        for phase in channel:
            moved += _moved(job, phase)
    busy = moved / network.capacity[:-1]
    most = {level.name: busy[network.level_of[:-1] == index] for index, level in enumerate(job.cluster.levels)}
    return Traffic(most_sent(job), {level: float(ports.max()) for level, ports in most.items() if ports.any()})


def _moved(job: Job, phase: Phase) -> npt.NDArray[np.float64]:
    """Bytes over each port in a phase; rounds that are alike are made once."""
    network = job.full_cluster.network
    if phase.regular is not None and network.plain and len(job.cluster.levels) == 1:
        chunks = sum(phase.regular.chunks(step) for step in range(phase.steps))
        return np.full(network.count, float(phase.regular.messages * chunks))
    rounds, times = range(phase.steps), 1
    if phase.steps and (repeats(phase) or (phase.rotation is not None and np.ptp(phase.round_at(0).count) == 0)):
        rounds, times = range(1), phase.steps
    moved = np.zeros(network.count + 1)
    for step in rounds:
        round_ = phase.round_at(step)
        resources = network.routes(round_.src, round_.dst).resources
        row_bytes = np.repeat(job.layout.row_elements(round_), resources.shape[1])
        moved += np.bincount(resources.reshape(-1), row_bytes, len(moved))
    return moved[:-1] * times


@dataclass
class Pricer:
    """Prices collectives on a cluster, each size once: by the closed form where it is exact, else by engine auto.

    Nothing is paid for a collective without elements (NCCL drops it), or on one rank.
    """

    cluster: Cluster
    choices: Mapping[str, Choice] = field(default_factory=dict)
    _prices: dict[Call, Price] = field(default_factory=dict)
    _traffic: dict[tuple[str, int, int], Traffic] = field(default_factory=dict)

    def __call__(self, call: Call) -> Price:
        """Return the price of a call.

        Raises:
            InputError: its algorithm does not run on the cluster, or ranks do not divide into its groups.
        """
        if call not in self._prices:
            self._prices[call] = self._price(call)
        return self._prices[call]

    def _price(self, call: Call) -> Price:
        members_of(self.cluster.world_size, call)
        cluster = seen_alone(self.cluster, call)
        name, options = {**default_choices(cluster), **self.choices}[call.kind]
        job = make_job(call.kind, name, cluster, call.bytes, options, call.dtype)
        if call.group_size == 1 or call.elements == 0:
            return FREE
        together = job if undisturbed(self.cluster, call) else all_together(job, self.cluster, call)
        seconds, latency, engine = _timed(job, together)
        traffic = self._traffic_of(call, together)
        chunk = job.layout.floor * job.itemsize + (0 if job.layout.even else job.itemsize)
        sent = traffic.sent_bytes * chunk if job.layout.even else _most_sent_unevenly(together, traffic)
        return Price(seconds, latency, job.label, engine, sent, traffic.use(chunk, seconds))

    def _traffic_of(self, call: Call, job: Job) -> Traffic:
        key = call.kind, call.group_size, call.stride
        if key not in self._traffic:
            self._traffic[key] = traffic_of(job)
        return self._traffic[key]


def _timed(job: Job, together: Job) -> tuple[float, float, str]:
    """Seconds of a collective, those of its latency, and the engine that knew."""
    exact, engine = (closed_form_parts(job) if job is together else None), "closed_form"
    if exact is None and _is_long(together) and not job.layout.even:
        # Chunks that differ by one element make no difference worth the wait: all are taken as large as the largest.
        size = job.layout.period or job.layout.chunks
        even = replace(job, layout=replace(job.layout, elements=-(-job.layout.elements // size) * size))
        exact, engine = (closed_form_parts(even) if job is together else None), "closed_form of equal chunks"
    if exact is not None:
        return exact.seconds, sum(exact.latency), engine
    run = simulate_job(together)
    return run.seconds, run.latency_seconds, run.engine


def _is_long(job: Job) -> bool:
    return job.messages_at_most > MOST_PLAYED_MESSAGES


def _most_sent_unevenly(job: Job, traffic: Traffic) -> int:
    """Bytes of the rank that sends most, counted; in long jobs its share of the chunks, to an element."""
    if not _is_long(job) or all(phase.rotation == 1 for channel in job.schedule.channels for phase in channel):
        return most_sent(job)
    return -(-traffic.sent_bytes * job.layout.elements // job.layout.chunks) * job.itemsize
