"""In which order DeepSpeed's stage 3 comes to the modules of a model: its hooks run at every module that is called.

A container is called, too, before what it contains: the model, a block, its attention and feed-forward. They are known
from the dots in modules' names; what only lists modules, such as ``layers`` in ``layers.0``, is never called. Hooks of
modules without parameters (activations, dropout) gather ahead as well; they are not in our models, and would only
gather the same a little earlier.

Reference: deepspeed 0.19.8, runtime/zero/parameter_offload.py. Assumes that recomputation runs a block forward from
its start before its backward.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf

from simcollectives.training.model import Model, Module, Parameter
from simcollectives.training.passes import is_recomputed
from simcollectives.training.setup import Training

LARGEST_LEAF = 1_000_000_000
"""Containers of more elements are never gathered whole."""


@dataclass(frozen=True)
class Visit:
    """A module's hook, with the parameters that it gathers, in registration order; a container's has none."""

    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True)
class Stop:
    """What runs around the kernels of one module: hooks of all that is entered, then of what is left.

    ``whole``: the module is in a container that is gathered whole.
    """

    entered: tuple[Visit, ...]
    left: Visit | None
    whole: bool = False


@dataclass(frozen=True)
class Tree:
    """A model's modules by their names. ``granularity``: the threshold up to which a container is gathered whole."""

    model: Model
    granularity: int = 0

    @cached_property
    def _children(self) -> dict[str, dict[str, None]]:
        found: dict[str, dict[str, None]] = {"": {}}
        for module in self._owners:
            chain = (*paths_to(module.name), module.name)
            for path, child in pairwise(chain):
                found.setdefault(path, {})[child] = None
        return found

    @cached_property
    def _owners(self) -> tuple[Module, ...]:
        modules = [module for layer in self.model.layers for module in layer.modules]
        return tuple(module for module in modules if module.parameters)

    @cached_property
    def _blocks(self) -> set[str]:
        return {layer.name for layer in self.model.layers if layer.block}

    def in_order(self, parameters: Iterable[Parameter]) -> tuple[Parameter, ...]:
        """Return parameters, each once, in registration order."""
        by_name = {parameter.name: parameter for parameter in parameters}
        return tuple(by_name[name] for name in sorted(by_name, key=self.model.place.__getitem__))

    def is_called(self, path: str) -> bool:
        """Whether a container runs itself; one whose children are all numbered only lists them."""
        last = {child.rpartition(".")[2] for child in self._children.get(path, ())}
        return path == "" or path in self._blocks or not all(name.isdecimal() for name in last)

    @cached_property
    def granularities(self) -> dict[str, float]:
        """Elements for each module in a container, itself included; infinite where it is never gathered whole."""
        elements = {module.name: sum(p.elements for p in module.parameters) for module in self._owners}
        found: dict[str, float] = {}

        def count(path: str) -> tuple[int, int]:
            if path not in self._children:
                return 1, elements[path]
            parts = [count(child) for child in self._children[path]]
            modules, size = sum(part[0] for part in parts), sum(part[1] for part in parts)
            if not self.is_called(path):
                return modules, size
            found[path] = size // (modules + 1) if size <= LARGEST_LEAF else inf
            return modules + 1, size

        count("")
        return found

    @cached_property
    def leaves(self) -> frozenset[str]:
        """Containers that are gathered whole; what is in them is not looked at."""
        if self.granularity == 0:
            return frozenset()
        return frozenset(path for path, size in self.granularities.items() if size <= self.granularity)

    def leaf_over(self, name: str) -> str | None:
        """Return the outermost container of a module that is gathered whole."""
        return next((path for path in paths_to(name) if path in self.leaves), None)

    def parameters_of(self, leaf: str) -> tuple[Parameter, ...]:
        """Return the parameters of all modules in a container."""
        inside = [module for module in self._owners if leaf in paths_to(module.name)]
        return self.in_order(parameter for module in inside for parameter in module.parameters)


def paths_to(name: str) -> tuple[str, ...]:
    """Return the containers of a module, the outermost first.

    >>> paths_to("model.layers.0.mlp")
    ('', 'model', 'model.layers', 'model.layers.0')
    """
    parts = name.split(".")[:-1]
    return tuple(".".join(parts[:end]) for end in range(len(parts) + 1))


def stops(tree: Tree, modules: Sequence[Module]) -> list[Stop]:
    """Return what runs around each of some modules that are called one after another, in this order."""
    found = []
    before: tuple[str, ...] = ()
    for index, module in enumerate(modules):
        if not module.parameters:
            found.append(Stop((), None))
            continue
        leaf = tree.leaf_over(module.name)
        path = paths_to(module.name)
        if leaf is not None:
            path = path[: path.index(leaf) + 1]
        entered = [Visit() for p in path if p not in before and p != leaf and tree.is_called(p)]
        own = Visit(tree.in_order(module.parameters))
        if leaf is not None:
            own = Visit(tree.parameters_of(leaf))
            inside = leaf in before
            entered = [] if inside else [*entered, own]
            last = all(leaf not in paths_to(later.name) for later in modules[index + 1 :] if later.parameters)
            found.append(Stop(tuple(entered), own if last else None, whole=True))
        else:
            found.append(Stop((*entered, own), own))
        before = path
    return found


def stops_of_step(training: Training, tree: Tree) -> list[Stop]:
    """Return the stops of a forward and a backward pass, in the order in which the passes call their hooks."""
    layers = training.model.layers
    found = stops(tree, [module for layer in layers for module in layer.modules])
    backward: list[Module] = []
    for layer in reversed(layers):
        if is_recomputed(training, layer):
            backward += layer.modules
        backward += reversed(layer.modules)
    return found + stops(tree, backward)
