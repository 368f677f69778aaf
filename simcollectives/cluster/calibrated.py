"""Links of named machines as measured times show them: one YAML file each in ``calibrated/``, with source and error."""

from dataclasses import dataclass
from functools import cache

from simcollectives.cluster.link import Link
from simcollectives.cluster.machines import Machine, read_link, read_shipped, shipped_names
from simcollectives.errors import ClusterError, listing, show_value
from simcollectives.units import format_bandwidth, format_seconds

_WHERE = {"intra": "inside nodes", "inter": "between nodes"}


@dataclass(frozen=True)
class CalibratedLink:
    """A fitted link of a level; ``intervals`` are those of alpha and bandwidth, ``error`` what remains, in words."""

    level: str
    link: Link
    intervals: tuple[str, str]
    sets: tuple[str, ...]
    simulated: str
    nccl_version: str
    date: str
    source: str
    error: str

    @property
    def origin(self) -> str:
        """What the link was fitted to, and how far it is off, in a line."""
        facts = f"NCCL {self.nccl_version}, date {self.date}; {self.source}"
        return f"fitted to {listing(self.sets)} ({self.simulated}; {facts}); error: {self.error}"


@cache
def calibrated_names() -> tuple[str, ...]:
    """Names of the machines that have calibrated links."""
    return shipped_names("calibrated")


def load_calibrated(name: str) -> tuple[CalibratedLink, ...]:
    """The calibrated links of a machine, inside nodes first.

    Raises:
        ClusterError: no measured times are known of this machine; the message names those of which some are.
    """
    if name not in calibrated_names():
        known = listing(calibrated_names())
        raise ClusterError(
            f"{show_value(name)} has no calibrated links: no sweep of it is shipped; calibrated: {known}"
        )
    return _read(name)


@cache
def _read(name: str) -> tuple[CalibratedLink, ...]:
    return tuple(
        CalibratedLink(
            level,
            read_link(data),
            (data["alpha"]["interval"], data["bandwidth"]["interval"]),
            tuple(data["sets"]),
            *(data[key] for key in ("simulated", "nccl_version", "date", "source", "error")),
        )
        for level, data in read_shipped("calibrated", name).items()
    )


def calibrated_links(machine: Machine) -> tuple[Link, Link, str]:
    """Links inside and between nodes, measured where they are, and a note of what each is from.

    Raises:
        ClusterError: no measured times are known of this machine.
    """
    found = {one.level: one for one in load_calibrated(machine.name)}
    links, notes = [], []
    for level, where in _WHERE.items():
        one = found.get(level)
        links.append((machine.intra if level == "intra" else machine.inter) if one is None else one.link)
        if one is None:
            notes.append(f"{where} as in the data sheet, not measured")
        else:
            text = f"alpha {format_seconds(one.link.alpha)}, {format_bandwidth(one.link.bandwidth)}"
            notes.append(f"{where} {text}, {one.origin}")
    return links[0], links[1], f"{machine.name}, calibrated: {'; '.join(notes)}"
