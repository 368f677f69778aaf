"""What a collective of a training step costs: seconds, bytes, and how much of the ports it uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simcollectives.algorithms import ALGORITHMS
from simcollectives.cluster import Cluster
from simcollectives.engines.bytes_sent import count_bytes_sent
from simcollectives.engines.closed_form import closed_form_parts
from simcollectives.engines.job import Job, make_job
from simcollectives.engines.simulate import simulate_job
from simcollectives.errors import InputError, Problem
from simcollectives.schedule.types import IntArray
from simcollectives.training.program import Call

Choice = tuple[str, Mapping[str, Any]]
"""An algorithm's name and its options."""

WORLD = "world"


@dataclass(frozen=True)
class Price:
    """A collective alone. ``sent_bytes`` are of the rank that sends most.

    ``use`` is the share of ``seconds`` in which the busiest port of each level is in use, or a little more.
    ``latency_seconds`` are those of ``seconds`` that do not depend on its bytes, along the critical path.
    """

    seconds: float
    latency_seconds: float
    algorithm: str
    engine: str
    sent_bytes: int
    use: Mapping[str, float]


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


@dataclass
class Pricer:
    """Prices collectives on a cluster, each size once: by the closed form where it is exact, else by engine auto.

    Nothing is paid for a collective without elements (NCCL drops it), or on one rank.
    """

    cluster: Cluster
    choices: Mapping[str, Choice] = field(default_factory=dict)
    _prices: dict[Call, Price] = field(default_factory=dict)
    _sent_by_one: dict[tuple[str, str], int] = field(default_factory=dict)

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
        if parts is None:
            run = simulate_job(job)
            sent, use = _most(run.bytes_sent_by_level, job), port_shares(job, run.seconds)
            return Price(run.seconds, run.latency_seconds, job.label, run.engine, sent, use)
        # No port is busy for longer than the critical path is with the bytes of its level.
        busy = zip(parts.level_names, parts.bandwidth, strict=True)
        use = {level: seconds / parts.seconds for level, seconds in busy if seconds}
        return Price(parts.seconds, sum(parts.latency), job.label, "closed_form", self._sent_bytes(job), use)

    def _sent_bytes(self, job: Job) -> int:
        """Bytes that the busiest rank sends; where chunks are alike they are proportional, and counted once."""
        if not job.layout.even:
            return _most(count_bytes_sent(job), job)
        key = job.algorithm.collective, job.dtype
        if key not in self._sent_by_one:
            one = replace(job.layout, elements=job.layout.period or job.layout.chunks)
            self._sent_by_one[key] = _most(count_bytes_sent(replace(job, layout=one)), job)
        return self._sent_by_one[key] * job.layout.floor


def _most(sent: IntArray, job: Job) -> int:
    """The most that one rank sends, of bytes [level, device]; dedicated servers come after the ranks."""
    return int(sent.sum(axis=0)[: job.cluster.world_size].max())


def port_shares(job: Job, seconds: float) -> dict[str, float]:
    """Return for each level which share of some seconds its busiest port is in use: bytes / (bandwidth x seconds)."""
    network = job.full_cluster.network
    moved = np.zeros(network.count + 1)
    for channel in range(len(job.schedule.channels)):
        for round_ in job.schedule.rounds_of(channel):
            resources = network.routes(round_.src, round_.dst).resources
            row_bytes = job.layout.row_elements(round_) * job.itemsize
            moved += np.bincount(resources.reshape(-1), np.repeat(row_bytes, resources.shape[1]), len(moved))
    busy = moved[:-1] / network.capacity[:-1]
    most = {level.name: busy[network.level_of[:-1] == index] for index, level in enumerate(job.cluster.levels)}
    return {name: min(float(b.max()) / seconds, 1.0) for name, b in most.items() if b.any() and seconds > 0}
