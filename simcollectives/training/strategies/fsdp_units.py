"""What is sharded together: units of layers, the mesh of ranks that shards them, and the dtypes of what is sent.

A unit is what one call of PyTorch's wrapper takes: all parameters of its layers. By default every block is a unit, and
the root has the rest: embeddings, the last norm, the head. A parameter that several units use is the root's.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from simcollectives.engines.job import DTYPES
from simcollectives.errors import InputError, Problem
from simcollectives.training.model import Layer, Model, Parameter
from simcollectives.training.passes import GRADIENTS, PARAMETERS, optimizer_on, stand_buffers
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import Builder, Call
from simcollectives.training.setup import Training
from simcollectives.training.sharding import padded, stand_optimizer_shard
from simcollectives.training.strategies.types import Options

ROOT = "root"
BLOCKS, EMBEDDING_AND_HEAD = "blocks", "embedding_and_head"
CAST_SHARDS = "cast shards"


@dataclass(frozen=True)
class Unit:
    """Parameters, in registration order, of the ``layers``, named in forward order.

    ``input_has_gradient`` tells whether the backward pass goes on to what is before it: not for the model's first.
    """

    name: str
    layers: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    input_has_gradient: bool = True

    @property
    def elements(self) -> int:
        """Elements of its parameters."""
        return sum(parameter.elements for parameter in self.parameters)


@dataclass(frozen=True)
class Units:
    """The ``root``, which may be empty, and all others that have parameters, in forward order."""

    root: Unit
    others: tuple[Unit, ...]

    @property
    def all(self) -> tuple[Unit, ...]:
        """Every unit that has parameters, the root first."""
        return (self.root, *self.others) if self.root.parameters else self.others

    @cached_property
    def order(self) -> tuple[Unit, ...]:
        """Every unit that has parameters, the root last: the backward pass comes to them from the end."""
        return (*self.others, self.root) if self.root.parameters else self.others

    @cached_property
    def begins(self) -> dict[str, Unit]:
        """Units but the root by their first layers."""
        return {unit.layers[0]: unit for unit in self.others}

    @cached_property
    def ends(self) -> dict[str, Unit]:
        """Units but the root by their last layers."""
        return {unit.layers[-1]: unit for unit in self.others}


def at(units: Mapping[str, Unit], act: Callable[[Unit], None]) -> Callable[[Layer], None]:
    """Return a hook that does something with a unit at a layer."""

    def hook(layer: Layer) -> None:
        if layer.name in units:
            act(units[layer.name])

    return hook


def units_of(model: Model, choice: str) -> Units:
    """Divide a model into units.

    ``choice`` is "blocks", or "embedding_and_head": what stands before the first block is a unit, too, and what stands
    after the last is another.
    """
    groups = _groups(model.layers, choice)
    users = _users(model, groups)
    owner = {name: next(iter(found)) if len(found) == 1 else () for name, found in users.items()}
    held: dict[tuple[str, ...], list[Parameter]] = {names: [] for names in [(), *groups]}
    for parameter in model.parameters:
        held[owner[parameter.name]].append(parameter)
    first = model.layers[0].name if model.layers else ""
    others = [Unit(", ".join(names), names, tuple(held[names]), first not in names) for names in groups if held[names]]
    grouped = {name for names in groups for name in names}
    rest = tuple(layer.name for layer in model.layers if layer.name not in grouped)
    return Units(Unit(ROOT, rest, tuple(held[()]), False), tuple(others))


def _groups(layers: tuple[Layer, ...], choice: str) -> list[tuple[str, ...]]:
    blocks = [index for index, layer in enumerate(layers) if layer.block]
    groups: list[tuple[str, ...]] = [(layers[index].name,) for index in blocks]
    if choice == EMBEDDING_AND_HEAD and blocks:
        before = tuple(layer.name for layer in layers[: blocks[0]])
        after = tuple(layer.name for layer in layers[blocks[-1] + 1 :])
        groups = [*([before] if before else []), *groups, *([after] if after else [])]
    return groups


def _users(model: Model, groups: Iterable[tuple[str, ...]]) -> dict[str, set[tuple[str, ...]]]:
    """Return for each parameter the groups of layers that use it; () are all layers that are in none."""
    group_of = {name: names for names in groups for name in names}
    users: dict[str, set[tuple[str, ...]]] = {}
    for layer in model.layers:
        for module in layer.modules:
            for parameter in module.parameters:
                users.setdefault(parameter.name, set()).add(group_of.get(layer.name, ()))
    return users


def shared_between_units(model: Model, choice: str) -> list[str]:
    """Name the parameters that layers of several units use."""
    users = _users(model, _groups(model.layers, choice))
    return [name for name, found in users.items() if len(found) > 1]


@dataclass(frozen=True)
class Mesh:
    """Groups of ``shard`` consecutive ranks hold a model together; ``replicas`` groups hold the same.

    Ranks of one place in their groups, ``shard`` apart, reduce their shards of the gradients together.
    """

    shard: int
    replicas: int = 1

    def shard_call(self, kind: str, elements: int, dtype: str) -> Call:
        """Return a collective of the ranks that hold a model together."""
        return Call(kind, WORLD if self.replicas == 1 else "shard", self.shard, elements, dtype)

    def replica_call(self, elements: int, dtype: str) -> Call:
        """Return an all-reduce of the ranks that hold the same shard."""
        return Call("all_reduce", "replicate", self.replicas, elements, dtype, stride=self.shard)


def mesh_of(training: Training, shard_size: int | None) -> Mesh:
    """Return the mesh with shard groups of a size; None for the devices of a node.

    Raises:
        InputError: the size does not divide the number of ranks.
    """
    world = training.world_size
    size = training.cluster.gpus_per_node if shard_size is None else shard_size
    if world % size:
        rule = f"{world} ranks cannot be divided into groups of {size}; take a divisor of {world}"
        raise InputError([Problem("shard_size", rule)])
    return Mesh(size, world // size)


def mesh_problems(training: Training, shard_size: int | None, parts: bool | int | None = None) -> tuple[Problem, ...]:
    """Tell why ranks do not divide into shard groups of a size, or those into ``parts``; None: a node's devices."""
    try:
        mesh = mesh_of(training, shard_size)
    except InputError as error:
        return error.problems
    if parts is None or isinstance(parts, bool) or mesh.shard % parts == 0:
        return ()
    rule = f"{parts} does not divide the {mesh.shard} ranks that hold a model together; take a divisor of {mesh.shard}"
    return (Problem("reshard_after_forward", rule),)


