"""What a run costs, found out before it: messages, seconds on this computer, bytes of memory.

Messages are counted from what phases declare, else round by round. Memory is a formula for each engine, in what it
holds for a message, a rank and a round. Seconds are at first a rough rate, rather too high than too low; where they
come to more than ``ROUGH_SECONDS``, the engine plays a small part of the job and is timed (``measured``), so that how
fast the computer is, and how much the messages of this job get into each other's way, are in the answer.

`benchmarks/estimates.py` prints estimates beside what runs took; the rates and sizes below come from it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

from simcollectives.cluster.types import Cluster
from simcollectives.engines.closed_form import require_closed_form
from simcollectives.engines.conditions import IDEAL, Conditions
from simcollectives.engines.job import Job, make_job
from simcollectives.engines.simulate import check_engine, checked, choose_engine, exact_parts, play
from simcollectives.engines.variants import DEFAULT, Default, TimeModel
from simcollectives.engines.work import (
    ArrayWork,
    array_bytes,
    array_work,
    count_chunks,
    count_messages,
    counted_bytes,
    counted_rounds,
    may_meet,
    memory_bytes,
    spread_steps,
    symmetric,
)
from simcollectives.errors import InputError
from simcollectives.schedule.types import Phase
from simcollectives.units import format_bytes

ROUGH_SECONDS = 1.0
"""Up to here a rough estimate is left as it is."""

_MEASURED_SECONDS, _PATIENCE_SECONDS = 0.05, 0.5
_MOST_AT_ONCE = {"event": 50_000, "lockstep": 500_000, "vectorized": 3_000_000}
"""More messages at one time are too many for a short measurement."""

_FEWEST_ROUNDS = {"vectorized": 64}
_FEWEST_ROUNDS_OF_OTHERS = 4

_SECONDS_OF_A_RUN = 5e-4
_ROUND_SECONDS = {"event": 3e-4, "lockstep": 4e-4, "one_port": 1e-4, "loggp": 2e-4}
_MESSAGE_SECONDS = {"event": 8e-6, "lockstep": 3e-7, "one_port": 1.5e-5, "loggp": 5e-5}
_COUNTED_ROUND, _COUNTED_MESSAGE = 4e-5, 3e-8
"""Where a closed form gives the time, of counting bytes."""

_ALONE_SECONDS, _MEETING_SECONDS = 2.5e-5, 2e-5
"""In the event engine, of a message that ends when no other does, and of one that meets others."""

_UNEQUAL_SECONDS, _WAITING_SECONDS = 5e-6, 5e-8
"""More, for each other message, where those that meet end one by one, and where they wait for a CPU in loggp."""

_UNIFORM_ROUND, _RING_ROUND, _TURNING_ROUND, _TURNED_ROUND, _OTHER_ROUND = 5e-7, 5e-6, 5e-5, 1e-5, 1e-4
_RING_MESSAGE, _TURNING_MESSAGE, _OTHER_MESSAGE = 3e-9, 1e-8, 1e-7
"""Of the vectorized engine: seconds of rounds and of messages by kind, with the way back along the critical path."""

_DRAWN_ROUND, _DRAWN_MESSAGE = 3e-4, 6e-7
"""More, for everything that is drawn at random."""

_MOVE_SECONDS, _HELD_BYTE_SECONDS, _MOVED_BYTE_SECONDS = 4e-6, 1.5e-8, 6e-10
"""Of executing on arrays: a chunk moved, a byte made and compared, a byte moved."""


@dataclass(frozen=True)
class Estimate:
    """What a run costs on this computer.

    ``messages`` are all of the schedule, ``played`` those without the rounds that the engine skips. ``memory_bytes`` is
    what it holds at most, beside the question itself.
    """

    engine: str
    messages: int
    played: int
    seconds: float
    memory_bytes: int

    def __str__(self) -> str:
        """Say it in one line."""
        return cost_text(self.messages, self.seconds, self.memory_bytes)


def cost_text(messages: int, seconds: float, memory_bytes: float) -> str:
    """Return a cost on one line.

    >>> cost_text(12_000_000, 117.0, 3.04e8)
    '12,000,000 messages, about 2 min, 300 MB'
    """
    size = format_bytes(memory_bytes, 2 if memory_bytes >= 1e6 else 1, family="decimal")
    return f"{messages:,} messages, about {rough_time(seconds)}, {size}"


def rough_time(seconds: float) -> str:
    """Return seconds as one says them.

    >>> [rough_time(x) for x in (0.02, 4.4, 89, 91, 5400, 2e5, 1e9)]
    ['0.1 s', '4 s', '89 s', '2 min', '90 min', '56 h', '11574 days']
    """
    for unit, length, longest in (("s", 1, 90), ("min", 60, 120), ("h", 3600, 72)):
        if seconds < longest * length:
            return f"{max(seconds, 0.1):.1g} s" if seconds < 1 else f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def estimate(
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
) -> Estimate:
    """Estimate what ``simulate`` with the same arguments costs, in a fraction of a second.

    Raises:
        InputError: as ``simulate`` does.
    """
    question = collective, algorithm, cluster, message_bytes, options, dtype, conditions
    job, model = checked(lambda: make_job(*question), time, engine)
    check_engine(job, engine, timeline, model, skipping)
    if engine == "closed_form":
        require_closed_form(job, model)
    return measured(job, rough(job, engine, timeline, model, skipping), timeline, model, skipping)


def rough(
    job: Job, engine: str = "auto", timeline: bool = False, time: TimeModel = DEFAULT, skipping: bool = True
) -> Estimate:
    """Estimate what a job costs on the engine that will run, by rates that hold for no computer in particular."""
    chosen, _ = choose_engine(job, engine, timeline, time)
    by_phase = count_messages(job)
    messages = sum(by_phase)
    if chosen == "vectorized":
        work = array_work(job, by_phase, skipping)
        seconds = _array_seconds(job, work) + _skipped_seconds(work)
        played, held = work.messages, array_bytes(job, work)
    elif chosen == "closed_form":
        rounds, counted = counted_rounds(job, by_phase)
        played, seconds = 0, rounds * _COUNTED_ROUND + counted * _COUNTED_MESSAGE
        held = counted_bytes(job, counted)
    else:
        played, seconds = messages, _message_seconds(job, chosen, time, messages)
        held = memory_bytes(job, chosen, messages, timeline=timeline, time=time)
    return Estimate(chosen, messages, played, _SECONDS_OF_A_RUN + seconds, held)


def _array_seconds(job: Job, work: ArrayWork) -> float:
    """Seconds of the vectorized engine for what it plays."""
    drawn = _drawn(job)
    ring_round, ring_message = (_RING_ROUND, _RING_MESSAGE) if job.layout.even else (_TURNING_ROUND, _TURNING_MESSAGE)
    return (
        work.ring_rounds * ring_round
        + work.ring_messages * ring_message
        + work.other_rounds * (_OTHER_ROUND + drawn * _DRAWN_ROUND)
        + work.other_messages * (_OTHER_MESSAGE + drawn * _DRAWN_MESSAGE)
    )


def _skipped_seconds(work: ArrayWork) -> float:
    """Seconds of the vectorized engine for rounds without messages."""
    return work.uniform_rounds * _UNIFORM_ROUND + work.turned_rounds * _TURNED_ROUND


def _message_seconds(job: Job, engine: str, time: TimeModel, messages: int) -> float:
    """Seconds of the engines that go from message to message."""
    kind = engine if engine != "event" or isinstance(time, Default) else time.name
    each = _MESSAGE_SECONDS[kind]
    if kind == "event" and not symmetric(job):
        each = _ALONE_SECONDS
    if kind == "event" and may_meet(job):
        each = _MEETING_SECONDS + (0.0 if symmetric(job) else job.schedule.messages_at_once * _UNEQUAL_SECONDS)
    elif kind == "loggp":
        each += job.schedule.messages_at_once * _WAITING_SECONDS
    rounds = job.schedule.rounds * len(job.schedule.channels)
    return rounds * (_ROUND_SECONDS[kind] + _drawn(job) * _DRAWN_ROUND) + messages * each


def _drawn(job: Job) -> int:
    """How many kinds of things are drawn for each message."""
    conditions = job.conditions
    return sum(jitter is not None for jitter in (conditions.alpha, conditions.bandwidth, conditions.reduction))


def measured(
    job: Job,
    found: Estimate,
    timeline: bool = False,
    time: TimeModel = DEFAULT,
    skipping: bool = True,
    least_seconds: float = ROUGH_SECONDS,
) -> Estimate:
    """Return a rough estimate with seconds by a short run, where it comes to more than ``least_seconds``.

    What cannot be short, as a round of millions of messages, is left as it is.
    """
    if (
        found.seconds <= least_seconds
        or not found.played
        or job.schedule.messages_at_once > _MOST_AT_ONCE[found.engine]
    ):
        return found
    part = _part(job, _MEASURED_SECONDS / found.seconds, _FEWEST_ROUNDS.get(found.engine, _FEWEST_ROUNDS_OF_OTHERS))
    run = partial(play, part, found.engine, time, record=timeline, skipping=skipping)
    # Messages of one round may differ; those that are done first say little of the others.
    seconds = _time(run, found.played, least=min(job.schedule.messages_at_once, found.played))
    if seconds is None:
        return found
    if found.engine == "vectorized":
        seconds += _skipped_seconds(array_work(job, count_messages(job), skipping))
    return replace(found, seconds=_SECONDS_OF_A_RUN + seconds)


def _part(job: Job, share: float, fewest: int) -> Job:
    """The same question with some rounds of each phase alone, enough to be timed."""

    def shortened(phase: Phase) -> Phase:
        count = min(phase.steps, max(fewest, round(phase.steps * share)))
        # Rounds that rotate must follow each other, and are all alike.
        steps = range(count) if phase.rotation is not None else spread_steps(phase.steps, count)
        regular = phase.regular
        if regular is not None:
            chunks = regular.chunks
            regular = replace(regular, chunks=lambda step: chunks(steps[step]))
        return replace(phase, steps=count, round_at=lambda step: phase.round_at(steps[step]), regular=regular)

    channels = tuple(tuple(shortened(phase) for phase in channel) for channel in job.schedule.channels)
    return replace(job, schedule=replace(job.schedule, channels=channels))


class _Enough(Exception):
    """A measurement has taken as long as it may."""


def _time(run: Callable[..., Any], played: int, least: int) -> float | None:
    """Best seconds of two short runs, the first of which may import and fill caches; None where it takes too long."""
    start = perf_counter()
    first = _time_once(run, played, least)
    if first is None or perf_counter() - start > _PATIENCE_SECONDS:
        return first
    return min(first, _time_once(run, played, least) or first)


def _time_once(run: Callable[..., Any], played: int, least: int) -> float | None:
    """Seconds for ``played`` messages like those of a run, of which at least ``least`` are waited for."""
    told: list[tuple[float, int]] = []
    start = perf_counter()

    def watch(count: int) -> None:
        now = perf_counter() - start
        if count:
            told.append((now, count + (told[-1][1] if told else 0)))
        enough = told and told[-1][1] >= least and now - told[0][0] > _MEASURED_SECONDS
        if enough or now > _PATIENCE_SECONDS:
            raise _Enough

    try:
        run(watch=watch)
    except _Enough:
        (before, first), (now, last) = (told[0], told[-1]) if told else ((0.0, 0), (0.0, 0))
        if last < least or last == first:
            return None
        # What comes before the first message ends, such as starting all of a round, does not come again.
        return before + (now - before) * (played - first) / (last - first)
    return (perf_counter() - start) * played / told[-1][1] if told else None


def verify_seconds(job: Job) -> float:
    """Seconds to execute a job on arrays and compare, by rates."""
    moves, held = count_chunks(job), job.schedule.world_size * job.message_bytes
    moved = moves * job.message_bytes / max(job.layout.chunks, 1)
    return moves * _MOVE_SECONDS + held * _HELD_BYTE_SECONDS + moved * _MOVED_BYTE_SECONDS


def cheaper(
    job: Job, found: Estimate, timeline: bool = False, time: TimeModel = DEFAULT, skipping: bool = True
) -> Estimate | None:
    """Return what another engine costs that is exact for a job and takes less than half; None where there is none.

    Where every round was to be played (not ``skipping``), it may be vectorized with skipping; what is returned skips.
    """
    form = exact_parts(job, time) is not None
    # A round of lockstep is a barrier, which makes no difference on equal links alone.
    if timeline or (found.engine == "lockstep" and not (form and job.cluster.uniform_link is not None)):
        return None
    others = ["vectorized"] if found.engine != "vectorized" or not skipping else []
    others += ["closed_form"] if form else []
    costs = [rough(job, engine, time=time) for engine in others if _takes(engine, job, time)]
    # Up to a second they are all as good, and vectorized is what engine auto takes.
    best = min(costs, key=lambda cost: max(cost.seconds, ROUGH_SECONDS), default=None)
    return best if best is not None and best.seconds < found.seconds / 2 else None


def _takes(engine: str, job: Job, time: TimeModel) -> bool:
    try:
        check_engine(job, engine, time=time)
    except InputError:
        return False
    return True
