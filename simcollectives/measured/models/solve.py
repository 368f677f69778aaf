"""Robust least squares over logarithms of parameters, with wide priors and several starts.

The residual of a point is ``ln(predicted / measured)``: times of a sweep span five decades. Its loss is soft-L1, which
is square up to ``ROBUST_SCALE`` (10 %) and straight beyond, so that an outlier pulls no more than that. A prior is a
weak residual beside them: it decides only what the points leave open.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simcollectives.measured.models.types import FloatArray, Parameter

ROBUST_SCALE = 0.1
PRIOR_WEIGHT = 0.03
STARTS = 6
UNDETERMINED = math.log(2)
"""A standard error of a parameter's logarithm from which on the points do not determine it."""

_SEED = 6
_AT_BOUND = 1.01


@dataclass(frozen=True)
class Free:
    """A parameter to find: its range, where it is expected, and how far from there (of its logarithm; None: anywhere).

    ``scale`` turns it into the SI ``unit``.
    """

    name: str
    low: float
    high: float
    expected: float
    spread: float | None
    unit: str
    scale: float
    meaning: str


@dataclass(frozen=True)
class Solution:
    """Values by name, and the standard error of each one's logarithm."""

    values: dict[str, float]
    log_errors: dict[str, float]


def solve(
    predict: Callable[[dict[str, float]], FloatArray], measured: FloatArray, free: Sequence[Free], starts: int = STARTS
) -> Solution:
    """Parameters with the least robust sum of squares, the best of several starts; the same every time."""
    from scipy.optimize import least_squares

    names = [one.name for one in free]
    low, high = (np.log([getattr(one, end) for one in free]) for end in ("low", "high"))
    inside = 1e-6
    expected = np.clip(np.log([one.expected for one in free]), low + inside, high - inside)
    weights = np.array([0.0 if one.spread is None else PRIOR_WEIGHT / one.spread for one in free])
    jitter = np.array([0.5 if one.spread is None else 0.6 * one.spread for one in free])

    def data(logs: FloatArray) -> FloatArray:
        predicted = predict(dict(zip(names, np.exp(logs).tolist(), strict=True)))
        result: FloatArray = np.log(predicted / measured)
        return result

    def residuals(logs: FloatArray) -> FloatArray:
        return np.concatenate([data(logs), weights * (logs - expected)])

    random = np.random.default_rng(_SEED)
    best = None
    for number in range(starts):
        away = 0 if number == 0 else random.normal(size=len(free)) * jitter
        start = np.clip(expected + away, low + inside, high - inside)
        found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=ROBUST_SCALE)
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None  # there is at least one start
    errors = _log_errors(residuals(best.x), np.asarray(best.jac), len(measured), weights)
    return Solution(dict(zip(names, np.exp(best.x).tolist(), strict=True)), dict(zip(names, errors, strict=True)))


def _log_errors(residuals: FloatArray, jacobian: FloatArray, points: int, weights: FloatArray) -> list[float]:
    """Standard errors by the curvature at the best place; the priors keep what the points leave open finite."""
    robust = 1.4826 * float(np.median(np.abs(residuals[:points])))
    sigma = max(robust, float(np.sqrt(np.mean(np.minimum(residuals[:points] ** 2, ROBUST_SCALE**2)))), 1e-6)
    sigma *= math.sqrt(points / max(points - len(weights), 1))
    # scipy scales the rows of its Jacobian by the loss; the priors' rows are those of weights, near enough.
    curvature = jacobian.T @ jacobian + 1e-12 * np.eye(len(weights))
    variances = np.diag(np.linalg.pinv(curvature)) * sigma**2
    return [math.sqrt(max(float(one), 0.0)) for one in variances]


def parameters_of(solution: Solution, free: Sequence[Free]) -> tuple[Parameter, ...]:
    """The parameters in SI units with intervals, and in words which is undetermined or at its bound."""
    return tuple(_parameter(solution, one) for one in free)


def at_upper_end(solution: Solution, free: Free) -> bool:
    """Whether a parameter stands at the upper end of its range, where its best value may lie outside."""
    return solution.values[free.name] > free.high / _AT_BOUND


def _parameter(solution: Solution, free: Free) -> Parameter:
    value, error = solution.values[free.name], solution.log_errors[free.name]
    factor = math.exp(min(2 * error, math.log(1e6)))
    low, high = max(value / factor, free.low), min(value * factor, free.high)
    remark = None
    if value < free.low * _AT_BOUND:
        remark = "stands at the lower end of its range"
    elif at_upper_end(solution, free):
        remark = "stands at the upper end of its range"
    elif error > UNDETERMINED:
        remark = "is undetermined: these points hardly depend on it"
    scaled = (one * free.scale for one in (value, low, high))
    return Parameter(free.name, next(scaled), free.unit, next(scaled), next(scaled), free.meaning, remark)
