"""What the conditions of a job make of the messages of one round: the same for every engine."""

import numpy as np
import numpy.typing as npt

from simcollectives.engines.job import Job
from simcollectives.schedule.types import IntArray

FloatArray = npt.NDArray[np.float64]


def drawn_alpha(job: Job, channel: int, number: int, src: IntArray, dst: IntArray, alpha: FloatArray) -> FloatArray:
    """Latencies of the messages of a round, with what is drawn; seconds."""
    factor = job.conditions.alpha_factors(channel, number, src, dst)
    return alpha if factor is None else alpha * factor


def flow_bytes(job: Job, channel: int, number: int, src: IntArray, dst: IntArray, sizes: IntArray) -> FloatArray:
    """Bytes as they load the links: those of the messages, times what is drawn."""
    factor = job.conditions.bandwidth_factors(channel, number, src, dst)
    message_bytes = sizes.astype(np.float64)
    return message_bytes if factor is None else message_bytes * factor


def reduction_seconds(job: Job, channel: int, number: int, dst: IntArray, reduced_bytes: IntArray) -> FloatArray | None:
    """[device]: seconds of reduction after a round; None where nobody pays for any."""
    gamma = job.full_cluster.gamma_of_rank
    if len(dst) == 0 or not gamma.any():
        return None
    seconds = gamma * np.bincount(dst, reduced_bytes, len(gamma))
    device = np.arange(len(gamma), dtype=np.int64)
    factor = job.conditions.reduction_factors(channel, number, device)
    return seconds if factor is None else seconds * factor
