"""Which gradients PyTorch's DistributedDataParallel reduces together.

The rules are those of torch 2.13 (torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size): one
open bucket for each dtype; a tensor is appended, then the bucket is closed if it has reached its limit. So a bucket
ends with the tensor that crosses the limit, and nothing is split. A closed bucket moves its dtype on to the next limit;
the last limit repeats. Sparse gradients have buckets of their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from simcollectives.training.model import Parameter

MIB = 1 << 20
DEFAULT_CAP, DEFAULT_FIRST_CAP = 25 * MIB, 1 * MIB


@dataclass(frozen=True)
class Bucket:
    """Gradients reduced together, in the order of their places in the bucket."""

    parameters: tuple[Parameter, ...]
    dtype: str
    bytes: int

    @property
    def elements(self) -> int:
        """Elements of all gradients."""
        return sum(parameter.elements for parameter in self.parameters)


def assign(
    parameters: Sequence[Parameter],
    limits: Sequence[float],
    dtype_of: Callable[[Parameter], str],
    bytes_of: Callable[[Parameter], int],
) -> list[Bucket]:
    """Walk the parameters and close a bucket whenever it has reached its limit, in bytes.

    Returns:
        Buckets in the order in which they were closed; those still open at the end follow, the dtype that came last
        first (the order of libstdc++'s hash map, as torch's own runs show).
    """
    closed: list[Bucket] = []
    open_: dict[str, tuple[list[Parameter], int]] = {}
    reached: dict[str, int] = {}
    seen: list[str] = []
    for parameter in parameters:
        dtype, size = dtype_of(parameter), bytes_of(parameter)
        if parameter.sparse:
            closed.append(Bucket((parameter,), dtype, size))
            continue
        if dtype not in seen:
            seen.append(dtype)
        held, before = open_.get(dtype, ([], 0))
        held.append(parameter)
        open_[dtype] = held, before + size
        place = reached.get(dtype, 0)
        if before + size >= limits[min(place, len(limits) - 1)]:
            held, size = open_.pop(dtype)
            closed.append(Bucket(tuple(held), dtype, size))
            reached[dtype] = place + 1
    rest = [(dtype, open_[dtype]) for dtype in reversed(seen) if dtype in open_]
    return closed + [Bucket(tuple(held), dtype, size) for dtype, (held, size) in rest]


def in_registration_order(buckets: list[Bucket], parameters: Sequence[Parameter]) -> list[Bucket]:
    """Sort buckets by their first registered parameter, as the constructor does."""
    place = {parameter.name: index for index, parameter in enumerate(parameters)}
    return sorted(buckets, key=lambda bucket: min(place[p.name] for p in bucket.parameters))


UNLIMITED = (inf,)
