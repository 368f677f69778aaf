"""What a collective of a training step costs: seconds, bytes, and how much of the ports it uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from simcollectives.algorithms import ALGORITHMS
from simcollectives.cluster import Cluster
from simcollectives.engines.bytes_sent import count_bytes_sent
from simcollectives.engines.closed_form import closed_form_parts
from simcollectives.engines.job import Job, make_job
from simcollectives.engines.simulate import simulate_job
from simcollectives.errors import InputError, Problem
from simcollectives.schedule.types import Phase
from simcollectives.training.program import Call

Choice = tuple[str, Mapping[str, Any]]
"""An algorithm's name and its options."""

WORLD = "world"


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
    """The algorithm of each collective where none is named: in two steps where nodes have several devices, else a ring.

    Broadcast and reduce go by binomial trees, all-to-all pairwise.
    """
    two = cluster.nodes > 1 and cluster.gpus_per_node > 1
    known = {(algorithm.collective, algorithm.name) for algorithm in ALGORITHMS}
    chosen: dict[str, Choice] = {}
    for collective in dict.fromkeys(algorithm.collective for algorithm in ALGORITHMS):
        names = (["hierarchical"] if two else []) + ["ring", "tree", "pairwise"]
        chosen[collective] = next(name for name in names if (collective, name) in known), {}
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
    if phase.rotation is not None and phase.steps and np.ptp(phase.round_at(0).count) == 0:
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
    _traffic: dict[str, Traffic] = field(default_factory=dict)

    def __call__(self, call: Call) -> Price:
        """Return the price of a call.

        Raises:
            InputError: its algorithm does not run on the cluster, or a group is not known.
        """
        if call not in self._prices:
            self._prices[call] = self._price(call)
        return self._prices[call]

    def _price(self, call: Call) -> Price:
        if call.group != WORLD:
            raise InputError([Problem("group", f"{call.group!r} is not a group; the one known is {WORLD}")])
        name, options = {**default_choices(self.cluster), **self.choices}[call.kind]
        job = make_job(call.kind, name, self.cluster, call.bytes, options, call.dtype)
        if self.cluster.world_size == 1 or call.elements == 0:
            return FREE
        parts = closed_form_parts(job)
        if parts is not None:
            seconds, latency, engine = parts.seconds, sum(parts.latency), "closed_form"
        else:
            run = simulate_job(job)
            seconds, latency, engine = run.seconds, run.latency_seconds, run.engine
        traffic = self._traffic_of(call.kind, job)
        even = job.layout.floor * job.itemsize
        sent = traffic.sent_bytes * even if job.layout.even else most_sent(job)
        largest = even if job.layout.even else even + job.itemsize
        return Price(seconds, latency, job.label, engine, sent, traffic.use(largest, seconds))

    def _traffic_of(self, kind: str, job: Job) -> Traffic:
        if kind not in self._traffic:
            self._traffic[kind] = traffic_of(job)
        return self._traffic[kind]
