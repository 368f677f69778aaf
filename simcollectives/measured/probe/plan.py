"""What is measured: collectives, element types, sizes, and how many calls each point takes."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from simcollectives.engines.job import DTYPES
from simcollectives.errors import InputError, Problem, listing

BACKENDS = ("auto", "nccl", "gloo")

PLACES_OF: dict[str, tuple[str, ...]] = {
    "all_reduce": ("in",),
    "reduce_scatter": ("out", "in"),
    "all_gather": ("out", "in"),
    "broadcast": ("in",),
    "all_to_all": ("out",),
    "reduce": ("in",),
}
"""The collectives, and where torch.distributed can put each one's result: into another buffer, or into the input's.

Its all_reduce, broadcast and reduce take one buffer only; all_to_all_single of gloo, given one buffer twice, returns
wrong numbers without a word (PyTorch 2.13).
"""

SPLIT = ("reduce_scatter", "all_gather", "all_to_all")
"""Collectives whose larger buffer holds a part of every rank."""

REDUCING = ("all_reduce", "reduce_scatter", "reduce")
ROOTED = ("broadcast", "reduce")

LEAST_CALLS = 5
_LEAST_LONG_CALLS = 2
_WARM_SHARE = 0.25


@dataclass(frozen=True)
class Plan:
    """What to measure. ``sizes`` are message bytes; ``seconds_per_point`` and ``timeout`` are seconds.

    A point is timed ``iterations`` times, fewer where that would pass ``seconds_per_point``, yet ``LEAST_CALLS`` times,
    or twice where one call alone takes longer.
    """

    collectives: tuple[str, ...]
    dtypes: tuple[str, ...]
    sizes: tuple[int, ...]
    backend: str = "auto"
    warmup: int = 5
    iterations: int = 200
    seconds_per_point: float = 0.5
    timeout: float = 120.0
    matmul: bool = False
    copies: bool = False

    @property
    def points(self) -> int:
        """Measurements of collectives, both places of one size counted once."""
        return len(self.collectives) * len(self.dtypes) * len(self.sizes)

    @property
    def fractional(self) -> tuple[str, ...]:
        """The element types that matrix products are measured in."""
        return tuple(dtype for dtype in self.dtypes if "int" not in dtype)

    def calls(self, seconds: float) -> int:
        """How often a call that takes ``seconds`` is timed."""
        least = LEAST_CALLS if seconds <= self.seconds_per_point else _LEAST_LONG_CALLS
        return max(least, min(self.iterations, _fitting(self.seconds_per_point, seconds)))

    def warm_up_calls(self, seconds: float) -> int:
        """How often it is called before."""
        least = 1 if seconds <= self.seconds_per_point else 0
        return min(self.warmup, max(least, _fitting(_WARM_SHARE * self.seconds_per_point, seconds)))


_OPTIONS = {"sizes": "--from, --to, --factor", "dtypes": "--dtype", "seconds_per_point": "--seconds-per-point"}


def check_same(plans: Sequence[Plan]) -> None:
    """Refuse ranks with other plans than rank 0: they would wait for each other, or call what does not fit together.

    Raises:
        InputError: which options differ, and on which ranks.
    """
    problems = []
    for name in (one.name for one in fields(Plan)):
        values = [getattr(plan, name) for plan in plans]
        if other := [str(rank) for rank, value in enumerate(values) if value != values[0]]:
            rule = f"another value on rank {listing(other, 4)} than on rank 0"
            problems.append(Problem(_OPTIONS.get(name, f"--{name}"), f"{rule}; give every node the same options"))
    if problems:
        raise InputError(problems)


def _fitting(available: float, seconds: float) -> int:
    return int(min(available / seconds, 1e9)) if seconds > 0 else 10**9


def message_sizes(plan: Plan, collective: str, dtype: str, world_size: int) -> tuple[int, ...]:
    """The planned sizes that this collective can have, cut down to whole elements, of equal parts where it has parts.

    >>> message_sizes(Plan(("all_gather",), ("float32",), (4, 16, 18, 32)), "all_gather", "float32", 3)
    (12, 24)
    """
    unit = smallest_bytes(collective, dtype, world_size)
    return tuple(dict.fromkeys(size // unit * unit for size in plan.sizes if size >= unit))


def smallest_bytes(collective: str, dtype: str, world_size: int) -> int:
    """One element, or one for every rank where the message has a part of each."""
    return DTYPES[dtype] * (world_size if collective in SPLIT else 1)
