"""What a strategy of training in numbers is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from simcollectives.algorithms.types import Option
from simcollectives.cluster import Cluster
from simcollectives.training.numerics.group import WORLD, Among, Group
from simcollectives.training.numerics.layers import Layer, Parameters
from simcollectives.training.numerics.plan import NumericsPlan

Options = Mapping[str, Any]


class Strategy(Protocol):
    """The arrays of every rank, and what is sent between them. Sequences have one entry a rank."""

    def start_step(self) -> None:
        """Prepare for the first micro-batch."""

    def gather(self, layer: Layer) -> Sequence[Parameters]:
        """Give each rank the whole parameters of a layer, before its forward and before its backward pass."""

    def release(self, layer: Layer) -> None:
        """Do without the parameters of a layer, after its forward pass."""

    def collect(self, layer: Layer, gradients: Sequence[Parameters]) -> None:
        """Take each rank's gradients of a layer for one micro-batch, after its backward pass."""

    def finish_step(self, step: int) -> None:
        """Synchronise what is not yet, and update; steps count from 1."""

    def whole_parameters(self) -> Sequence[Parameters]:
        """Put each rank's parameters together, as a checkpoint does; what is joined for it is in no account."""

    def whole_gradients(self) -> Sequence[Parameters]:
        """As ``whole_parameters``, the gradients that the update used."""


Collective = tuple[str, Among]
"""A kind of collective, and the ranks that run it together."""


def all_reduce_of_all(_cluster: Cluster, _options: Options) -> tuple[Collective, ...]:
    """All ranks all-reduce."""
    return (("all_reduce", WORLD),)


def scatter_and_gather(_cluster: Cluster, _options: Options) -> tuple[Collective, ...]:
    """All ranks reduce-scatter, and all-gather."""
    return ("reduce_scatter", WORLD), ("all_gather", WORLD)


@dataclass(frozen=True)
class StrategyEntry:
    """A strategy in the table.

    ``make(plan, group, initial, options)`` hands out the initial parameters. ``collectives(cluster, options)`` are what
    it runs. ``buckets`` tells that gradients travel in buckets, ``synchronised_by_all_reduce`` that they are summed by
    an all-reduce, which can be forgotten.
    """

    name: str
    summary: str
    reference: str
    make: Callable[[NumericsPlan, Group, Parameters, Options], Strategy]
    collectives: Callable[[Cluster, Options], tuple[Collective, ...]] = scatter_and_gather
    options: tuple[Option, ...] = ()
    buckets: bool = False
    synchronised_by_all_reduce: bool = False
