"""Piecewise: two or three regimes of message sizes, each with an alpha and a bandwidth of its own, continuous where
they meet. T = alpha_i + S / B_i for S in regime i.

It describes one sweep, whatever the reason of its bends, and says nothing of other counts. For given joints it is
linear, and found by least squares with slopes of at least 0; joints are tried at the measured messages and between.
"""

import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from simcollectives.errors import InputError
from simcollectives.measured.models.forms import algorithm_of
from simcollectives.measured.models.types import Fitted, FloatArray, Parameter, columns_of, dips, spread_errors
from simcollectives.measured.sweep import MeasuredSweep
from simcollectives.units import format_bytes

LEAST_POINTS = 4
"""Of each regime; a point at a joint belongs to both."""

ROBUST_SCALE = 0.1
_MOST_JOINTS = 48
_NEAR = 1 + 1e-9


def fit_piecewise(sweeps: Sequence[MeasuredSweep], regimes: int = 3) -> Fitted:
    """Regimes of one sweep, as many of ``regimes`` as its points allow.

    Raises:
        InputError: there are several sweeps, or fewer points than one regime takes.
    """
    if len(sweeps) != 1:
        raise InputError(f"piecewise describes one sweep, not {len(sweeps)}; fit them one at a time, or take physical")
    columns = columns_of(sweeps)
    sizes, seconds = columns.message_bytes, columns.seconds
    if len(set(sizes)) < LEAST_POINTS:
        raise InputError(f"{len(set(sizes))} messages are too few; a regime takes {LEAST_POINTS}")
    found: list[str] = []
    wanted = regimes
    while (best := _best(sizes, seconds, wanted)) is None:
        wanted -= 1
    if wanted < regimes:
        rule = f"with {LEAST_POINTS} points each"
        found.append(f"{len(set(sizes))} messages allow {wanted} regimes {rule}, not {regimes}")
    joints, weights = best

    def formula(ranks: FloatArray, nodes: FloatArray, size: FloatArray) -> FloatArray:
        return np.asarray(_design(size, joints) @ weights)

    return Fitted(
        model=f"piecewise{regimes}",
        collective=columns.collective,
        algorithm=algorithm_of(sweeps[0]) or "unknown",
        parameters=_parameters(joints, weights),
        errors=spread_errors(formula(columns.world_size, columns.nodes, sizes), columns),
        columns=columns,
        predictor=formula,
        formula=formula,
        fits_counts=False,
        warnings=(*found, *dips(sweeps[0])),
    )


two_regimes = partial(fit_piecewise, regimes=2)
three_regimes = partial(fit_piecewise, regimes=3)


def _design(sizes: FloatArray, joints: Sequence[float]) -> FloatArray:
    """Columns whose sum, weighted by the alpha of the first regime and the slope of each, is the time."""
    edges = [0.0, *joints, math.inf]
    parts = [np.clip(sizes - low, 0, high - low) for low, high in itertools.pairwise(edges)]
    return np.stack([np.ones_like(sizes), *parts], axis=1)


def _best(sizes: FloatArray, seconds: FloatArray, regimes: int) -> tuple[tuple[float, ...], FloatArray] | None:
    """The joints with the least robust sum, and the weights at them; None where no joints leave points enough."""
    best: tuple[float, tuple[float, ...]] | None = None
    for joints in itertools.combinations(_candidates(sizes), regimes - 1):
        edges = [0.0, *joints, math.inf]
        held = [np.count_nonzero((sizes >= a / _NEAR) & (sizes <= b * _NEAR)) for a, b in itertools.pairwise(edges)]
        if min(held) < LEAST_POINTS:
            continue
        _, cost = _weights(sizes, seconds, joints, rounds=3)
        if best is None or cost < best[0]:
            best = cost, joints
    return None if best is None else (best[1], _weights(sizes, seconds, best[1], rounds=8)[0])


def _candidates(sizes: FloatArray) -> list[float]:
    """Measured messages and the means between neighbours, thinned where there are many."""
    unique = np.unique(sizes)
    middle = np.sqrt(unique[1:] * unique[:-1])
    grid = np.sort(np.concatenate([unique, middle]))
    if len(grid) > _MOST_JOINTS:
        logs = np.linspace(math.log(grid[0]), math.log(grid[-1]), _MOST_JOINTS)
        grid = np.unique([grid[int(np.argmin(np.abs(np.log(grid) - at)))] for at in logs])
    return [float(one) for one in grid]


def _weights(sizes: FloatArray, seconds: FloatArray, joints: Sequence[float], rounds: int) -> tuple[FloatArray, float]:
    """Weights of the columns, none negative, by reweighted least squares of relative errors; and the robust sum."""
    from scipy.optimize import nnls

    relative = _design(sizes, joints) / seconds[:, None]
    scale = np.max(np.abs(relative), axis=0) + 1e-300
    relative = relative / scale
    trust = np.ones(len(seconds))
    left = np.zeros(len(seconds))
    found = np.zeros(relative.shape[1])
    for _ in range(rounds):
        found, _ = nnls(relative * trust[:, None], trust)
        left = relative @ found - 1
        trust = (1 + (left / ROBUST_SCALE) ** 2) ** -0.25
    cost = float(np.sum(np.sqrt(1 + (left / ROBUST_SCALE) ** 2) - 1))
    return np.asarray(found / scale), cost


def _parameters(joints: Sequence[float], weights: FloatArray) -> tuple[Parameter, ...]:
    """Alpha and bandwidth of each regime, and the joints. A regime without a slope has no bandwidth."""
    found = []
    alpha, slopes = float(weights[0]), weights[1:]
    for place, (joint, slope) in enumerate(zip([0.0, *joints], slopes, strict=True)):
        if place:
            alpha += joint * (float(slopes[place - 1]) - float(slope))
        where = "all messages" if not joints else f"messages from {format_bytes(joint)}" if place else "short messages"
        found.append(Parameter(f"alpha {place + 1}", alpha, "s", alpha, alpha, where))
        if slope > 0:
            rate = 1 / float(slope)
            found.append(Parameter(f"B {place + 1}", rate, "B/s", rate, rate, where))
        else:
            remark = "is undetermined: the time does not grow there"
            found.append(Parameter(f"B {place + 1}", math.inf, "B/s", 0, math.inf, where, remark))
    return tuple(found)
