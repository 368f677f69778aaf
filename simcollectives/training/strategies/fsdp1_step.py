"""What FSDP1 does around the layers of a pass, in the order in which PyTorch's host issues it.

Methods are named after those of torch/distributed/fsdp (_runtime_utils.py, _flat_param.py, 2.13). Streams, beside that
of the kernels: casts of shards, all-gathers, reductions, all-reduces between replicas.
"""

from dataclasses import dataclass, field

from simcollectives.engines.job import DTYPES
from simcollectives.training.passes import Hooks
from simcollectives.training.program import Builder, Item
from simcollectives.training.setup import Training
from simcollectives.training.sharding import UNSHARDED, padded
from simcollectives.training.strategies.fsdp1_reduction import FlatReduction
from simcollectives.training.strategies.fsdp_units import (
    CAST_SHARDS,
    Dtypes,
    Mesh,
    Unit,
    Units,
    at,
    optimizer_on_units,
    stand_units,
)
from simcollectives.training.strategies.types import Options

PRE_UNSHARD, UNSHARD = "pre-unshard", "unshard"
MOST_FREE_EVENTS = 2
ALIGNMENT_BYTES = 16
RESHARDED_AFTER_FORWARD = ("FULL_SHARD", "HYBRID_SHARD")


@dataclass(frozen=True)
class Flat:
    """A unit's parameters in one tensor of ``elements``, as ``held`` by a rank; ``padded`` is what is sent."""

    elements: int
    padded: int
    held: int


