"""Algorithms for collectives: one file each, with schedule, closed form and reference, and one table."""

from simcollectives.algorithms.table import ALGORITHMS, check_fits, find_algorithm, has_algorithm, label, placement_of
from simcollectives.algorithms.types import Algorithm, Cost, LevelCost, Option, Options, Placement, resolve_options

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Cost",
    "LevelCost",
    "Option",
    "Options",
    "Placement",
    "check_fits",
    "find_algorithm",
    "has_algorithm",
    "label",
    "placement_of",
    "resolve_options",
]
