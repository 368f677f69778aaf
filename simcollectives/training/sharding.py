"""What strategies that shard have in common: padding, the names of what they hold, the optimizer on a part."""

from collections.abc import Iterable

from simcollectives.engines.job import DTYPES
from simcollectives.training.passes import GRADIENT_COPY, OPTIMIZER
from simcollectives.training.program import Builder, Item
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


def optimizer_on_shard(
    builder: Builder,
    training: Training,
    elements: int,
    *,
    parameter_dtype: str,
    gradient_dtype: str,
    after: Iterable[int] = (),
    frees: Iterable[Item] = (),
) -> int:
    """Issue the optimizer on ``elements`` of a rank's own; ``frees`` what is not needed once it is done."""
    builder.phase = "optimizer"
    moved = training.optimizer.moved_bytes(DTYPES[parameter_dtype], DTYPES[gradient_dtype]) * elements
    copy: list[Item] = [(GRADIENT_COPY, 4 * elements)] if training.optimizer.gradient_copy else []
    return builder.compute(
        "optimizer", training.memory_seconds(moved), after=after, allocates=copy, frees=[*copy, *frees]
    )