def flatten(unit: Unit, mesh: Mesh, dtypes: Dtypes, *, sharded: bool, aligned: bool) -> Flat:
    """Lay a unit's parameters out in one tensor.

    ``aligned``: each begins at a multiple of 16 bytes in the gathered dtype, and the end is filled up for the ranks.
    """
    total = 0
    for parameter in unit.parameters:
        total = (padded(total, ALIGNMENT_BYTES // DTYPES[dtypes.gathered]) if aligned else total) + parameter.elements
    total = padded(total, mesh.shard) if aligned else total
    whole = padded(total, mesh.shard)
    return Flat(total, whole, whole // mesh.shard) if sharded else Flat(total, total, total)


@dataclass
class Fsdp1Step:
    """One rank's step.

    ``free_events`` are ends of the use of units that the host has not waited for yet, None where that was in an earlier
    step. ``prefetched`` units were gathered before they are needed; ``ahead`` are those of them in forward.
    """

    builder: Builder
    training: Training
    units: Units
    mesh: Mesh
    dtypes: dict[str, Dtypes]
    options: Options
    free_events: list[int | None]
    sharded: bool
    prefetched: set[str] = field(default_factory=set)
    ahead: set[str] = field(default_factory=set)
    whole: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    waits: dict[str, list[int]] = field(default_factory=dict)
    gathered: int | None = None
    late: Unit | None = None
    forward_order_known: bool = False
    synchronised: bool = True

    def __post_init__(self) -> None:
        aligned = self.options["use_orig_params"]
        self.flat = {
            unit.name: flatten(unit, self.mesh, self.dtypes[unit.name], sharded=self.sharded, aligned=aligned)
            for unit in self.units.all
        }
        self.held = {name: flat.held for name, flat in self.flat.items()}
        self.reduction = FlatReduction(self.builder, self.training, self.mesh, self.dtypes, self.sharded)

    # What stands, and the optimizer

    def stand(self) -> None:
        """Note what a rank holds of parameters and optimizer states."""
        stand_units(self.builder, self.training, self.dtypes, self.held)

    def optimizer(self) -> None:
        """Issue the optimizer on what a rank holds, after which gradients are freed."""
        optimizer_on_units(self.builder, self.training, self.dtypes, self.held)

    # Forward

    def begin_forward(self, *, forward_order_known: bool) -> None:
        """All-gathers wait for the optimizer, and the root is gathered."""
        self.waits = {PRE_UNSHARD: self.builder.latest(), UNSHARD: self.builder.latest()}
        self.forward_order_known = forward_order_known
        self.ahead = set()
        self._pre_forward(self.units.root)

    @property
    def forward_hooks(self) -> Hooks:
        """What happens before and after layers."""
        units = self.units
        return Hooks(before_layer=at(units.begins, self._pre_forward), after_layer=at(units.ends, self._free))

    def _pre_forward(self, unit: Unit) -> None:
        if not unit.parameters:
            return
        if unit.name not in self.prefetched:
            self._unshard(unit)
        self._wait_for_unshard()
        if self.options["forward_prefetch"] and self.forward_order_known:
            order = self.units.order
            place = 0 if unit is self.units.root else order.index(unit) + 1
            other = order[place] if place < len(order) else self.units.root
            if other is not self.units.root and other.name not in self.prefetched:
                self._unshard(other)
                self.prefetched.add(other.name)
                self.ahead.add(other.name)

    def _free(self, unit: Unit) -> None:
        """After forward: the root is kept, and so are all where they are not resharded."""
        resharded = self.options["sharding_strategy"] in RESHARDED_AFTER_FORWARD
        self._reshard(unit, frees=self.sharded and resharded and unit is not self.units.root)
        self.needed.add(unit.name)

    def end_forward(self) -> None:
        """The root has been computed."""
        if self.units.root.parameters:
            self._free(self.units.root)

    # Backward

    def begin_backward(self, *, synchronised: bool) -> None:
        """The root is needed, and fetches the last unit."""
        self.synchronised = synchronised
        if self.units.root.parameters:
            self._pre_backward(self.units.root)

    @property
    def backward_hooks(self) -> Hooks:
        """What happens before and after layers."""
        width = DTYPES[next(iter(self.dtypes.values())).gathered]
        return Hooks(
            before_layer=at(self.units.ends, self._pre_backward),
            after_layer=at(self.units.begins, self._after_backward),
            gradient_bytes=lambda parameter: parameter.elements * width,
            gradient_item=self.reduction.raw_item,
        )

    def _pre_backward(self, unit: Unit) -> None:
        if unit.name in self.needed:
            if unit.name not in self.prefetched:
                self._unshard(unit)
            self._wait_for_unshard()
            self.needed.discard(unit.name)
        if self.options["backward_prefetch"] == "BACKWARD_PRE":
            self._prefetch_backward(unit)

    def _prefetch_backward(self, unit: Unit) -> None:
        place = self.units.order.index(unit) - 1
        if place < 0:
            return
        other = self.units.order[place]
        if other.name in self.needed and other.name not in self.prefetched:
            self._unshard(other)
            self.prefetched.add(other.name)

    def _after_backward(self, unit: Unit) -> None:
        """A unit that was gathered before the forward of the one before it is finished only after that one's backward.

        Autograd ranks nodes by when they were made: the views of such a unit are older than all of that forward.
        """
        self._flush()
        if unit.name in self.ahead:
            self.late = unit
        else:
            self._post_backward(unit)

    def _flush(self) -> None:
        if self.late is not None:
            self._post_backward(self.late)
            self.late = None

    def _post_backward(self, unit: Unit) -> None:
        flat = self.flat[unit.name]
        self.reduction.flatten(unit, flat.elements)
        kept = self.options["sharding_strategy"] not in RESHARDED_AFTER_FORWARD and not self.synchronised
        self._reshard(unit, frees=self.sharded and not kept)
        if self.options["backward_prefetch"] == "BACKWARD_POST":
            self._prefetch_backward(unit)
        if self.synchronised:
            self.reduction.reduce(unit.name, flat.elements, flat.padded)

    def end_backward(self) -> None:
        """The root is reduced last; kernels wait for all reductions."""
        self._flush()
        if self.units.root.parameters:
            self._post_backward(self.units.root)
        if self.synchronised:
            self.reduction.wait()
        self.needed = set()
        self.prefetched = set()

    # Unshard and reshard

    def _unsharded(self, unit: Unit) -> Item:
        return UNSHARDED, self.flat[unit.name].padded * DTYPES[self.dtypes[unit.name].gathered]

    def _on(self, stream: str) -> list[int]:
        return self.waits.pop(stream, [])

    def _unshard(self, unit: Unit) -> None:
        """Cast the shard, wait on the host if two units were not seen to be freed, and all-gather."""
        name, dtypes, flat = unit.name, self.dtypes[unit.name], self.flat[unit.name]
        absent = name not in self.whole
        cast: list[Item] = []
        after = []
        if absent and dtypes.own != dtypes.gathered:
            width = DTYPES[dtypes.gathered]
            cast = [(CAST_SHARDS if self.sharded else UNSHARDED, flat.held * width)]
            seconds = self.training.memory_seconds(flat.held * (DTYPES[dtypes.own] + width))
            waits = self._on(PRE_UNSHARD)
            done = self.builder.compute(f"{name} cast", seconds, stream=PRE_UNSHARD, after=waits, allocates=cast)
            after = [done]
            if not self.sharded:
                self.gathered = done
                self.whole.add(name)
        self._limit(name)
        if absent and self.sharded:
            call = self.mesh.shard_call("all_gather", flat.padded, dtypes.gathered)
            item = self._unsharded(unit)
            after += self._on(UNSHARD)
            self.gathered = self.builder.collective(
                name, call, stream=UNSHARD, after=after, allocates=[item], frees=cast
            )
            self.whole.add(name)

    def _limit(self, name: str) -> None:
        if self.options["limit_all_gathers"] and len(self.free_events) >= MOST_FREE_EVENTS:
            event = self.free_events.pop(0)
            if event is not None:
                self.builder.host(f"wait before {name}", after=[event])

    def _wait_for_unshard(self) -> None:
        """Kernels wait for all that was gathered so far."""
        if self.gathered is not None:
            self.builder.compute("wait for parameters", 0.0, after=[self.gathered])
            self.gathered = None

    def _reshard(self, unit: Unit, *, frees: bool) -> None:
        self.prefetched.discard(unit.name)
        if frees or not self.sharded:
            items = [self._unsharded(unit)] if unit.name in self.whole else []
            if items or frees:
                freed = self.builder.compute(f"{unit.name} freed", 0.0, frees=items)
            self.whole.discard(unit.name)
            if frees and self.options["limit_all_gathers"]:
                self.free_events.append(freed)
