"""The ranks of one probe as each sees them: its device, agreeing on numbers, and timing calls of all at once.

A call's time is that of its slowest rank. On GPUs it lies between two CUDA events, calls following each other without
a stop, as in nccl-tests; on CPUs it is taken by the clock of each rank, all of which begin at a barrier.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from simcollectives.errors import InputError, Problem
from simcollectives.measured.probe.launch import Placement
from simcollectives.measured.probe.plan import Plan
from simcollectives.measured.probe.results import Times, times_of

CPU_TIMING = "median over calls of the slowest rank's time, by its clock from a barrier on"
GPU_TIMING = "median over calls of the slowest rank's time, between CUDA events"

Call = Callable[[], object]
Made = TypeVar("Made")


@dataclass(frozen=True)
class Group:
    """This rank among all; ``torch`` is the module, ``device`` the torch.device that it measures with."""

    torch: Any
    device: Any
    placement: Placement

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self.placement.world_size

    @property
    def on_gpu(self) -> bool:
        """Whether CUDA does the work."""
        return bool(self.device.type == "cuda")

    def largest(self, values: Sequence[float]) -> list[float]:
        """Each value's largest over all ranks; returns on a rank when all have called it."""
        held = self.torch.tensor(values, dtype=self.torch.float64, device=self.device)
        self.torch.distributed.all_reduce(held, op=self.torch.distributed.ReduceOp.MAX)
        return [float(value) for value in held.tolist()]

    def total(self, value: int) -> int:
        """The sum of a whole number over all ranks."""
        held = self.torch.tensor([value], dtype=self.torch.int64, device=self.device)
        self.torch.distributed.all_reduce(held)
        return int(held.item())

    def meet(self) -> None:
        """Return when all ranks have come here and their devices are idle."""
        if self.on_gpu:
            self.torch.cuda.synchronize()
            self.largest([0.0])
            self.torch.cuda.synchronize()
        else:
            self.torch.distributed.barrier()

    def attempt(self, make: Callable[[], Made]) -> tuple[Made | None, str]:
        """What all ranks make; or None, and why, where it failed on any of them.

        For what may fail before it communicates: an operation that a backend lacks, or memory that is not there.
        """
        made, reason = None, ""
        try:
            made = make()
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            reason = first_line(error)
        if self.largest([1.0 if reason else 0.0])[0] > 0:
            return None, reason or "it failed on another rank"
        return made, ""

    def time(self, call: Call, plan: Plan) -> Times:
        """Seconds of a call that all ranks make at once, warmed up."""
        each = self._pace(call, 1)
        if warm_up := plan.warm_up_calls(each):
            each = min(each, self._pace(call, warm_up))
        return times_of(self.largest(self._take(call, plan.calls(each))))

    def _pace(self, call: Call, calls: int) -> float:
        """Seconds that one of some calls needs, with what it takes to begin together; equal on all ranks."""
        begun = time.perf_counter()
        self._take(call, calls)
        return self.largest([(time.perf_counter() - begun) / calls])[0]

    def _take(self, call: Call, calls: int) -> list[float]:
        return self._take_on_gpu(call, calls) if self.on_gpu else self._take_on_cpu(call, calls)

    def _take_on_cpu(self, call: Call, calls: int) -> list[float]:
        found = []
        for _ in range(calls):
            self.meet()
            begun = time.perf_counter()
            call()
            found.append(time.perf_counter() - begun)
        return found

    def _take_on_gpu(self, call: Call, calls: int) -> list[float]:
        events = [self.torch.cuda.Event(enable_timing=True) for _ in range(2 * calls)]
        self.meet()
        for begin, end in zip(events[::2], events[1::2], strict=True):
            begin.record()
            call()
            end.record()
        self.torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e-3 for begin, end in zip(events[::2], events[1::2], strict=True)]


def first_line(error: BaseException) -> str:
    """What an error of PyTorch says, without the place in C++ before it and the stack below.

    >>> first_line(RuntimeError("[/pytorch/third_party/gloo/tcp/pair.cc:538] Connection closed by peer\\n #0 .."))
    'Connection closed by peer'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = re.sub(r"^\[[^\]]*\.(?:cc|cpp):[0-9]+\] ", "", lines[0]) if lines else type(error).__name__
    return text[:300]


@contextmanager
def joined(plan: Plan, placement: Placement) -> Iterator[Group]:
    """A group of all ranks, in torch.distributed's default process group, until the context ends.

    Raises:
        InputError: the backend is not there, or this rank has no GPU.
    """
    import torch

    backend = chosen_backend(torch, plan.backend)
    device = torch.device("cpu")
    if backend == "nccl":
        if placement.local_rank >= torch.cuda.device_count():
            rule = f"rank {placement.rank} is number {placement.local_rank} of its node, which has"
            text = f"{rule} {torch.cuda.device_count()} GPUs; start one rank a GPU, or take --backend gloo"
            raise InputError([Problem("--backend", text)])
        device = torch.device("cuda", placement.local_rank)
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // placement.local_world_size))
    torch.distributed.init_process_group(
        backend,
        init_method=placement.init_method,
        rank=placement.rank,
        world_size=placement.world_size,
        timeout=timedelta(seconds=plan.timeout),
    )
    yield Group(torch, device, placement)
    torch.distributed.destroy_process_group()


def chosen_backend(torch: Any, asked: str) -> str:
    """The backend to use: NCCL where there are GPUs, unless gloo is asked for.

    Raises:
        InputError: it is not there.
    """
    if not torch.distributed.is_available():
        raise InputError("this PyTorch is built without torch.distributed; install another, such as pip install torch")
    gpus = torch.cuda.device_count()
    has_nccl = torch.distributed.is_nccl_available()
    if asked == "auto":
        return "nccl" if gpus and has_nccl else "gloo"
    if asked == "nccl" and not (gpus and has_nccl):
        what = "PyTorch sees no GPU" if not gpus else f"PyTorch {torch.__version__} is built without NCCL"
        raise InputError([Problem("--backend", f"nccl: {what}; write --backend gloo to measure CPUs")])
    return asked
