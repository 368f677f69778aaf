"""Evaluate a collective with a chosen engine."""

from collections.abc import Callable, Mapping
from typing import Any

from simcollectives.cluster.types import Cluster
from simcollectives.engines.bytes_sent import count_bytes_sent
from simcollectives.engines.closed_form import closed_form_parts, require_closed_form
from simcollectives.engines.conditions import IDEAL, Conditions
from simcollectives.engines.event import event
from simcollectives.engines.job import Job, make_job
from simcollectives.engines.lockstep import lockstep
from simcollectives.engines.run import Parts, Run, Timeline
from simcollectives.engines.variants import (
    DEFAULT,
    Default,
    LogGP,
    OnePort,
    TimeModel,
    loggp,
    one_port,
    parse_time,
    variant_closed_form,
)
from simcollectives.engines.vectorized import refusal, vectorized
from simcollectives.engines.watch import Watch
from simcollectives.errors import Gathered, InputError, Problem, show_value, suggestion
from simcollectives.metrics import latency_lower_bound
from simcollectives.schedule.types import IntArray

Outcome = tuple[Parts, float, IntArray, Timeline | None]

MAX_MESSAGES = {
    "event": 100_000_000,
    "vectorized": 1_000_000_000_000,
    "lockstep": 5_000_000_000,
    "closed_form": 5_000_000_000,
}
"""What an engine is asked for at most: about ten minutes of work."""

MAX_EVENT_ROUND = 2_000_000
"""Messages of one round that the event engine holds at most: about 2 GB."""

MAX_VARIANT_MESSAGES = {"one_port": 10_000_000, "loggp": 2_500_000}
"""What a variant is asked for at most: about three minutes of work, and 2 GB under loggp."""

_VARIANT_ENGINES = ("auto", "event", "closed_form")


ENGINES = ("auto", "event", "vectorized", "lockstep", "closed_form")


def choose_engine(job: Job, engine: str, timeline: bool = False, time: TimeModel = DEFAULT) -> tuple[str, str]:
    """Return the engine that will run, decided before it does, and why."""
    if engine != "auto":
        return engine, "asked for"
    if not isinstance(time, Default):
        return "event", f"auto: time {time.name} is played message by message"
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
    time: TimeModel | str | Mapping[str, Any] = DEFAULT,
    skipping: bool = True,
) -> Run:
    """Time one collective and say why.

    ``message_bytes`` is the larger of a rank's input and output buffer, a whole number of ``dtype`` elements.
    ``engine`` is auto, event, vectorized, lockstep or closed_form. ``timeline`` records every transfer (event engine).
    ``conditions`` let ranks start late, and draw latencies, bytes and reductions at random.
    ``time`` is what a time means: default, one_port, loggp, {"loggp": {"overhead": "1.5 us"}}, or a ``TimeModel``. The
    engines of the last two are event and closed_form, on clusters where nothing is shared or unequal.
    ``skipping=False`` has every round played; otherwise vectorized may cut short what repeats, to the same time.

    Raises:
        InputError: the question is not valid, or too large for the engine; all errors at once.
        NoClosedFormError: engine closed_form where no form is exact.
        ScheduleError: a bug in a schedule.
    """
    question = collective, algorithm, cluster, message_bytes, options, dtype, conditions
    job, meaning = checked(lambda: make_job(*question), time, engine)
    return simulate_job(job, engine, timeline, meaning, skipping=skipping)


def checked(
    make: Callable[[], Job], time: TimeModel | str | Mapping[str, Any], engine: object
) -> tuple[Job, TimeModel]:
    """Make a job, and read what a time means.

    Raises:
        InputError: they are not valid, or there is no such engine; all errors at once.
    """
    gathered = Gathered()
    job = gathered.take(make)
    meaning = gathered.take(lambda: parse_time(time, "time"))
    gathered.take(lambda: _check_name(engine))
    gathered.finish()
    if job is None or meaning is None:
        raise InputError("the question is not valid")
    return job, meaning


def simulate_job(
    job: Job,
    engine: str = "auto",
    timeline: bool = False,
    time: TimeModel = DEFAULT,
    *,
    skipping: bool = True,
    watch: Watch | None = None,
) -> Run:
    """As ``simulate``, for a job; ``watch`` is told how far it is."""
    check_engine(job, engine, timeline, time, skipping)
    chosen, why = choose_engine(job, engine, timeline, time)
    parts, seconds, sent, recorded = play(job, chosen, time, record=timeline, skipping=skipping, watch=watch)
    exact = exact_parts(job, time)
    bound = job.lower_bound_seconds if isinstance(time, Default) else _variant_lower_bound(job, time)
    latency = sum(parts.latency)
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
        lower_bound_seconds=bound,
        closed_form_seconds=None if exact is None else exact.seconds,
        timeline=recorded,
        time=time.name,
    )


