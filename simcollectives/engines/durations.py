"""How long messages take: the one place from which engines take it, so that they agree bit for bit.

Every function takes floats or arrays of them.
"""

from typing import TypeVar

from simcollectives.cluster.network import FloatArray, Floats

Number = TypeVar("Number", float, FloatArray, Floats)


def alone_seconds(latency: Number, message_bytes: Number, bandwidth: Number) -> Number:
    """Seconds of a message that meets no other; ``latency`` is alpha + overhead."""
    return latency + message_bytes / bandwidth


def flow_end(now: float, left_bytes: float, rate: float) -> float:
    """Instant at which a clock that is set to ``now`` wakes for the end of a flow of steady rate."""
    return now + (now + left_bytes / rate - now)


def shared_end(now: float, alpha: float, work_bytes: float, capacity: float, flows: int) -> float:
    """Instant at which ``flows`` equal flows end that start together on a resource after ``alpha``."""
    started = now + alpha
    return flow_end(started, work_bytes, capacity / flows) if work_bytes > 0 else started
