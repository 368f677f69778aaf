"""The best bucket size, and the reason on either side: taken from the steps, and different where the limit is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.cluster import Cluster, Link
from simcollectives.errors import InputError
from simcollectives.training.advice import Advice, advice_lines, advise, explain
from simcollectives.training.catalogue import load_model
from simcollectives.training.prepare import prepare_training
from simcollectives.training.pricing import Pricer
from simcollectives.training.setup import Precision, Training
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.workload import Workload
from simcollectives.units import format_bytes
from tests.training.steps import H100, INFINIBAND, NVLINK, SIXTY_FOUR, uniform_training

TENSOR = 2 * 1_360_000_000 / 384
CAPS = [0.99 * TENSOR * 2**power for power in range(10)]
"""Buckets of 1, 2, 4, ... tensors of the lecture's model."""


def quarter(cluster: Cluster) -> Training:
    """A quarter of the lecture's model: tensors of the same size, a quarter of the time."""
    return uniform_training(340_000_000, 6, 16, cluster=cluster)


def sweep(training: Training, caps: Sequence[Any], **options: Any) -> list[tuple[Any, Step]]:
    pricer = Pricer(training.cluster)
    return [(cap, simulate_step(training, "ddp", {"bucket_cap": cap, **options}, pricer=pricer)) for cap in caps]


def two_level(alpha: float, bandwidth: float) -> Cluster:
    return Cluster.two_level(8, 8, Link(alpha, 450e9), Link(alpha, bandwidth))


def test_the_lecture() -> None:
    """64 GPUs, 1.36 B parameters in 384 tensors: 96 buckets are best; 192 cost 28 rounds, 0.21 ms, each."""
    advice = advise(sweep(uniform_training(), CAPS))
    assert advice.optimum == CAPS[2]
    assert (advice.reason_below, advice.reason_above) == ("latency", "tail")
    best, smaller, larger = (advice.numbers_at(cap) for cap in (CAPS[2], CAPS[1], CAPS[3]))
    assert (smaller.collectives, best.collectives, larger.collectives) == (192, 96, 48)
    assert best.latency_each == pytest.approx(2 * 7 * 5e-6 + 2 * 7 * 10e-6)
    # Of the optimum only the last bucket is exposed: one latency, and 7/8 twice inside and 1/8 of 7/8 twice outside.
    size = 4 * TENSOR
    assert best.latency == pytest.approx(210e-6)
    assert best.rest == best.tail == pytest.approx(2 * 7 / 8 * size / 450e9 + 2 * 7 / 64 * size / 50e9, rel=1e-5)
    (nearest, _), (above, _) = advice.below, advice.above
    assert nearest.parts["late start"] == 0
    assert nearest.parts["tail"] == pytest.approx(-best.tail / 2, rel=1e-5)
    assert above.parts["tail"] == pytest.approx(best.tail, rel=1e-5)
    assert above.parts["latency"] == pytest.approx(0, abs=1e-12)
    # With 192 buckets the network is busy from the first on: 192 latencies and all bytes, less the backward after it.
    training = uniform_training()
    backward = 2 / 3 * 6 * 1.36e9 * 4096 / (989e12 * 0.45)
    everything = 2 * 7 / 8 * 2.72e9 / 450e9 + 2 * 7 / 64 * 2.72e9 / 50e9
    assert smaller.exposed == pytest.approx(192 * 210e-6 + everything - backward * 191 / 192, rel=1e-4)
    assert training.world_size == 64


@pytest.mark.parametrize(
    ("cluster", "reasons"),
    [
        (SIXTY_FOUR, ("latency", "tail")),
        (two_level(0.0, 50e9), ("end of sweep", "tail")),
        (two_level(0.0, 8e9), ("end of sweep", "late start")),
        (two_level(10e-6, 8e9), ("latency", "late start")),
        (two_level(1e-3, 50e9), ("latency", "end of sweep")),
        (Cluster.flat(1, NVLINK), ("end of sweep", "flat")),
    ],
)
def test_the_reasons_change_with_the_limit(cluster: Cluster, reasons: tuple[str, str]) -> None:
    """Latency, a bandwidth that compute hides, one that it does not hide, and nothing at all."""
    advice = advise(sweep(quarter(cluster), CAPS[:8]))
    assert (advice.reason_below, advice.reason_above) == reasons


