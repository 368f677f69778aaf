"""ZeRO-2: parameters on every device, gradients and optimizer states of 1/N.

A bucket is reduce-scattered as soon as its last gradient is there, in every micro-batch; its gradients are freed, and
the part that a rank keeps is added up. With accumulation ranks are thus summed before micro-batches.
Reference: Rajbhandari et al., SC 2020 (stage P_os+g). As in the paper: DeepSpeed all-reduces.
"""

from simcollectives.training.numerics.group import Group
from simcollectives.training.numerics.layers import Parameters
from simcollectives.training.numerics.plan import NumericsPlan
from simcollectives.training.numerics.strategies.sharded_optimizer import ShardedOptimizer
from simcollectives.training.numerics.strategies.types import Options, Strategy, StrategyEntry


def make(plan: NumericsPlan, group: Group, initial: Parameters, _options: Options) -> Strategy:
    """Gradients are reduced as they come out."""
    return ShardedOptimizer(plan, group, initial, shard_gradients=True)


STRATEGY = StrategyEntry(
    name="zero2",
    summary="gradients and optimizer states sharded; reduce-scattered in every micro-batch, parameters all-gathered",
    reference="Rajbhandari et al. 2020",
    make=make,
    buckets=True,
)
