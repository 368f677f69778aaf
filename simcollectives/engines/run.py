"""The result of one evaluation: seconds, why, and on request who sent what when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any

import numpy as np

from simcollectives.cluster.types import Cluster
from simcollectives.errors import ScheduleError
from simcollectives.metrics import algbw, busbw
from simcollectives.schedule.types import IntArray
from simcollectives.units import format_bytes, format_seconds

PATH_TOLERANCE = 1e-9
"""Of the seconds: what rounding may leave between a clock and the sum along its critical path."""


@dataclass(frozen=True)
class Parts:
    """Seconds along the critical path: [level] latency (alpha and overhead), [level] bandwidth, and reduction."""

    level_names: tuple[str, ...]
    latency: tuple[float, ...]
    bandwidth: tuple[float, ...]
    reduction: float

    @classmethod
    def of_path(
        cls,
        names: Sequence[str],
        seconds: float,
        latency: Sequence[float],
        bandwidth: Sequence[float],
        reduction: float,
    ) -> "Parts":
        """Split ``seconds`` as a critical path does; what rounding leaves goes to the largest bandwidth part.

        Raises:
            ScheduleError: the path explains less than all seconds, or more.
        """
        rest = seconds - sum(latency) - sum(bandwidth) - reduction
        if not abs(rest) <= PATH_TOLERANCE * seconds < inf:
            raise ScheduleError(f"the critical path explains {seconds - rest!r} s of {seconds!r} s")
        widest = max(bandwidth)
        most = bandwidth.index(widest)
        parts = [*bandwidth[:most], max(widest + rest, 0.0) if widest > 0 else widest, *bandwidth[most + 1 :]]
        return cls(tuple(names), tuple(latency), tuple(parts), reduction)

    @property
    def seconds(self) -> float:
        """All parts together."""
        return sum(self.latency) + sum(self.bandwidth) + self.reduction

    @property
    def bottleneck(self) -> str:
        """The largest part: "<level> latency", "<level> bandwidth", "reduction", or "none" where nothing is sent."""
        named = [(self.reduction, "reduction")]
        for level, latency, bandwidth in zip(self.level_names, self.latency, self.bandwidth, strict=True):
            named += [(latency, f"{level} latency"), (bandwidth, f"{level} bandwidth")]
        seconds, name = max(named)
        return name if seconds > 0 else "none"


@dataclass(frozen=True)
class Timeline:
    """Columns of equal length, one entry for each end of each transfer, in order of start.

    ``stream`` is "send <level>", "receive <level>" or "reduce"; ``name`` is "to 3" or "from 5"; ``start`` and ``end``
    are seconds; a transfer starts when both its ends have entered the round (under a time
    variant, when its port is taken). ``peer`` is -1 for a reduction.
    """

    rank: tuple[int, ...]
    stream: tuple[str, ...]
    name: tuple[str, ...]
    start: tuple[float, ...]
    end: tuple[float, ...]
    bytes: tuple[int, ...]
    peer: tuple[int, ...]
    round: tuple[int, ...]
    channel: tuple[int, ...]

    def __len__(self) -> int:
        """Number of entries."""
        return len(self.rank)


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """One collective, evaluated. ``bytes_sent_by_level`` is [level, device]: ranks, then dedicated parameter servers.

    The three parts sum to ``seconds`` along the critical path. ``closed_form_seconds`` is None unless a form is exact
    for this cluster; ``lower_bound_seconds`` is the larger of the latency and the bandwidth bound. ``time`` says what
    a time means: default, one_port or loggp.
    """

    collective: str
    algorithm: str
    options: Mapping[str, Any]
    label: str
    cluster: Cluster
    message_bytes: int
    dtype: str
    seconds: float
    latency_seconds: float
    bandwidth_seconds: float
    reduction_seconds: float
    bottleneck: str
    engine: str
    engine_reason: str
    rounds: int
    bytes_sent_by_level: IntArray
    lower_bound_seconds: float
    closed_form_seconds: float | None
    timeline: Timeline | None = None
    time: str = "default"

    def __post_init__(self) -> None:
        """Close the options and the bytes to writing: a result does not change."""
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        self.bytes_sent_by_level.setflags(write=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields with options that can be copied and pickled."""
        return {**self.__dict__, "options": dict(self.options)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def __repr__(self) -> str:
        """Say the question and the answer in one line."""
        size, time = format_bytes(self.message_bytes), format_seconds(self.seconds)
        return f"<Run: {self.label} {self.collective}, {self.world_size} ranks, {size}: {time}, {self.bottleneck}>"

    @property
    def world_size(self) -> int:
        """Number of ranks; dedicated servers do not count."""
        return self.cluster.world_size

    @property
    def bytes_sent(self) -> IntArray:
        """Bytes that each rank sends; one more entry for each dedicated parameter server."""
        sent: IntArray = self.bytes_sent_by_level.sum(axis=0)
        return sent

    def bytes_sent_max_on(self, level: str) -> int | None:
        """Most bytes sent by one device over the links of a level; None where the cluster has no such level."""
        names = [x.name for x in self.cluster.levels]
        return int(self.bytes_sent_by_level[names.index(level)].max()) if level in names else None

    @property
    def bytes_sent_max_intra(self) -> int | None:
        """Most bytes sent by one device inside its node; None where the cluster has no nodes, or none of several."""
        inside = self._inside
        return int(self.bytes_sent_by_level[:inside].sum(axis=0).max()) if inside else None

    @property
    def bytes_sent_max_inter(self) -> int | None:
        """Most bytes sent by one device to other nodes; None where there are none."""
        return None if self.cluster.nodes == 1 else int(self._sent_out.max())

    @property
    def bytes_sent_max_node(self) -> int | None:
        """Most bytes that leave one node; None where there is one."""
        return None if self.cluster.nodes == 1 else int(self._sent_out[self.cluster.groups].sum(axis=1).max())

    @property
    def _inside(self) -> int:
        """Number of levels inside a node, which come first; none where the devices form no nodes."""
        cluster = self.cluster
        return int(not cluster.nodeless and cluster.levels[0].size == cluster.gpus_per_node)

    @property
    def _sent_out(self) -> IntArray:
        """[device]: bytes sent to other nodes."""
        sent: IntArray = self.bytes_sent_by_level[self._inside :].sum(axis=0)
        return sent

    @property
    def bytes_sent_max(self) -> int:
        """Most bytes sent by one device."""
        return int(np.max(self.bytes_sent))

    @property
    def bytes_sent_total(self) -> int:
        """Bytes sent by all devices."""
        return sum(self.bytes_sent.tolist())

    @property
    def algbw(self) -> float | None:
        """Message bytes over seconds; None where the time is zero."""
        return algbw(self.message_bytes, self.seconds)

    @property
    def busbw(self) -> float | None:
        """Algbw times the collective's factor; None where the time is zero."""
        return busbw(self.collective, self.world_size, self.message_bytes, self.seconds)
