"""How much work a job is for each engine, known before it is played: messages, rounds, bytes held.

Messages are counted from what phases declare; where they declare nothing, round by round. Sizes are in bytes, measured
by `benchmarks/estimates.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt

import numpy as np

from simcollectives.engines.job import Job
from simcollectives.engines.variants import DEFAULT, LogGP, OnePort, TimeModel
from simcollectives.engines.vectorized import KEPT_BYTES, LEAST_SPACING
from simcollectives.schedule.types import IntArray, Phase, Round

_WALKED_ROWS = 4_000_000
_SAMPLED_ROUNDS = 16

_STEADY_AFTER = 16
"""Rounds of a ring on equal links after which each adds the same to every rank, and that is noticed."""

_BYTES_OF_A_RANK = 1000
_BYTES_OF_A_MESSAGE = 1400
_BYTES_OF_A_RECORD = 900
"""Of the event engine: a process, a message of a live round, and the two entries of a message in a timeline."""

_LIVE_ROUNDS_OF_RANDOM = 4
"""Rounds in which ranks are at one time where they drift: neighbours are one apart at most."""

_BYTES_OF_A_POSTING, _BYTES_OF_A_READY_CHUNK = 800, 110
_BYTES_OF_A_LOCKSTEP_MESSAGE, _BYTES_OF_A_COUNTED_MESSAGE = 260, 90


def count_messages(job: Job) -> list[int]:
    """Messages of each phase, channel by channel: exact, but for irregular ones of over four million rows, sampled."""
    return [_phase_messages(job, phase) for channel in job.schedule.channels for phase in channel]


def _phase_messages(job: Job, phase: Phase) -> int:
    schedule = job.schedule
    if phase.regular is not None:
        return phase.steps * phase.regular.messages * schedule.world_size
    return _walked(job, phase, lambda round_: _pairs(round_.src * schedule.devices + round_.dst))


def _pairs(ends: IntArray) -> int:
    """How many different numbers there are: all rows of one pair of ends are one message."""
    return int(np.count_nonzero(np.diff(np.sort(ends)))) + 1 if len(ends) else 0


def count_chunks(job: Job) -> int:
    """Chunks moved by a schedule, as exact as ``count_messages``."""
    return sum(_phase_chunks(job, phase) for channel in job.schedule.channels for phase in channel)


def _phase_chunks(job: Job, phase: Phase) -> int:
    if phase.regular is not None:
        chunks = sum(phase.regular.chunks(step) for step in range(phase.steps))
        return chunks * phase.regular.messages * job.schedule.world_size
    return _walked(job, phase, lambda round_: int(round_.count.sum()))


def _walked(job: Job, phase: Phase, number: Callable[[Round], int]) -> int:
    """Sum a number over the rounds of a phase."""
    most = job.schedule.messages_at_once
    if phase.rotation is not None:
        return phase.steps * number(phase.round_at(0))
    if most > _WALKED_ROWS:
        return phase.steps * most
    sampled = spread_steps(phase.steps, phase.steps if phase.steps * most <= _WALKED_ROWS else _SAMPLED_ROUNDS)
    return round(sum(number(phase.round_at(step)) for step in sampled) * phase.steps / max(len(sampled), 1))


def spread_steps(steps: int, count: int) -> list[int]:
    """At most ``count`` of ``steps`` steps, evenly spread.

    >>> spread_steps(100, 4), spread_steps(3, 4)
    ([12, 37, 62, 87], [0, 1, 2])
    """
    return list(range(steps)) if count >= steps else [int((i + 0.5) * steps / count) for i in range(count)]


def may_meet(job: Job) -> bool:
    """Whether messages may meet on a port or on what devices share."""
    channels = job.schedule.channels
    crowded = any(phase.ports > 1 for channel in channels for phase in channel)
    return crowded or len(channels) > 1 or not job.full_cluster.network.private


def symmetric(job: Job) -> bool:
    """Whether messages that start together end together, or in few sets: nothing is unequal, late or drawn."""
    return job.conditions.ideal and not job.full_cluster.changes


@dataclass(frozen=True)
class ArrayWork:
    """What the vectorized engine plays of a job; rounds that it skips do not count.

    Uniform rounds are a few sums, whatever the ranks; where there are several levels they are made, to find which they
    cross. Rounds of rings are slices; where bytes move on, even those skipped are gone through on the way back
    (``turned``). Others are made and played afresh.
    """

    uniform_rounds: int = 0
    ring_rounds: int = 0
    turned_rounds: int = 0
    other_rounds: int = 0
    ring_messages: int = 0
    other_messages: int = 0

    @property
    def messages(self) -> int:
        """All that are played."""
        return self.ring_messages + self.other_messages


def array_work(job: Job, messages: list[int], skipping: bool) -> ArrayWork:
    """Follow which way the vectorized engine goes through each phase, of so many ``messages`` each."""
    phases, even = job.schedule.channels[0], job.layout.even
    together = job.conditions.ideal and even and job.full_cluster.network.plain
    last_shared = max((i for i, phase in enumerate(phases) if phase.ports > 1), default=-1)
    one_level = len(job.full_cluster.levels) == 1
    uniform_rounds = ring_rounds = turned_rounds = other_rounds = other_messages = 0
    for index, (phase, count) in enumerate(zip(phases, messages, strict=True)):
        together = together and phase.regular is not None and (skipping or index <= last_shared)
        together = together and (one_level or _on_one_level(job, phase))
        if together and one_level:
            uniform_rounds += phase.steps
        elif together:
            other_rounds += phase.steps
            other_messages += count
        elif is_ring(job, phase):
            played = _ring_rounds(job, phase, skipping)
            ring_rounds += played
            turned_rounds += 0 if even else phase.steps - played
        else:
            other_rounds += phase.steps
            other_messages += count
    return ArrayWork(
        uniform_rounds=uniform_rounds,
        ring_rounds=ring_rounds,
        turned_rounds=turned_rounds,
        other_rounds=other_rounds,
        ring_messages=ring_rounds * job.schedule.devices,
        other_messages=other_messages,
    )


def is_ring(job: Job, phase: Phase) -> bool:
    """Whether the vectorized engine plays a phase as a ring."""
    return phase.rotation == 1 and not job.conditions.random


def _on_one_level(job: Job, phase: Phase) -> bool:
    round_ = phase.round_at(0)
    level = job.full_cluster.network.levels_crossed(round_.src, round_.dst)
    return bool((level == level[:1]).all())


def _ring_rounds(job: Job, phase: Phase, skipping: bool) -> int:
    """Rounds until each adds the same to every rank; where links differ, the slowest has to reach all ranks first."""
    if not skipping or not (job.layout.even or job.full_cluster.uniform_link is not None):
        return phase.steps
    equal = job.full_cluster.network.plain and not any(job.conditions.skew)
    return min(phase.steps, _STEADY_AFTER if equal else job.schedule.devices)


def memory_bytes(job: Job, engine: str, messages: int, *, timeline: bool = False, time: TimeModel = DEFAULT) -> int:
    """Bytes that engines hold at most that go from message to message, beside the job."""
    devices, together = job.schedule.devices, job.schedule.messages_at_once
    records = messages * _BYTES_OF_A_RECORD if timeline else 0
    if engine == "lockstep":
        return devices * 200 + together * _BYTES_OF_A_LOCKSTEP_MESSAGE
    if isinstance(time, LogGP):
        return records + messages * _BYTES_OF_A_POSTING
    if isinstance(time, OnePort):
        ready = min(messages, devices * job.schedule.chunks)
        return records + together * _BYTES_OF_A_POSTING + ready * _BYTES_OF_A_READY_CHUNK
    live = 1 if symmetric(job) else 2 if job.conditions.ideal else _LIVE_ROUNDS_OF_RANDOM
    held = min(messages, live * together)
    return records + devices * len(job.schedule.channels) * _BYTES_OF_A_RANK + held * _BYTES_OF_A_MESSAGE


def array_bytes(job: Job, work: ArrayWork) -> int:
    """Bytes that the vectorized engine holds: arrays and clocks of ranks, and rounds kept for the way back."""
    ranks, rounds = 8 * job.schedule.devices, job.schedule.rounds
    if not work.messages:
        return ranks * 2 * len(job.full_cluster.levels)
    spacing = min(max(isqrt(rounds) + 1, min(LEAST_SPACING, KEPT_BYTES // (6 * ranks))), rounds)
    # Of a round 3 arrays are its own; those of the segment in play are kept whatever they take.
    kept = max(min(3 * ranks * work.other_rounds, KEPT_BYTES), 3 * ranks * spacing) if work.other_messages else 0
    return ranks * (spacing + 2 * len(job.full_cluster.levels) + 30) + kept


def counted_rounds(job: Job, messages: list[int]) -> tuple[int, int]:
    """Rounds and messages that are gone through to count bytes, of phases of so many ``messages`` each."""
    even = job.layout.even and len(job.full_cluster.levels) == 1
    phases = [phase for channel in job.schedule.channels for phase in channel]
    walked = [not (phase.regular is not None and even) and phase.rotation != 1 for phase in phases]
    rounds = sum(phase.steps for phase, walks in zip(phases, walked, strict=True) if walks)
    return rounds, sum(count for count, walks in zip(messages, walked, strict=True) if walks)


def counted_bytes(job: Job, counted: int) -> int:
    """Bytes held to count bytes: those of each rank and level, and the largest round."""
    largest = min(counted, job.schedule.messages_at_once)
    return job.schedule.devices * 8 * len(job.full_cluster.levels) + largest * _BYTES_OF_A_COUNTED_MESSAGE
