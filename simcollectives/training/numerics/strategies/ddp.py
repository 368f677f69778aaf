"""Data parallelism: every device holds everything; gradients are all-reduced once a step, in buckets.

Reference: Li et al., PVLDB 13(12), 2020 (PyTorch DDP). A bucket is all-reduced as one flat array, which is cut into
chunks by the algorithm; so buckets may change the order in which an element is summed, and nothing else.
"""

from collections.abc import Sequence

import numpy as np

from simcollectives.training.buckets import UNLIMITED, assign
from simcollectives.training.model import Parameter
from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.layers import Array, Layer, Parameters
from simcollectives.training.numerics.optimizers import States
from simcollectives.training.numerics.plan import NumericsPlan
from simcollectives.training.numerics.strategies.replicas import add_gradients, hold_model, new_states, update
from simcollectives.training.numerics.strategies.types import Options, StrategyEntry, all_reduce_of_all
from simcollectives.training.passes import BUCKETS, GRADIENTS

FLOAT64_BYTES = 8


class DataParallel:
    """The replicas, their gradients and optimizer states, one a rank."""

    def __init__(self, plan: NumericsPlan, group: Group, initial: Parameters, _options: Options) -> None:
        self.plan = plan
        self.group = group
        self.parameters: list[dict[str, Array]] = [dict(initial) for _ in range(group.world_size)]
        self.gradients: list[dict[str, Array]] = [{} for _ in range(group.world_size)]
        zeros = {name: new_states(plan, parameter) for name, parameter in initial.items()}
        self.states: list[dict[str, States]] = [dict(zeros) for _ in range(group.world_size)]
        self.buckets = buckets_of(plan)
        hold_model(group, self.parameters, self.states)

    def start_step(self) -> None:
        """Forget the gradients of the step before."""
        self.gradients = [{} for _ in self.gradients]
        self._hold_gradients()

    def gather(self, layer: Layer) -> Sequence[Parameters]:
        """Each rank's parameters of a layer: they are there."""
        return self.parameters

    def release(self, layer: Layer) -> None:
        """Keep them."""

    def collect(self, layer: Layer, gradients: Sequence[Parameters]) -> None:
        """Add the gradients of a micro-batch."""
        add_gradients(self.gradients, gradients)
        self._hold_gradients()

    def finish_step(self, step: int) -> None:
        """All-reduce, then update every replica; steps count from 1."""
        for bucket in self.buckets:
            self._all_reduce([parameter.name for parameter in bucket])
        for rank, weights in enumerate(self.plan.weights):
            for name in self.plan.unsynchronised:
                # Who does not take part in the sum has the gradient of a mean of its own, not its share of the whole.
                self.gradients[rank][name] = self.gradients[rank][name] / sum(weights)
        self._hold_gradients()
        update(self.plan, step, self.parameters, self.gradients, self.states)
        hold_model(self.group, self.parameters, self.states)

    def whole_parameters(self) -> Sequence[Parameters]:
        """Every rank has them."""
        return self.parameters

    def whole_gradients(self) -> Sequence[Parameters]:
        """Every rank has them."""
        return self.gradients

    def _all_reduce(self, bucket: Sequence[str]) -> None:
        dtype = np.dtype(self.plan.gradient_dtype)
        flat = [np.concatenate([g[name].reshape(-1) for name in bucket]).astype(dtype) for g in self.gradients]
        self.group.hold(BUCKETS, [[array] for array in flat])
        sums = self.group.run("all_reduce", flat, GRADIENTS)
        for gradients, total in zip(self.gradients, sums, strict=True):
            ends = np.cumsum([gradients[name].size for name in bucket])[:-1]
            for name, part in zip(bucket, np.split(total.astype(np.float64), ends), strict=True):
                gradients[name] = part.reshape(gradients[name].shape)
        self.group.drop(BUCKETS)

    def _hold_gradients(self) -> None:
        self.group.hold(GRADIENTS, [g.values() for g in self.gradients])


def buckets_of(plan: NumericsPlan) -> tuple[tuple[Parameter, ...], ...]:
    """Return the parameters whose gradients are reduced together, in the order in which they are ready.

    >>> [[one.name for one in bucket] for bucket in buckets_of(NumericsPlan(bucket_bytes=500))]
    [['output.bias', 'output.weight'], ['hidden.bias', 'hidden.weight']]
    """
    together = [parameter for parameter in plan.network.ready if parameter.name not in plan.unsynchronised]
    limits = UNLIMITED if plan.bucket_bytes is None else (plan.bucket_bytes,)
    buckets = assign(together, limits, lambda _: "float64", lambda parameter: parameter.elements * FLOAT64_BYTES)
    return tuple(bucket.parameters for bucket in buckets)


STRATEGY = StrategyEntry(
    name="ddp",
    summary="everything on every device; gradients all-reduced in buckets",
    reference="Li et al. 2020",
    make=DataParallel,
    collectives=all_reduce_of_all,
    buckets=True,
    synchronised_by_all_reduce=True,
)
