"""Closed forms of the variants, where they are exact. All need chunks of equal length.

    one_port  the default's form with alpha charged for each message instead of each round; of several channels only on
              links of one kind without gamma, since they delay each other elsewhere, and hide each other's reductions
    loggp     where every rank sends and receives one message a round, each round lasts 2 o + L + n G (+ n gamma), if
              g <= 2 o + L; else the algorithm's own form, if it has one

One port: every message on the critical path occupies a port for alpha + o + n / B. A ring on links of two kinds runs at
the pace of its slowest edge (heterogeneous ring theorem). LogGP, order ``event``: a round may start early on data that
are already there, so only rings, whose rounds all depend on the round before, keep the form.

References: Alexandrov et al., SPAA 1995, for LogGP broadcast trees. The tests compare every form with the engine.
"""

import numpy as np

from simcollectives.algorithms.types import LogGPCosts, Split, joined
from simcollectives.cluster.link import Link
from simcollectives.engines.job import Job
from simcollectives.engines.run import Parts
from simcollectives.engines.variants.models import LogGP, OnePort


def variant_closed_form(job: Job, model: OnePort | LogGP) -> Parts | None:
    """Evaluate the formula, or return None where none is exact."""
    if not job.layout.even:
        return None
    return _one_port(job) if isinstance(model, OnePort) else _loggp(job, model)


def _one_port(job: Job) -> Parts | None:
    costs, gamma = job.level_costs, job.cluster.device.reduction_seconds_per_byte
    if costs is None or not job.algorithm.exact_one_port(job.cluster.world_size, job.options, gamma):
        return None
    reduces = gamma > 0 and any(level_cost.cost.reduced for level_cost in costs)
    if len(job.schedule.channels) > 1 and (reduces or job.cluster.uniform_link is None):
        return None
    by_level = {level.name: (0.0, 0.0, 0.0) for level in job.cluster.levels}
    for level_cost in costs:
        link, cost = job.cluster.level(level_cost.level).link, level_cost.cost
        split = (
            cost.messages * (link.alpha + link.overhead),
            cost.elements * job.itemsize / link.bandwidth,
            cost.reduced * job.itemsize * gamma,
        )
        by_level[level_cost.level] = joined(by_level[level_cost.level], split)
    return _parts(by_level)


def _loggp(job: Job, model: LogGP) -> Parts | None:
    symmetric = _symmetric(job, model)
    if symmetric is not None:
        return symmetric
    link, form = job.cluster.uniform_link, job.algorithm.loggp
    if link is None or form is None:
        return None
    if model.order == "event" and model.is_rendezvous(job.layout.floor * job.itemsize):
        # A second send need not wait until the first has been received.
        return None
    split = form(job.cluster.world_size, job.layout, job.options, _costs(job, link, model))
    return None if split is None else _parts({job.cluster.levels[0].name: split})


def _costs(job: Job, link: Link, model: LogGP) -> LogGPCosts:
    overhead = link.overhead if model.overhead is None else model.overhead
    # Only trees ask how long a send takes, and their one chunk is the message.
    waits = model.is_rendezvous(job.layout.floor * job.itemsize)
    return LogGPCosts(
        overhead=overhead,
        latency=link.alpha,
        gap=model.gap,
        seconds_per_element=job.itemsize / link.bandwidth,
        reduction_per_element=job.itemsize * job.cluster.device.reduction_seconds_per_byte,
        sending=overhead + link.alpha if waits else overhead,
    )


def _symmetric(job: Job, model: LogGP) -> Parts | None:
    """All ranks alike: one message in, one out, of equal length and over one level, in every round."""
    if len(job.schedule.channels) != 1:
        return None
    by_level = {level.name: (0.0, 0.0, 0.0) for level in job.cluster.levels}
    costs = [_costs(job, level.link, model) for level in job.cluster.levels]
    for phase in job.schedule.channels[0]:
        regular = phase.regular
        if regular is None or regular.messages != 1 or (model.order == "event" and phase.rotation is None):
            return None
        for step in range(phase.steps):
            round_ = phase.round_at(step)
            levels = np.unique(job.cluster.network.levels_crossed(round_.src, round_.dst))
            if len(levels) != 1 or not costs[levels[0]].overlaps:
                return None
            elements = regular.chunks(step) * job.layout.floor
            name = job.cluster.levels[levels[0]].name
            more = costs[levels[0]].alone(elements, elements if regular.reduces else 0)
            by_level[name] = joined(by_level[name], more)
    return _parts(by_level)


def _parts(by_level: dict[str, Split]) -> Parts:
    latency, bandwidth, reduction = (tuple(column) for column in zip(*by_level.values(), strict=True))
    return Parts(tuple(by_level), latency, bandwidth, sum(reduction))
