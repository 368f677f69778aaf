"""Seconds collected along a critical path."""

from simcollectives.cluster.types import Cluster
from simcollectives.engines.run import Parts


class Path:
    """Latency and bandwidth by level, and reduction; seconds."""

    def __init__(self, cluster: Cluster) -> None:
        """Start with nothing."""
        self._names = tuple(level.name for level in cluster.levels)
        self.latency, self.bandwidth, self.reduction = [0.0] * len(self._names), [0.0] * len(self._names), 0.0

    def add(self, level: int, latency: float, seconds: float, times: int = 1) -> None:
        """Add a message that lasts ``seconds`` after its start, ``latency`` of them before its bytes flow."""
        self.latency[level] += times * latency
        self.bandwidth[level] += times * (seconds - latency)

    def parts(self, seconds: float) -> Parts:
        """Return the parts; they sum to ``seconds``, from which rounding may have led away.

        Raises:
            ScheduleError: they are far from them.
        """
        return Parts.of_path(self._names, seconds, self.latency, self.bandwidth, self.reduction)
