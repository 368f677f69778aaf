"""The collectives of torch.distributed on buffers of one size, with inputs whose right results are known exactly.

Every number is a whole one of at most 120, which all element types hold, sums included. What is reduced is
f((i + rank) mod N) g(i): every rank adds another number at every element i, and their sum is g(i) times that of f. What
is moved says where it is from, where it goes to and its place in the part.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simcollectives.measured.probe.group import Group

_SUMMANDS = 20  # no more ranks add something to one element, so that the sum stays below 128
_PRIME = 113


@dataclass(frozen=True)
class Operation:
    """A collective on its buffers: ``prepare`` writes the input, ``wrong`` counts wrong elements of this rank."""

    call: Callable[[], object]
    prepare: Callable[[], object]
    wrong: Callable[[], int]
    clear: Callable[[], object]


def make_operation(group: Group, collective: str, place: str, elements: int, dtype: str) -> Operation:
    """A collective whose larger buffer has ``elements``, with its result in ``place`` (out, in)."""
    return _MAKERS[collective](group, place, elements, getattr(group.torch, dtype))


def _summand(step: int) -> int:
    return 1 + step % 3 if step < _SUMMANDS else 0


def _tiled(group: Group, values: list[int], elements: int, dtype: Any, first: int = 0) -> Any:
    """Values again and again, from number ``first`` on."""
    turned = values[first % len(values) :] + values[: first % len(values)]
    period = group.torch.tensor(turned, dtype=dtype, device=group.device)
    return period.repeat(-(-elements // len(values)))[:elements]


def _summands(group: Group, elements: int, dtype: Any) -> Any:
    n, rank = group.world_size, group.placement.rank
    values = [_summand((i + rank) % n) * (1 + i % 3) for i in range(math.lcm(n, 3))]
    return _tiled(group, values, elements, dtype)


def _sums(group: Group, elements: int, dtype: Any, first: int = 0) -> Any:
    whole = sum(_summand(step) for step in range(group.world_size))
    return _tiled(group, [whole * (1 + i % 3) for i in range(3)], elements, dtype, first)


def _moved(group: Group, source: int, target: int, elements: int, dtype: Any) -> Any:
    return _tiled(group, list(range(_PRIME)), elements, dtype, 31 * source + 17 * target)


def _differing(found: Any, expected: Any) -> int:
    return int((found != expected).sum().item())


def _all_reduce(group: Group, place: str, elements: int, dtype: Any) -> Operation:
    held = group.torch.empty(elements, dtype=dtype, device=group.device)
    return Operation(
        lambda: group.torch.distributed.all_reduce(held),
        lambda: held.copy_(_summands(group, elements, dtype)),
        lambda: _differing(held, _sums(group, elements, dtype)),
        held.zero_,
    )


def _reduce(group: Group, place: str, elements: int, dtype: Any) -> Operation:
    held = group.torch.empty(elements, dtype=dtype, device=group.device)
    return Operation(
        lambda: group.torch.distributed.reduce(held, 0),
        lambda: held.copy_(_summands(group, elements, dtype)),
        lambda: _differing(held, _sums(group, elements, dtype)) if group.placement.rank == 0 else 0,
        held.zero_,
    )


def _broadcast(group: Group, place: str, elements: int, dtype: Any) -> Operation:
    held = group.torch.empty(elements, dtype=dtype, device=group.device)
    return Operation(
        lambda: group.torch.distributed.broadcast(held, 0),
        lambda: held.copy_(_moved(group, group.placement.rank, 0, elements, dtype)),
        lambda: _differing(held, _moved(group, 0, 0, elements, dtype)),
        held.zero_,
    )


def _reduce_scatter(group: Group, place: str, elements: int, dtype: Any) -> Operation:
    torch, part = group.torch, elements // group.world_size
    given = torch.empty(elements, dtype=dtype, device=group.device)
    first = group.placement.rank * part
    taken = given[first : first + part] if place == "in" else torch.zeros(part, dtype=dtype, device=group.device)
    scatter = _named(torch.distributed, "reduce_scatter_single", "reduce_scatter_tensor")
    return Operation(
        lambda: scatter(taken, given),
        lambda: given.copy_(_summands(group, elements, dtype)),
        lambda: _differing(taken, _sums(group, part, dtype, first)),
        given.zero_,
    )


def _all_gather(group: Group, place: str, elements: int, dtype: Any) -> Operation:
    torch, part, rank = group.torch, elements // group.world_size, group.placement.rank
    taken = torch.zeros(elements, dtype=dtype, device=group.device)
    inside = taken[rank * part : (rank + 1) * part]
    given = inside if place == "in" else torch.empty(part, dtype=dtype, device=group.device)
    gather = _named(torch.distributed, "all_gather_single", "all_gather_into_tensor")
    return Operation(
        lambda: gather(taken, given),
        lambda: given.copy_(_moved(group, rank, 0, part, dtype)),
        lambda: sum(
            _differing(taken[source * part : (source + 1) * part], _moved(group, source, 0, part, dtype))
            for source in range(group.world_size)
        ),
        taken.zero_,
    )


def _all_to_all(group: Group, place: str, elements: int, dtype: Any) -> Operation:
    torch, part, rank = group.torch, elements // group.world_size, group.placement.rank
    given, taken = (torch.zeros(elements, dtype=dtype, device=group.device) for _ in range(2))

    def prepare() -> None:
        for target in range(group.world_size):
            given[target * part : (target + 1) * part].copy_(_moved(group, rank, target, part, dtype))

    return Operation(
        lambda: torch.distributed.all_to_all_single(taken, given),
        prepare,
        lambda: sum(
            _differing(taken[source * part : (source + 1) * part], _moved(group, source, rank, part, dtype))
            for source in range(group.world_size)
        ),
        given.zero_,
    )


def _named(distributed: Any, *names: str) -> Any:
    """The first of some names that this PyTorch has: old names go on working, with a warning."""
    return next(getattr(distributed, name) for name in names if hasattr(distributed, name))


_MAKERS: dict[str, Callable[[Group, str, int, Any], Operation]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "all_to_all": _all_to_all,
    "reduce": _reduce,
}
