"""Closed forms: the algorithm's own formula, where it is exact for the cluster."""

from collections.abc import Mapping
from typing import Any

from simcollectives.cluster.types import Cluster
from simcollectives.engines.job import Job, make_job
from simcollectives.engines.run import Parts
from simcollectives.engines.variants import DEFAULT, Default, LogGP, OnePort, TimeModel, parse_time, variant_closed_form
from simcollectives.errors import NoClosedFormError, Problem


def closed_form_parts(job: Job) -> Parts | None:
    """Evaluate the formula, or return None where none is exact."""
    costs = job.level_costs
    if costs is None:
        return None
    gamma = job.cluster.device.reduction_seconds_per_byte
    names = tuple(level.name for level in job.cluster.levels)
    latency, bandwidth, reduction = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0), 0.0
    for level_cost in costs:
        link, cost = job.cluster.level(level_cost.level).link, level_cost.cost
        latency[level_cost.level] += cost.rounds * link.alpha + cost.messages * link.overhead
        bandwidth[level_cost.level] += cost.elements * job.itemsize / link.bandwidth
        reduction += cost.reduced * job.itemsize * gamma
    return Parts(names, tuple(latency.values()), tuple(bandwidth.values()), reduction)


def require_closed_form(job: Job, time: TimeModel = DEFAULT) -> Parts:
    """Evaluate the formula for a meaning of time.

    Raises:
        NoClosedFormError: no form is exact for this cluster and message.
    """
    if not isinstance(time, Default):
        return _require_variant(job, time)
    parts = closed_form_parts(job)
    if parts is None:
        why = "on links of several kinds" if job.cluster.uniform_link is None else "with these chunks"
        why = why if job.conditions.ideal else "with late or random runs"
        remedy = "use engine event or lockstep"
        raise NoClosedFormError(
            [Problem("", f"{job.label} {job.algorithm.collective} has no exact closed form {why}; {remedy}")]
        )
    return parts


def _require_variant(job: Job, time: OnePort | LogGP) -> Parts:
    parts = variant_closed_form(job, time)
    if parts is None:
        what = f"{job.label} {job.algorithm.collective} has no exact closed form under time {time.name}"
        raise NoClosedFormError([Problem("", f"{what} for this cluster and message; use engine event")])
    return parts


def closed_form(
    collective: str,
    algorithm: str,
    cluster: Cluster,
    message_bytes: float,
    options: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    time: TimeModel | str | Mapping[str, Any] = DEFAULT,
) -> float:
    """Seconds by the algorithm's formula; ``time`` as for ``simulate``.

    Raises:
        NoClosedFormError: no form is exact for this cluster and message.
        InputError: see ``make_job``.
    """
    job = make_job(collective, algorithm, cluster, message_bytes, options, dtype)
    return require_closed_form(job, parse_time(time)).seconds
