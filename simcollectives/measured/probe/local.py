"""What one device does alone: matrix products, for the MFU of a training step, and copies between host and device.

All ranks do it at once, as in training, and the slowest counts.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

from simcollectives.measured.probe.group import Call, Group
from simcollectives.measured.probe.plan import Plan
from simcollectives.measured.probe.results import Copied, LeftOut, Multiplied
from simcollectives.units import format_bytes

# Hidden size and tokens of the layer, and sides of the squares, on a GPU and on a CPU.
_GPU_SIZES = (4096, 4096, (4096, 8192))
_CPU_SIZES = (512, 512, (512, 1024))
_GPU_COPIES = (1 << 16, 1 << 20, 1 << 24, 1 << 28)
_CPU_COPIES = (1 << 16, 1 << 20, 1 << 24, 1 << 26)

SQUARE = "square"
MEMORY = "memory to memory"


def products(*, on_gpu: bool) -> list[tuple[str, int, int, int]]:
    """What is multiplied: its use, then rows, inner size and columns; squares, and a transformer layer's four."""
    hidden, tokens, sides = _GPU_SIZES if on_gpu else _CPU_SIZES
    return [
        *((SQUARE, side, side, side) for side in sides),
        ("query, key, value", tokens, hidden, 3 * hidden),
        ("attention output", tokens, hidden, hidden),
        ("feed forward, up", tokens, hidden, 4 * hidden),
        ("feed forward, down", tokens, 4 * hidden, hidden),
    ]


def multiply(group: Group, plan: Plan, dtype: str) -> Iterator[Multiplied | LeftOut]:
    """Time every product in an element type."""
    for use, rows, inner, columns in products(on_gpu=group.on_gpu):
        call, reason = group.attempt(partial(_product, group, rows, inner, columns, dtype))
        if call is None:
            yield LeftOut(f"matmul {rows}x{inner}x{columns} in {dtype}", reason)
        else:
            yield Multiplied(use, dtype, rows, inner, columns, group.time(call, plan))


def _product(group: Group, rows: int, inner: int, columns: int, dtype: str) -> Call:
    kind = getattr(group.torch, dtype)
    left = group.torch.ones((rows, inner), dtype=kind, device=group.device)
    right = group.torch.ones((inner, columns), dtype=kind, device=group.device)
    multiplied: Call = partial(group.torch.mm, left, right)
    multiplied()
    return multiplied


def copy(group: Group, plan: Plan) -> Iterator[Copied | LeftOut]:
    """Time copies: both ways between host and device, pinned and pageable; on CPUs from memory to memory."""
    kinds = [(MEMORY, True, True, False)]
    if group.on_gpu:
        kinds = [
            (f"{'host to device' if to_device else 'device to host'}, {word}", not to_device, to_device, pinned)
            for word, pinned in (("pinned", True), ("pageable", False))
            for to_device in (True, False)
        ]
    for size in _GPU_COPIES if group.on_gpu else _CPU_COPIES:
        for kind, into_host, from_host, pinned in kinds:
            call, reason = group.attempt(partial(_copying, group, size, into_host, from_host, pinned))
            if call is None:
                yield LeftOut(f"copy {kind} of {format_bytes(size)}", reason)
            else:
                yield Copied(kind, size, group.time(call, plan))


def _copying(group: Group, size: int, into_host: bool, from_host: bool, pinned: bool) -> Call:
    def held(in_host: bool) -> Any:
        place = group.torch.device("cpu") if in_host else group.device
        return group.torch.ones(size, dtype=group.torch.uint8, device=place, pin_memory=in_host and pinned)

    return partial(held(into_host).copy_, held(from_host), non_blocking=True)
