"""NCCL's own cost model beside shipped measurements: how far its times are off, and whether its choice is the faster.

    python benchmarks/nccl_choice.py

1. Times: the model's time of what it picks (or of the algorithm that was forced) against the measured one, out of
   place: the median of predicted / measured, and the median and 90th percentile of |predicted / measured - 1|. Nothing
   is fitted. Up to 64 KiB, and above.
2. Choice: MareNostrum 5 ran ring and tree, each forced. Of the messages measured with both: how often the one that the
   model calls faster was the faster one, and what taking the model's choice costs over taking the faster one.

The channels of DGX machines are those of their files; those of MareNostrum 5 are derived by the same rules: four cards
of 200 Gb/s, so 4 x 24 GB/s between nodes, and 48 inside them for trees.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simcollectives.cluster import ChannelGraph, NcclGraph, load_machine
from simcollectives.measured import MeasuredSweep, load_sweep
from simcollectives.measured.nccl import ALGORITHMS, Model, choose, nccl_model

SMALL = 64 * 1024
MARENOSTRUM = NcclGraph(
    gpu="hopper",
    cpu="intel",
    link="nvlink",
    nvswitch=False,
    network_path="PXB",
    network_latency=0.0,
    sharp=False,
    one_node={},
    several_nodes={
        "ring": ChannelGraph(4, 24e9, 24e9),
        "tree": ChannelGraph(4, 48e9, 24e9, plain_tree=True),
    },
)


@dataclass(frozen=True)
class Case:
    set: str
    machine: str
    algorithm: str = ""


CASES = (
    Case("h100_1n8_aws_p5_allreduce_auto", "dgx-h100"),
    *(Case(f"aic_h100_sxm_1n8_{one}", "dgx-h100") for one in ("all_reduce", "all_gather", "reduce_scatter")),
    Case("aic_b200_sxm_1n8_all_reduce", "dgx-b200"),
    Case("aic_a100_sxm_1n8_all_reduce", "dgx-a100"),
    Case("h100_2n8_ib400x8_allreduce_auto_B", "dgx-h100"),
    Case("h100_2n8_ib400x8_allreduce_ring_B", "dgx-h100", "ring"),
    Case("h100_4n8_ib400x8_allreduce_auto_B", "dgx-h100"),
    *(Case(f"mn5_h100_{n}n4_allreduce_{one}", "", one) for n in (4, 16) for one in ("ring", "tree")),
    *(Case(f"mn5_h100_{n}n4_allreduce_auto", "") for n in (4, 16)),
)


def main() -> None:
    print(f"{'set':37} {'picked':34} {'up to 64 KiB':>22} {'above':>22}")
    print(f"{'':37} {'':34} {'ratio':>8} {'median / 90th':>13} {'ratio':>8} {'median / 90th':>13}")
    for case in CASES:
        sweep = load_sweep(case.set)
        model = model_of(sweep, case)
        chosen = [choose(model, size) for size in sweep.message_bytes]
        ratios = np.array([one.seconds for one in chosen]) / np.array(sweep.seconds)
        sizes = np.array(sweep.message_bytes)
        picked = ", ".join(dict.fromkeys(one.label for one in chosen))
        print(f"{case.set:37} {picked:34.34} {errors(ratios[sizes <= SMALL])} {errors(ratios[sizes > SMALL])}")
    print()
    for nodes in (4, 16):
        print(agreement(nodes))


def model_of(sweep: MeasuredSweep, case: Case) -> Model:
    graph = load_machine(case.machine).nccl if case.machine else MARENOSTRUM
    if graph is None or sweep.world_size is None or sweep.nodes is None or sweep.collective is None:
        raise ValueError(f"{case.set} does not say what ran")
    allowed = [case.algorithm] if case.algorithm else ALGORITHMS
    return nccl_model(sweep.collective, graph, sweep.nodes, sweep.world_size // sweep.nodes, allowed)


def errors(ratios: np.ndarray) -> str:
    if not len(ratios):
        return f"{'-':>8} {'-':>13}"
    off = 100 * np.abs(ratios - 1)
    spread = f"{np.median(off):.0f} / {np.percentile(off, 90):.0f} %"
    return f"{np.median(ratios):8.2f} {spread:>13}"


def agreement(nodes: int) -> str:
    """How often the algorithm that the model calls faster was measured to be so."""
    ring, tree = (load_sweep(f"mn5_h100_{nodes}n4_allreduce_{one}") for one in ("ring", "tree"))
    of_ring, of_tree = (dict(zip(one.message_bytes, one.seconds, strict=True)) for one in (ring, tree))
    model = nccl_model("all_reduce", MARENOSTRUM, nodes, 4, ["ring", "tree"])
    right, losses, wrong = 0, [], []
    sizes = sorted(of_ring.keys() & of_tree.keys())
    for size in sizes:
        times = {"ring": of_ring[size], "tree": of_tree[size]}
        taken = choose(model, size).label.partition("/")[0]
        losses.append(times[taken] / min(times.values()) - 1)
        right += taken == min(times, key=lambda name: times[name])
        if losses[-1] > 0:
            wrong.append(size)
    where = f", wrong from {min(wrong)} to {max(wrong)} B" if wrong else ""
    cost = f"costs {100 * np.mean(losses):.0f} % in the mean and {100 * max(losses):.0f} % at worst"
    return (
        f"MareNostrum 5, {nodes} nodes: the faster of ring and tree for {right} of {len(sizes)} messages{where}; {cost}"
    )


if __name__ == "__main__":
    main()
