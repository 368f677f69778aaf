"""What the laws run over: every line of the table of algorithms with every option, world sizes, messages, clusters.

Nothing here names an algorithm: a new line in the table is under every law by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from simcollectives.algorithms import ALGORITHMS, Algorithm, Option, placement_of
from simcollectives.cluster import Cluster, Device, Link
from simcollectives.engines import DTYPES, Job, make_job

WORLD_SIZES: Sequence[int] = (*range(1, 18), 24, 32)
FEW_SIZES: Sequence[int] = (*range(1, 10), 16)
"""What takes time goes as the square of the ranks: powers of two, their neighbours, primes and the rest."""

TWO_LEVEL_SHAPES = ((1, 4), (2, 1), (2, 2), (3, 1), (2, 3), (3, 2), (4, 2), (2, 4), (3, 4), (3, 5), (4, 4), (2, 8))
SMALL_NUMBERS = (1, 2, 5)
EPSILON = 2.0**-52

# Every part of a time is positive, and no two of them are commensurable by accident.
LINK = Link(alpha=3e-6, bandwidth=7e9, overhead=4e-7)
INTRA = Link(alpha=2e-6, bandwidth=11e9, overhead=3e-7)
INTER = Link(alpha=9e-6, bandwidth=3e9, overhead=7e-7)
DEVICE = Device(reduction_seconds_per_byte=5e-11)


@dataclass(frozen=True, repr=False)
class Variant:
    """One line of the table with one choice of its options."""

    algorithm: Algorithm
    options: tuple[tuple[str, Any], ...]

    @property
    def collective(self) -> str:
        return self.algorithm.collective

    @property
    def name(self) -> str:
        return self.algorithm.name

    def option(self, name: str) -> Any:
        return dict(self.options)[name]

    def __str__(self) -> str:
        options = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.collective}-{self.name}" + (f"({options})" if options else "")

    def __repr__(self) -> str:
        return str(self)


def _values(option: Option) -> list[Any]:
    """The default, every choice (with the choice's own options, if it is an algorithm), some numbers that pass."""
    values: list[Any] = [option.default, *(c for c in option.choices if c != option.default)]
    for choice in option.choices:
        own = {o.name: o for a in ALGORITHMS if a.name == choice for o in a.options if o.choices}
        values += [{choice: {o.name: c}} for o in own.values() for c in o.choices]
    values += [number for number in SMALL_NUMBERS if number not in values]
    return [value for value in values if _passes(option, value)]


def _passes(option: Option, value: Any) -> bool:
    try:
        option.check(value)
    except ValueError:
        return False
    return True


def _variants() -> Iterator[Variant]:
    for algorithm in ALGORITHMS:
        names = [option.name for option in algorithm.options]
        for values in itertools.product(*(_values(option) for option in algorithm.options)):
            yield Variant(algorithm, tuple(zip(names, values, strict=True)))


def _repeated(variants: tuple[Variant, ...]) -> Iterator[Variant]:
    """Yield the pairs of two parts beside a diagonal, in which each part stands with one or two of the others."""
    for variant in variants:
        values = [_values(option) for option in variant.algorithm.options]
        places = [some.index(chosen) for some, (_, chosen) in zip(values, variant.options, strict=True)]
        if len(places) == 2 and (places[0] - places[1]) % min(map(len, values)):
            yield variant


def _distinct_on_flat(variants: tuple[Variant, ...]) -> Iterator[Variant]:
    """Leave out variants that send on one node what an earlier one sends (another algorithm between nodes, say)."""
    seen = set()
    for variant in variants:
        sent: list[Any] = [variant.collective, variant.name]
        for world_size in (6, 8):
            if fits(variant, flat(world_size)):
                schedule = job_of(variant, flat(world_size), 0).schedule
                rounds = [r for channel in range(len(schedule.channels)) for r in schedule.rounds_of(channel)]
                sent += [(r.src.tobytes(), r.dst.tobytes(), r.first.tobytes(), r.count.tobytes()) for r in rounds]
        if tuple(sent) not in seen:
            seen.add(tuple(sent))
            yield variant


def flat(world_size: int, link: Link = LINK, device: Device = DEVICE) -> Cluster:
    return Cluster.flat(world_size, link, device=device)


def rank_orders(nodes: int, gpus_per_node: int) -> tuple[Any, ...]:
    """Node-major, round-robin, and one list without any pattern."""
    shuffled = np.random.default_rng(nodes * 100 + gpus_per_node).permutation(nodes * gpus_per_node)
    return ("node_major", "round_robin", tuple(shuffled.tolist()))


def two_level(
    nodes: int, gpus_per_node: int, rank_order: Any, intra: Link = INTRA, inter: Link = INTER, device: Device = DEVICE
) -> Cluster:
    return Cluster.two_level(nodes, gpus_per_node, intra, inter, rank_order=rank_order, device=device)


def two_level_clusters(shapes: tuple[tuple[int, int], ...] = TWO_LEVEL_SHAPES) -> list[Cluster]:
    return [two_level(*shape, order) for shape in shapes for order in rank_orders(*shape)]


def fits(variant: Variant, cluster: Cluster) -> bool:
    return variant.algorithm.accepts(placement_of(cluster), dict(variant.options)) is None


def job_of(variant: Variant, cluster: Cluster, elements: int, dtype: str = "float32") -> Job:
    return make_job(variant.collective, variant.name, cluster, elements * DTYPES[dtype], dict(variant.options), dtype)


def messages(world_size: int) -> tuple[int, ...]:
    """Elements: none, one, fewer than ranks, two that do not divide, and one that divides however it is cut."""
    return tuple(sorted({0, 1, max(world_size - 1, 1), 37, 5 * world_size + 3, 8 * world_size}))


def is_private(job: Job) -> bool:
    """Whether no port ever has two messages in one round (and no other channel can meet it there)."""
    if len(job.schedule.channels) > 1:
        return False
    node = job.full_cluster.device_of_rank // job.full_cluster.gpus_per_node
    for round_ in job.schedule.rounds_of(0):
        pairs = set(zip(round_.src.tolist(), round_.dst.tolist(), strict=True))
        ports = [(end, pair[end], node[pair[0]] == node[pair[1]]) for pair in pairs for end in (0, 1)]
        if len(set(ports)) < len(ports):
            return False
    return True


def tolerance(rounds: int) -> float:
    """The relative difference that counts as none."""
    return max(1e-12, rounds * EPSILON)


def sizes_of(elements: int, chunks: int) -> list[int]:
    """Elements of each chunk; the first ``elements % chunks`` have one more."""
    return [elements // chunks + (1 if chunk < elements % chunks else 0) for chunk in range(chunks)]


def chunk_sizes(collective: str, world_size: int, elements: int, chunks: int) -> list[int]:
    """Elements of each chunk of a message; where ranks have parts, each part is cut into its chunks."""
    if collective in ("reduce_scatter", "all_gather"):
        return [size for part in sizes_of(elements, world_size) for size in sizes_of(part, chunks // world_size)]
    return sizes_of(elements, world_size if collective == "all_to_all" else chunks)


def describe(job: Job) -> str:
    """Name a case in a failure."""
    cluster = job.cluster
    shape = f"{cluster.nodes} x {cluster.gpus_per_node} {cluster.rank_order}"
    return f"{job.label} {job.algorithm.collective}, {shape}, {job.layout.elements} {job.dtype}"


def with_links(cluster: Cluster, links: Mapping[str, Link]) -> Cluster:
    for name, link in links.items():
        cluster = cluster.with_link(name, link)
    return cluster


VARIANTS = tuple(_variants())
FLAT_VARIANTS = tuple(_distinct_on_flat(VARIANTS))
REPEATED = tuple(_repeated(VARIANTS))
PLACED_VARIANTS = tuple(v for v in VARIANTS if v.algorithm.level_costs is not None and v.algorithm.options)
"""Algorithms that look at which ranks share a node."""


in_sizes = pytest.mark.parametrize(
    "world_sizes",
    [
        pytest.param(FEW_SIZES, id="few sizes"),
        pytest.param([n for n in WORLD_SIZES if n not in FEW_SIZES], id="other sizes", marks=pytest.mark.slow),
    ],
)


def each_of(variants: Sequence[Variant]) -> pytest.MarkDecorator:
    """Parametrize a law by variants; all pairs of two parts are left to the slow tests."""
    marked = [pytest.param(v, id=str(v), marks=pytest.mark.slow if v in REPEATED else ()) for v in variants]
    return pytest.mark.parametrize("variant", marked)
