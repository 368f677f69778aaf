"""How far predictions are from a measured sweep, and which alpha and bandwidth of one link come nearest to it.

The fit minimises the sum over message sizes of ``(predicted / measured - 1)^2``. Squares of *relative* errors, because
times of a sweep span five decades: squares of seconds would fit the largest message alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from simcollectives.cluster import Cluster, Link
from simcollectives.engines.closed_form import require_closed_form
from simcollectives.engines.job import DTYPES, Job, count_elements, make_job
from simcollectives.errors import InputError, NoClosedFormError, Problem, show_value
from simcollectives.measured.spread import relative_errors, spread
from simcollectives.measured.sweep import MeasuredSweep
from simcollectives.units import format_bandwidth, format_bytes, format_seconds

FloatArray = npt.NDArray[np.float64]

ALPHA_BOUNDS = (1e-9, 1e-2)
"""Seconds: from below any link's latency to above any."""

BANDWIDTH_BOUNDS = (1e6, 1e14)
"""Bytes per second: from below any link's bandwidth to above any."""

MIN_POINTS = 3
"""Two parameters pass through two points exactly, which would say nothing about the model."""

_REFINED_STARTS = 3
_NEAR_BOUND = 1.01
_NO_CHANGE = 1e-4


@dataclass(frozen=True)
class Errors:
    """Sizes of relative errors: median, 90th percentile, the largest, and the message (B) it occurs at.

    ``bias`` is the median with signs: above 0 the prediction is too slow.
    """

    median: float
    p90: float
    largest: float
    largest_at_bytes: int
    bias: float


