"""What is trained, how, on how many devices, and with which mistake."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any

from simcollectives.algorithms.types import Options
from simcollectives.errors import Problem, show_value, suggestion
from simcollectives.schedule.partition import partition
from simcollectives.training.numerics.network import BATCH_NORMS, Network
from simcollectives.training.numerics.optimizers import OPTIMIZERS

MISTAKES: Mapping[str, str] = {
    "mean_of_means": "the gradients of local means are averaged over ranks, however many samples each rank has",
    "no_all_reduce": "each rank updates with its own gradient",
    "left_out_parameter": "one parameter's gradient is not all-reduced",
}
DTYPES = ("float64", "float32", "float16")
MOST = {"steps": 1_000_000, "samples": 1_000_000, "accumulation": 1_000_000, "world_size": 65_536, "sizes": 16_384}


@dataclass(frozen=True)
class NumericsPlan:
    """A training run in numbers. Every step draws ``samples`` new samples.

    ``shards`` are the samples of each rank; by default their numbers differ by at most one. Each rank passes its shard
    in ``accumulation`` micro-batches. ``learning_rate`` None is the one in ``OPTIMIZERS``. ``algorithm`` is an
    all-reduce; what strategies reduce-scatter and all-gather takes its halves. Gradients travel as ``gradient_dtype``,
    with ddp, zero1 and zero2 in buckets; a bucket is closed by the gradient that takes it to ``bucket_bytes``, and None
    puts all into one. ``mistake`` is one of ``MISTAKES``; ``left_out`` names the parameter that
    ``left_out_parameter`` forgets, and is not used otherwise.
    """

    strategy: str = "ddp"
    strategy_options: Mapping[str, Any] = field(default_factory=dict)
    world_size: int = 4
    algorithm: str = "ring"
    options: Options = field(default_factory=dict)
    steps: int = 200
    optimizer: str = "sgd"
    learning_rate: float | None = None
    samples: int = 256
    shards: tuple[int, ...] | None = None
    accumulation: int = 1
    bucket_bytes: int | None = None
    gradient_dtype: str = "float64"
    network: Network = field(default_factory=Network)
    mistake: str | None = None
    left_out: str = "hidden.weight"
    seed: int = 0

    @cached_property
    def shard_sizes(self) -> tuple[int, ...]:
        """Samples of each rank."""
        return tuple(partition(self.samples, self.world_size).tolist()) if self.shards is None else tuple(self.shards)

    @cached_property
    def micro_batch_sizes(self) -> tuple[tuple[int, ...], ...]:
        """[rank][micro-batch]: samples."""
        return tuple(tuple(partition(size, self.accumulation).tolist()) for size in self.shard_sizes)

    @cached_property
    def weights(self) -> tuple[tuple[float, ...], ...]:
        """[rank][micro-batch]: what each mean loss counts for; they sum to 1."""
        if self.mistake == "mean_of_means":
            return ((1 / (self.world_size * self.accumulation),) * self.accumulation,) * self.world_size
        return tuple(tuple(size / self.samples for size in sizes) for sizes in self.micro_batch_sizes)

    @property
    def rate(self) -> float:
        """The learning rate."""
        return OPTIMIZERS[self.optimizer].learning_rate if self.learning_rate is None else self.learning_rate

    @property
    def unsynchronised(self) -> frozenset[str]:
        """Parameters whose gradients are not all-reduced."""
        if self.mistake == "no_all_reduce":
            return frozenset(parameter.name for parameter in self.network.parameters)
        return frozenset({self.left_out} if self.mistake == "left_out_parameter" else ())


def plain(plan: NumericsPlan) -> NumericsPlan:
    """Return the same training by data parallelism."""
    return replace(plan, strategy="ddp", strategy_options={})


def one_device(plan: NumericsPlan) -> NumericsPlan:
    """Return the same training on one device, in one piece and without mistakes: what data parallelism must equal."""
    return replace(
        plan,
        strategy="ddp",
        strategy_options={},
        world_size=1,
        algorithm="ring",
        options={},
        shards=None,
        accumulation=1,
        bucket_bytes=None,
        gradient_dtype="float64",
        mistake=None,
    )


def plan_problems(plan: NumericsPlan, strategies: Sequence[str]) -> list[Problem]:
    """Return what is wrong with a plan by itself; places are its fields."""
    network = plan.network
    counts = [
        ("world_size", plan.world_size, 1, MOST["world_size"]),
        ("steps", plan.steps, 1, MOST["steps"]),
        ("samples", plan.samples, 1, MOST["samples"]),
        ("accumulation", plan.accumulation, 1, MOST["accumulation"]),
        ("seed", plan.seed, 0, 2**63 - 1),
        ("network.inputs", network.inputs, 1, MOST["sizes"]),
        ("network.hidden", network.hidden, 1, MOST["sizes"]),
        ("network.classes", network.classes, 2, MOST["sizes"]),
    ]
    if plan.bucket_bytes is not None:
        counts.append(("bucket_bytes", plan.bucket_bytes, 1, 2**62))
    found = [_count(*count) for count in counts]
    choices: list[tuple[str, Any, Sequence[str]]] = [
        ("strategy", plan.strategy, strategies),
        ("optimizer", plan.optimizer, tuple(OPTIMIZERS)),
        ("gradient_dtype", plan.gradient_dtype, DTYPES),
        ("network.batch_norm", network.batch_norm, BATCH_NORMS),
    ]
    if plan.mistake is not None:
        choices.append(("mistake", plan.mistake, tuple(MISTAKES)))
    found += [_choice(*choice) for choice in choices]
    rate = plan.learning_rate
    if rate is not None and (not isinstance(rate, Real) or isinstance(rate, bool) or not 0 < rate < math.inf):
        found.append(Problem("learning_rate", f"{show_value(rate)} is no rate; write a number above 0"))
    problems = [problem for problem in found if problem is not None]
    return problems or [*_shard_problems(plan), *_left_out_problems(plan)]


def _count(place: str, value: Any, least: int, most: int) -> Problem | None:
    if _is_whole(value) and least <= value <= most:
        return None
    return Problem(place, f"{show_value(value)} is not valid; write a whole number, {least} to {most}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _choice(place: str, value: Any, choices: Sequence[str]) -> Problem | None:
    if isinstance(value, str) and value in choices:
        return None
    return Problem(place, f"{show_value(value)} is not known; {suggestion(value, choices, 'write one of')}")


def _shard_problems(plan: NumericsPlan) -> list[Problem]:
    shards: Any = plan.shards
    if shards is None:
        if plan.samples >= plan.world_size * plan.accumulation:
            return []
        what = f"{plan.samples} samples for {plan.world_size} ranks x {plan.accumulation} micro-batches"
        return [Problem("samples", f"{what}; every micro-batch needs one")]
    whole = isinstance(shards, tuple | list) and all(map(_is_whole, shards))
    if not whole or len(shards) != plan.world_size or sum(shards) != plan.samples:
        rule = f"write {plan.world_size} whole numbers, one a rank, that sum to the {plan.samples} samples"
        return [Problem("shards", f"{_listed(shards)} does not fit; {rule}")]
    if min(shards) < plan.accumulation:
        rule = f"every one of {plan.accumulation} micro-batches needs a sample"
        return [Problem("shards", f"{_listed(shards)} has a shard of {min(shards)}; {rule}")]
    return []


def _listed(shards: Any) -> str:
    return show_value(list(shards) if isinstance(shards, tuple) else shards)


def _left_out_problems(plan: NumericsPlan) -> list[Problem]:
    if plan.mistake != "left_out_parameter":
        return []
    problem = _choice("left_out", plan.left_out, [parameter.name for parameter in plan.network.parameters])
    return [] if problem is None else [problem]
