"""Options of ZeRO-Offload and ZeRO-Infinity, with DeepSpeed's names, and when they do not go together.

``offload_optimizer`` and ``offload_param`` are the devices of DeepSpeed's sections of these names; the rest is what
stands in the sections, one ``pin_memory`` for both.
"""

from collections.abc import Sequence
from typing import Any

from simcollectives.algorithms.types import Option, choice, whole_number
from simcollectives.cluster.link import is_number
from simcollectives.errors import Problem, show_value
from simcollectives.training.offload import Host, buffer_problems, host_of, host_problems, offloads
from simcollectives.training.setup import Training
from simcollectives.training.strategies.types import Options, flag
from simcollectives.training.strategies.zero_options import uses_deepspeed


def _share(value: Any) -> float:
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{show_value(value)} is not a share; write a number from 0 to 1")
    return float(value)


_PINNED = flag("pin_memory", True, "pinned host memory, to and from which copies run at full speed beside the rest")
OFFLOAD_1_2 = (
    choice("offload_optimizer", ("none", "cpu"), "none", "where the optimizer states and the optimizer are"),
    _PINNED,
)
OFFLOAD_3 = (
    choice("offload_optimizer", ("none", "cpu", "nvme"), "none", "where the optimizer states are; it runs on the CPU"),
    choice("offload_param", ("none", "cpu", "nvme"), "none", "where the shards of the parameters are"),
    _PINNED,
    Option("ratio", 1.0, "share of the sub-groups whose optimizer is offloaded", _share),
    whole_number("buffer_count", 4, "host buffers of the largest sub-group, for the optimizer on drives", least=1),
    whole_number("param_buffer_count", 5, "host buffers for parameters on drives", least=1),
    flag("pipeline_read", False, "read the next sub-group while one is updated"),
    flag("pipeline_write", False, "write a sub-group while the next is updated"),
)


def uses_host(options: Options) -> bool:
    """Whether anything is offloaded."""
    return offloads(options) != ("none", "none")


def host_in_use(training: Training, options: Options) -> Host | None:
    """Return the host, if anything is offloaded."""
    return host_of(training, options) if uses_host(options) else None


def offload_problems(training: Training, options: Options, groups: Sequence[int] = ()) -> tuple[Problem, ...]:
    """Tell what an offload lacks; ``groups`` are the sub-groups of stage 3."""
    if not uses_host(options):
        return ()
    if not uses_deepspeed(options):
        places = zip(("offload_optimizer", "offload_param"), offloads(options), strict=True)
        rule = "only DeepSpeed's offload is modelled; write implementation: deepspeed"
        return tuple(Problem(option, rule) for option, place in places if place != "none")
    return (*host_problems(training, options), *buffer_problems(options, groups))


def offload_warnings(options: Options) -> list[str]:
    """Tell of options that do nothing, or not what they say."""
    found = []
    optimizer = offloads(options)[0]
    if optimizer != "none" and not options["contiguous_gradients"] and "ratio" not in options:
        found.append("contiguous_gradients: false does nothing with offload_optimizer")
    if not options["pin_memory"] and not uses_host(options):
        found.append("pin_memory does nothing without offload_optimizer or offload_param")
    if "ratio" in options:
        if options["ratio"] != 1 and optimizer == "none":
            found.append("ratio does nothing without offload_optimizer")
        names = ("buffer_count", 4), ("pipeline_read", False), ("pipeline_write", False)
        if optimizer != "nvme":
            found += [f"{n} does nothing without offload_optimizer: nvme" for n, value in names if options[n] != value]
    return found
