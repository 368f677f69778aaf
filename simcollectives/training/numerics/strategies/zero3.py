"""ZeRO-3: parameters, gradients and optimizer states of 1/N; each layer is gathered for its passes.

Every parameter is flattened and cut by itself, as DeepSpeed does; gradients are reduce-scattered layer by layer in
every micro-batch. Half as many bytes again as an all-reduce: two all-gathers and a reduce-scatter.
Reference: Rajbhandari et al., SC 2020 (stage P_os+g+p).
"""

from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.layers import Parameters
from simcollectives.training.numerics.plan import NumericsPlan
from simcollectives.training.numerics.strategies.fully_sharded import FullySharded, Sharding
from simcollectives.training.numerics.strategies.types import Options, Strategy, StrategyEntry
from simcollectives.training.numerics.strategies.units import ELEMENTS


def make(plan: NumericsPlan, group: Group, initial: Parameters, _options: Options) -> Strategy:
    """Every layer with parameters is a unit."""
    return FullySharded(plan, group, initial, Sharding(ELEMENTS))


STRATEGY = StrategyEntry(
    name="zero3",
    summary="everything sharded; each layer gathered for its forward and its backward pass",
    reference="Rajbhandari et al. 2020",
    make=make,
)
