"""Evaluate a collective with a chosen engine."""

from collections.abc import Callable, Mapping
from typing import Any

from simcollectives.cluster.types import Cluster
from simcollectives.engines.closed_form import closed_form_parts, require_closed_form
from simcollectives.engines.conditions import IDEAL, Conditions
from simcollectives.engines.event import event
from simcollectives.engines.job import Job, count_bytes_sent, make_job
from simcollectives.engines.lockstep import lockstep
from simcollectives.engines.run import Parts, Run, Timeline
from simcollectives.engines.vectorized import refusal, vectorized
from simcollectives.errors import InputError, Problem
from simcollectives.schedule.types import IntArray

Outcome = tuple[Parts, float, IntArray, Timeline | None]

MAX_MESSAGES = {
    "event": 100_000_000,
    "vectorized": 1_000_000_000_000,
    "lockstep": 5_000_000_000,
    "closed_form": 5_000_000_000,
}
"""What an engine is asked for at most: about ten minutes of work."""


def _by_event(job: Job, record: bool) -> Outcome:
    return event(job, record=record)


def _by_lockstep(job: Job, _record: bool) -> Outcome:
    parts, sent = lockstep(job)
    return parts, parts.seconds, sent, None


def _by_closed_form(job: Job, _record: bool) -> Outcome:
    parts = require_closed_form(job)
    return parts, parts.seconds, count_bytes_sent(job), None


def _by_vectorized(job: Job, _record: bool) -> Outcome:
    return *vectorized(job), None


_ENGINES: Mapping[str, Callable[[Job, bool], Outcome]] = {
    "event": _by_event,
    "vectorized": _by_vectorized,
    "lockstep": _by_lockstep,
    "closed_form": _by_closed_form,
}
ENGINES = ("auto", *_ENGINES)


def choose_engine(job: Job, engine: str, timeline: bool = False) -> tuple[str, str]:
    """Return the engine that will run, decided before it does, and why."""
    if engine != "auto":
        return engine, "asked for"
    if timeline:
        return "event", "auto: a timeline is recorded"
    reason = refusal(job)
    if reason:
        return "event", f"auto: {reason}"
    return "vectorized", "auto: exact, since no message waits for another on a port"


def simulate(
    collective: str,
    algorithm: str,
    cluster: Cluster,
    message_bytes: float,
    engine: str = "auto",
    options: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    timeline: bool = False,
    conditions: Conditions = IDEAL,
) -> Run:
    """Time one collective and say why.

    ``message_bytes`` is the larger of a rank's input and output buffer, a whole number of ``dtype`` elements.
    ``engine`` is auto, event, vectorized, lockstep or closed_form. ``timeline`` records every transfer (event engine).
    ``conditions`` let ranks start late, and draw latencies, bytes and reductions at random.

    Raises:
        InputError: the question is not valid, or too large for the engine; all errors at once.
        NoClosedFormError: engine closed_form where no form is exact.
        ScheduleError: a bug in a schedule.
    """
    job = make_job(collective, algorithm, cluster, message_bytes, options, dtype, conditions)
    return simulate_job(job, engine, timeline)


def simulate_job(job: Job, engine: str = "auto", timeline: bool = False) -> Run:
    """As ``simulate``, for a job."""
    check_engine(job, engine, timeline)
    chosen, why = choose_engine(job, engine, timeline)
    parts, seconds, sent, recorded = _ENGINES[chosen](job, timeline)
    latency = sum(parts.latency)
    exact = closed_form_parts(job)
    return Run(
        collective=job.algorithm.collective,
        algorithm=job.algorithm.name,
        options=job.options,
        label=job.label,
        cluster=job.cluster,
        message_bytes=job.message_bytes,
        dtype=job.dtype,
        seconds=seconds,
        latency_seconds=latency,
        bandwidth_seconds=sum(parts.bandwidth),
        reduction_seconds=parts.reduction,
        bottleneck=parts.bottleneck,
        engine=chosen,
        engine_reason=why,
        rounds=job.schedule.rounds,
        bytes_sent_by_level=sent,
        lower_bound_seconds=job.lower_bound_seconds,
        closed_form_seconds=None if exact is None else exact.seconds,
        timeline=recorded,
    )


def check_engine(job: Job, engine: str, timeline: bool = False) -> None:
    """Check that an engine exists and can take the job.

    Raises:
        InputError: it cannot; the message says what can.
    """
    if engine not in ENGINES:
        raise InputError([Problem("engine", f"{engine!r} is not an engine; write one of: {', '.join(ENGINES)}")])
    if engine == "vectorized" and (reason := refusal(job)):
        raise InputError([Problem("engine", f"{job.label} is not exact in vectorized: {reason}; use engine event")])
    chosen, _ = choose_engine(job, engine, timeline)
    if timeline and chosen != "event":
        raise InputError([Problem("engine", f"{chosen} has no timeline; use engine event")])
    messages, most = job.messages_at_most, MAX_MESSAGES[chosen]
    if messages > most:
        others = " or ".join(name for name, limit in MAX_MESSAGES.items() if limit >= messages and name != chosen)
        remedy = f"use engine {others}" if others else "take fewer devices"
        raise InputError(
            [Problem("engine", f"{job.label} sends up to {messages:,} messages, too many for {chosen}; {remedy}")]
        )
