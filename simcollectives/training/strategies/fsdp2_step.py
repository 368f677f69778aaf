"""What FSDP2 does around the layers of a pass, in the order in which PyTorch's host issues it.

Methods are named after those of torch/distributed/fsdp/_fully_shard (_fsdp_state.py, _fsdp_param_group.py, 2.13).
Streams, beside that of the kernels: copies into all-gathers, all-gathers, reduce-scatters, all-reduces. In the account
of memory a buffer lives on the GPU's clock: an all-gather's until it is copied out, since the next but one takes its
place; a reduce-scatter's until the stream of the kernels has waited for it.
"""

from dataclasses import dataclass, field

from simcollectives.engines.job import DTYPES
from simcollectives.training.passes import Hooks
from simcollectives.training.program import Builder, Call, Item
from simcollectives.training.setup import Training
from simcollectives.training.sharding import GATHER_BUFFERS, UNSHARDED, UNSHARDED_GRADIENTS
from simcollectives.training.strategies.fsdp_reduction import Reduction
from simcollectives.training.strategies.fsdp_units import (
    CAST_SHARDS,
    Dtypes,
    Mesh,
    Unit,
    Units,
    at,
    optimizer_on_units,
    padded_rows,
    stand_units,
)
from simcollectives.training.strategies.types import Options

COPY_IN, GATHER = "all-gather copy-in", "all-gather"
KEPT_PARTS = "parts kept after forward"


