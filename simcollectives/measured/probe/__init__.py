"""Measuring collectives with torch.distributed: NCCL on GPUs, gloo on CPUs.

PyTorch is imported only by a process that measures, so that everything else here works without it.
"""

from simcollectives.measured.probe.launch import Placement, placement_of
from simcollectives.measured.probe.plan import BACKENDS, PLACES_OF, Plan, message_sizes
from simcollectives.measured.probe.results import (
    Copied,
    Event,
    Half,
    LeftOut,
    Multiplied,
    Row,
    Started,
    System,
    Times,
    spread_columns,
    sweeps_of,
    times_of,
)

__all__ = [
    "BACKENDS",
    "PLACES_OF",
    "Copied",
    "Event",
    "Half",
    "LeftOut",
    "Multiplied",
    "Placement",
    "Plan",
    "Row",
    "Started",
    "System",
    "Times",
    "message_sizes",
    "placement_of",
    "spread_columns",
    "sweeps_of",
    "times_of",
]