def test_late_start_is_the_start_of_the_first_collective() -> None:
    """Where the network is never idle once it started, larger buckets cost what they delay its start."""
    training = quarter(two_level(0.0, 8e9))
    (_, small), (_, large) = points = sweep(training, CAPS[:2])
    advice = advise(points)
    start = [min(collective.start for collective in step.collectives) for step in (small, large)]
    (above,) = advice.above
    assert above.parts["late start"] == pytest.approx(start[1] - start[0], rel=1e-3)  # chunks are whole elements
    assert above.parts["late start"] == pytest.approx(above.seconds, rel=1e-9)
    assert advice.numbers_at(CAPS[1]).first_start == pytest.approx(2 / 96, rel=1e-6)


def test_flat_where_nothing_changes() -> None:
    """With 4,000 tokens for every byte, no bucket size matters; below the limit of one tensor none differs."""
    training = uniform_training(10**8, 4, 4, tokens=4_000_000)
    advice = advise(sweep(training, [2.0**power for power in range(8)]))
    assert advice.alike == tuple(2.0**power for power in range(8))
    assert (advice.reason_below, advice.reason_above) == ("end of sweep", "flat")
    assert advice.below == advice.above == ()
    steps = [step for _, step in sweep(training, [2.0**26, 1.0, 2.0**26])]
    middle = advise(list(enumerate(steps)))
    assert middle.optimum == 1
    assert (middle.reason_below, middle.reason_above) == ("flat", "flat")


def test_values_that_are_no_numbers_keep_their_order() -> None:
    points = sweep(uniform_training(), [None, 14e6, (10**6, 50e6)])
    advice = advise(points)
    assert advice.optimum is None
    assert advice.reason_above == "latency"
    assert [one.value for one in advice.above] == [14e6, (10**6, 50e6)]


def test_other_bytes_are_traffic() -> None:
    """Half the bytes where the network is the limit: the difference is neither latency nor tail."""
    precision = Precision(parameters="float32", gradients="float32")
    training = uniform_training(10**8, 4, 4, 1024, two_level(0.0, 4e9), precision=precision)
    full = simulate_step(training, "ddp", {"bucket_cap": 25e6})
    half = simulate_step(training, "ddp", {"bucket_cap": 25e6, "hook": "fp16"})
    advice = advise([("none", full), ("fp16", half)])
    assert advice.optimum == "fp16"
    assert advice.reason_below == "traffic"
    assert advice.below[0].parts["traffic"] == pytest.approx(full.exposed_seconds - half.exposed_seconds)


def ready_and_seconds(step: Step) -> tuple[list[tuple[float, float]], float]:
    """When each bucket was complete and how long its bytes take, in order; and the end of the backward pass."""
    spans = {span.place: span for span in step.timeline.of_rank(0)}
    found, last = [], 0.0
    for _, span in sorted(spans.items()):
        if span.operation.call is not None and span.price is not None:
            ready = max(spans[place].end for place in span.operation.after)
            found.append((ready, span.price.seconds - span.price.latency_seconds))
            last = ready
    return found, last


@settings(max_examples=12)
@given(
    st.integers(10**4, 10**9),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 20000),
    st.sampled_from([SIXTY_FOUR, two_level(0.0, 8e9), two_level(1e-4, 400e9), Cluster.flat(6, INFINIBAND)]),
    st.floats(0.01, 2.0),
)
def test_the_parts_are_those_of_a_queue(
    elements: int, layers: int, tensors: int, tokens: int, cluster: Cluster, share: float
) -> None:
    """One bucket after another: the last ends at the largest sum of a bucket's ready time and the times from it on."""
    training = uniform_training(elements, layers, tensors, tokens, cluster)
    step = simulate_step(training, "ddp", {"bucket_cap": max(share * 2 * elements, 1.0)})
    numbers = explain("cap", step)
    buckets, last = ready_and_seconds(step)
    ends = [ready + sum(seconds for _, seconds in buckets[index:]) for index, (ready, _) in enumerate(buckets)]
    allowed = 1e-12 * step.step_seconds
    assert numbers.rest == pytest.approx(max(ends) - last, abs=allowed)
    assert numbers.tail == pytest.approx(buckets[-1][1], abs=allowed)
    assert numbers.latency == pytest.approx(step.exposed_seconds - numbers.rest, abs=allowed)
    assert numbers.latency >= -allowed


