"""ZeRO-1: parameters and gradients on every device, optimizer states of 1/N.

Once a step each bucket of gradients is reduce-scattered, each rank updates its part, and the parts are all-gathered:
the bytes of an all-reduce. Reference: Rajbhandari et al., SC 2020 (stage P_os). As in the paper: DeepSpeed all-reduces.
"""

from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.layers import Parameters
from simcollectives.training.numerics.plan import NumericsPlan
from simcollectives.training.numerics.strategies.sharded_optimizer import ShardedOptimizer
from simcollectives.training.numerics.strategies.types import Options, Strategy, StrategyEntry


def make(plan: NumericsPlan, group: Group, initial: Parameters, _options: Options) -> Strategy:
    """Gradients stay whole until the update."""
    return ShardedOptimizer(plan, group, initial, shard_gradients=False)


STRATEGY = StrategyEntry(
    name="zero1",
    summary="optimizer states sharded; gradients reduce-scattered once a step, parameters all-gathered",
    reference="Rajbhandari et al. 2020",
    make=make,
    buckets=True,
)
