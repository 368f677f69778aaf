"""Gradients against finite differences, whatever the statistics; optimizers against their formulas by hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from scipy.optimize import check_grad

from simcollectives.cluster import Cluster, Link
from simcollectives.training.numerics import OPTIMIZERS, Network
from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.layers import Array, BatchNorm, Layer, Parameters, cross_entropy
from simcollectives.training.numerics.network import BATCH_NORMS, initial_parameters, make_batch, propagate, split

SIZES = (7, 5, 2)


def unflatten(network: Network, flat: Array) -> dict[str, Array]:
    ends = np.cumsum([p.elements for p in network.parameters])[:-1]
    parts = np.split(flat, ends)
    return {p.name: part.reshape(p.shape) for p, part in zip(network.parameters, parts, strict=True)}


def loss_and_gradient(flat: Array, network: Network, sizes: Sequence[int]) -> tuple[float, Array]:
    """The loss of all samples, passed in shards of these sizes with one set of parameters, and its gradient."""
    held = [unflatten(network, flat)] * len(sizes)
    total = {p.name: np.zeros(p.shape) for p in network.parameters}

    def collect(_layer: Layer, gradients: Sequence[Parameters]) -> None:
        for gradient in gradients:
            for name, value in gradient.items():
                total[name] += value

    batches = split(make_batch(network, sum(sizes), seed=3, step=1), sizes)
    weights = [size / sum(sizes) for size in sizes]
    group = Group(Cluster.flat(len(sizes), Link(0.0, 1.0)), "ring", {})
    losses = propagate(network.layers, lambda _: held, collect, batches, weights, group)
    return float(np.dot(weights, losses)), np.concatenate([value.reshape(-1) for value in total.values()])


def start(network: Network) -> Array:
    """Parameters with nothing at its initial 0 or 1."""
    flat = np.concatenate([p.reshape(-1) for p in initial_parameters(network, seed=3).values()])
    return flat + np.random.default_rng(3).normal(scale=0.3, size=flat.size)


@pytest.mark.parametrize("sizes", [(14,), SIZES], ids=["one device", "three devices"])
@pytest.mark.parametrize("batch_norm", BATCH_NORMS)
def test_gradients_are_those_of_finite_differences(batch_norm: str, sizes: tuple[int, ...]) -> None:
    """Forward differences of width 1.5e-8 are off by about that times the second derivative, for each element."""
    network = Network(inputs=3, hidden=5, classes=4, batch_norm=batch_norm)
    both = partial(loss_and_gradient, network=network, sizes=sizes)
    at = start(network)
    assert np.abs(both(at)[1]).max() > 0.1
    assert check_grad(lambda x: both(x)[0], lambda x: both(x)[1], at) < 5e-6


def test_a_wrong_gradient_is_found() -> None:
    """With statistics synchronised forward only, finite differences would tell: local gradients are not those."""
    local, synchronised = (Network(3, 5, 4, batch_norm=kind) for kind in ("local", "synchronised"))
    off = check_grad(
        lambda x: loss_and_gradient(x, synchronised, SIZES)[0],
        lambda x: loss_and_gradient(x, local, SIZES)[1],
        start(local),
    )
    assert off > 1e-2


@pytest.mark.parametrize("batch_norm", ["none", "synchronised"])
def test_shards_have_the_gradient_of_the_whole(batch_norm: str) -> None:
    network = Network(inputs=3, hidden=5, classes=4, batch_norm=batch_norm)
    whole, parts = (loss_and_gradient(start(network), network, sizes) for sizes in ((14,), SIZES))
    assert parts[0] == pytest.approx(whole[0], abs=1e-15)
    np.testing.assert_allclose(parts[1], whole[1], rtol=0, atol=2e-15)


def test_statistics_far_from_zero_do_not_cancel() -> None:
    """Mean 1e6, variance 1: x^2 - mean^2 would keep 4 of 16 digits. Two halves must normalise as the whole."""
    x = 1e6 + np.random.default_rng(0).standard_normal((64, 3))
    norm = BatchNorm("norm", 3, synchronised=True)
    given = {"norm.weight": np.ones(3), "norm.bias": np.zeros(3)}
    group = Group(Cluster.flat(2, Link(0.0, 1.0)), "ring", {})
    outputs, _ = norm.forward([given] * 2, [x[:20], x[20:]], group)
    expected = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + norm.epsilon)
    np.testing.assert_allclose(np.concatenate(outputs), expected, rtol=0, atol=1e-8)


def test_cross_entropy_by_hand() -> None:
    """Logits 0 and ln 3: probabilities 1/4 and 3/4; a million more on all changes nothing."""
    logits = np.log([[1.0, 3.0], [3.0, 1.0]])
    for shift in (0.0, 1e6):
        loss, gradient = cross_entropy(logits + shift, np.array([0, 0]), 2.0)
        assert loss == pytest.approx((np.log(4) + np.log(4 / 3)) / 2, abs=1e-9)
        np.testing.assert_allclose(gradient, [[-0.75, 0.75], [-0.25, 0.25]], atol=1e-9)


def test_optimizers_by_hand() -> None:
    """Two steps with gradient 2 from 1, rate 0.5."""
    ends = {
        "sgd": 1 - 0.5 * 2 - 0.5 * 2,
        "momentum": 1 - 0.5 * 2 - 0.5 * (0.9 * 2 + 2),
        # With one gradient all along, the corrected means are it and its square: every step is the rate, but for e.
        "adam": 1 - 2 * 0.5 * 2 / (2 + 1e-8),
    }
    assert set(ends) == set(OPTIMIZERS)
    for name, end in ends.items():
        optimizer = OPTIMIZERS[name]
        at, states = np.ones(1), (np.zeros(1),) * optimizer.states
        for step in (1, 2):
            at, states = optimizer.update(at, np.full(1, 2.0), states, 0.5, step)
        assert at[0] == pytest.approx(end, abs=1e-13), name


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_of_a_part_is_the_part_of_the_update(name: str) -> None:
    """Bit for bit, wherever the part begins: what sharded optimizer states rest on."""
    optimizer = OPTIMIZERS[name]
    generator = np.random.default_rng(1)
    whole = generator.standard_normal(37)
    states = (np.zeros(37),) * optimizer.states
    parts = [(whole[part], tuple(s[part] for s in states)) for part in (slice(0, 11), slice(11, 37))]
    for step in range(1, 4):
        gradient = generator.standard_normal(37)
        whole, states = optimizer.update(whole, gradient, states, 0.01, step)
        cut = np.split(gradient, [11])
        parts = [optimizer.update(p, g, s, 0.01, step) for (p, s), g in zip(parts, cut, strict=True)]
    assert np.concatenate([p for p, _ in parts]).tobytes() == whole.tobytes()
