"""What ZeRO-3, FSDP and hybrid sharding share: a device keeps its shard of everything, and gathers unit by unit.

A unit is all-gathered before its forward pass and freed after it, again around its backward pass, and then its
gradients are reduce-scattered. Copies between calls: the gathered buffer into parameters, gradients into rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simcollectives.training.numerics.group import WORLD, Among, Group
from simcollectives.training.numerics.layers import Array, Layer, Parameters
from simcollectives.training.numerics.optimizers import States
from simcollectives.training.numerics.plan import NumericsPlan
from simcollectives.training.numerics.strategies.replicas import add_gradients, hold_model, new_states, update
from simcollectives.training.numerics.strategies.units import Unit
from simcollectives.training.passes import GRADIENTS, PARAMETERS
from simcollectives.training.sharding import GATHER_BUFFERS, SCATTER_BUFFERS, UNSHARDED, UNSHARDED_GRADIENTS


@dataclass(frozen=True)
class Sharding:
    """How a model is sharded.

    A unit is a run of layers with parameters. Shards are spread over ``shard``, groups of consecutive ranks; the
    shard's gradient is then all-reduced over ``replicate``, if any. ``reshard_after_forward`` frees a unit between its
    passes. Gradients are reduced in ``every_micro_batch``, or kept whole until the last one of a step.
    """

    cut: str
    one_unit: bool = False
    shard: Among = WORLD
    replicate: Among | None = None
    reshard_after_forward: bool = True
    every_micro_batch: bool = True


class FullySharded:
    """Shards of parameters, gradients and optimizer states: by rank, then by unit."""

    def __init__(self, plan: NumericsPlan, group: Group, initial: Parameters, sharding: Sharding) -> None:
        self.plan = plan
        self.group = group
        self.sharding = sharding
        self.ranks = sharding.shard.size or group.world_size
        self.units: dict[str, Unit] = {}
        self.last: set[str] = set()
        self._find_units()
        world = range(group.world_size)
        self.parameters: list[dict[str, Array]] = [{} for _ in world]
        self.gradients: list[dict[str, Array]] = [{} for _ in world]
        self.states: list[dict[str, States]] = [{} for _ in world]
        self.unsharded: list[dict[str, Array]] = [{} for _ in world]
        self.unsharded_gradients: list[dict[str, Array]] = [{} for _ in world]
        self.passed: dict[str, int] = {}
        for unit in self._distinct():
            rows = unit.rows(initial)
            for rank in world:
                shard = rows[rank % self.ranks].copy()
                self.parameters[rank][unit.name] = shard
                self.states[rank][unit.name] = new_states(plan, shard)
        hold_model(group, self.parameters, self.states)

    def start_step(self) -> None:
        """Forget the gradients of the step before."""
        self.gradients = [{} for _ in self.gradients]
        self.passed = dict.fromkeys(self.passed, 0)
        self._hold_gradients()

    def gather(self, layer: Layer) -> Sequence[Parameters]:
        """All-gather the unit of a layer, if it is not there."""
        unit = self.units.get(layer.module.name)
        if unit is not None and unit.parameters[0].name not in self.unsharded[0]:
            self._unshard(unit)
        return self.unsharded

    def release(self, layer: Layer) -> None:
        """Free a unit after the forward pass of its last layer."""
        unit = self.units.get(layer.module.name)
        if unit is not None and layer.module.name in self.last and self.sharding.reshard_after_forward:
            self._reshard(unit)

    def collect(self, layer: Layer, gradients: Sequence[Parameters]) -> None:
        """Add the gradients of a layer; with the last of a unit, free its parameters and reduce its gradients."""
        unit = self.units.get(layer.module.name)
        if unit is None:
            return
        add_gradients(self.unsharded_gradients, gradients)
        self._hold_gradients()
        if layer.module.parameters[0] != unit.parameters[0]:
            return
        self._reshard(unit)
        self.passed[unit.name] = self.passed.get(unit.name, 0) + 1
        if self.sharding.every_micro_batch or self.passed[unit.name] == self.plan.accumulation:
            self._reduce(unit)

    def finish_step(self, step: int) -> None:
        """Update the shards: nothing is sent."""
        update(self.plan, step, self.parameters, self.gradients, self.states)
        hold_model(self.group, self.parameters, self.states)

    def whole_parameters(self) -> Sequence[Parameters]:
        """Put together from the shards of each group."""
        return self._joined(self.parameters)

    def whole_gradients(self) -> Sequence[Parameters]:
        """Put together from the shards of each group."""
        return self._joined(self.gradients)

    def _find_units(self) -> None:
        layers = [layer.module for layer in self.plan.network.layers if layer.module.parameters]
        for run in [layers] if self.sharding.one_unit else [[layer] for layer in layers]:
            parameters = tuple(parameter for module in run for parameter in module.parameters)
            name = ", ".join(module.name for module in run)
            self.units |= dict.fromkeys(
                [one.name for one in run], Unit(name, parameters, self.ranks, self.sharding.cut)
            )
            self.last.add(run[-1].name)

    def _distinct(self) -> list[Unit]:
        return list(dict.fromkeys(self.units.values()))

    def _unshard(self, unit: Unit) -> None:
        shards = [own[unit.name] for own in self.parameters]
        gathered = self.group.run("all_gather", shards, PARAMETERS, self.sharding.shard)
        self.group.hold(GATHER_BUFFERS, [[array] for array in gathered])
        for own, array in zip(self.unsharded, gathered, strict=True):
            own.update(unit.arrays(array.reshape(self.ranks, -1)))
        self._hold_unsharded()
        self.group.drop(GATHER_BUFFERS)

    def _reshard(self, unit: Unit) -> None:
        for own in self.unsharded:
            for parameter in unit.parameters:
                del own[parameter.name]
        self._hold_unsharded()

    def _reduce(self, unit: Unit) -> None:
        dtype = np.dtype(self.plan.gradient_dtype)
        flat = [unit.rows(own).reshape(-1).astype(dtype) for own in self.unsharded_gradients]
        self.group.hold(SCATTER_BUFFERS, [[array] for array in flat])
        for own in self.unsharded_gradients:
            for parameter in unit.parameters:
                del own[parameter.name]
        self._hold_gradients()
        sums = self.group.run("reduce_scatter", flat, GRADIENTS, self.sharding.shard)
        if self.sharding.replicate is not None:
            sums = self.group.run("all_reduce", sums, GRADIENTS, self.sharding.replicate)
        add_gradients(self.gradients, [{unit.name: total.astype(np.float64)} for total in sums])
        self.group.drop(SCATTER_BUFFERS)
        self._hold_gradients()

    def _joined(self, shards: Sequence[Parameters]) -> Sequence[Parameters]:
        """Return each rank's whole arrays; the ranks of one group share them."""
        found: list[Parameters] = []
        for start in range(0, self.group.world_size, self.ranks):
            members = shards[start : start + self.ranks]
            whole: dict[str, Array] = {}
            for unit in self._distinct():
                whole |= unit.arrays(np.stack([own[unit.name] for own in members]))
            found += [whole] * self.ranks
        return found

    def _hold_unsharded(self) -> None:
        self.group.hold(UNSHARDED, [own.values() for own in self.unsharded])

    def _hold_gradients(self) -> None:
        self.group.hold(UNSHARDED_GRADIENTS, [own.values() for own in self.unsharded_gradients])
        self.group.hold(GRADIENTS, [own.values() for own in self.gradients])
