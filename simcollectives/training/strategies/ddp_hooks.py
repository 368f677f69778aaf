"""What DistributedDataParallel does with a complete bucket: all-reduce it as it is, or compressed.

The hooks are those of torch 2.13, torch/distributed/algorithms/ddp_comm_hooks: default_hooks.py (fp16, bf16) and
powerSGD_hook.py (Vogels, Karimireddy and Jaggi, NeurIPS 2019), with error feedback and warm start. Kernels take the
time in which the memory moves their bytes; products and orthogonalization are taken to need no more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simcollectives.algorithms.types import Option, whole_number
from simcollectives.engines.job import DTYPES
from simcollectives.training.buckets import Bucket
from simcollectives.training.model import Parameter
from simcollectives.training.pricing import WORLD
from simcollectives.training.program import COMPUTE, Builder, Call, Item
from simcollectives.training.setup import Training
from simcollectives.training.strategies.types import Options

HOOK_STREAM = "hook"
COMPRESSED, COPIES = "compressed buckets", "copies of buckets"

Reduce = Callable[[Builder, Training, Options, Bucket, int], int]


def nothing_standing(_training: Training, _options: Options, _buckets: Sequence[Bucket]) -> list[Item]:
    """Hold nothing all the time."""
    return []


@dataclass(frozen=True)
class Hook:
    """``reduce`` issues the work of one bucket and returns the operation at whose end it is reduced.

    It ``divides`` by the number of ranks itself, or leaves that to the copies into the bucket.
    """

    reduce: Reduce
    divides: bool = True
    standing: Callable[[Training, Options, Sequence[Bucket]], list[Item]] = nothing_standing
    options: tuple[Option, ...] = ()


def _all_reduce(builder: Builder, training: Training, name: str, elements: int, dtype: str, after: int) -> int:
    call = Call("all_reduce", WORLD, training.world_size, elements, dtype)
    return builder.collective(name, call, after=[after])


def _plain(builder: Builder, training: Training, _options: Options, bucket: Bucket, index: int) -> int:
    return _all_reduce(builder, training, f"bucket {index}", bucket.elements, bucket.dtype, builder.last[COMPUTE])


def _compressed_to(dtype: str) -> Reduce:
    """Cast and divide on the compute stream, all-reduce 2 bytes an element, cast back on a stream of its own."""

    def reduce(builder: Builder, training: Training, options: Options, bucket: Bucket, index: int) -> int:
        small = bucket.elements * DTYPES[dtype]
        if bucket.dtype == dtype:
            return _divided(builder, training, options, bucket, index)
        held = [(COMPRESSED, small)]
        seconds = training.memory_seconds(bucket.bytes + small)
        divided = seconds + training.memory_seconds(2 * small)
        cast = builder.compute(f"compress bucket {index}", divided, allocates=held)
        done = _all_reduce(builder, training, f"bucket {index}", bucket.elements, dtype, cast)
        return builder.compute(f"decompress bucket {index}", seconds, stream=HOOK_STREAM, after=[done], frees=held)

    return reduce


def _divided(builder: Builder, training: Training, options: Options, bucket: Bucket, index: int) -> int:
    """Divide a bucket in place, then all-reduce it."""
    builder.compute(f"divide bucket {index}", training.memory_seconds(2 * bucket.bytes))
    return _plain(builder, training, options, bucket, index)


def matrix(parameter: Parameter) -> tuple[int, int]:
    """Return a tensor's sizes as a matrix: the first dimension against all others."""
    rows = parameter.shape[0] if parameter.shape else 1
    return rows, parameter.elements // max(rows, 1)


def is_compressed(parameter: Parameter, rank: int) -> bool:
    """Whether PowerSGD replaces a gradient by two factors: where they have less than half its elements."""
    rows, columns = matrix(parameter)
    return len(parameter.shape) > 1 and (rows + columns) * min(rank, rows, columns) * 2 < rows * columns


def factor_elements(bucket: Bucket, rank: int) -> tuple[int, int, int]:
    """Elements of a bucket's gradients that stay as they are, of its factors P [n, r], and of its factors Q [m, r]."""
    plain = sum(p.elements for p in bucket.parameters if not is_compressed(p, rank))
    sizes = [matrix(p) for p in bucket.parameters if is_compressed(p, rank)]
    ranks = [min(rank, *size) for size in sizes]
    p = sum(rows * r for (rows, _), r in zip(sizes, ranks, strict=True))
    q = sum(columns * r for (_, columns), r in zip(sizes, ranks, strict=True))
    return plain, p, q


def _starts_later(training: Training, options: Options) -> bool:
    return training.iteration is not None and training.iteration < options["powersgd_start"]


def _power_sgd(builder: Builder, training: Training, options: Options, bucket: Bucket, index: int) -> int:
    """Three all-reduces one after another. Before the error is noted, the host waits for the whole device.

    A pass over the matrices makes P, another Q, a third the gradients. The error is added (two reads, one write), the
    sum kept, and compared with the gradients (two reads, one write).
    """
    if _starts_later(training, options):
        return _divided(builder, training, options, bucket, index)
    plain, p, q = factor_elements(bucket, options["powersgd_rank"])
    itemsize = DTYPES[bucket.dtype]
    whole, apart, p_bytes, q_bytes = bucket.bytes, plain * itemsize, p * itemsize, q * itemsize
    matrices = whole - apart

    def kernel(name: str, moved: int, after: int | None = None, **items: list[Item]) -> int:
        on, waits = (COMPUTE, []) if after is None else (HOOK_STREAM, [after])
        seconds = training.memory_seconds(moved)
        return builder.compute(f"{name} bucket {index}", seconds, stream=on, after=waits, **items)

    kept, uncompressed = (COPIES, whole), (COPIES, apart)
    made = kernel("P of", 5 * whole + 2 * apart + matrices + p_bytes, allocates=[kept, uncompressed])
    done = _all_reduce(builder, training, f"bucket {index} uncompressed", plain, bucket.dtype, made)
    put = kernel("uncompressed of", 4 * apart, done, frees=[uncompressed])
    done = _all_reduce(builder, training, f"bucket {index} P", p, bucket.dtype, put)
    made = kernel("Q of", matrices + p_bytes + q_bytes, done)
    done = _all_reduce(builder, training, f"bucket {index} Q", q, bucket.dtype, made)
    kernel("decompress", matrices + p_bytes + 3 * q_bytes, done)
    waited = builder.host(f"wait for bucket {index}", after=builder.last.values())
    return kernel("error of", 3 * whole, waited, allocates=[kept], frees=[kept, kept])


def _power_sgd_standing(training: Training, options: Options, buckets: Sequence[Bucket]) -> list[Item]:
    """Error feedback is a copy of every bucket; a warm start keeps the factors."""
    if _starts_later(training, options):
        return []
    factors = [(bucket, factor_elements(bucket, options["powersgd_rank"])) for bucket in buckets]
    kept = sum((p + q) * DTYPES[bucket.dtype] for bucket, (_, p, q) in factors)
    return [("error feedback", sum(bucket.bytes for bucket in buckets)), ("factors P and Q", kept)]


HOOKS: Mapping[str, Hook] = {
    "none": Hook(_plain, divides=False),
    "fp16": Hook(_compressed_to("float16")),
    "bf16": Hook(_compressed_to("bfloat16")),
    "powersgd": Hook(
        _power_sgd,
        standing=_power_sgd_standing,
        options=(
            whole_number("powersgd_rank", 1, "rank of the factors that PowerSGD sends", least=1),
            whole_number("powersgd_start", 1000, "iterations before PowerSGD starts to compress", least=2),
        ),
    ),
}
