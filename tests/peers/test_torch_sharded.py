"""Sharded training in numbers against PyTorch's own FSDP2, hybrid sharding and ZeRO-1, on gloo in float64."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcollectives.training.numerics import OPTIMIZERS, NumericsPlan, train
from simcollectives.training.numerics.network import initial_parameters, make_batch

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the probe extra)")
pytestmark = [pytest.mark.torch, pytest.mark.slow]


def really(plan: NumericsPlan, folder: Path) -> list[dict[str, Any]]:
    """What every rank of PyTorch ends with."""
    batches = [make_batch(plan.network, plan.samples, plan.seed, step) for step in range(1, plan.steps + 1)]
    np.savez(
        folder / "plan.npz",
        kind=plan.strategy,
        shard_size=plan.strategy_options.get("shard_size", plan.world_size),
        shards=plan.shard_sizes,
        rate=OPTIMIZERS[plan.optimizer].learning_rate,
        inputs=[batch.inputs for batch in batches],
        labels=[batch.labels for batch in batches],
        **initial_parameters(plan.network, plan.seed),
    )
    script = Path(__file__).with_name("torch_sharded.py")
    ranks = range(plan.world_size)
    running = [subprocess.Popen([sys.executable, str(script), str(rank), str(folder)]) for rank in ranks]
    assert [process.wait(timeout=300) for process in running] == [0] * plan.world_size
    return [dict(np.load(folder / f"rank{rank}.npz")) for rank in ranks]


@pytest.mark.parametrize(
    ("strategy", "options", "ranks"),
    [("fsdp2", {}, 3), ("fsdp2", {}, 4), ("hsdp", {"shard_size": 2}, 4), ("zero1", {}, 3)],
)
def test_weights_and_shards_are_those_of_pytorch(
    strategy: str, options: dict[str, Any], ranks: int, tmp_path: Path
) -> None:
    """Weights to 1e-12; each rank keeps the same rows of every parameter, and our zeros are where it has none."""
    plan = NumericsPlan(
        strategy=strategy,
        strategy_options=options,
        world_size=ranks,
        samples=48,
        steps=12,
        optimizer="adam",
        algorithm="direct",
    )
    found, history = really(plan, tmp_path), train(plan)
    ours = history.snapshots[0].parameters
    for rank in range(ranks):
        for name, value in ours[rank].items():
            np.testing.assert_allclose(found[rank][name], value, rtol=0, atol=1e-12, err_msg=name)
    if strategy == "zero1":
        assert sum(int(one["states"]) for one in found) == sum(value.size for value in ours[0].values())
        return
    for rank, standing in enumerate(history.standing):
        for unit, layer in zip(standing["parameters"], ("hidden", "output"), strict=True):
            rows = [found[rank][f"local {layer}.{kind}"] for kind in ("weight", "bias")]
            width = rows[0].shape[1]
            most = unit.size // (width + 1)
            filled = [
                np.append(r.reshape(-1), np.zeros(most * w - r.size)) for r, w in zip(rows, (width, 1), strict=True)
            ]
            np.testing.assert_allclose(unit, np.concatenate(filled), rtol=0, atol=1e-12)
