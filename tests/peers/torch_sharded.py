"""One rank of real sharded training on CPU: python torch_sharded.py RANK FOLDER.

Reads plan.npz (kind: fsdp2, hsdp or zero1; initial parameters, inputs [step, sample, feature], labels, shard sizes,
rate, options) from FOLDER and writes to rank<RANK>.npz the whole parameters after the last step and, under
``local <name>``, the rows that this rank keeps of each (fsdp2, hsdp) or, as ``states``, how many elements of Adam's
states it keeps (zero1).
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np


def main(rank: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.set_num_threads(1)  # a small network: more threads of several processes only wait for each other
    given = np.load(folder / "plan.npz")
    shards = given["shards"].tolist()
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=len(shards))
    hidden, inputs = given["hidden.weight"].shape
    layers = OrderedDict(
        hidden=nn.Linear(inputs, hidden), tanh=nn.Tanh(), output=nn.Linear(hidden, given["output.weight"].shape[0])
    )
    network = nn.Sequential(layers).double()
    network.load_state_dict({name: torch.from_numpy(given[name]) for name in network.state_dict()})
    model, optimizer, step = sharded(network, str(given["kind"]), given)
    mine = slice(sum(shards[:rank]), sum(shards[: rank + 1]))
    for x, y in zip(given["inputs"], given["labels"], strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.from_numpy(x[mine])), torch.from_numpy(y[mine])).backward()
        step()
    np.savez(folder / f"rank{rank}.npz", **results(network, optimizer))
    dist.destroy_process_group()


def sharded(network: Any, kind: str, given: Any) -> tuple[Any, Any, Any]:
    """What to call, its optimizer, and what makes a step."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    rate = float(given["rate"])
    if kind == "zero1":
        replica = DistributedDataParallel(network)
        zero = ZeroRedundancyOptimizer(network.parameters(), torch.optim.Adam, lr=rate)
        return replica, zero, zero.step
    ranks, size = len(given["shards"]), int(given["shard_size"])
    shape, names = ((ranks // size, size), ("replicate", "shard")) if kind == "hsdp" else ((ranks,), ("shard",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for module in (network.hidden, network.output, network):
        fully_shard(module, mesh=mesh)
    adam = torch.optim.Adam(network.parameters(), lr=rate)
    return network, adam, adam.step


def results(network: Any, optimizer: Any) -> dict[str, Any]:
    """Whole parameters, and what the rank keeps."""
    from torch.distributed.tensor import DTensor

    found = {}
    for name, parameter in network.named_parameters():
        if isinstance(parameter, DTensor):
            found[f"local {name}"] = parameter.to_local().detach().numpy()
            found[name] = parameter.full_tensor().detach().numpy()
        else:
            found[name] = parameter.detach().numpy()
    inner = getattr(optimizer, "optim", optimizer)
    found["states"] = np.array(sum(state["exp_avg"].numel() for state in inner.state.values()))
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
