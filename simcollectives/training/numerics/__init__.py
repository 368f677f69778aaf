"""Training in numbers: a small network on simulated devices, to see what data parallelism keeps and what breaks it.

A two-layer perceptron in NumPy (float64) is really trained, with gradients and statistics all-reduced by the project's
own schedules, and compared with the same training on one device. A strategy (`strategies.types.Strategy`) is where
parameters, gradients and optimizer states live; a new one is a file and a line in `strategies.table`.

Reference: CMU 15-779 (fall 2025), lecture 12, section 2.

>>> (row,) = run_numerics(NumericsPlan(world_size=4, algorithm="ring", steps=5))
>>> row.bit_identical, row.difference_from_one_device < 1e-14
(True, True)
"""

from simcollectives.training.numerics.compare import NumericsRow, compare, run_numerics
from simcollectives.training.numerics.group import Traffic
from simcollectives.training.numerics.loop import History, Snapshot, problems_of, train
from simcollectives.training.numerics.network import Network
from simcollectives.training.numerics.optimizers import OPTIMIZERS
from simcollectives.training.numerics.plan import MISTAKES, NumericsPlan, one_device, plain
from simcollectives.training.numerics.strategies.table import STRATEGIES

__all__ = [
    "MISTAKES",
    "OPTIMIZERS",
    "STRATEGIES",
    "History",
    "Network",
    "NumericsPlan",
    "NumericsRow",
    "Snapshot",
    "Traffic",
    "compare",
    "one_device",
    "plain",
    "problems_of",
    "run_numerics",
    "train",
]
