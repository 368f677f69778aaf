"""A job is a checked question: which algorithm moves which message on which cluster. Every engine takes one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simcollectives.algorithms.table import check_fits, find_algorithm, label, placement_of
from simcollectives.algorithms.types import Algorithm, LevelCost, Options, resolve_options
from simcollectives.cluster.types import Cluster
from simcollectives.engines.conditions import IDEAL, Conditions
from simcollectives.errors import AlgorithmError, Gathered, InputError, Problem, show_value, suggestion
from simcollectives.metrics import bandwidth_lower_bound, latency_lower_bound
from simcollectives.schedule.partition import Layout
from simcollectives.schedule.types import IntArray, Round, Schedule
from simcollectives.units import format_bytes, parse_bytes

DTYPES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
}
"""Bytes of one element of a message."""

MAX_MESSAGE_BYTES = 1 << 50
MAX_ROUND_MESSAGES = 30_000_000


@dataclass(frozen=True)
class Job:
    """One collective on one cluster. ``full_cluster`` has the dedicated servers that the schedule needs, too."""

    algorithm: Algorithm
    options: Options
    cluster: Cluster
    full_cluster: Cluster
    schedule: Schedule
    layout: Layout
    dtype: str
    conditions: Conditions = IDEAL

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype]

    @property
    def message_bytes(self) -> int:
        """Bytes of the message."""
        return self.layout.elements * self.itemsize

    @property
    def label(self) -> str:
        """The algorithm with its options that are not defaults."""
        return label(self.algorithm, self.options)

    @property
    def level_costs(self) -> tuple[LevelCost, ...] | None:
        """The critical path by level, or None where no form is exact."""
        if not (self.cluster.network.plain and self.conditions.ideal):
            return None
        if self.algorithm.level_costs is not None:
            return self.algorithm.level_costs(self.cluster, self.layout, self.itemsize, self.options)
        if self.cluster.uniform_link is None:
            return None
        cost = self.algorithm.cost(self.cluster.world_size, self.layout, self.options)
        return None if cost is None else (LevelCost(self.cluster.levels[0].name, cost),)

    @property
    def messages_at_most(self) -> int:
        """An upper bound on the number of messages, known before any is made."""
        return self.schedule.rounds * self.schedule.messages_at_once

    @property
    def lower_bound_seconds(self) -> float:
        """The larger of the latency and the bandwidth bound, on the cluster without what is drawn at random."""
        cluster, collective = self.cluster, self.algorithm.collective
        quickest = min([1.0, *(change.alpha for change in cluster.changes)])
        alpha = quickest * min(level.link.alpha for level in cluster.levels)
        latency = latency_lower_bound(cluster.world_size, alpha)
        # Only an all-reduce may spare a slow device by sending more from the others.
        ports = cluster.port_bandwidths
        device = float(ports.mean() if collective == "all_reduce" else ports.min())
        if self.schedule.servers:
            # With helpers a worker need only send its vector once, and receive the sum once.
            return max(latency, self.message_bytes / float(ports.max()) if cluster.world_size > 1 else 0.0)
        whole = (collective, cluster.world_size, self.message_bytes, device)
        return max(
            latency, bandwidth_lower_bound(*whole), *(bandwidth_lower_bound(*whole, *cut) for cut in cluster.cuts)
        )


def make_job(
    collective: str,
    algorithm: str,
    cluster: Cluster,
    message_bytes: float,
    options: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    conditions: Conditions = IDEAL,
) -> Job:
    """Check a question and make its schedule.

    Raises:
        InputError: an unknown collective, algorithm, option or dtype; a message that is not a whole number of
            elements; an algorithm that does not run on the cluster; or more messages than can be held.
    """
    gathered = Gathered()
    gathered.take(lambda: check_parts(cluster, conditions))
    found = gathered.take(lambda: find_algorithm(collective, algorithm))
    resolved = gathered.take(lambda: _options(found, options))
    elements = gathered.take(lambda: count_elements(message_bytes, dtype))
    gathered.finish()
    if found is None or resolved is None or elements is None:
        raise InputError("the question is not valid")
    check_fits(found, cluster, resolved)
    n = cluster.world_size
    if n * (size := elements * DTYPES[dtype]) >= 1 << 62:
        raise InputError([Problem("message", f"{n} ranks of {format_bytes(size)} are more than can be counted")])
    schedule = found.schedule(placement_of(cluster), resolved)
    if schedule.messages_at_once > MAX_ROUND_MESSAGES:
        what = f"{label(found, resolved)} on {n} ranks sends up to {schedule.messages_at_once:,} messages at once"
        rule = f"more than the {MAX_ROUND_MESSAGES:,} that one round may have; take fewer devices or another algorithm"
        raise InputError([Problem("", f"{what}, {rule}")])
    layout = Layout(
        elements,
        schedule.chunks,
        period=n if collective == "all_to_all" else 0,
        parts=n if collective in ("reduce_scatter", "all_gather") else 1,
    )
    return Job(found, resolved, cluster, cluster.with_servers(schedule.servers), schedule, layout, dtype, conditions)


def check_parts(cluster: object, conditions: object) -> None:
    """Check that a cluster and conditions are what they should be.

    Raises:
        InputError: they are not, both at once.
    """
    example = "make one with Cluster.flat, Cluster.two_level or Cluster.machine"
    problems = []
    if not isinstance(cluster, Cluster):
        problems.append(Problem("cluster", f"{show_value(cluster)} is not a Cluster; {example}"))
    if not isinstance(conditions, Conditions):
        rule = "are not Conditions; write Conditions(random_skew=20e-6)"
        problems.append(Problem("conditions", f"{show_value(conditions)} {rule}"))
    if problems:
        raise InputError(problems)


def _options(algorithm: Algorithm | None, given: object) -> dict[str, Any]:
    """All options of an algorithm; those given as they are where it is not known."""
    if given is not None and not isinstance(given, Mapping):
        raise AlgorithmError([Problem("options", f'{show_value(given)} are not options; write {{"order": "far"}}')])
    return dict(given or {}) if algorithm is None else resolve_options(algorithm, given)


def count_elements(message_bytes: float, dtype: object) -> int:
    """Whole elements of a message.

    Raises:
        InputError: the dtype is not known, or the bytes are negative, too many, or not a whole number of elements.
    """
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InputError(
            [Problem("dtype", f"{show_value(dtype)} is not a known dtype; {suggestion(dtype, list(DTYPES))}")]
        )
    if isinstance(message_bytes, str):
        message_bytes = parse_bytes(message_bytes)
    itemsize = DTYPES[dtype]
    if isinstance(message_bytes, bool) or not isinstance(message_bytes, int | float | np.integer | np.floating):
        raise InputError([Problem("message", f"{show_value(message_bytes)} is not a number of bytes")])
    if not 0 <= message_bytes <= MAX_MESSAGE_BYTES:
        rule = f"a message has 0 to {format_bytes(MAX_MESSAGE_BYTES)}"
        raise InputError([Problem("message", f"{show_value(message_bytes)} B is out of range; {rule}")])
    whole, rest = divmod(message_bytes, itemsize)
    if rest:
        near = f"{int(whole) * itemsize} B or {(int(whole) + 1) * itemsize} B"
        rule = f"is not a whole number of {dtype} elements of {itemsize} B"
        raise InputError([Problem("message", f"{show_value(message_bytes)} B {rule}; write {near}, or another dtype")])
    return int(whole)


@dataclass(frozen=True)
class Messages:
    """The messages of one round, one entry each: all rows of one (src, dst) together. Bytes are whole."""

    src: IntArray
    dst: IntArray
    bytes: IntArray
    reduced_bytes: IntArray


def messages_of(job: Job, round_: Round) -> Messages:
    """Join the rows of a round into messages."""
    sizes = job.layout.row_elements(round_) * job.itemsize
    reduced = np.where(round_.reduce, sizes, 0)
    devices = job.schedule.devices
    pair = round_.src * devices + round_.dst
    unique, inverse = np.unique(pair, return_inverse=True)
    if len(unique) == len(pair):
        return Messages(round_.src, round_.dst, sizes, reduced)
    totals = np.zeros((2, len(unique)), dtype=np.int64)
    np.add.at(totals[0], inverse, sizes)
    np.add.at(totals[1], inverse, reduced)
    return Messages(unique // devices, unique % devices, totals[0], totals[1])