def play(
    job: Job,
    engine: str,
    time: TimeModel = DEFAULT,
    *,
    record: bool = False,
    skipping: bool = True,
    watch: Watch | None = None,
) -> Outcome:
    """Evaluate a checked job with an engine that was chosen for it; closed_form has nothing to tell a ``watch``."""
    if engine == "closed_form":
        parts = require_closed_form(job, time)
        return parts, parts.seconds, count_bytes_sent(job), None
    if isinstance(time, OnePort):
        return one_port(job, record=record, watch=watch)
    if isinstance(time, LogGP):
        return loggp(job, time, record=record, watch=watch)
    if engine == "event":
        return event(job, record=record, watch=watch)
    if engine == "vectorized":
        return *vectorized(job, skip=skipping, watch=watch), None
    parts, sent = lockstep(job, watch)
    return parts, parts.seconds, sent, None


def exact_parts(job: Job, time: TimeModel = DEFAULT) -> Parts | None:
    """The closed form's answer under a meaning of time, or None where none is exact."""
    return closed_form_parts(job) if isinstance(time, Default) else variant_closed_form(job, time)


def _variant_lower_bound(job: Job, time: OnePort | LogGP) -> float:
    """The default's bounds; where alpha occupies the ports, one for each time that the informed ranks multiply."""
    if isinstance(time, LogGP):
        return job.lower_bound_seconds
    levels = job.cluster.levels
    alpha = min(level.link.alpha for level in levels)
    return max(job.lower_bound_seconds, latency_lower_bound(job.cluster.world_size, alpha, ports=len(levels)))


def check_engine(
    job: Job, engine: str, timeline: bool = False, time: TimeModel = DEFAULT, skipping: bool = True
) -> None:
    """Check that an engine exists and can take the job.

    Raises:
        InputError: it cannot; the message says what can.
    """
    _check_name(engine)
    if engine == "closed_form" and not skipping:
        raise InputError([Problem("skipping", "closed_form plays no rounds at all; leave skipping out, or use event")])
    if not isinstance(time, Default):
        _check_variant(job, engine, time)
    elif engine == "vectorized" and (reason := refusal(job)):
        rule = f"{job.label} is not exact in vectorized: {reason}"
        raise InputError([Problem("engine", f"{rule}; {_other_engines(job, engine, time)}")])
    chosen, _ = choose_engine(job, engine, timeline, time)
    if timeline and chosen != "event":
        raise InputError([Problem("engine", f"{chosen} has no timeline; use engine event")])
    _check_size(job, chosen, time)


def _check_name(engine: object) -> None:
    if not isinstance(engine, str) or engine not in ENGINES:
        remedy = suggestion(engine, ENGINES, "write one of")
        raise InputError([Problem("engine", f"{show_value(engine)} is not an engine; {remedy}")])


def _check_variant(job: Job, engine: str, time: OnePort | LogGP) -> None:
    if engine not in _VARIANT_ENGINES:
        rule = f"has no time {time.name}; write one of: {', '.join(_VARIANT_ENGINES)}"
        raise InputError([Problem("engine", f"{engine} {rule}")])
    if not (job.cluster.network.plain and job.conditions.ideal):
        rule = "does not know shared or unequal links, late starts or jitter; leave them out, or the time"
        raise InputError([Problem("time", f"{time.name} {rule}")])


def _check_size(job: Job, chosen: str, time: TimeModel) -> None:
    if too_many := _too_many(job, chosen, time):
        remedy = _other_engines(job, chosen, time)
        raise InputError([Problem("engine", f"{job.label} {too_many}; {remedy}")])


def _too_many(job: Job, engine: str, time: TimeModel) -> str | None:
    """Why a job is too large for an engine, or None where it is not."""
    limit = MAX_MESSAGES[engine] if isinstance(time, Default) or engine != "event" else MAX_VARIANT_MESSAGES[time.name]
    messages, at_once = job.messages_at_most, job.schedule.messages_at_once
    if engine == "event" and at_once > MAX_EVENT_ROUND:
        return f"sends up to {at_once:,} messages in one round, more than event holds in memory"
    return f"sends up to {messages:,} messages, too many for {engine}" if messages > limit else None


def _other_engines(job: Job, engine: str, time: TimeModel) -> str:
    """Return the remedy where an engine does not take a job: those that do, if there are any."""
    if isinstance(time, Default):
        exact = {"vectorized": refusal(job) is None, "closed_form": closed_form_parts(job) is not None}
    else:
        exact = {"vectorized": False, "lockstep": False, "closed_form": variant_closed_form(job, time) is not None}
    others = (name for name in ENGINES[1:] if name != engine and exact.get(name, True))
    able = [name for name in others if _too_many(job, name, time) is None]
    return f"use engine {' or '.join(able)}" if able else "take fewer devices"
