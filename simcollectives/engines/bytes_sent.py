"""Bytes that each device sends, counted without playing: by phase where its rounds are alike, else row by row."""

import numpy as np

from simcollectives.engines.job import Job
from simcollectives.schedule.types import IntArray, Ints, Phase, Round, common


def count_bytes_sent(job: Job) -> IntArray:
    """Bytes sent [level, device]."""
    sent = np.zeros((len(job.full_cluster.levels), job.schedule.devices), dtype=np.int64)
    for channel in job.schedule.channels:
        for phase in channel:
            if not add_declared_bytes(job, phase, sent):
                for step in range(phase.steps):
                    _add_round(job, phase.round_at(step), sent)
    return sent


def add_declared_bytes(job: Job, phase: Phase, sent: IntArray) -> bool:
    """Add what ranks send in a phase to ``sent`` [level, device], if what the phase declares tells it."""
    regular = phase.regular
    if regular is not None and job.layout.even and len(sent) == 1:
        chunks = sum(regular.chunks(step) for step in range(phase.steps))
        sent += regular.messages * chunks * job.layout.floor * job.itemsize
    elif phase.rotation == 1:
        round_ = phase.round_at(0)
        once = np.zeros(sent.shape[1], dtype=np.int64)
        once[round_.src] = job.layout.row_elements(round_) * job.itemsize
        level = job.full_cluster.network.levels_crossed(round_.src, round_.dst)
        sent[level, round_.src] += _sum_of_turns(once, phase.steps)[round_.src]
    elif job.layout.even and repeats(phase):
        once = np.zeros_like(sent)
        _add_round(job, phase.round_at(0), once)
        sent += once * phase.steps
    else:
        return False
    return True


def repeats(phase: Phase) -> bool:
    """Whether all rounds have the same pairs and numbers of chunks, so that equal chunks are the same bytes."""
    if not phase.same_pairs or phase.regular is None:
        return False
    return len({phase.regular.chunks(step) for step in range(phase.steps)}) <= 1


def _add_round(job: Job, round_: Round, sent: IntArray) -> None:
    level: Ints = common(job.full_cluster.network.levels_crossed(round_.src, round_.dst))
    row_bytes: Ints = job.layout.common_elements(round_) * job.itemsize
    np.add.at(sent.reshape(-1), level * sent.shape[1] + round_.src, row_bytes)


def _sum_of_turns(values: IntArray, turns: int) -> IntArray:
    """Sum of the values as they are, moved on by one place, by two, .. by ``turns`` - 1 places.

    >>> _sum_of_turns(np.array([5, 0, 0, 1]), 2).tolist()
    [6, 5, 0, 1]
    """
    n = len(values)
    cycles, rest = divmod(turns, n)
    before = np.concatenate([[0], np.cumsum(np.tile(values, 2))])
    end = n + np.arange(n) + 1
    total: IntArray = cycles * values.sum() + before[end] - before[end - rest]
    return total