@dataclass
class Fsdp2Step:
    """One rank's step.

    ``pending`` are all-gathers that were issued and not yet waited for (None on one rank), ``whole`` the units that are
    unsharded, ``parts`` those of which a larger part is kept. ``waits`` are what the next all-gather comes after.
    """

    builder: Builder
    training: Training
    units: Units
    mesh: Mesh
    dtypes: dict[str, Dtypes]
    options: Options
    pending: dict[str, int | None] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    parts: dict[str, int] = field(default_factory=dict)
    waits: list[int] = field(default_factory=list)
    deferred: int | None = None
    synchronised: bool = True
    last: bool = True
    raw_held: bool = False
    done: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.elements = {u.name: sum(padded_rows(p, self.mesh.shard) for p in u.parameters) for u in self.units.all}
        self.held = {name: elements // self.mesh.shard for name, elements in self.elements.items()}
        self.reduction = Reduction(self.builder, self.training, self.mesh, self.dtypes, self.elements, self.options)

    # What stands, and the optimizer

    def stand(self) -> None:
        """Note shards of parameters and optimizer states."""
        stand_units(self.builder, self.training, self.dtypes, self.held)

    def optimizer(self) -> None:
        """Issue the optimizer on the shards, after which gradients are freed."""
        optimizer_on_units(self.builder, self.training, self.dtypes, self.held)

    # Forward

    def begin_forward(self) -> None:
        """All-gathers wait for the optimizer, and the root is gathered."""
        self.waits += self.builder.latest()
        self.deferred = None
        self._pre_forward(self.units.root)

    @property
    def forward_hooks(self) -> Hooks:
        """What happens before and after layers."""
        units = self.units
        return Hooks(before_layer=at(units.begins, self._pre_forward), after_layer=at(units.ends, self._post_forward))

    def _pre_forward(self, unit: Unit) -> None:
        self._unshard(unit)
        self._wait_for_unshard(unit, in_forward=True)
        if unit is not self.units.root:
            place = self.units.others.index(unit) + 1
            for other in self.units.others[place : place + self.options["forward_prefetch"]]:
                self._unshard(other)

    def _post_forward(self, unit: Unit) -> None:
        how = self._reshards_to(unit)
        if how is True and unit.parameters:
            self._reshard(unit)
        elif how is not False and unit.name in self.whole:
            part = self.elements[unit.name] // how * self._gathered_bytes(unit)
            seconds = self.training.memory_seconds(2 * part)
            items = [(KEPT_PARTS, part)]
            self.parts[unit.name] = self.builder.compute(
                f"{unit.name} kept in part", seconds, allocates=items, frees=[self._unsharded(unit)]
            )
            self.whole.discard(unit.name)

    def _reshards_to(self, unit: Unit) -> bool | int:
        """Whether a unit is resharded after forward, or over how many ranks only."""
        given: bool | int | None = self.options["reshard_after_forward"]
        if given is None:
            given = unit is not self.units.root
        if given is False or (unit in self.units.others[-1:] and not self.options["reshard_last_unit"]):
            return False
        if given is True or given == self.mesh.shard:
            return True
        return False if given == 1 else given

    def end_forward(self) -> None:
        """The root is kept, or resharded if that was asked for; then the last all-gather's buffer is let go."""
        self._post_forward(self.units.root)
        self.waits += [] if self.deferred is None else [self.deferred]
        self.deferred = None

    # Backward

    def begin_backward(self, *, synchronised: bool, last: bool) -> None:
        """The root is unsharded, which fetches the last unit."""
        self.synchronised, self.last, self.done = synchronised, last, set()
        self.reduction.begin_backward(last=last)
        self._pre_backward(self.units.root)

    @property
    def backward_hooks(self) -> Hooks:
        """What happens before and after layers."""
        gathered = next(iter(self.dtypes.values())).gathered
        return Hooks(
            before_layer=at(self.units.ends, self._pre_backward),
            after_layer=at(self.units.begins, self._after_backward),
            gradient_bytes=lambda parameter: parameter.elements * DTYPES[gathered],
            gradient_item=UNSHARDED_GRADIENTS,
        )

    def _pre_backward(self, unit: Unit) -> None:
        if not unit.parameters:
            return
        self._unshard(unit, in_backward=True)
        self._wait_for_unshard(unit)
        place = self.units.order.index(unit)
        depth = 1 if unit is self.units.root else self.options["backward_prefetch"]
        for other in self.units.order[max(place - depth, 0) : place][::-1]:
            self._unshard(other, in_backward=True)

    def _after_backward(self, unit: Unit) -> None:
        if unit.input_has_gradient:
            self._post_backward(unit)

    def _post_backward(self, unit: Unit) -> None:
        self.done.add(unit.name)
        raw = unit.elements * self._gathered_bytes(unit)
        self.reduction.accumulate(unit, raw)
        if self.options["reshard_after_backward"] or self.last:
            self._reshard(unit)
        if self.synchronised:
            self.reduction.reduce(unit, raw)
        else:
            self.reduction.keep(unit, raw)

    def end_backward(self) -> None:
        """Units whose inputs need no gradient are reduced, the root first; kernels wait for what was reduced."""
        final = self.last or self.options["wait_in_every_backward"]
        for unit in self.units.all:
            if unit.name not in self.done:
                self._post_backward(unit)
                if final:
                    self.reduction.wait()
        if final:
            self.reduction.finish()
        self.raw_held = not self.synchronised and not self.reduction.casts

    # Unshard and reshard

    def _gathered_bytes(self, unit: Unit) -> int:
        return DTYPES[self.dtypes[unit.name].gathered]

    def _unsharded(self, unit: Unit) -> Item:
        return UNSHARDED, self.elements[unit.name] * self._gathered_bytes(unit)

    def _unshard(self, unit: Unit, *, in_backward: bool = False) -> None:
        name = unit.name
        if not unit.parameters or name in self.pending or name in self.whole:
            return
        if in_backward and not self.options["unshard_first_in_backward"] and unit in self.units.others[:1]:
            return
        if self.mesh.shard == 1:
            self.pending[name] = None
            return
        dtypes, elements, width = self.dtypes[name], self.elements[name], self._gathered_bytes(unit)
        call = self.mesh.shard_call("all_gather", elements, dtypes.gathered)
        own_width = DTYPES[dtypes.own]
        if name in self.parts:
            self.waits.append(self.parts[name])
            ranks, own_width = self.options["reshard_after_forward"], width
            call = Call("all_gather", "kept parts", ranks, elements, dtypes.gathered)
        mine = elements // call.group_size
        cast = [(CAST_SHARDS, mine * width)] if dtypes.own != dtypes.gathered else []
        moved = mine * (2 * width + (own_width + width if cast else 0))
        copied = self.builder.compute(
            f"{name} copy-in",
            self.training.memory_seconds(moved),
            stream=COPY_IN,
            after=self.waits,
            allocates=[(GATHER_BUFFERS, elements * width), *cast],
            frees=cast,
        )
        self.waits = []
        self.pending[name] = self.builder.collective(name, call, stream=GATHER, after=[copied])

    def _wait_for_unshard(self, unit: Unit, *, in_forward: bool = False) -> None:
        """Copy an all-gather's output into parameters, on the stream of the kernels.

        In forward the next all-gather does not wait for this copy, but for the one before: it is issued ahead.
        """
        name = unit.name
        if name not in self.pending:
            return
        gathered = self.pending.pop(name)
        if in_forward and self.deferred is not None:
            self.waits.append(self.deferred)
            self.deferred = None
        item = self._unsharded(unit)
        moved = item[1] + self.elements[name] * DTYPES[self.dtypes[name].own] if gathered is None else 2 * item[1]
        frees = [] if gathered is None else [(GATHER_BUFFERS, item[1])]
        if self.parts.pop(name, None) is not None:
            frees.append((KEPT_PARTS, item[1] // self.options["reshard_after_forward"]))
        copied = self.builder.compute(
            f"{name} copy-out",
            self.training.memory_seconds(moved),
            after=[] if gathered is None else [gathered],
            allocates=[item],
            frees=frees,
        )
        self.whole.add(name)
        if in_forward and gathered is not None:
            self.deferred = copied
        else:
            self.waits.append(copied)

    def _reshard(self, unit: Unit) -> None:
        item = self._unsharded(unit)
        frees = [item] if unit.name in self.whole else []
        if self.parts.pop(unit.name, None) is not None:
            frees.append((KEPT_PARTS, item[1] // self.options["reshard_after_forward"]))
        self.whole.discard(unit.name)
        if frees:
            self.builder.compute(f"{unit.name} freed", 0.0, frees=frees)