@settings(max_examples=12)
@given(
    st.integers(10**4, 10**9),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 20000),
    st.lists(st.floats(1.0, 1e9), min_size=1, max_size=6, unique=True),
    st.booleans(),
)
def test_parts_sum_to_the_difference(
    elements: int, layers: int, tensors: int, tokens: int, caps: list[float], copies: bool
) -> None:
    cluster = Cluster.two_level(2, 2, NVLINK, INFINIBAND, device=H100 if copies else None)
    points = sweep(uniform_training(elements, layers, tensors, tokens, cluster), caps)
    advice = advise(points)
    steps = dict(points)
    best = steps[advice.optimum].step_seconds
    assert best == min(step.step_seconds for step in steps.values())
    for one in (*advice.below, *advice.above):
        assert one.seconds == pytest.approx(steps[one.value].step_seconds - best, abs=1e-12)
        assert sum(one.parts.values()) == pytest.approx(one.seconds, abs=1e-12 + 1e-12 * best)
        assert one.seconds > 1e-3 * best
        assert one.parts[one.reason] == max(one.parts.values())
    assert all(steps[value].step_seconds <= best * (1 + 1e-3) for value in advice.alike)
    assert all(one.value < advice.alike[0] for one in advice.below)
    assert all(one.value > advice.alike[-1] for one in advice.above)


def lines(advice: Advice) -> list[str]:
    return advice_lines(advice, "bucket_cap", format_bytes)


def test_the_text_says_value_reason_and_amount() -> None:
    caps = [7e6, 14e6, 25e6, 50e6]
    best, smaller, larger = lines(advise(sweep(uniform_training(), caps)))
    assert best == "best bucket_cap: 25 MB, 75.54 ms a step"
    assert smaller.startswith(
        "smaller: latency; at 14 MB the step is 12.5 ms longer: latency +12.7 ms (192 collectives"
    )
    assert "at 7 MB the step is 52.7 ms longer" in smaller
    assert larger == (
        "larger: tail; at 50 MB the step is 234 us longer: tail +234 us "
        "(the last collective is of 56.67 MB instead of 28.33 MB)"
    )


def test_the_text_of_other_reasons() -> None:
    cluster = two_level(0.0, 8e9)
    _, smaller, larger = lines(advise(sweep(quarter(cluster), CAPS[:3])))
    assert smaller == "smaller: not swept; the best value may be smaller still"
    assert "(the first collective starts after 4.17% of the backward instead of 1.04%)" in larger
    best, _, larger = lines(advise(sweep(quarter(Cluster.flat(1, NVLINK)), CAPS[:8])))
    assert best.endswith("from 7.012 MB to 897.6 MB the step is as long, within 0.1%")
    assert larger == "larger: flat; no step on this side is longer by more than 0.1%"


def test_errors() -> None:
    with pytest.raises(InputError, match="no steps"):
        advise([])
    one = sweep(uniform_training(), [25e6])
    other = sweep(uniform_training(tokens=2048), [30e6])
    with pytest.raises(InputError, match=r"30000000\.0: the strategy, the model, the cluster or the batch is another"):
        advise([*one, *other])


def test_the_text_of_parts_that_have_no_number_to_show() -> None:
    """Where copies hide collectives: latency that is exposed although there are fewer, and an equal first start."""
    model = load_model("bert-large-uncased")
    workload = Workload(16, 512, "selective")
    precision = Precision("bfloat16", "float32", "float32")
    training = prepare_training(model, Cluster.machine("dgx-h100", 2), workload, mfu=0.45, precision=precision)
    advice = advise(sweep(training, [8e6, 16e6], gradient_as_bucket_view=True))
    best, larger = (advice.numbers_at(cap) for cap in (8e6, 16e6))
    assert larger.collectives < best.collectives
    assert larger.first_start == pytest.approx(best.first_start)
    assert advice.reason_above == "late start"
    assert "(collectives before the last end later), latency +" in lines(advice)[2]
