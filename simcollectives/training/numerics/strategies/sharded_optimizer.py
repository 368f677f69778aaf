"""What ZeRO-1 and ZeRO-2 share: whole parameters on every device, each of which updates one part of them."""

from collections.abc import Sequence

import numpy as np

from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.layers import Array, Layer, Parameters
from simcollectives.training.numerics.optimizers import OPTIMIZERS, States
from simcollectives.training.numerics.plan import NumericsPlan
from simcollectives.training.numerics.strategies.ddp import buckets_of
from simcollectives.training.numerics.strategies.replicas import add_gradients, hold_model, new_states
from simcollectives.training.numerics.strategies.units import FLAT, Unit
from simcollectives.training.passes import GRADIENTS, PARAMETERS
from simcollectives.training.sharding import GATHER_BUFFERS, SCATTER_BUFFERS, UNSHARDED_GRADIENTS


class ShardedOptimizer:
    """Replicas of the parameters; a rank keeps optimizer states for its part of each bucket only.

    Gradients are reduce-scattered bucket by bucket: with ``shard_gradients`` in every micro-batch, as soon as a bucket
    is full, so that a rank keeps its part of the sums only; else once, before the update.
    """

    def __init__(self, plan: NumericsPlan, group: Group, initial: Parameters, *, shard_gradients: bool) -> None:
        self.plan = plan
        self.group = group
        self.shard_gradients = shard_gradients
        self.optimizer = OPTIMIZERS[plan.optimizer]
        ranks = group.world_size
        self.units = [Unit(f"bucket {number}", bucket, ranks, FLAT) for number, bucket in enumerate(buckets_of(plan))]
        self.parameters: list[dict[str, Array]] = [dict(initial) for _ in range(ranks)]
        self.whole: list[dict[str, Array]] = [{} for _ in range(ranks)]
        self.gradients: list[dict[str, Array]] = [{} for _ in range(ranks)]
        self.states: list[dict[str, States]] = [{} for _ in range(ranks)]
        for unit in self.units:
            shard = unit.rows(initial)[0]
            for states in self.states:
                states[unit.name] = new_states(plan, shard)
        hold_model(group, self.parameters, self.states)

    def start_step(self) -> None:
        """Forget the gradients of the step before."""
        self.whole = [{} for _ in self.whole]
        self.gradients = [{} for _ in self.gradients]
        self._hold_gradients()

    def gather(self, layer: Layer) -> Sequence[Parameters]:
        """Each rank's parameters of a layer: they are there."""
        return self.parameters

    def release(self, layer: Layer) -> None:
        """Keep them."""

    def collect(self, layer: Layer, gradients: Sequence[Parameters]) -> None:
        """Add the gradients of a micro-batch, and reduce the buckets that are full if they are to be sharded."""
        add_gradients(self.whole, gradients)
        self._hold_gradients()
        for unit in self.units if self.shard_gradients else ():
            if all(parameter.name in self.whole[0] for parameter in unit.parameters):
                self._reduce(unit)

    def finish_step(self, step: int) -> None:
        """Reduce what is not yet, let each rank update its parts, and gather them."""
        for unit in () if self.shard_gradients else self.units:
            self._reduce(unit)
        for unit in self.units:
            self._update(unit, step)
        hold_model(self.group, self.parameters, self.states)

    def whole_parameters(self) -> Sequence[Parameters]:
        """Every rank has them."""
        return self.parameters

    def whole_gradients(self) -> Sequence[Parameters]:
        """Put together from the parts of all ranks."""
        whole: dict[str, Array] = {}
        for unit in self.units:
            whole |= unit.arrays(np.stack([own[unit.name] for own in self.gradients]))
        return [whole for _ in self.gradients]

    def _reduce(self, unit: Unit) -> None:
        dtype = np.dtype(self.plan.gradient_dtype)
        flat = [unit.rows(own).reshape(-1).astype(dtype) for own in self.whole]
        self.group.hold(SCATTER_BUFFERS, [[array] for array in flat])
        for own in self.whole:
            for parameter in unit.parameters:
                del own[parameter.name]
        self._hold_gradients()
        sums = self.group.run("reduce_scatter", flat, GRADIENTS)
        add_gradients(self.gradients, [{unit.name: total.astype(np.float64)} for total in sums])
        self.group.drop(SCATTER_BUFFERS)
        self._hold_gradients()

    def _update(self, unit: Unit, step: int) -> None:
        flat = [unit.rows(own) for own in self.parameters]
        self.group.hold(GATHER_BUFFERS, [[rows] for rows in flat])
        updated = []
        for rank, rows in enumerate(flat):
            gradient, states = self.gradients[rank][unit.name], self.states[rank][unit.name]
            part, self.states[rank][unit.name] = self.optimizer.update(
                rows[rank], gradient, states, self.plan.rate, step
            )
            updated.append(part)
        gathered = self.group.run("all_gather", updated, PARAMETERS)
        for own, whole in zip(self.parameters, gathered, strict=True):
            own.update(unit.arrays(whole.reshape(unit.ranks, -1)))
        self.group.drop(GATHER_BUFFERS)

    def _hold_gradients(self) -> None:
        parts = [list(own.values()) for own in self.gradients]
        whole = [list(own.values()) for own in self.whole]
        if self.shard_gradients:
            self.group.hold(UNSHARDED_GRADIENTS, whole)
            self.group.hold(GRADIENTS, parts)
        else:
            self.group.hold(GRADIENTS, [[*w, *p] for w, p in zip(whole, parts, strict=True)])