@dataclass(frozen=True)
class Fit:
    """The link that comes nearest to a measured sweep.

    ``alpha`` (s) and ``bandwidth`` (B/s) belong to the link of ``level``; ``cluster`` is the given one with this link.
    ``errors`` are the fit's, ``given_errors`` those of the prediction before the fit. ``predicted`` and
    ``given_predicted`` are seconds, one a point of the sweep. The texts are None where there is nothing to say:
    ``hits_bound``, a parameter stands at the end of the range it was sought in; ``undetermined``, a parameter that the
    measurements hardly depend on; ``cut_by_bytes``, sizes that are no whole number of elements.
    """

    alpha: float
    bandwidth: float
    level: str
    errors: Errors
    cluster: Cluster
    given_errors: Errors
    predicted: tuple[float, ...]
    given_predicted: tuple[float, ...]
    hits_bound: str | None = None
    undetermined: str | None = None
    cut_by_bytes: str | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of this fit has to know, in sentences."""
        return tuple(text for text in (self.hits_bound, self.undetermined, self.cut_by_bytes) if text is not None)


def errors(predicted: Sequence[float], measured: Sequence[float], message_bytes: Sequence[int]) -> Errors:
    """Relative errors of predicted against measured seconds; of several largest errors the first is named.

    Raises :class:`InputError` where there are no points, the lengths differ or a measured time is not positive.

    >>> errors([1.25, 2.0, 2.0], [1.0, 2.0, 4.0], [8, 16, 32])
    Errors(median=0.25, p90=0.45, largest=0.5, largest_at_bytes=32, bias=0.0)
    """
    lengths = {len(predicted), len(measured), len(message_bytes)}
    if len(lengths) > 1 or lengths == {0}:
        found = f"{len(predicted)} predicted, {len(measured)} measured, {len(message_bytes)} sizes"
        raise InputError(f"{found}; errors need as many of each, and at least one")
    for time in measured:
        if not 0 < time < math.inf:
            raise InputError(f"a measured time of {time!r} s has no relative error; it must be positive")
    all_of_them = spread(relative_errors(predicted, measured))
    at_bytes = message_bytes[all_of_them.worst_at]
    return Errors(all_of_them.median, all_of_them.p90, all_of_them.largest, at_bytes, all_of_them.bias)


def fit_link(
    collective: str,
    algorithm: str,
    options: Mapping[str, Any] | None,
    cluster: Cluster,
    level: str,
    sweep: MeasuredSweep,
    dtype: str = "int8",
) -> Fit:
    """Alpha and bandwidth of the links of ``level``, so that ``algorithm`` comes nearest to ``sweep``.

    Everything else of the cluster stays as given, the link's overhead too. The prediction is the algorithm's closed
    form. ``dtype`` decides how a message is cut into chunks: the default cuts between any two bytes, and so does a size
    that is no whole number of elements of another dtype. Raises :class:`InputError` where the sweep is of another
    collective or world size or has under three points, :class:`NoClosedFormError` where no closed form is exact.
    """
    _check(collective, cluster, sweep, dtype)
    given = cluster.level(level).link
    measured = np.array(sweep.seconds)
    jobs = jobs_of(make_job(collective, algorithm, cluster, max(sweep.message_bytes), options, "int8"), sweep, dtype)

    def predict(alpha: float, bandwidth: float) -> FloatArray:
        return predict_jobs(jobs, cluster.with_link(level, Link(alpha, bandwidth, given.overhead)))

    given_predicted = predict(given.alpha, given.bandwidth)
    alpha, bandwidth = _least_squares(predict, measured, given)
    predicted = predict(alpha, bandwidth)
    return Fit(
        alpha=alpha,
        bandwidth=bandwidth,
        level=level,
        errors=errors(predicted.tolist(), sweep.seconds, sweep.message_bytes),
        cluster=cluster.with_link(level, Link(alpha, bandwidth, given.overhead)),
        given_errors=errors(given_predicted.tolist(), sweep.seconds, sweep.message_bytes),
        predicted=tuple(predicted.tolist()),
        given_predicted=tuple(given_predicted.tolist()),
        hits_bound=_bound_text(alpha, bandwidth, level),
        undetermined=_undetermined_text(predict, alpha, bandwidth, level),
        cut_by_bytes=_cut_text(sweep.message_bytes, dtype),
    )


def _check(collective: str, cluster: Cluster, sweep: MeasuredSweep, dtype: str) -> None:
    problems = []
    name = show_value(sweep.name)
    if sweep.collective not in (None, collective):
        message = f"measured set {name} is of {sweep.collective}, the prediction of {collective}; both must be of one"
        problems.append(Problem("collective", message))
    if sweep.world_size not in (None, cluster.world_size):
        remedy = f"give the cluster {sweep.world_size} devices, or take another set"
        message = f"measured set {name} ran on {sweep.world_size} ranks, the cluster has {cluster.world_size}; {remedy}"
        problems.append(Problem("cluster", message))
    if len(sweep.message_bytes) < MIN_POINTS:
        rule = f"a fit needs at least {MIN_POINTS}: take in more message sizes"
        problems.append(Problem("measured", f"measured set {name} has {len(sweep.message_bytes)} points; {rule}"))
    if dtype not in DTYPES:
        problems.append(Problem("dtype", f"{show_value(dtype)} is no dtype; write one of {', '.join(DTYPES)}"))
    if problems:
        raise InputError(problems)


def jobs_of(like: Job, sweep: MeasuredSweep, dtype: str) -> list[Job]:
    """One job a message. They share one schedule, which may be large and depends on neither message nor links."""
    jobs = []
    for size in sweep.message_bytes:
        fitting = dtype if size % DTYPES[dtype] == 0 else "int8"
        layout = replace(like.layout, elements=count_elements(size, fitting))
        jobs.append(replace(like, layout=layout, dtype=fitting))
    return jobs


def predict_jobs(jobs: Sequence[Job], cluster: Cluster) -> FloatArray:
    """Seconds of each job by its closed form, on a cluster that differs from the jobs' in its links alone."""
    seconds = []
    for job in jobs:
        try:
            seconds.append(require_closed_form(replace(job, cluster=cluster)).seconds)
        except NoClosedFormError as error:
            rule = f"a fit needs one at every size, also {format_bytes(job.message_bytes)}"
            remedy = "take another algorithm, a flat cluster, or a range of messages without this size"
            problems = [replace(problem, message=f"{problem.message}; {rule}: {remedy}") for problem in error.problems]
            raise NoClosedFormError(problems, error.source) from error
    return np.array(seconds, dtype=np.float64)


