"""The buffers in which Megatron-LM holds parameters and gradients, and how they are cut into buckets.

Parameters of one dtype lie in one buffer, last registered first. A bucket ends with the tensor that makes it reach its
size, in elements. With the distributed optimizer tensors start at multiples of 64 elements, and buckets end at a
multiple of the ranks that share the optimizer and of 128 (and 2^16 for NCCL's sake), so that shards are equal.

Reference: Megatron-LM d98e8a64, core/distributed/param_and_grad_buffer.py and core/optimizer/param_layout.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from simcollectives.engines.job import DTYPES
from simcollectives.training.model import Parameter
from simcollectives.training.sharding import padded

TENSOR_ALIGNMENT, BUCKET_ALIGNMENT, BUS_ALIGNMENT = 64, 128, 1 << 16
LEAST_DEFAULT, DEFAULT_PER_RANK = 40_000_000, 1_000_000


@dataclass(frozen=True)
class Bucket:
    """Part of a buffer; ``elements`` with padding."""

    parameters: tuple[Parameter, ...]
    elements: int
    parameter_dtype: str
    gradient_dtype: str

    @property
    def parameter_bytes(self) -> int:
        """Bytes of its part of the buffer of parameters."""
        return self.elements * DTYPES[self.parameter_dtype]

    @property
    def gradient_bytes(self) -> int:
        """Bytes of its part of the buffer of gradients."""
        return self.elements * DTYPES[self.gradient_dtype]


def default_bucket_size(world_size: int) -> int:
    """Elements at which a bucket is closed where nobody says it.

    >>> default_bucket_size(8), default_bucket_size(64)
    (40000000, 64000000)
    """
    return max(LEAST_DEFAULT, DEFAULT_PER_RANK * world_size)


def bucket_alignment(ranks: int, *, high_bus_bandwidth: bool) -> int:
    """Elements of which buckets are multiples.

    >>> bucket_alignment(6, high_bus_bandwidth=False), bucket_alignment(8, high_bus_bandwidth=True)
    (384, 65536)
    """
    return lcm(ranks, BUCKET_ALIGNMENT, BUS_ALIGNMENT if high_bus_bandwidth else 1)


def cut_buffer(
    parameters: Sequence[Parameter], limit: int | None, alignment: int | None
) -> list[tuple[tuple[Parameter, ...], int]]:
    """Cut the buffer of ``parameters``, in registration order, into buckets: what is in each, and its elements.

    Without a ``limit`` there is one bucket; without an ``alignment`` nothing is padded.
    """
    found: list[tuple[tuple[Parameter, ...], int]] = []
    held: list[Parameter] = []
    begin = end = 0

    def close() -> None:
        nonlocal held, begin, end
        end = padded(end, alignment or 1)
        found.append((tuple(held), end - begin))
        held, begin = [], end

    for parameter in reversed(parameters):
        end = padded(end, TENSOR_ALIGNMENT if alignment else 1) + parameter.elements
        held.append(parameter)
        if limit is not None and end - begin >= limit:
            close()
    if held:
        close()
    return found
