"""What strategies that shard have in common: padding and the names of what they hold."""

from simcollectives.training.passes import OPTIMIZER
from simcollectives.training.program import Builder
from simcollectives.training.setup import Training

UNSHARDED = "unsharded parameters"
GATHER_BUFFERS, SCATTER_BUFFERS = "all-gather buffers", "reduce-scatter buffers"
UNSHARDED_GRADIENTS = "unsharded gradients"


def padded(elements: int, ranks: int) -> int:
    """Return the elements filled up to a multiple of the ranks.

    >>> padded(10, 4)
    12
    """
    return -(-elements // ranks) * ranks


def stand_optimizer_shard(builder: Builder, training: Training, elements: int) -> None:
    """Note the optimizer states of the ``elements`` that a rank keeps them for."""
    builder.stand(OPTIMIZER, training.optimizer.held_bytes * elements)
