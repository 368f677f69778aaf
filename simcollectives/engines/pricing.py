"""What the conditions of a job make of the messages of one round: the same for every engine."""

from typing import TypeVar, overload

import numpy as np

from simcollectives.cluster.network import FloatArray, Floats
from simcollectives.engines.job import Job
from simcollectives.schedule.types import IntArray, Ints, common

Alpha = TypeVar("Alpha", bound=Floats)


def drawn_alpha(job: Job, channel: int, number: int, src: IntArray, dst: IntArray, alpha: Alpha) -> Alpha | FloatArray:
    """Latencies of the messages of a round, with what is drawn; seconds."""
    factor = job.conditions.alpha_factors(channel, number, src, dst)
    return alpha if factor is None else alpha * factor


@overload
def flow_bytes(job: Job, channel: int, number: int, src: IntArray, dst: IntArray, sizes: IntArray) -> FloatArray: ...


@overload
def flow_bytes(job: Job, channel: int, number: int, src: IntArray, dst: IntArray, sizes: Ints) -> Floats: ...


def flow_bytes(job: Job, channel: int, number: int, src: IntArray, dst: IntArray, sizes: Ints) -> Floats:
    """Bytes as they load the links: those of the messages, times what is drawn."""
    factor = job.conditions.bandwidth_factors(channel, number, src, dst)
    message_bytes = sizes.astype(np.float64) if isinstance(sizes, np.ndarray) else float(sizes)
    return message_bytes if factor is None else message_bytes * factor


def reduction_seconds(job: Job, channel: int, number: int, dst: IntArray, reduced_bytes: IntArray) -> FloatArray | None:
    """[device]: seconds of reduction after a round; None where nobody pays for any."""
    if len(dst) == 0 or not np.any(common(job.full_cluster.gamma_of_rank)):
        return None
    received = np.bincount(dst, reduced_bytes, job.schedule.devices).astype(np.float64, copy=False)
    return np.asarray(seconds_to_reduce(job, channel, number, received))


def seconds_to_reduce(job: Job, channel: int, number: int, received_bytes: Floats) -> Floats:
    """[device], or one number for all: seconds of reduction after a round in which so many bytes to reduce arrive."""
    seconds: Floats = common(job.full_cluster.gamma_of_rank) * received_bytes
    device = np.arange(job.schedule.devices, dtype=np.int64)
    factor = job.conditions.reduction_factors(channel, number, device)
    return seconds if factor is None else seconds * factor
