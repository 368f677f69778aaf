"""The laws of training steps: over every strategy, random models, random clusters, and programs made at random."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Link
from simcollectives.training.model import Model
from simcollectives.training.pricing import Pricer
from simcollectives.training.program import HOST, Program
from simcollectives.training.setup import ModuleSeconds, Training
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.strategies.table import STRATEGIES, resolve_strategy_options
from simcollectives.training.strategies.types import Strategy
from simcollectives.training.streams import play
from simcollectives.training.timeline import Span, StepTimeline
from tests.laws.training_cases import drawn, hand_made_price, models, programs

every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=[strategy.name for strategy in STRATEGIES])
EXACT = 1e-12


def drawn_step(data: st.DataObject, strategy: Strategy, **wanted: bool) -> Step:
    training, options = drawn(data, strategy, **wanted)
    return simulate_step(training, strategy.name, options)


@every_strategy
@settings(max_examples=8)
@given(st.data())
def test_a_step_has_its_parts_its_order_and_its_peak(strategy: Strategy, data: st.DataObject) -> None:
    step = drawn_step(data, strategy)
    check_parts(step)
    spans = step.timeline.spans
    begin = {rank: min(span.start for span in step.timeline.of_rank(rank)) for rank in {span.rank for span in spans}}
    assert begin[0] == 0
    check_order(step.timeline, begin)
    check_groups(step.timeline)
    check_peak(step)


def check_parts(step: Step) -> None:
    """A step is compute, exposed and idle; and each part is what counting moment by moment finds."""
    parts = step.compute_seconds + step.exposed_seconds + step.idle_seconds
    assert parts == pytest.approx(step.step_seconds, rel=EXACT, abs=EXACT)
    assert 0 <= step.waiting_seconds <= step.exposed_seconds + EXACT
    assert step.exposed_seconds <= step.communication_seconds + EXACT
    found = counted(step)
    for name, seconds in found.items():
        assert getattr(step, f"{name}_seconds") == pytest.approx(seconds, rel=1e-9, abs=EXACT), name


def counted(step: Step) -> dict[str, float]:
    """Between two neighbouring moments nothing changes: what runs in the middle runs all the time."""
    spans = step.timeline.of_rank(0)
    moments = sorted({0.0} | {moment for span in spans for moment in (span.start, span.begins, span.end)})
    seconds = dict.fromkeys(("compute", "communication", "exposed", "waiting", "idle"), 0.0)
    for before, after in itertools.pairwise(moments):
        running = [span for span in spans if span.start <= before and span.end >= after]
        computes = any(span.operation.kind == "compute" for span in running)
        collectives = [span for span in running if span.operation.kind == "collective"]
        waits = all(span.begins >= after for span in collectives)
        length = after - before
        seconds["compute"] += length * computes
        seconds["communication"] += length * bool(collectives)
        seconds["exposed"] += length * (bool(collectives) and not computes)
        seconds["waiting"] += length * (bool(collectives) and waits and not computes)
        seconds["idle"] += length * (not collectives and not computes)
    return seconds


def by_place(timeline: StepTimeline, rank: int) -> dict[int, Span]:
    return {span.place: span for span in timeline.of_rank(rank)}


def check_order(timeline: StepTimeline, begin: Mapping[int, float]) -> None:
    """Work starts the moment that all it waits for has ended: its stream, its waits, the host, its communicator.

    A collective begins when its last rank has come.
    """
    ranks = sorted({span.rank for span in timeline.spans})
    came: dict[tuple[str, tuple[int, int], int], list[Span]] = defaultdict(list)
    for rank in ranks:
        spans = by_place(timeline, rank)
        last: dict[tuple[str, str], float] = {}
        issued: Counter[str] = Counter()
        for place in sorted(spans):
            span, operation = spans[place], spans[place].operation
            resources = [("stream", operation.stream), ("stream", HOST)]
            if operation.call is not None:
                resources.append(("group", operation.call.group))
                number = issued[operation.call.group]
                came[operation.call.group, operation.call.siblings(rank), number].append(span)
                issued[operation.call.group] += 1
            waits = [last[resource] for resource in resources if resource in last]
            waits += [spans[other].end for other in operation.after]
            assert span.start == max([begin.get(rank, 0.0), *waits])
            assert span.start <= span.begins <= span.end
            if operation.call is None:
                near = EXACT * max(span.end, 1.0)  # late in a long step a clock has fewer digits for what is short
                assert span.end - span.start == pytest.approx(operation.seconds, rel=1e-9, abs=near)
            last |= {("stream", operation.stream): span.end}
            if operation.call is not None:
                last["group", operation.call.group] = span.end
    for (_, group, _), meeting in came.items():
        call = meeting[0].operation.call
        assert call is not None
        assert {span.rank for span in meeting} == {rank for rank in ranks if call.siblings(rank) == group}
        assert {span.begins for span in meeting} == {max(span.start for span in meeting)}
        assert len({span.end for span in meeting}) == 1


def check_groups(timeline: StepTimeline) -> None:
    """No collective overlaps another of its group."""
    groups: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in timeline.spans:
        if span.operation.call is not None:
            groups[span.rank, span.operation.call.group].append(span)
    for spans in groups.values():
        ordered = sorted(spans, key=lambda span: span.place)
        assert all(before.end <= after.start for before, after in itertools.pairwise(ordered))


@every_strategy
@settings(max_examples=8)
@given(st.data())
def test_memory_is_never_negative_and_ends_where_it_began(strategy: Strategy, data: st.DataObject) -> None:
    step = drawn_step(data, strategy, steady=True)
    for item in {change.item for change in step.timeline.memory}:
        changes = [change.bytes for change in step.timeline.memory if change.item == item]
        assert np.cumsum(changes).min() >= 0, item
    standing = Counter[str]()
    allocated = Counter[str]()
    for change in step.timeline.memory:
        standing[change.item] += change.bytes
    for span in step.timeline.of_rank(0):
        for sign, items in ((1, span.operation.allocates), (-1, span.operation.frees)):
            for item, size in items:
                allocated[item] += sign * size
    assert not any(allocated.values())
    # Parameters that are offloaded do not stand on the device.
    assert sum(standing.values()) > 0 or step.options.get("offload_param", "none") != "none"


def check_peak(step: Step) -> None:
    """The peak is the largest sum.

    Summed from the operations: at least what stands between two moments, at most that and all that moves at one.
    """
    spans = step.timeline.of_rank(0)
    assert step.peak_bytes == max(np.cumsum([change.bytes for change in step.timeline.memory]))
    assert step.peak_bytes == sum(step.memory.values())
    assert all(0 < size <= step.most_bytes[item] for item, size in step.memory.items())
    moves = [(s.start, sum(size for _, size in s.operation.allocates)) for s in spans]
    moves += [(s.end, -sum(size for _, size in s.operation.frees)) for s in spans]
    begins = sum(change.bytes for change in step.timeline.memory) - sum(size for _, size in moves)
    moments = sorted({moment for moment, _ in moves})
    settled = [begins + sum(size for at, size in moves if at <= moment) for moment in moments]
    during = [
        before + sum(size for at, size in moves if at == moment and size > 0)
        for before, moment in zip([begins, *settled], moments, strict=False)
    ]
    assert max([begins, *settled]) <= step.peak_bytes <= max([begins, *during])


@every_strategy
@settings(max_examples=8)
@given(st.data())
def test_one_rank_stands_for_all(strategy: Strategy, data: st.DataObject) -> None:
    training, given = drawn(data, strategy, slow=False)
    options = resolve_strategy_options(strategy, given)
    program = strategy.program(training, options)
    pricer = Pricer(training.cluster, strategy.choices(options))
    alone = play({0: program}, pricer)
    together = play(dict.fromkeys(range(training.world_size), program), pricer)
    for rank in range(training.world_size):
        assert times(by_place(together, rank)) == times(by_place(alone, 0))
    # A collective may end at the instant at which a kernel does: then either comes first.
    changes = [sorted((c.time, c.item, c.bytes) for c in played.memory) for played in (together, alone)]
    assert changes[0] == changes[1]


def times(spans: Mapping[int, Span]) -> list[tuple[float, float, float]]:
    return [(spans[place].start, spans[place].begins, spans[place].end) for place in sorted(spans)]


@every_strategy
@settings(max_examples=8)
@given(st.data(), st.floats(1.0, 4.0))
def test_a_slower_rank_never_shortens_the_step(strategy: Strategy, data: st.DataObject, factor: float) -> None:
    training, options = drawn(data, strategy)
    rank = data.draw(st.integers(0, training.world_size - 1))
    slower = {**training.slow, rank: training.slow.get(rank, 1.0) * factor}
    before = simulate_step(training, strategy.name, options).step_seconds
    after = simulate_step(replace(training, slow=slower), strategy.name, options).step_seconds
    assert after >= before * (1 - EXACT)


@every_strategy
@settings(max_examples=8)
@given(st.data())
def test_the_steady_step_repeats_itself(strategy: Strategy, data: st.DataObject) -> None:
    """Ten steps one after another in one program: with slow ranks, too, the last lasts as long as one that is steady.

    The host issues a step when the one before has ended on its rank.
    """
    training, given = drawn(data, strategy, steady=True)
    options = resolve_strategy_options(strategy, given)
    step = simulate_step(training, strategy.name, options)
    ranks = sorted({span.rank for span in step.timeline.spans})
    repeated = {rank: ten_times([span.operation for span in in_order(step, rank)]) for rank in ranks}
    timeline = play(repeated, Pricer(training.cluster, strategy.choices(options)))
    length = len(in_order(step, 0))
    if length:
        ends = [max(span.end for span in timeline.of_rank(0) if span.place < (n + 1) * (length + 1)) for n in (8, 9)]
        assert ends[1] - ends[0] == pytest.approx(step.step_seconds, rel=1e-9, abs=1e-9)


def in_order(step: Step, rank: int) -> list[Span]:
    return sorted(step.timeline.of_rank(rank), key=lambda span: span.place)


def ten_times(operations: Sequence[Any]) -> Program:
    """The operations of a step, and a wait of the host for all of them, ten times."""
    found: list[Any] = []
    for _ in range(10):
        first = len(found)
        found += [replace(one, after=tuple(place + first for place in one.after)) for one in operations]
        everything = tuple(range(first, len(found)))
        found.append(
            replace(
                operations[0],
                stream=HOST,
                name="end of the step",
                kind="host",
                seconds=0.0,
                call=None,
                after=everything,
                allocates=(),
                frees=(),
            )
        )
    return Program(tuple(found))


@every_strategy
@settings(max_examples=8)
@given(st.data(), st.floats(1.0, 1000.0))
def test_more_bandwidth_never_lengthens_a_step(strategy: Strategy, data: st.DataObject, factor: float) -> None:
    """With one group nothing is shared: shorter collectives let everything start earlier. With several, bytes stay."""
    training, options = drawn(data, strategy)
    faster = training.cluster
    for level in training.cluster.levels:
        faster = faster.with_link(level.name, replace(level.link, bandwidth=level.link.bandwidth * factor))
    before = simulate_step(training, strategy.name, options)
    after = simulate_step(replace(training, cluster=faster), strategy.name, options)
    if len({call.group for call in before.collectives}) <= 1:
        assert after.step_seconds <= before.step_seconds * (1 + EXACT)
    assert after.sent_bytes == before.sent_bytes


CAPS = st.one_of(st.none(), st.integers(1, 4000), st.lists(st.integers(1, 4000), min_size=1, max_size=3))


@settings(max_examples=15)
@given(
    st.data(),
    st.sampled_from([1, 2, 3, 4, 6]),
    CAPS,
    st.sampled_from(["ready", "registration"]),
    st.booleans(),
    st.sampled_from([None, 0, 1, 5]),
)
def test_buckets_do_not_change_the_bytes_of_ddp(
    data: st.DataObject, ranks: int, caps: Any, order: str, static: bool, iteration: int | None
) -> None:
    """A ring sends 2 (N - 1)/N of all gradients; with the fp16 hook 2 bytes an element, whatever its dtype."""
    model = data.draw(models(quantum=12))
    training = uniform_training(model, Cluster.flat(ranks, Link(1e-3, 1e3)), iteration)
    options = {"bucket_cap": caps, "bucket_order": order, "static_graph": static, "broadcast_buffers": False}
    reduced = {"none": training.all_gradient_bytes, "fp16": 2 * model.elements}
    for hook, size in reduced.items():
        step = simulate_step(training, "ddp", {**options, "hook": hook})
        buckets = [c for c in step.collectives if c.name.startswith("bucket")]
        assert sum(c.bytes for c in buckets) == size
        told = 4 * len(model.parameters) if static and iteration == 0 else 0
        if not told:
            assert step.sent_bytes.get("all_reduce", 0) == 2 * (ranks - 1) * size // ranks


def uniform_training(model: Model, cluster: Cluster, iteration: int | None) -> Training:
    seconds = {module.name: ModuleSeconds(1.0, 2.0) for layer in model.layers for module in layer.modules}
    return Training(model, cluster, 1, 1, seconds, iteration=iteration)


@settings(max_examples=25)
@given(programs(), st.dictionaries(st.integers(0, 2), st.sampled_from([0.0, 0.25, 0.7])))
def test_programs_made_at_random_keep_their_order(made: dict[int, Program], begin: dict[int, float]) -> None:
    timeline = play(made, hand_made_price, begin)
    check_order(timeline, begin)
    check_groups(timeline)


def plain_rates(uses: Sequence[Mapping[str, float]]) -> list[float]:
    """Rates that grow together, by halving intervals: those on a port that is full stay, the others go on, up to 1."""
    rates: dict[int, float] = {}
    levels = sorted({level for use in uses for level in use})

    def load(level: str, rate: float) -> float:
        return sum(use.get(level, 0.0) * rates.get(number, rate) for number, use in enumerate(uses))

    while len(rates) < len(uses):
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            fits = all(load(level, middle) <= 1 for level in levels)
            low, high = (middle, high) if fits else (low, middle)
        full = [level for level in levels if load(level, high) >= 1 - 1e-12]
        free = [number for number in range(len(uses)) if number not in rates]
        stay = [number for number in free if any(uses[number].get(level, 0) > 0 for level in full)] or free
        rates |= dict.fromkeys(stay, low)
    return [rates[number] for number in range(len(uses))]


@settings(max_examples=25)
@given(programs())
def test_groups_that_overlap_share_ports(made: dict[int, Program]) -> None:
    """Progress at the rates of an independent calculation sums to the seconds that each collective lasts alone.

    And in no stretch of time do those that run within it use a port for longer than it lasts.
    """
    timeline = play(made, hand_made_price)
    collectives = [span for span in timeline.of_rank(0) if span.price is not None]
    moments = sorted({moment for span in collectives for moment in (span.begins, span.end)})
    progress = dict.fromkeys((span.place for span in collectives), 0.0)
    for before, after in itertools.pairwise(moments):
        running = [span for span in collectives if span.begins <= before and span.end >= after]
        rates = plain_rates([span.price.use for span in running if span.price])
        for span, rate in zip(running, rates, strict=True):
            progress[span.place] += rate * (after - before)
    for span in collectives:
        assert span.price is not None
        assert progress[span.place] == pytest.approx(span.price.seconds, abs=1e-9)
    for begin, end in itertools.product({s.begins for s in collectives}, {s.end for s in collectives}):
        within = [s.price for s in collectives if s.begins >= begin and s.end <= end and s.price]
        for level in ("inter", "intra"):
            assert sum(price.use.get(level, 0.0) * price.seconds for price in within) <= max(end - begin, 0) + 1e-9
