"""Options that both versions of FSDP, and hybrid sharding, have."""

from typing import Any

from simcollectives.algorithms.types import Option, choice
from simcollectives.errors import nearest, show_value
from simcollectives.training.setup import FLOATS
from simcollectives.training.strategies.fsdp_units import BLOCKS, EMBEDDING_AND_HEAD
from simcollectives.training.strategies.types import flag


def optional_dtype(name: str, summary: str) -> Option:
    """Return an option that takes a dtype; without it there is a default that depends on the run."""

    def check(value: Any) -> str | None:
        if value is None or value in FLOATS:
            return value  # type: ignore[no-any-return]
        near = nearest(value, FLOATS)
        remedy = f"write one of {', '.join(FLOATS)}" if near is None else f'did you mean "{near}"?'
        raise ValueError(f"{show_value(value)} is not a dtype to train in; {remedy}")

    return Option(name, None, summary, check, choices=FLOATS)


def optional_size(name: str, summary: str) -> Option:
    """Return an option that takes a number of ranks, or nothing."""

    def check(value: Any) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{show_value(value)} is not a number of ranks; write a whole number from 1 on")
        return value

    return Option(name, None, summary, check)


SHARED: tuple[Option, ...] = (
    choice(
        "units",
        (BLOCKS, EMBEDDING_AND_HEAD),
        BLOCKS,
        "every block is a unit and the root has the rest, or what is before and after the blocks are two units more",
    ),
    optional_dtype("param_dtype", "dtype that is gathered and computed in; that of the matrix products, if left out"),
    optional_dtype("reduce_dtype", "dtype in which gradients are reduced; param_dtype, if left out"),
    flag("host_reads_loss", False, "the host waits for the loss before it issues the backward pass"),
)

SHARD_SIZE = optional_size("shard_size", "consecutive ranks that hold a model together; a node's, if left out")
