"""ZeRO-2: every rank keeps 1/N of the optimizer states and of the gradients, which are reduced to their owners.

Two implementations: the paper's (``zero_paper``) and DeepSpeed's, which all-reduces gradients (``zero_all_reduce``).

    memory of a rank, mixed-precision Adam = (2 + (2 + 12)/N) bytes a parameter

With ``offload_optimizer: cpu`` (ZeRO-Offload) states and optimizer are on the host.

Reference: Rajbhandari et al. 2020, arXiv:1910.02054; Ren et al. 2021, arXiv:2101.06840.
"""

from simcollectives.training.strategies.zero_stages import strategy_of

STRATEGY = strategy_of(2, "optimizer states and gradients are divided among the ranks")
