"""How far a training run is from one on one device and by data parallelism, and its replicas from each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcollectives.algorithms.table import find_algorithm, label
from simcollectives.algorithms.types import resolve_options
from simcollectives.cluster import Cluster
from simcollectives.training.numerics.layers import Parameters
from simcollectives.training.numerics.loop import History, train
from simcollectives.training.numerics.plan import NumericsPlan, one_device, plain
from simcollectives.training.numerics.strategies.table import STRATEGIES
from simcollectives.training.passes import GRADIENTS, OPTIMIZER, PARAMETERS
from simcollectives.training.sharding import UNSHARDED
from simcollectives.training.strategies.table import resolve_strategy_options


@dataclass(frozen=True)
class NumericsRow:
    """The state after one step. Differences are the largest over parameters, elements and ranks.

    ``loss`` is that of the step's batch before the update, weighted by samples. ``gradient_difference`` is between the
    gradients used and those of one device at the same step; ``bit_identical`` is about the replicas. Data parallelism
    (``ddp``) is with the same algorithm and everything else. Bytes are those that devices send in a step; dedicated
    servers are devices, too; ``sent_bytes`` is by collective, of the device that sends most. ``memory`` is what the
    rank with the highest peak holds then, and sums to ``peak_bytes``; ``most_held`` is the most that any rank ever
    holds of each item.
    """

    strategy: str
    strategy_options: Mapping[str, Any]
    algorithm: str
    world_size: int
    mistake: str | None
    step: int
    loss: float
    loss_of_one_device: float
    difference_from_one_device: float
    gradient_difference: float
    difference_between_replicas: float
    bit_identical: bool
    difference_from_ddp: float
    same_bits_as_ddp: bool
    sent_bytes: Mapping[str, int]
    bytes_sent_max: int
    bytes_sent_total: int
    peak_bytes: int
    memory: Mapping[str, int]
    most_held: Mapping[str, int]

    @property
    def all_reduce_bytes(self) -> int:
        """Of ``sent_bytes``."""
        return self.sent_bytes.get("all_reduce", 0)

    @property
    def reduce_scatter_bytes(self) -> int:
        """Of ``sent_bytes``."""
        return self.sent_bytes.get("reduce_scatter", 0)

    @property
    def all_gather_bytes(self) -> int:
        """Of ``sent_bytes``."""
        return self.sent_bytes.get("all_gather", 0)

    @property
    def parameter_bytes(self) -> int:
        """Of ``most_held``: a rank's own; what it gathers is ``unsharded_bytes``."""
        return self.most_held.get(PARAMETERS, 0)

    @property
    def gradient_bytes(self) -> int:
        """Of ``most_held``: a rank's own, where gradients are sharded."""
        return self.most_held.get(GRADIENTS, 0)

    @property
    def optimizer_bytes(self) -> int:
        """Of ``most_held``."""
        return self.most_held.get(OPTIMIZER, 0)

    @property
    def model_state_bytes(self) -> int:
        """Parameters, gradients and optimizer states together."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def unsharded_bytes(self) -> int:
        """Of ``most_held``: parameters gathered at a time."""
        return self.most_held.get(UNSHARDED, 0)


def run_numerics(
    plan: NumericsPlan, record: Sequence[int] | None = None, cluster: Cluster | None = None
) -> tuple[NumericsRow, ...]:
    """Train by a plan, on one device and by data parallelism, and compare after the steps ``record`` (or the last).

    Raises:
        InputError: see ``train``.
    """
    history = train(plan, record, cluster)
    alike = plain(plan) == plan
    return compare(history, train(one_device(plan), record), history if alike else train(plain(plan), record, cluster))


def compare(history: History, reference: History, ddp: History | None = None) -> tuple[NumericsRow, ...]:
    """Return a row for each snapshot; ``reference`` is a run on one device with snapshots after the same steps.

    ``ddp`` is one by data parallelism, which ``history`` itself must be if it is left out.

    Raises:
        ValueError: it is left out, and ``history`` is not.
    """
    plan = history.plan
    if ddp is None and plan.strategy != "ddp":
        raise ValueError(f"{plan.strategy} is compared with data parallelism; give its run, too")
    replicas = history if ddp is None else ddp
    algorithm = find_algorithm("all_reduce", plan.algorithm)
    sent = np.sum([traffic.sent_bytes for traffic in history.traffic] or [(0,)], axis=0) // plan.steps
    by_collective: dict[str, int] = {}
    for traffic in history.traffic:
        before = by_collective.get(traffic.collective, 0)
        by_collective[traffic.collective] = before + traffic.sent_bytes[int(sent.argmax())] // plan.steps
    memory = max(history.peak_memory, key=lambda held: sum(held.values()))
    most = {item: max(held[item] for held in history.most_held) for item in history.most_held[0]}
    return tuple(
        NumericsRow(
            strategy=plan.strategy,
            strategy_options=resolve_strategy_options(STRATEGIES[plan.strategy], plan.strategy_options),
            algorithm=label(algorithm, resolve_options(algorithm, plan.options)),
            world_size=plan.world_size,
            mistake=plan.mistake,
            step=snapshot.step,
            loss=snapshot.loss,
            loss_of_one_device=one.loss,
            difference_from_one_device=largest_difference(snapshot.parameters, one.parameters[0]),
            gradient_difference=largest_difference(snapshot.gradients, one.gradients[0]),
            difference_between_replicas=spread(snapshot.parameters),
            bit_identical=same_bits(snapshot.parameters),
            difference_from_ddp=largest_difference(snapshot.parameters, other.parameters[0]),
            same_bits_as_ddp=same_bits([*other.parameters, *snapshot.parameters]),
            sent_bytes=by_collective,
            bytes_sent_max=int(sent.max()),
            bytes_sent_total=int(sent.sum()),
            peak_bytes=sum(memory.values()),
            memory=memory,
            most_held=most,
        )
        for snapshot, one, other in zip(history.snapshots, reference.snapshots, replicas.snapshots, strict=True)
    )


def largest_difference(replicas: Sequence[Parameters], one: Parameters) -> float:
    """Return the largest distance of any element of any replica from one set of parameters."""
    return max(float(np.abs(replica[name] - one[name]).max()) for replica in replicas for name in one)


def spread(replicas: Sequence[Parameters]) -> float:
    """Return the largest distance between two replicas, over all elements."""
    return max(float(np.ptp([replica[name] for replica in replicas], axis=0).max()) for name in replicas[0])


def same_bits(replicas: Sequence[Parameters]) -> bool:
    """Return whether all replicas hold the same bits."""
    first = replicas[0]
    return all(replica[name].tobytes() == first[name].tobytes() for replica in replicas[1:] for name in first)
