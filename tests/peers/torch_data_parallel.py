"""One rank of real DistributedDataParallel on CPU: python torch_data_parallel.py RANK FOLDER.

Reads plan.npz (initial parameters, inputs [step, sample, feature], labels, shard sizes, rate) from FOLDER and writes
the parameters after the last step to rank<RANK>.npz.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np


def main(rank: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

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
    replica = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(replica.parameters(), lr=float(given["rate"]), momentum=0.9)
    mine = slice(sum(shards[:rank]), sum(shards[: rank + 1]))
    for x, y in zip(given["inputs"], given["labels"], strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(replica(torch.from_numpy(x[mine])), torch.from_numpy(y[mine])).backward()
        optimizer.step()
    np.savez(folder / f"rank{rank}.npz", **{name: p.numpy() for name, p in network.state_dict().items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
