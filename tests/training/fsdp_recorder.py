"""Runs PyTorch's FSDP1 and FSDP2 in four processes on gloo and records what they communicate.

    python fsdp_recorder.py CASES.json EVENTS.json

Collectives are noted where FSDP calls them. Between them stand marks: of forwards and backwards inside of blocks, and
of FSDP1's host, when it waits for the end of a use of a unit: for which of the step.
"""

from __future__ import annotations

import json
import sys
import tempfile
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    BackwardPrefetch,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp._limiter_utils import _FreeEventQueue
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy

RANKS = 4
DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
EVENTS: list[list[Any]] = []


class Block(nn.Module):
    """Two linears with biases beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(10, 20), nn.Linear(20, 10)

    def forward(self, x: Any) -> Any:
        """Return values of the same shape."""
        return x + self.down(self.up(x))


class Tail(nn.Module):
    """A norm, and a head without bias."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(10), nn.Linear(10, 50, bias=False)

    def forward(self, x: Any) -> Any:
        """Return logits."""
        return self.head(self.norm(x))


class Whole(nn.Module):
    """An embedding, or none; blocks; the tail."""

    def __init__(self, blocks: int, embedding: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 10) if embedding else nn.Identity()
        self.layers = nn.ModuleList(Block() for _ in range(blocks))
        self.tail = Tail()

    def forward(self, x: Any) -> Any:
        """Return logits."""
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.tail(x)


def note(kind: str, larger: Any, group: Any, dtype: Any) -> None:
    """Note a collective by the elements of its larger buffer."""
    elements = sum(tensor.numel() for tensor in larger) if isinstance(larger, list) else larger.numel()
    EVENTS.append([kind, elements, group.size(), DTYPES[dtype]])


def note_collectives() -> None:
    """Let every collective be noted before it is done."""
    gather, gather_list = dist.all_gather_single, dist.all_gather
    scatter, reduce = dist.reduce_scatter_single, dist.all_reduce

    def noted_gather(output_tensor: Any, input_tensor: Any, group: Any = None, **more: Any) -> Any:
        note("all_gather", output_tensor, group, input_tensor.dtype)
        return gather(output_tensor, input_tensor, group=group, **more)

    def noted_gather_list(tensor_list: Any, tensor: Any, group: Any = None, **more: Any) -> Any:
        note("all_gather", list(tensor_list), group, tensor.dtype)
        return gather_list(tensor_list, tensor, group=group, **more)

    def noted_scatter(output: Any, input: Any, group: Any = None, **more: Any) -> Any:
        note("reduce_scatter", input, group, input.dtype)
        return scatter(output, input, group=group, **more)

    def noted_reduce(tensor: Any, group: Any = None, **more: Any) -> Any:
        note("all_reduce", tensor, group, tensor.dtype)
        return reduce(tensor, group=group, **more)

    dist.all_gather_single, dist.all_gather = noted_gather, noted_gather_list
    dist.reduce_scatter_single, dist.all_reduce = noted_scatter, noted_reduce


def note_limits() -> None:
    """Let the host's waits be noted: for the how-manieth end of a use in the step, if it is of this step."""
    enqueue, dequeue = _FreeEventQueue.enqueue, _FreeEventQueue.dequeue_if_needed
    numbers: dict[int, tuple[int, int]] = {}

    def put(self: Any, event: Any) -> None:
        numbers[id(event)] = STEP[0], STEP[1]
        STEP[1] += 1
        KEPT.append(event)
        enqueue(self, event)

    def take(self: Any) -> Any:
        event = dequeue(self)
        if event is not None and numbers[id(event)][0] == STEP[0]:
            EVENTS.append(["host", numbers[id(event)][1]])
        return event

    _FreeEventQueue.enqueue, _FreeEventQueue.dequeue_if_needed = put, take


STEP = [0, 0]
KEPT: list[Any] = []


