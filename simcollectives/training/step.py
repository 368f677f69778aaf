"""Simulate one training step, and say what it is made of."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcollectives.cluster.network import FloatArray
from simcollectives.engines.conditions import Jitter, kernel_factors
from simcollectives.errors import InputError, Problem
from simcollectives.training.pricing import Choice, Pricer
from simcollectives.training.program import Program
from simcollectives.training.setup import Training
from simcollectives.training.strategies.table import find_strategy, resolve_strategy_options
from simcollectives.training.streams import play
from simcollectives.training.timeline import Span, StepTimeline, most_of_each, peak, total, union, without

MOST_OPERATIONS = 10_000_000
"""Operations of all ranks together that are played in one step, where each is played."""


@dataclass(frozen=True)
class IssuedCollective:
    """One collective of a step, as rank 0 issued it; times in seconds from the start of the step."""

    kind: str
    name: str
    group: str
    group_size: int
    elements: int
    dtype: str
    bytes: int
    micro_batch: int
    phase: str
    start: float
    end: float
    algorithm: str
    engine: str


@dataclass(frozen=True, eq=False)
class Step:
    """One training step of rank 0. step_seconds = compute_seconds + exposed_seconds + idle_seconds.

    ``overlap`` is the share of the communication that compute hides; None where nothing is communicated. ``memory`` is
    what stands at the peak, in bytes, and sums to ``peak_bytes``. ``sent_bytes`` are by kind of collective, of the rank
    that sends most.
    """

    strategy: str
    options: Mapping[str, Any]
    training: Training
    step_seconds: float
    compute_seconds: float
    communication_seconds: float
    exposed_seconds: float
    waiting_seconds: float
    idle_seconds: float
    memory: Mapping[str, int]
    peak_bytes: int
    peak_seconds: float
    sent_bytes: Mapping[str, int]
    collectives: tuple[IssuedCollective, ...]
    timeline: StepTimeline
    warnings: tuple[str, ...] = ()

    @property
    def most_bytes(self) -> Mapping[str, int]:
        """The most that each item of the memory takes at any time."""
        return most_of_each(self.timeline.memory)

    @property
    def overlap(self) -> float | None:
        """Share of the communication that runs beside compute."""
        return 1 - self.exposed_seconds / self.communication_seconds if self.communication_seconds > 0 else None

    @property
    def efficiency(self) -> float | None:
        """Compute over step; None where the step takes no time."""
        return self.compute_seconds / self.step_seconds if self.step_seconds > 0 else None


def simulate_step(
    training: Training,
    strategy: str,
    options: Mapping[str, Any] | None = None,
    choices: Mapping[str, Choice] | None = None,
    pricer: Pricer | None = None,
) -> Step:
    """Simulate one step.

    ``choices`` names the algorithm and its options for a kind of collective. A ``pricer`` of the same cluster knows
    what it has already priced; then its choices count, and there are no others.

    Raises:
        InputError: an unknown strategy or option, or options that do not go together; all errors at once.
        ScheduleError: a bug in a strategy.
    """
    found = find_strategy(strategy)
    resolved = resolve_strategy_options(found, options)
    if problems := found.problems(training, resolved):
        raise InputError(problems)
    if pricer is None:
        pricer = Pricer(training.cluster, {**(choices or {}), **found.choices(resolved)})
    timeline = _play(found.program(training, resolved), training, pricer)
    spans = timeline.of_rank(0)
    most = peak(timeline.memory)
    sent: Counter[str] = Counter()
    for span in spans:
        if span.operation.call is not None and span.price is not None:
            sent[span.operation.call.kind] += span.price.sent_bytes
    end = timeline.end_of(0)
    return Step(
        strategy=found.name,
        options=resolved,
        training=training,
        step_seconds=end,
        **_seconds(spans, end),
        memory=most.items,
        peak_bytes=most.bytes,
        peak_seconds=most.time,
        sent_bytes=dict(sent),
        collectives=tuple(_issued(spans)),
        timeline=timeline,
        warnings=found.warnings(training, resolved),
    )


def _play(program: Program, training: Training, pricer: Pricer) -> StepTimeline:
    """Play the step. In the steady state rank 0 begins it as far ahead of slower ranks as it ended the one before.

    Slower ranks never wait for it. If it begins long before them, they alone hold it up, and it ends ahead of them by
    what it can be ahead at most: in the steady state it always is.
    """
    if training.jitter is not None and training.jitter.spread > 0:
        return _play_jittered(program, training, training.jitter, pricer)
    ranks = _ranks_to_play(program, training)
    kernels, others = _kernels_and_others(program)
    factors = {rank: training.slow[rank] for rank in ranks if training.slow.get(rank, 1.0) != 1}
    seconds = {rank: (kernels * factor + others).tolist() for rank, factor in factors.items()}
    programs = dict.fromkeys(ranks, program)
    timeline = play(programs, pricer, seconds=seconds)
    slower = [rank for rank in ranks if training.slow.get(rank, 1.0) > training.slow.get(0, 1.0)]
    if not slower or training.iteration == 0:
        return timeline
    long = max(timeline.end_of(rank) for rank in slower)
    held_up = play(programs, pricer, dict.fromkeys(slower, long), seconds)
    ahead = {rank: max(held_up.end_of(rank) - held_up.end_of(0), 0.0) for rank in slower}
    return play(programs, pricer, ahead, seconds)


def _play_jittered(program: Program, training: Training, jitter: Jitter, pricer: Pricer) -> StepTimeline:
    """Play every rank. In the steady state ranks begin the step apart by as much as they ended one played before it."""
    _check_many(program, training)
    kernels, others = _kernels_and_others(program)
    place = np.arange(len(program.operations), dtype=np.int64)
    programs = dict.fromkeys(range(training.world_size), program)
    starts: dict[int, float] = {}
    timeline = StepTimeline((), ())
    for step in (0,) if training.iteration == 0 else (1, 0):
        seconds = {}
        for rank in programs:
            factors = kernel_factors(jitter, training.seed, step, rank, place) * training.slow.get(rank, 1.0)
            seconds[rank] = (kernels * factors + others).tolist()
        timeline = play(programs, pricer, starts, seconds)
        starts = {rank: timeline.end_of(rank) - timeline.end_of(0) for rank in programs}
    return timeline


def _kernels_and_others(program: Program) -> tuple[FloatArray, FloatArray]:
    """Seconds of the operations by place: of kernels, which may be slower on a rank, and of all others."""
    seconds = np.array([operation.seconds for operation in program.operations])
    computes = np.array([operation.kind == "compute" for operation in program.operations], dtype=bool)
    return np.where(computes, seconds, 0.0), np.where(computes, 0.0, seconds)


def _ranks_to_play(program: Program, training: Training) -> list[int]:
    """Rank 0, and one rank of every other speed: those of one speed are alike.

    Where some are slower and collectives have groups, every rank is played: it matters who is in a group with whom.
    """
    if training.slow and any(call.group_size < training.world_size for call in program.calls):
        _check_many(program, training)
        return list(range(training.world_size))
    others = {training.slow.get(0, 1.0): 0}
    for rank, factor in sorted(training.slow.items()):
        others.setdefault(factor, rank)
    if len(training.slow) < training.world_size:
        others.setdefault(1.0, next(rank for rank in range(training.world_size) if rank not in training.slow))
    return list(others.values())


def _check_many(program: Program, training: Training) -> None:
    """Refuse to play more than can be waited for."""
    many = len(program.operations) * training.world_size
    if many > MOST_OPERATIONS:
        rule = f"{training.world_size} ranks of {len(program.operations)} operations are more than {MOST_OPERATIONS:,}"
        why = "where collectives have groups and some ranks are slower, each is played"
        raise InputError([Problem("slow", f"{rule}; {why}: take fewer nodes")])


def _seconds(spans: tuple[Span, ...], end: float) -> dict[str, float]:
    compute = union((span.start, span.end) for span in spans if span.operation.kind == "compute")
    collectives = [span for span in spans if span.operation.kind == "collective"]
    running = union((span.begins, span.end) for span in collectives)
    taking = union((span.start, span.end) for span in collectives)
    waiting = union((span.start, span.begins) for span in collectives)
    exposed = without(taking, compute)
    busy = union([*compute, *taking])
    return {
        "compute_seconds": total(compute),
        "communication_seconds": total(taking),
        "exposed_seconds": total(exposed),
        "waiting_seconds": total(without(without(waiting, running), compute)),
        "idle_seconds": total(without([(0.0, end)] if end > 0 else [], busy)),
    }


def _issued(spans: tuple[Span, ...]) -> list[IssuedCollective]:
    found = []
    for span in sorted(spans, key=lambda span: span.place):
        operation, call = span.operation, span.operation.call
        if call is None or span.price is None:
            continue
        found.append(
            IssuedCollective(
                kind=call.kind,
                name=operation.name,
                group=call.group,
                group_size=call.group_size,
                elements=call.elements,
                dtype=call.dtype,
                bytes=call.bytes,
                micro_batch=operation.micro_batch,
                phase=operation.phase,
                start=span.begins,
                end=span.end,
                algorithm=span.price.algorithm,
                engine=span.price.engine,
            )
        )
    return found
