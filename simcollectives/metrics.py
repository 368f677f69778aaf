"""Bandwidths as the field quotes them, and the bounds that no schedule can beat. Each is defined here once.

Bytes and seconds in, bytes per second out. Without in-network reduction; compression is not considered.
"""

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce")


def algbw(message_bytes: float, seconds: float) -> float | None:
    """Algorithm bandwidth: message bytes over seconds; None where the time is zero.

    >>> algbw(1e9, 0.01)
    100000000000.0
    """
    return message_bytes / seconds if seconds > 0 else None


def bus_factor(collective: str, world_size: int) -> float:
    """Factor from algbw to busbw, by collective alone (nccl-tests, PERFORMANCE.md).

    >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 8), bus_factor("broadcast", 8)
    (1.75, 0.875, 1.0)
    """
    if collective in ("broadcast", "reduce"):
        return 1.0
    share = (world_size - 1) / world_size
    return 2 * share if collective == "all_reduce" else share


def busbw(collective: str, world_size: int, message_bytes: float, seconds: float) -> float | None:
    """Bus bandwidth: algbw times the collective's factor, whatever the algorithm; None where the time is zero.

    >>> busbw("all_reduce", 8, 1e9, 0.01)
    175000000000.0
    """
    bandwidth = algbw(message_bytes, seconds)
    return None if bandwidth is None else bandwidth * bus_factor(collective, world_size)


def required_bytes(collective: str, world_size: int, message_bytes: float, group_size: int = 1) -> float:
    """Bytes that the busiest of ``world_size / group_size`` equal groups must send, or receive, whatever the schedule.

    An all-reduce moves every element at least 2 (P - 1) times between P groups: P - 1 to form the sum somewhere and
    P - 1 to spread it, so the busiest group sends 2 (P - 1) / P of the message (Patarasuk and Yuan 2009). The other
    collectives count what must leave or enter one group.

    >>> required_bytes("all_reduce", 32, 1e9), required_bytes("all_reduce", 32, 1e9, group_size=8)
    (1937500000.0, 1500000000.0)
    >>> required_bytes("all_to_all", 32, 1e9, group_size=8)
    6000000000.0
    """
    groups = world_size / group_size
    if groups <= 1:
        return 0.0
    if collective == "all_reduce":
        return 2 * (groups - 1) / groups * message_bytes
    if collective in ("broadcast", "reduce"):
        return message_bytes
    share = (groups - 1) / groups * message_bytes
    return share * group_size if collective == "all_to_all" else share


def latency_lower_bound(world_size: int, alpha: float, ports: int | None = None) -> float:
    """Seconds below which no collective among several ranks ends: one smallest latency.

    Where a latency occupies one of a device's ``ports``, what one rank knows reaches at most ``ports`` + 1 times as
    many ranks in each: ceil(log(N) / log(ports + 1)) of them (Bar-Noy and Kipnis, SPAA 1992).

    >>> latency_lower_bound(8, 5e-6), latency_lower_bound(1, 5e-6)
    (5e-06, 0.0)
    >>> latency_lower_bound(9, 1.0, ports=1), latency_lower_bound(9, 1.0, ports=2)
    (4.0, 2.0)
    """
    if ports is None:
        return alpha if world_size > 1 else 0.0
    rounds, reached = 0, 1
    while reached < world_size:
        rounds, reached = rounds + 1, reached * (ports + 1)
    return rounds * alpha


def bandwidth_lower_bound(
    collective: str,
    world_size: int,
    message_bytes: float,
    device_bandwidth: float,
    group_size: int = 1,
    group_bandwidth: float | None = None,
) -> float:
    """Seconds that the required bytes need: through one device's ports together, and out of one group of devices.

    >>> round(bandwidth_lower_bound("all_reduce", 8, 1e9, 450e9), 9)
    0.003888889
    >>> round(bandwidth_lower_bound("all_reduce", 32, 1e9, 500e9, 8, 400e9), 9)
    0.003875
    """
    seconds = required_bytes(collective, world_size, message_bytes) / device_bandwidth
    if group_bandwidth is None:
        return seconds
    return max(seconds, required_bytes(collective, world_size, message_bytes, group_size) / group_bandwidth)