def padded_rows(parameter: Parameter, ranks: int) -> int:
    """Return the elements of a tensor whose rows, its first dimension, are filled up to a multiple of the ranks.

    >>> padded_rows(Parameter("bias", (10,)), 4), padded_rows(Parameter("weight", (10, 3)), 4)
    (12, 36)
    """
    shape = parameter.shape or (1,)
    return padded(shape[0], ranks) * prod(shape[1:])


@dataclass(frozen=True)
class Dtypes:
    """Of a unit's shards (``own``), of what is gathered and computed in, and of what is reduced."""

    own: str
    gathered: str
    reduced: str


def dtypes_of(training: Training, units: Units, options: Options) -> dict[str, Dtypes]:
    """Return the dtypes of units by their names.

    Raises:
        InputError: parameters of a unit differ in dtype, which neither FSDP takes; all such units at once.
    """
    gathered = options["param_dtype"] or training.precision.compute
    reduced = options["reduce_dtype"] or gathered
    found, problems = {}, []
    for unit in units.all:
        own = Counter(training.parameter_dtype(parameter) for parameter in unit.parameters)
        if len(own) > 1:
            rule = f"its parameters are {' and '.join(sorted(own))}; FSDP takes one dtype a unit: hold all in one"
            problems.append(Problem(f"unit {unit.name}", rule))
        found[unit.name] = Dtypes(next(iter(own)), gathered, reduced)
    if problems:
        raise InputError(problems)
    return found


def stand_units(builder: Builder, training: Training, dtypes: Mapping[str, Dtypes], held: Mapping[str, int]) -> None:
    """Note buffers, parameters and optimizer states; ``held`` are the elements that a rank has of each unit."""
    stand_buffers(builder, training)
    builder.stand(PARAMETERS, sum(DTYPES[dtypes[name].own] * count for name, count in held.items()))
    stand_optimizer_shard(builder, training, sum(held.values()))


def optimizer_on_units(
    builder: Builder, training: Training, dtypes: Mapping[str, Dtypes], held: Mapping[str, int]
) -> None:
    """Issue the optimizer on what a rank holds, dtype by dtype; gradients, of the same dtype, are freed after it."""
    by_dtype: Counter[str] = Counter()
    for name, count in held.items():
        by_dtype[dtypes[name].own] += count
    for dtype, count in by_dtype.items():
        frees = [(GRADIENTS, DTYPES[dtype] * count)]
        optimizer_on(builder, training, [(count, dtype, dtype)], frees=frees)


def unit_warnings(training: Training, options: Options) -> list[str]:
    """Tell of parameters that are moved to the root, and of a dtype of gradients that FSDP does not know."""
    found = []
    if shared := shared_between_units(training.model, options["units"]):
        names = ", ".join(shared[:3]) + (", ..." if len(shared) > 3 else "")
        if options["units"] == EMBEDDING_AND_HEAD:
            found.append(f"units share {names}, which the root has; PyTorch asks for one unit of all that share it")
    precision = training.precision
    if precision.gradients != precision.parameters:
        why = f"shards of gradients have the dtype of the parameters, {precision.parameters}"
        found.append(f"gradients in {precision.gradients} are not used: {why}")
    return found