def _least_squares(
    predict: Callable[[float, float], FloatArray], measured: FloatArray, given: Link
) -> tuple[float, float]:
    """The alpha and bandwidth with the least sum of squared relative errors.

    Where one level of several is the slowest, the sum has kinks and flat parts. So it is looked at once a decade over
    the whole range, and descended from the best places and from the given link.
    """
    from scipy.optimize import least_squares

    low = np.log([ALPHA_BOUNDS[0], BANDWIDTH_BOUNDS[0]])
    high = np.log([ALPHA_BOUNDS[1], BANDWIDTH_BOUNDS[1]])

    def residuals(logs: FloatArray) -> FloatArray:
        result: FloatArray = predict(math.exp(logs[0]), math.exp(logs[1])) / measured - 1
        return result

    def cost(logs: FloatArray) -> float:
        return float(np.sum(residuals(logs) ** 2))

    decades = [np.linspace(low[i], high[i], round((high[i] - low[i]) / math.log(10)) + 1) for i in range(2)]
    grid = [np.array([alpha, bandwidth]) for alpha in decades[0] for bandwidth in decades[1]]
    as_given = np.clip(np.log([max(given.alpha, ALPHA_BOUNDS[0]), given.bandwidth]), low, high)
    starts = [as_given, *sorted(grid, key=cost)[:_REFINED_STARTS]]
    found = [least_squares(residuals, start, bounds=(low, high)).x for start in starts]
    tight = 1e-14
    best = least_squares(
        residuals, min(found, key=cost), jac="3-point", bounds=(low, high), ftol=tight, xtol=tight, gtol=tight
    ).x
    return math.exp(best[0]), math.exp(best[1])


def _bound_text(alpha: float, bandwidth: float, level: str) -> str | None:
    """A sentence for the parameters at an end of their range, where the true optimum may lie outside."""
    found = []
    for name, value, (low, high), show in (
        ("alpha", alpha, ALPHA_BOUNDS, format_seconds),
        ("bandwidth", bandwidth, BANDWIDTH_BOUNDS, format_bandwidth),
    ):
        if value < low * _NEAR_BOUND or value > high / _NEAR_BOUND:
            found.append(f"{name} of {level} stands at the end of its range, {show(low)} to {show(high)}")
    return f"{'; '.join(found)}: this algorithm does not describe these measurements" if found else None


def _undetermined_text(
    predict: Callable[[float, float], FloatArray], alpha: float, bandwidth: float, level: str
) -> str | None:
    """A sentence for the parameters that could be twice as good without changing a prediction."""
    here = predict(alpha, bandwidth)
    found = []
    if np.all(np.abs(predict(alpha / 2, bandwidth) - here) <= _NO_CHANGE * here):
        found.append(f"alpha of {level} may as well be any value below {format_seconds(alpha)}")
    if np.all(np.abs(predict(alpha, bandwidth * 2) - here) <= _NO_CHANGE * here):
        found.append(f"bandwidth of {level} may as well be any value above {format_bandwidth(bandwidth)}")
    return f"{' and '.join(found)}: something else sets these times" if found else None


def _cut_text(message_bytes: Sequence[int], dtype: str) -> str | None:
    odd = [size for size in message_bytes if size % DTYPES[dtype] != 0]
    if not odd:
        return None
    sizes = ", ".join(format_bytes(size) for size in odd[:5]) + (", ..." if len(odd) > 5 else "")
    found = f"{len(odd)} of {len(message_bytes)} sizes ({sizes}) are no whole number of {dtype} elements"
    return f"{found} and were cut into chunks byte by byte"
