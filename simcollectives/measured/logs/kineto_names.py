"""The words of PyTorch's profiler: collectives, element types, kernels, and the arguments of a communication kernel."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

KINDS: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "all_reduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "_allgather_base": "all_gather",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "broadcast": "broadcast",
    "_broadcast_oop": "broadcast",
    "reduce": "reduce",
    "_reduce_oop": "reduce",
    "all_to_all": "all_to_all",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_allv": "all_to_all",
}
"""Collectives as torch names them in ``record_param_comms`` (ProcessGroupNCCL.cpp), by this project's."""

DTYPES: Mapping[str, tuple[str, int]] = {
    "double": ("float64", 8),
    "float": ("float32", 4),
    "half": ("float16", 2),
    "bfloat16": ("bfloat16", 2),
    "long": ("int64", 8),
    "int": ("int32", 4),
    "short": ("int16", 2),
    "char": ("int8", 1),
    "byte": ("uint8", 1),
    "bool": ("bool", 1),
    "float8_e4m3fn": ("float8_e4m3fn", 1),
    "float8_e5m2": ("float8_e5m2", 1),
}
"""Element types as torch writes them, in small letters: this project's name, bytes of one."""

_DEFAULT_GROUP = "default_pg"
_COMMUNICATION = re.compile(r"nccl|rccl|msccl")


class Collective(NamedTuple):
    """What a kernel's arguments say; texts are empty and numbers None where they do not. ``uneven``: parts differ."""

    kind: str
    word: str
    name: str
    group: str
    group_size: int | None
    elements: int | None
    dtype: str
    bytes: int | None
    micro_batch: int | None
    phase: str
    waiting_us: float | None
    uneven: bool


def is_communication(name: str, args: Mapping[str, Any]) -> bool:
    """Whether a kernel is one of a communication library."""
    return "Collective name" in args or _COMMUNICATION.match(name) is not None


def is_device_copy(name: str) -> bool:
    """Whether a copy stays in the device's memory: it is work of the device, as a kernel is."""
    return "DtoD" in name or name.startswith("Memset")


def read_collective(name: str, args: Mapping[str, Any]) -> Collective:
    """The collective of a kernel, by its arguments, else by its name alone."""
    word = _text(args.get("Collective name"))
    dtype, item_bytes = DTYPES.get(_text(args.get("dtype")).lower(), ("", 0))
    sent, received = _count(args.get("In msg nelems")), _count(args.get("Out msg nelems"))
    elements = max(sent, received) if sent is not None and received is not None else None
    waiting = args.get("Waiting for ranks (us)")
    return Collective(
        kind=KINDS.get(word.lower(), "") if word else _kind_of_kernel(name),
        word=word or name[:60],
        name=_text(args.get("Operation")),
        group=_group(args),
        group_size=_count(args.get("Group size")),
        elements=elements,
        dtype=dtype,
        bytes=elements * item_bytes if elements is not None and item_bytes else None,
        micro_batch=_count(args.get("Micro-batch")),
        phase=_text(args.get("Phase")),
        waiting_us=float(waiting) if isinstance(waiting, int | float | Decimal) and 0 <= waiting < 1e12 else None,
        uneven=_is_uneven(args.get("In split size")) or _is_uneven(args.get("Out split size")),
    )


def _group(args: Mapping[str, Any]) -> str:
    """The group as this project calls it: what torch's description says, ``world`` for the default group."""
    description, number = _text(args.get("Process Group Description")), _text(args.get("Process Group Name"))
    if description == _DEFAULT_GROUP:
        return "world"
    return number if description in ("", "undefined") else description


def _kind_of_kernel(name: str) -> str:
    """The collective in the name of a kernel of NCCL, empty where it names none."""
    for part, kind in (
        ("AllReduce", "all_reduce"),
        ("AllGather", "all_gather"),
        ("ReduceScatter", "reduce_scatter"),
        ("Broadcast", "broadcast"),
        ("Reduce", "reduce"),
    ):
        if part.lower() in name.lower():
            return kind
    return ""


def _is_uneven(value: Any) -> bool:
    """Whether a list of split sizes, as torch writes it, names different ones."""
    return len(set(re.findall(r"[0-9]+", value))) > 1 if isinstance(value, str) else False


def _text(value: Any) -> str:
    return value.strip('" ')[:200] if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None
