"""What moves: rounds, phases, schedules, the partition of a message, each collective's pre- and postcondition."""

from simcollectives.schedule.collectives import COLLECTIVES, Collective, find_collective
from simcollectives.schedule.combinators import concatenate, embed, fold_in, relabel, reverse, share
from simcollectives.schedule.partition import Layout, partition
from simcollectives.schedule.types import (
    IntArray,
    Phase,
    Regular,
    Round,
    Schedule,
    common,
    constant,
    make_round,
    regular_phases,
    repeated,
    single,
    spread,
)

__all__ = [
    "COLLECTIVES",
    "Collective",
    "IntArray",
    "Layout",
    "Phase",
    "Regular",
    "Round",
    "Schedule",
    "common",
    "concatenate",
    "constant",
    "embed",
    "find_collective",
    "fold_in",
    "make_round",
    "partition",
    "regular_phases",
    "relabel",
    "repeated",
    "reverse",
    "share",
    "single",
    "spread",
]
