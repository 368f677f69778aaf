"""The table of strategies of training in numbers. A new one is one file and one line here."""

from collections.abc import Mapping

from simcollectives.training.numerics.strategies import ddp, fsdp2, hsdp, zero1, zero2, zero3
from simcollectives.training.numerics.strategies.types import StrategyEntry

STRATEGIES: Mapping[str, StrategyEntry] = {
    entry.name: entry
    for entry in (
        ddp.STRATEGY,
        zero1.STRATEGY,
        zero2.STRATEGY,
        zero3.STRATEGY,
        fsdp2.STRATEGY,
        hsdp.STRATEGY,
    )
}
