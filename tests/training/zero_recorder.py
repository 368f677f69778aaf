"""Runs DeepSpeed in processes on gloo and records what it communicates; ``data/zero_traces.json`` was made with it.

    python zero_recorder.py CASES.json EVENTS.json

Cases are entries of ``recorded`` there. Every collective is noted where torch's function for it is called.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing, nn

KINDS = {"all_gather_into_tensor": "all_gather", "reduce_scatter_tensor": "reduce_scatter"}
KINDS |= {kind: kind for kind in ("all_reduce", "broadcast", "reduce", "all_to_all_single")}


class Block(nn.Module):
    """Two linear layers and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(10, 20), nn.Linear(20, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add to the residual stream."""
        return x + self.b(torch.relu(self.a(x)))


class ModelB(nn.Module):
    """The model of the recorded steps; its output is a loss."""

    def __init__(self, blocks: int, *, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 10)
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.norm = nn.LayerNorm(10)
        self.head = nn.Linear(10, 50, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Compute a loss."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)).float().logsumexp(-1).mean()


def largest(values: Any) -> torch.Tensor:
    """Return the larger buffer of a call."""
    return max((value for value in values if isinstance(value, torch.Tensor)), key=torch.Tensor.numel)


def note_calls(events: list[str]) -> None:
    """Let torch's functions, and DeepSpeed's references to them, note what they are called for."""
    from deepspeed.comm import comm

    def noting(function: Any, kind: str) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            buffer = largest([*given, *named.values()])
            ranks = dist.get_world_size(named.get("group"))
            events.append(f"{kind} {buffer.numel()}:{str(buffer.dtype).removeprefix('torch.')} @{ranks}")
            return function(*given, **named)

        call.__name__ = function.__name__
        return call

    for name, kind in KINDS.items():
        setattr(dist, name, noting(getattr(dist, name), kind))
    for attribute in ("all_gather_function", "reduce_scatter_function"):
        function = getattr(comm.cdb, attribute, None)
        if function is not None:
            setattr(comm.cdb, attribute, getattr(dist, function.__name__))


def run(rank: int, cases: list[dict[str, Any]], port: int, out: str) -> None:
    """Run three steps of the cases of one number of processes."""
    ranks = cases[0]["world_size"]
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "DS_ACCELERATOR": "cpu"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    import deepspeed

    deepspeed.init_distributed("gloo")
    events: list[str] = []
    note_calls(events)
    found = {}
    for case in cases:
        model = ModelB(case["blocks"], tied=case.get("tied", False))
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": case["accumulation"],
            "bf16": {"enabled": True},
            "zero_optimization": case["zero_optimization"],
            "zero_allow_untested_optimizer": True,
            **case.get("more", {}),
        }
        optimizer = torch.optim.Adam(model.parameters())
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
        steps = {}
        for step in ("first", "second", "third"):
            events.clear()
            for micro_batch in range(case["accumulation"]):
                events.append(f"-- mb {micro_batch}")
                engine.backward(engine(torch.zeros((1, 8), dtype=torch.long)))
                engine.step()
            steps[step] = list(events)
        found[case["case"]] = steps
    if rank == 0:
        Path(out).write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()


def main() -> None:
    """Run all cases, those of one number of processes together."""
    cases = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for ranks in sorted({case["world_size"] for case in cases}):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # Stage 3 replaces torch's linear function in the whole process: it comes last.
        by_stage = sorted(cases, key=lambda case: case["zero_optimization"]["stage"])
        chosen = [case for case in by_stage if case["world_size"] == ranks]
        multiprocessing.spawn(run, (chosen, port, sys.argv[2]), nprocs=ranks)
        found |= json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
