"""Law: late starts and random factors are the same on every engine, and change nothing where there are none."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcollectives.algorithms import ALGORITHMS, placement_of, resolve_options
from simcollectives.cluster import Change, Cluster
from simcollectives.engines.conditions import Conditions, Jitter, uniform
from simcollectives.engines.event import event
from simcollectives.engines.job import make_job
from simcollectives.engines.lockstep import lockstep
from simcollectives.engines.vectorized import refusal, vectorized
from simcollectives.errors import InputError
from tests.laws.cases import DEVICE, INTER, INTRA, LINK

JITTERS = st.one_of(st.none(), st.builds(Jitter, st.sampled_from(["lognormal", "gamma"]), st.floats(0.01, 1.0)))
CONDITIONS = st.builds(
    Conditions,
    skew=st.lists(st.floats(0, 1e-4), max_size=6).map(tuple),
    random_skew=st.sampled_from([0.0, 2e-5]),
    alpha=JITTERS,
    bandwidth=JITTERS,
    reduction=JITTERS,
    seed=st.integers(0, 1000),
)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Unequal clusters with private ports: flat or two-level, some ranks and pairs slower or faster."""
    n = draw(st.integers(1, 12))
    nodes = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
    order = draw(st.sampled_from(["node_major", "round_robin"]))
    flat = draw(st.booleans())
    if flat:
        cluster = Cluster.flat(n, LINK, device=DEVICE)
    else:
        cluster = Cluster.two_level(nodes, n // nodes, INTRA, INTER, rank_order=order, device=DEVICE)
    factor = st.floats(0.25, 2.0)
    changes = [
        Change(rank=rank, alpha=draw(factor), bandwidth=draw(factor), gamma=draw(factor))
        for rank in draw(st.sets(st.integers(0, n - 1), max_size=n))
    ]
    if n > 1 and draw(st.booleans()):
        pair = draw(st.permutations(range(n)))[:2]
        changes.append(Change(link=(pair[0], pair[1]), alpha=draw(factor), bandwidth=draw(st.floats(0.25, 1.0))))
    return cluster.with_changes(*changes)


@settings(max_examples=25)
@given(clusters(), CONDITIONS, st.sampled_from(ALGORITHMS), st.integers(0, 300))
def test_event_equals_vectorized_bit_for_bit(cluster: Cluster, conditions: Conditions, algorithm, elements) -> None:  # type: ignore[no-untyped-def]
    options = resolve_options(algorithm, {})
    if algorithm.accepts(placement_of(cluster), options):
        return
    job = make_job(algorithm.collective, algorithm.name, cluster, 4 * elements, conditions=conditions)
    if refusal(job):
        return
    parts, seconds, sent, _ = event(job)
    assert parts.seconds == pytest.approx(seconds, rel=1e-12, abs=1e-18)
    quick, quick_seconds, quick_sent = vectorized(job, skip=False)
    assert quick_seconds == seconds
    assert np.array_equal(quick_sent, sent)
    assert quick.seconds == pytest.approx(seconds, rel=1e-12, abs=1e-18)
    assert vectorized(job)[1] == pytest.approx(seconds, rel=1e-12, abs=1e-18)
    assert seconds <= lockstep(job)[0].seconds * (1 + 1e-12)


def test_draws_do_not_depend_on_order() -> None:
    src, dst = np.arange(50), np.arange(50) + 1
    conditions = Conditions(alpha=Jitter("gamma", 0.3), seed=7)
    whole = conditions.alpha_factors(0, 3, src, dst)
    assert whole is not None
    shuffled = np.random.default_rng(0).permutation(50)
    again = conditions.alpha_factors(0, 3, src[shuffled], dst[shuffled])
    assert again is not None
    assert np.array_equal(whole[shuffled], again)


@pytest.mark.parametrize("distribution", ["lognormal", "gamma"])
@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_factors_have_mean_one_and_the_spread(distribution: str, spread: float) -> None:
    n = 200_000
    src = np.arange(n)
    factors = Conditions(alpha=Jitter(distribution, spread), seed=1).alpha_factors(0, 0, src, src + 1)  # type: ignore[arg-type]
    assert factors is not None
    # Six standard errors of the mean; the deviation's own is about spread / sqrt(2n), more for a long tail.
    assert abs(factors.mean() - 1) < 6 * spread / n**0.5
    assert factors.std() == pytest.approx(spread, rel=0.02)


def test_uniform_numbers_are_evenly_spread() -> None:
    src = np.arange(100_000)
    numbers = uniform(0, 1, 2, 3, src, src)
    assert 0 < numbers.min() < numbers.max() < 1
    counts = np.histogram(numbers, bins=100, range=(0, 1))[0]
    # Each bin is binomial with mean 1,000 and deviation 31.5.
    assert np.all(np.abs(counts - 1000) < 6 * 31.5)


def test_bad_conditions_are_refused() -> None:
    with pytest.raises(InputError, match="not a distribution"):
        Jitter("normal", 0.1)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a spread"):
        Jitter("gamma", -1.0)
    with pytest.raises(InputError, match="not a start"):
        Conditions(skew=(-1.0,))