def sharded2(model: Whole, case: dict[str, Any]) -> nn.Module:
    """Return the model in FSDP2 with a case's options."""
    shape = (RANKS // case["shard"], case["shard"]) if case["shard"] else (RANKS,)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    dtypes = {key: getattr(torch, value) for key, value in case["dtypes"].items()}
    how = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(**dtypes)}
    if "reshard_after_forward" in case:
        how["reshard_after_forward"] = case["reshard_after_forward"]
    units: list[Any] = [*model.layers]
    if case["parts"]:
        units = [*([model.embed] if list(model.embed.parameters()) else []), *units, model.tail]
    for unit in units:
        kept = {"reshard_after_forward": False} if unit is units[-1] and case["keep_last"] else {}
        fully_shard(unit, **{**how, **kept})
    fully_shard(model, **how)
    for number, unit in enumerate(units):
        if case["forward_prefetch"]:
            unit.set_modules_to_forward_prefetch(units[number + 1 : number + 1 + case["forward_prefetch"]])
        if case["backward_prefetch"] > 1:
            before = units[max(number - case["backward_prefetch"], 0) : number]
            unit.set_modules_to_backward_prefetch(before[::-1])
    if not case["unshard_first"]:
        units[0].set_unshard_in_backward(False)
    if case["separate"]:
        model.set_separate_reduce_scatter_group(True)
    if case["buffers"] > 1:
        model.set_reduce_scatter_max_input_buffers(case["buffers"])
    return model


def sharded1(model: Whole, case: dict[str, Any]) -> nn.Module:
    """Return the model in FSDP1 with a case's options."""
    kinds = (Block, Tail, nn.Embedding) if case["parts"] else (Block,)
    how = dict(case["fsdp1"])
    for key, known in (("sharding_strategy", ShardingStrategy), ("backward_prefetch", BackwardPrefetch)):
        if how.get(key):
            how[key] = known[how[key]]
    if case["shard"]:
        how["device_mesh"] = init_device_mesh(
            "cpu", (RANKS // case["shard"], case["shard"]), mesh_dim_names=("replicate", "shard")
        )
    dtypes = {key: getattr(torch, value) for key, value in case["dtypes"].items()}
    policy = partial(lambda_auto_wrap_policy, lambda_fn=lambda module: isinstance(module, kinds))
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=policy,
        mixed_precision=MixedPrecision(**dtypes) if dtypes else None,
        device_id=torch.device("cpu"),
        **how,
    )


def note_marks(model: Whole) -> None:
    """Let what is computed in the middle of blocks be noted."""
    for number, layer in enumerate(model.layers):
        layer.down.register_forward_pre_hook(lambda *_, n=number: EVENTS.append(["forward", n]))
        layer.up.register_full_backward_pre_hook(lambda *_, n=number: EVENTS.append(["backward", n]))


def steps(case: dict[str, Any]) -> list[list[list[Any]]]:
    """Return the events of every step."""
    torch.manual_seed(0)
    model = Whole(case["blocks"], case["embedding"])
    note_marks(model)
    inputs = torch.arange(12).reshape(3, 4) if case["embedding"] else torch.randn(3, 10)
    wrapped = sharded1(model, case) if case["version"] == 1 else sharded2(model, case)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=1e-3)
    found = []
    for _ in range(case["steps"]):
        EVENTS.clear()
        STEP[:] = [STEP[0] + 1, 0]
        for number in range(case["micro_batches"]):
            last = number == case["micro_batches"] - 1
            context: Any = nullcontext()
            if case["version"] == 1 and case["no_sync"] and not last:
                context = wrapped.no_sync()
            if case["version"] == 2:
                wrapped.set_requires_gradient_sync(last or case["sync"] == "every")
                wrapped.set_requires_all_reduce(last or case["all_reduce"] == "every")
                wrapped.set_is_last_backward(last or case["wait_every"])
                wrapped.set_reshard_after_backward(last or case["reshard_after_backward"])
            with context:
                wrapped(inputs).float().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append([*EVENTS])
    return found


def work(rank: int, meeting: str, cases: list[dict[str, Any]], output: str) -> None:
    """Run every case as one of the ranks; rank 0 writes what it saw."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    note_collectives()
    note_limits()
    found = [steps(case) for case in cases]
    if rank == 0:
        Path(output).write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def main() -> None:
    """Run the cases of a file."""
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (str(Path(folder) / "store"), cases, sys.argv[2]), nprocs=RANKS)


if __name__ == "__main__":
    main()
