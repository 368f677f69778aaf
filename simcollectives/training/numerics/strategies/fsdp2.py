"""FSDP2 (``fully_shard``): parameters, gradients and optimizer states of 1/N; each unit is gathered for its passes.

Every parameter is cut along its first dimension into ceil(d/N) rows a rank, with zeros in place of missing rows; the
reduce-scatter of a unit carries its parameters' rows side by side. Reference: PyTorch 2.13, torch.distributed.fsdp.
"""

from simcollectives.algorithms.types import choice
from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.layers import Parameters
from simcollectives.training.numerics.plan import NumericsPlan
from simcollectives.training.numerics.strategies.fully_sharded import FullySharded, Sharding
from simcollectives.training.numerics.strategies.types import Options, Strategy, StrategyEntry
from simcollectives.training.numerics.strategies.units import ROWS
from simcollectives.training.strategies.fsdp2 import EVERY, LAST
from simcollectives.training.strategies.types import flag

OPTIONS = (
    choice("units", ("layer", "model"), "layer", "what is gathered at once: each layer, or the whole model"),
    flag("reshard_after_forward", True, "free a unit after its forward pass, gather it again for its backward pass"),
    choice("gradient_sync", (EVERY, LAST), EVERY, "micro-batches of a step whose gradients are reduced"),
)


def sharding_of(options: Options) -> Sharding:
    """Return what the options say, over all ranks."""
    return Sharding(
        ROWS,
        one_unit=options["units"] == "model",
        reshard_after_forward=options["reshard_after_forward"],
        every_micro_batch=options["gradient_sync"] == EVERY,
    )


def make(plan: NumericsPlan, group: Group, initial: Parameters, options: Options) -> Strategy:
    """Shard over all ranks."""
    return FullySharded(plan, group, initial, sharding_of(options))


STRATEGY = StrategyEntry(
    name="fsdp2",
    summary="everything sharded by rows; each unit gathered for its forward and its backward pass",
    reference="PyTorch 2.13",
    make=make,
    options=OPTIONS,
)
