"""The network, BatchNorm, the optimizers and data parallelism against PyTorch on CPU, in float64."""

from __future__ import annotations

import subprocess
import sys
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcollectives.training.numerics import OPTIMIZERS, Network, NumericsPlan, one_device, train
from simcollectives.training.numerics.network import BATCH_NORMS, initial_parameters, make_batch

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the probe extra)")
pytestmark = pytest.mark.torch
STEPS = 12


def torch_network(plan: NumericsPlan) -> Any:
    """The same layers with the same initial parameters."""
    nn, network = torch.nn, plan.network
    plain = network.batch_norm == "none"
    layers = OrderedDict(hidden=nn.Linear(network.inputs, network.hidden, bias=plain))
    if not plain:
        layers["norm"] = nn.BatchNorm1d(network.hidden, track_running_stats=False)
    layers |= {"tanh": nn.Tanh(), "output": nn.Linear(network.hidden, network.classes)}
    made = nn.Sequential(layers).double()
    given = initial_parameters(network, plan.seed)
    made.load_state_dict({name: torch.from_numpy(given[name].copy()) for name in made.state_dict()})
    return made


def torch_optimizer(name: str, parameters: Any) -> Any:
    rate = OPTIMIZERS[name].learning_rate
    if name == "adam":
        return torch.optim.Adam(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9 if name == "momentum" else 0.0)


def torch_run(plan: NumericsPlan) -> tuple[list[float], list[dict[str, Any]], dict[str, Any]]:
    """Losses and gradients of every step, and parameters after the last, of one device."""
    network = torch_network(plan)
    optimizer = torch_optimizer(plan.optimizer, network.parameters())
    losses, gradients = [], []
    for step in range(1, plan.steps + 1):
        batch = make_batch(plan.network, plan.samples, plan.seed, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            network(torch.from_numpy(batch.inputs)), torch.from_numpy(batch.labels)
        )
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: p.grad.numpy().copy() for name, p in network.named_parameters()})
        optimizer.step()
    return losses, gradients, {name: p.detach().numpy() for name, p in network.named_parameters()}


def assert_close(found: Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-13, err_msg=name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("batch_norm", BATCH_NORMS)
def test_one_device_and_four_are_pytorch_on_one(batch_norm: str, optimizer: str) -> None:
    """Losses, gradients, parameters. Synchronised statistics on four devices are BatchNorm of the whole batch."""
    plan = NumericsPlan(steps=STEPS, optimizer=optimizer, network=Network(batch_norm=batch_norm), algorithm="tree")
    losses, gradients, parameters = torch_run(plan)
    for run in (one_device(plan), *([] if batch_norm == "local" else [plan])):
        history = train(run, range(1, STEPS + 1))
        assert [snapshot.loss for snapshot in history.snapshots] == pytest.approx(losses, abs=1e-13)
        for snapshot, expected in zip(history.snapshots, gradients, strict=True):
            assert_close(snapshot.gradients[-1], expected)
        assert_close(history.snapshots[-1].parameters[-1], parameters)


def distributed(plan: NumericsPlan, folder: Path) -> list[dict[str, Any]]:
    """Parameters of every rank after real DistributedDataParallel."""
    batches = [make_batch(plan.network, plan.samples, plan.seed, step) for step in range(1, plan.steps + 1)]
    np.savez(
        folder / "plan.npz",
        shards=plan.shard_sizes,
        rate=OPTIMIZERS[plan.optimizer].learning_rate,
        inputs=[batch.inputs for batch in batches],
        labels=[batch.labels for batch in batches],
        **initial_parameters(plan.network, plan.seed),
    )
    script = Path(__file__).with_name("torch_data_parallel.py")
    ranks = range(plan.world_size)
    running = [subprocess.Popen([sys.executable, str(script), str(rank), str(folder)]) for rank in ranks]
    assert [process.wait(timeout=300) for process in running] == [0] * plan.world_size
    return [dict(np.load(folder / f"rank{rank}.npz")) for rank in ranks]


@pytest.mark.slow
@pytest.mark.parametrize("shards", [(32, 32), (50, 14)], ids=["equal", "unequal"])
def test_distributed_data_parallel_averages_local_means(shards: Sequence[int], tmp_path: Path) -> None:
    """PyTorch does what ``mean_of_means`` says: right where shards are equal, off where they are not."""
    plan = NumericsPlan(
        world_size=2, samples=64, shards=tuple(shards), steps=STEPS, optimizer="momentum", mistake="mean_of_means"
    )
    ranks = distributed(plan, tmp_path)
    for found, expected in zip(train(plan).snapshots[0].parameters, ranks, strict=True):
        assert_close(found, expected)
    one = train(one_device(plan)).snapshots[0].parameters[0]
    off = max(np.abs(ranks[0][name] - one[name]).max() for name in one)
    assert off < 1e-13 if shards[0] == shards[1] else off > 1e-3
