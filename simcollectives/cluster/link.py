"""Links and devices: the parts of which clusters are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

from simcollectives.errors import ClusterError, Problem, show_value

MAX_SECONDS = 1e9
BANDWIDTHS = (1e-9, 1e24)
MAX_SECONDS_PER_BYTE = 1e9
MAX_FACTOR = 1e9
"""What links may have: wide enough for any question, and sums and products stay far from overflow."""

LINK_EXAMPLE = "Link(alpha=5e-6, bandwidth=450e9)"
DEVICE_EXAMPLE = "Device(reduction_seconds_per_byte=2e-12)"


@dataclass(frozen=True)
class Link:
    """One direction of a link: a message of n bytes alone takes ``alpha + overhead + n / bandwidth``.

    ``alpha`` seconds pass with nothing occupied; ``bandwidth`` is in bytes per second; ``overhead`` is the seconds that
    each message occupies the port beside its bytes.

    Raises:
        ClusterError: a value is out of range: 0 to 1e9 s, 1e-9 to 1e24 B/s.
    """

    alpha: float
    bandwidth: float
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        problems = [
            Problem(name, f"{show_value(value)} s is not a latency; it must be 0 or more, at most {MAX_SECONDS:.0e} s")
            for name, value in (("alpha", self.alpha), ("overhead", self.overhead))
            if not (is_number(value) and 0 <= value <= MAX_SECONDS)
        ]
        least, most = BANDWIDTHS
        if not (is_number(self.bandwidth) and least <= self.bandwidth <= most):
            rule = f"it must be more than 0: from {least:.0e} to {most:.0e} B/s"
            problems.append(Problem("bandwidth", f"{show_value(self.bandwidth)} B/s is not a bandwidth; {rule}"))
        if problems:
            raise ClusterError(problems)


def message_seconds(link: Link, message_bytes: float) -> float:
    """Seconds that one message alone takes on a link."""
    return link.alpha + link.overhead + message_bytes / link.bandwidth


@dataclass(frozen=True)
class Device:
    """One accelerator. ``peak_flops`` is FLOP/s by dtype; ``reduction_seconds_per_byte`` is gamma, paid by receivers.

    ``host_link_bandwidth`` is one direction of its own link to the host. The bandwidths of the host's memory and of its
    NVMe drives are those of the whole node, which its devices share. Fields that a machine's data sheet does not give
    are None.
    """

    name: str = "device"
    peak_flops: tuple[tuple[str, float], ...] = ()
    memory_bytes: float | None = None
    memory_bandwidth: float | None = None
    host_link_bandwidth: float | None = None
    cpu_memory_bandwidth: float | None = None
    nvme_read_bandwidth: float | None = None
    nvme_write_bandwidth: float | None = None
    reduction_seconds_per_byte: float = 0.0

    def __post_init__(self) -> None:
        """Check gamma."""
        gamma = self.reduction_seconds_per_byte
        if not (is_number(gamma) and 0 <= gamma <= MAX_SECONDS_PER_BYTE):
            rule = f"it must be 0 or more, at most {MAX_SECONDS_PER_BYTE:.0e} s/B"
            raise ClusterError([Problem("gamma", f"{show_value(gamma)} s/B is not a reduction time; {rule}")])


DEVICE_KEYS: Mapping[str, str] = {
    "memory": "memory_bytes",
    "memory_bandwidth": "memory_bandwidth",
    "host_link": "host_link_bandwidth",
    "cpu_memory_bandwidth": "cpu_memory_bandwidth",
    "nvme_read": "nvme_read_bandwidth",
    "nvme_write": "nvme_write_bandwidth",
}
"""Fields of `Device` by the keys that scenarios have for them; all but the first are bandwidths."""


def type_problems(place: str, value: object, wanted: type, example: str, *, optional: bool = False) -> list[Problem]:
    """Return a problem where a value is not of a class of this package; with ``optional`` it may be None."""
    if isinstance(value, wanted) or (optional and value is None):
        return []
    return [Problem(place, f"{show_value(value)} is no {wanted.__name__}; write {example}")]


def is_number(value: object) -> bool:
    """Whether a value is a real number, also of NumPy, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)
