"""Law: what a phase declares about its rounds, so that engines may go fast, is true of every round."""

from __future__ import annotations

from collections import Counter

import numpy as np

from simcollectives.cluster import Cluster
from simcollectives.engines import Job
from simcollectives.schedule import Phase, Round
from tests.laws.cases import VARIANTS, WORLD_SIZES, Variant, each_of, fits, flat, job_of, two_level

SIZES = tuple(n for n in WORLD_SIZES if n not in (12, 14, 17, 32))


def pairs_of(round_: Round) -> list[tuple[int, int]]:
    return list(zip(round_.src.tolist(), round_.dst.tolist(), strict=True))


def check_ports(phase: Phase, round_: Round) -> None:
    pairs = set(pairs_of(round_))
    most = max([*Counter(s for s, _ in pairs).values(), *Counter(d for _, d in pairs).values()], default=0)
    assert most <= phase.ports


def check_regular(job: Job, phase: Phase, step: int) -> None:
    regular, round_ = phase.regular, phase.round_at(step)
    if regular is None:
        return
    chunks: Counter[tuple[int, int]] = Counter()
    for pair, count in zip(pairs_of(round_), round_.count.tolist(), strict=True):
        chunks[pair] += count
    assert set(chunks.values()) == {regular.chunks(step)}
    everyone = dict.fromkeys(range(job.schedule.devices), regular.messages)
    assert Counter(src for src, _ in chunks) == everyone
    assert Counter(dst for _, dst in chunks) == everyone
    assert np.all(round_.reduce == regular.reduces)


def check_rotation(job: Job, phase: Phase) -> None:
    """All steps have the same pairs, or step t is step 0 with the bytes of senders moved on by t times the rotation."""
    if phase.same_pairs:
        every_step = {frozenset(pairs_of(phase.round_at(step))) for step in range(phase.steps)}
        assert len(every_step) == 1
    if phase.rotation is None:
        return
    assert phase.same_pairs
    n = job.schedule.devices
    first = phase.round_at(0)
    assert len(set(pairs_of(first))) == len(first.src)
    before = dict(zip(first.src.tolist(), job.layout.row_elements(first).tolist(), strict=True))
    for step in range(phase.steps):
        round_ = phase.round_at(step)
        assert sorted(pairs_of(round_)) == sorted(pairs_of(first))
        sizes = dict(zip(round_.src.tolist(), job.layout.row_elements(round_).tolist(), strict=True))
        assert all(sizes[i] == before[(i - step * phase.rotation) % n] for i in sizes)


@each_of(VARIANTS)
def test_declared_is_true(variant: Variant) -> None:
    clusters: list[Cluster] = [flat(n) for n in SIZES]
    clusters += [two_level(*shape, "round_robin") for shape in ((2, 3), (4, 2), (3, 5))]
    for cluster in clusters:
        if not fits(variant, cluster):
            continue
        job = job_of(variant, cluster, 5 * cluster.world_size + 3)
        for phases in job.schedule.channels:
            for phase in phases:
                check_rotation(job, phase)
                for step in range(phase.steps):
                    round_ = phase.round_at(step)
                    check_ports(phase, round_)
                    check_regular(job, phase, step)
                    again = phase.round_at(step)
                    assert all(np.array_equal(getattr(again, x), getattr(round_, x)) for x in ("src", "dst", "first"))
                    assert np.all((round_.first >= 0) & (round_.count >= 0) & (round_.stride >= 1))
                    last = round_.first + np.maximum(round_.count - 1, 0) * round_.stride
                    assert np.all(last < job.schedule.chunks)
                    assert not np.any(round_.src == round_.dst)
