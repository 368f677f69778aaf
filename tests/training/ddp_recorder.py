"""Runs PyTorch's DistributedDataParallel in two processes on gloo and records what it communicates.

    python ddp_recorder.py CASES.json EVENTS.json

Every collective is seen where it is issued: DDP is given a process group that notes each call and passes it on to gloo.
Between them stand marks of the modules whose backward starts.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

Event = list[Any]
DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16"}
DTYPES |= {torch.int32: "int32", torch.int64: "int64"}


class Recorded(dist.ProcessGroup):  # type: ignore[misc]
    """Notes what is called, and passes it on."""

    def __init__(self, inner: Any, events: list[Event]) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner, self.events = inner, events

    def _note(self, kind: str, tensors: Any) -> None:
        for tensor in tensors:
            self.events.append([kind, tensor.numel(), DTYPES[tensor.dtype]])

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """All-reduce in place."""
        self._note("all_reduce", tensors)
        work = self.inner.allreduce(tensors, opts or dist.AllreduceOptions())
        # What a hook does next is then issued at once, as on a GPU, and not in the order in which gloo's threads end.
        work.wait()
        return work

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Send rank 0's tensors to all."""
        self._note("broadcast", tensors)
        return self.inner.broadcast(tensors, opts or dist.BroadcastOptions())

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather shapes when DDP is made; not part of a step."""
        return self.inner.allgather(outputs, inputs, opts or dist.AllgatherOptions())

    def getBackendName(self) -> str:
        """Name the backend as PyTorch asks for it."""
        return "recorded"


class Tied(nn.Module):
    """An embedding whose weight is the head's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.linear = nn.Linear(16, 16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        """Return logits."""
        return self.head(self.linear(self.embedding(tokens)))


class Mixed(nn.Module):
    """Modules of two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(20, 30)
        self.second = nn.Linear(30, 40).double()
        self.third = nn.Linear(40, 30).double()
        self.fourth = nn.Linear(30, 8)

    def forward(self, inputs: Any) -> Any:
        """Return values in float32."""
        return self.fourth(self.third(self.second(self.first(inputs).double())).float())


class Ready(nn.Module):
    """Modules that run in another order than they are registered in."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(40, 10)
        self.norm = nn.LayerNorm(40)
        self.first = nn.Linear(20, 40)
        self.middle = nn.Linear(40, 40, bias=False)

    def forward(self, inputs: Any) -> Any:
        """Return values."""
        return self.last(self.norm(self.middle(self.first(inputs))))


def make(name: str) -> tuple[nn.Module, Any]:
    """Return a model and an input."""
    torch.manual_seed(0)
    values = torch.randn(6, 20)
    if name == "tied":
        return Tied(), torch.arange(12).reshape(3, 4)
    if name == "mixed":
        return Mixed(), values
    if name == "ready":
        return Ready(), values
    if name == "convolutions":
        layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, bias=False), nn.BatchNorm2d(16)]
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 16, 10)), torch.randn(4, 3, 8, 8)
    widths = [20, 40, 60, 80, 60, 40, 10]
    parts: list[nn.Module] = []
    for here, there in itertools.pairwise(widths):
        parts += [nn.Linear(here, there), nn.LayerNorm(there), nn.Tanh()]
    return nn.Sequential(*parts), values


def describe(model: nn.Module) -> dict[str, Any]:
    """Return modules in the order in which they run, parameters and buffers as they are registered."""
    modules: list[Event] = []

    def note(name: str, module: nn.Module) -> Any:
        parameters = [
            [f"{name}.{own}", list(p.shape), DTYPES[p.dtype]] for own, p in module.named_parameters("", False)
        ]
        return lambda *_: modules.append([name, type(module).__name__, parameters])

    leaves = [(name, m) for name, m in model.named_modules() if list(m.parameters(False))]
    handles = [module.register_forward_pre_hook(note(name, module)) for name, module in leaves]
    return {"modules": modules, "handles": handles, "leaves": leaves}


def wrapped(case: dict[str, Any], model: nn.Module, group: Any) -> DistributedDataParallel:
    """Return the model in DDP with a case's options."""
    ddp = DistributedDataParallel(model, process_group=group, **case["ddp"])
    hook = case.get("hook")
    if hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            group, matrix_approximation_rank=case["rank"], start_powerSGD_iter=case["start"]
        )
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook:
        hooks = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
        ddp.register_comm_hook(group, hooks[hook])
    return ddp


def steps(case: dict[str, Any], group: Any) -> Iterator[list[Event]]:
    """Yield the events of every step of a case, the description of the model before them."""
    model, inputs = make(case["model"])
    described = describe(model)
    with torch.no_grad():
        model(inputs)
    for handle in described["handles"]:
        handle.remove()
    names = {id(p): name for name, p in model.named_parameters()}
    own = {f"{name}.{mine}": p for name, m in described["leaves"] for mine, p in m.named_parameters("", False)}
    yield [
        ["modules", described["modules"]],
        ["registration", [name for name, _ in model.named_parameters()]],
        ["names", {name: names[id(p)] for name, p in own.items()}],
        ["buffers", [[name, list(b.shape), DTYPES[b.dtype]] for name, b in model.named_buffers()]],
    ]
    events: list[Event] = []
    recorded = Recorded(group, events)
    for name, module in described["leaves"]:
        module.register_full_backward_pre_hook(lambda _m, _g, name=name: events.append(["backward", name]))
    ddp = wrapped(case, model, recorded)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-3)
    for _ in range(case["steps"]):
        events.clear()
        for number in range(case["micro_batches"]):
            last = number == case["micro_batches"] - 1
            with nullcontext() if last or not case["no_sync"] else ddp.no_sync():
                ddp(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield list(events)


def work(rank: int, meeting: str, cases: list[dict[str, Any]], output: str) -> None:
    """Run every case as one of two ranks; rank 0 writes what it saw."""
    torch.set_num_threads(1)  # small models: more threads of two processes only wait for each other
    store = dist.FileStore(meeting, 2)
    group = dist.ProcessGroupGloo(store, rank, 2)
    found = [list(steps(case, group)) for case in cases]
    if rank == 0:
        Path(output).write_text(json.dumps(found), encoding="utf-8")


def main() -> None:
    """Run the cases of a file."""
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (str(Path(folder) / "store"), cases, sys.argv[2]), nprocs=2)


if __name__ == "__main__":
    main()
