"""Laws of estimates: messages are those that engines play, and what is called cheaper gives the same time."""

from __future__ import annotations

import math
from dataclasses import replace

from simcollectives.engines import Job, simulate_job
from simcollectives.engines.estimate import cheaper, rough
from simcollectives.engines.variants import DEFAULT, LogGP, OnePort, TimeModel
from tests.laws.cases import VARIANTS, Variant, describe, each_of, fits, flat, job_of, rank_orders, tolerance, two_level


def jobs(variant: Variant) -> list[Job]:
    clusters = [flat(n) for n in (1, 8, 13)]
    clusters += [two_level(*shape, rank_orders(*shape)[-1]) for shape in ((2, 3), (4, 2))]
    sizes = [(cluster, n * cluster.world_size + more) for cluster in clusters for n, more in ((8, 0), (5, 3))]
    return [job_of(variant, cluster, size) for cluster, size in sizes if fits(variant, cluster)]


def walked(job: Job) -> int:
    """Messages of a schedule: the pairs of ends of every round."""
    rounds = [round_ for channel in range(len(job.schedule.channels)) for round_ in job.schedule.rounds_of(channel)]
    return sum(len(set(zip(round_.src.tolist(), round_.dst.tolist(), strict=True))) for round_ in rounds)


def told(job: Job, engine: str, time: TimeModel = DEFAULT, *, skipping: bool = True) -> int:
    """Messages that an engine says that it has played."""
    counts: list[int] = []
    simulate_job(job, engine, time=time, skipping=skipping, watch=counts.append)
    return sum(counts)


@each_of(VARIANTS)
def test_messages_are_those_walked(variant: Variant) -> None:
    for job in jobs(variant):
        found = rough(job)
        assert found.messages == walked(job), describe(job)
        assert found.seconds > 0
        assert math.isfinite(found.seconds)
        assert found.memory_bytes >= 0


@each_of(VARIANTS)
def test_engines_tell_of_every_message(variant: Variant) -> None:
    for job in jobs(variant)[-2:]:
        messages = walked(job)
        assert told(job, "event") == told(job, "lockstep") == messages, describe(job)
        assert told(job, "auto", OnePort()) == told(job, "auto", LogGP()) == messages, describe(job)


@each_of(VARIANTS)
def test_what_vectorized_plays_is_told(variant: Variant) -> None:
    for job in jobs(variant):
        for skipping in (False, True):
            found = rough(job, skipping=skipping)
            if found.engine == "vectorized":
                counted = told(job, "vectorized", skipping=skipping)
                assert counted == found.played or skipping, describe(job)
                assert counted <= walked(job), describe(job)


@each_of(VARIANTS)
def test_the_cheaper_engine_gives_the_same_time(variant: Variant) -> None:
    for job in jobs(variant):
        slow = replace(rough(job, "event"), seconds=1e9)
        other = cheaper(job, slow)
        if other is not None:
            exact = simulate_job(job, "event").seconds
            same = math.isclose(simulate_job(job, other.engine).seconds, exact, rel_tol=tolerance(job.schedule.rounds))
            assert same, describe(job)
