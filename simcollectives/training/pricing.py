"""What a collective of a training step costs: seconds, bytes, and how much of the ports it uses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simcollectives.algorithms import ALGORITHMS
from simcollectives.cluster import Cluster
from simcollectives.engines.bytes_sent import count_bytes_sent
from simcollectives.engines.closed_form import closed_form_parts
from simcollectives.engines.job import Job, make_job
from simcollectives.engines.simulate import simulate_job
from simcollectives.errors import InputError, Problem
from simcollectives.training.program import Call

Choice = tuple[str, Mapping[str, Any]]
"""An algorithm's name and its options."""

WORLD = "world"


@dataclass(frozen=True)
class Price:
    """A collective alone. ``sent_bytes`` are of the rank that sends most; ``use`` is its share of each level's port.

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
    """Prices collectives on a cluster, each size once: by the closed form where it is exact, else by engine auto."""

    cluster: Cluster
    choices: Mapping[str, Choice] = field(default_factory=dict)
    _prices: dict[Call, Price] = field(default_factory=dict)

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
        if self.cluster.world_size == 1:
            return FREE
        parts = closed_form_parts(job)
        if parts is None:
            run = simulate_job(job)
            return _price(job, run.seconds, run.latency_seconds, run.engine, run.bytes_sent_by_level)
        return _price(job, parts.seconds, sum(parts.latency), "closed_form", count_bytes_sent(job))


def _price(job: Job, seconds: float, latency_seconds: float, engine: str, sent: Any) -> Price:
    use = {
        level.name: min(float(most) / (level.link.bandwidth * seconds), 1.0)
        for level, most in zip(job.cluster.levels, sent.max(axis=1), strict=True)
        if most and seconds
    }
    return Price(seconds, latency_seconds, job.label, engine, int(sent.sum(axis=0).max()), use)
