"""Training steps that others have measured, beside what this simulator predicts for them.

    python benchmarks/published.py

The share of the peak that kernels reach (or their time) is calibrated on one row of each study, marked "calibrated";
all other rows are predictions. Sources: torchtitan, benchmarks/llama3_h100_202412_torchtitan.md (tables 1 and 3) and
llama3-8b_h200_202506; oumi-ai/oumi, pull request 213. "what closes most of the gap" is said of what is further off than
2 %: what would have to change, as far as the sources tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from scipy.optimize import brentq

from simcollectives.cluster import Cluster, Device, Link
from simcollectives.cluster.unequal import Uplink
from simcollectives.measured.spread import spreads_by
from simcollectives.training.catalogue import load_model
from simcollectives.training.plain import uniform_model
from simcollectives.training.prepare import prepare_training
from simcollectives.training.setup import ModuleSeconds, Optimizer, Precision, Training
from simcollectives.training.step import Step, simulate_step
from simcollectives.training.workload import Workload

SEQUENCE, LOCAL_BATCH = 8192, 2
MIXED = Precision("bfloat16", "float32", "float32")
PUBLISHED = {"P1": 5762.0, "P2": 5605.0, "P9, 32 GPUs": 10938.0, "P9, 64 GPUs": 10753.0}
PEAKS_GIB = {"P21, 8 GPUs": 82.4, "P21, 128 GPUs": 67.0}
SAMPLES = {"P22, 1 node": 21.7, "P22, 2 nodes": 40.8, "P22, 4 nodes": 74.41, "P22, 4 nodes, full shard": 55.35}
RESERVED = "the allocator's reserve: the source gives what is reserved, which is more than what is allocated"


@dataclass(frozen=True)
class Row:
    """One figure: measured and predicted, in ``unit``; ``gap`` is what closes most of the difference."""

    name: str
    what: str
    unit: str
    measured: float
    predicted: float
    calibrated: bool = False
    gap: str = ""

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1


def llama_step(machine: str, nodes: int, mfu: float) -> Step:
    """Llama 3 8B as torchtitan trains it: FSDP2, float32 shards and reduction, selective checkpointing by operators."""
    training = prepare_training(
        load_model("llama-3-8b"),
        Cluster.machine(machine, nodes=nodes),
        Workload(LOCAL_BATCH, SEQUENCE, "operators"),
        mfu=mfu,
        precision=MIXED,
        optimizer=Optimizer(master=False),
    )
    return simulate_step(training, "fsdp2", {"reduce_dtype": "float32"})


def tokens_per_second(step: Step) -> float:
    """Tokens a second and GPU."""
    return LOCAL_BATCH * SEQUENCE / step.step_seconds


def torchtitan_rows() -> list[Row]:
    """P1, P2, P9 and P21, with one share of the peak, from P1's row in bfloat16."""
    mfu = float(brentq(lambda x: tokens_per_second(llama_step("dgx-h100", 1, x)) - PUBLISHED["P1"], 0.1, 0.9))
    unit = "tokens/s/GPU"
    eight, many = (llama_step("dgx-h100", nodes, mfu) for nodes in (1, 16))
    # Matrix products in float8 have twice the peak of those in bfloat16; torch.compile is in the measurement only.
    wide = {f"P9, {8 * nodes} GPUs": llama_step("dgx-h200", nodes, 2 * mfu) for nodes in (4, 8)}
    stragglers = "ranks that differ: nothing that is modelled costs 3 % more on 16 nodes than on one"
    rows = [
        Row("P1", "Llama 3.1 8B, 8 H100, FSDP2", unit, PUBLISHED["P1"], tokens_per_second(eight), calibrated=True),
        Row("P2", "the same on 128", unit, PUBLISHED["P2"], tokens_per_second(many), gap=stragglers),
    ]
    compiled = "attention stays in bfloat16, and compiled kernels reach another share of the peak"
    for name, step in wide.items():
        what = "the same on H200, float8"
        rows.append(Row(name, what, unit, PUBLISHED[name], tokens_per_second(step), gap=compiled))
    for (name, measured), step in zip(PEAKS_GIB.items(), (eight, many), strict=True):
        rows.append(Row(name, "memory of P1 and P2", "GiB", measured, step.peak_bytes / 2**30, gap=RESERVED))
    return rows


def oumi_step(nodes: int, strategy: str, nic: float) -> Step:
    """A model of 2e9 parameters in 26 layers, one sample a GPU; kernels take what one node needs."""
    seconds = 8 / SAMPLES["P22, 1 node"]
    cluster = Cluster.two_level(nodes, 8, Link(5e-6, 300e9), Link(14e-6, nic), device=Device(memory_bandwidth=2e12))
    if nodes > 1:
        cluster = cluster.with_uplinks(Uplink("nic", "inter", nic, devices=8))
    model = uniform_model(2_000_000_000, 26, 9)
    modules = [module.name for layer in model.layers for module in layer.modules]
    each = ModuleSeconds(seconds / 3 / len(modules), 2 * seconds / 3 / len(modules))
    return simulate_step(Training(model, cluster, 1, 1, dict.fromkeys(modules, each)), strategy)


def oumi_rows() -> list[Row]:
    """P22. The source names neither GPUs nor network: a node's port is what makes the row of four nodes right."""

    def samples(nodes: int, strategy: str, nic: float) -> float:
        alone = oumi_step(1, "hsdp", nic).step_seconds
        return nodes * SAMPLES["P22, 1 node"] * alone / oumi_step(nodes, strategy, nic).step_seconds

    four = SAMPLES["P22, 4 nodes"]
    nic = 10 ** float(brentq(lambda x: samples(4, "hsdp", 10**x) - four, 9.5, 11, xtol=1e-3))
    unknown = "the network and the batch, which the source does not name"
    cases = {
        "P22, 1 node": (1, "hsdp", "2 B, HSDP, 8 GPUs"),
        "P22, 4 nodes": (4, "hsdp", f"on 4 nodes of one port of {nic / 1e9:.3g} GB/s"),
        "P22, 2 nodes": (2, "hsdp", "on 2"),
        "P22, 4 nodes, full shard": (4, "fsdp2", "on 4, FSDP2"),
    }
    return [
        Row(name, what, "samples/s", SAMPLES[name], samples(nodes, how, nic), number < 2, unknown)
        for number, (name, (nodes, how, what)) in enumerate(cases.items())
    ]


def main(show: Callable[[str], None] = print) -> None:
    """Print the table."""
    show(f"{'':26} {'':48} {'measured':>9} {'predicted':>9} {'error':>7}")
    rows = [*torchtitan_rows(), *oumi_rows()]
    for row in rows:
        gap = "calibrated" if row.calibrated else row.gap if abs(row.error) > 0.02 else ""
        figures = f"{row.measured:9.5g} {row.predicted:9.5g} {row.error:+7.1%}"
        show(f"{row.name:26} {f'{row.what}, {row.unit}':48} {figures}  {gap}")
    predicted = [row for row in rows if not row.calibrated]
    kinds = ["memory" if row.unit == "GiB" else "rates" for row in predicted]
    for kind, found in spreads_by([row.error for row in predicted], kinds).items():
        errors = f"median {found.median:.1%}, 90th percentile {found.p90:.1%}, worst {found.worst:+.1%}"
        show(f"{found.points} predicted {kind}: {errors} ({predicted[found.worst_at].name})")


if __name__ == "__main__":
    main()
