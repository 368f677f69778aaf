"""The batch of a DeepSpeed config: of three numbers any that is missing follows from the others by whole division.

    train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks

With train_batch_size alone, or the micro-batch alone, the accumulation is 1. What does not divide is refused.
Reference: deepspeed 0.19.8, runtime/config.py, _set_batch_related_parameters and _batch_assertion.
"""

from collections.abc import Mapping
from typing import Any

from simcollectives.interop.deepspeed_auto import Surroundings
from simcollectives.interop.deepspeed_keys import BATCH
from simcollectives.interop.settings import Findings, Setting

TOTAL, MICRO, ACCUMULATION = (key.name for key in BATCH)
PATHS = {TOTAL: "train_batch", MICRO: "micro_batch", ACCUMULATION: "accumulation"}
Numbers = dict[str, int]


def read_batch(data: Mapping[str, Any], around: Surroundings, found: Findings) -> None:
    """Note the three numbers, or what is wrong with them."""
    numbers, origins = _given(data, around, found)
    if {f"{found.file}: $.{name}" for name in PATHS} & {problem.place for problem in found.problems}:
        return
    if TOTAL not in numbers and MICRO not in numbers:
        rule = "neither train_batch_size nor train_micro_batch_size_per_gpu is there, and DeepSpeed needs one"
        found.wrong(MICRO, f"{rule}; add one, or give --micro-batch")
        return
    if around.world_size is None:
        found.warnings.append("how many ranks there are is not known: the batch is not checked (--cluster, --nodes)")
    else:
        numbers |= _derived(numbers, around.world_size)
        if not _holds(numbers, origins, around.world_size, found):
            return
    derived = f"derived from {' and '.join(origins)}, as DeepSpeed does"
    for name, target in PATHS.items():
        if name in numbers:
            origin = origins.get(name) or found.origins.get(name) or derived
            found.settings.append(Setting(name, numbers[name], origin, ("training", target)))


def _given(data: Mapping[str, Any], around: Surroundings, found: Findings) -> tuple[Numbers, dict[str, str]]:
    """Return the numbers that the file or the command line gives, with their origins."""
    read = {name: value for name, value in found.read(data, BATCH).items() if value[0] is not None}
    numbers, origins = (
        {name: value[0] for name, value in read.items()},
        {name: value[1] for name, value in read.items()},
    )
    asked = {MICRO: (around.micro_batch, "--micro-batch"), ACCUMULATION: (around.accumulation, "--accumulation")}
    for name, (value, option) in asked.items():
        if value is None:
            continue
        if name in numbers and numbers[name] != value:
            found.wrong(name, f"{numbers[name]} here, and {option} {value}; leave one out, or make them alike")
        elif name not in numbers:
            numbers[name], origins[name] = value, option
    return numbers, origins


def _derived(given: Numbers, ranks: int) -> Numbers:
    """Return the numbers that are missing, with DeepSpeed's whole divisions."""
    total, micro, steps = (given.get(name) for name in (TOTAL, MICRO, ACCUMULATION))
    if total is not None and micro is not None:
        return {} if steps is not None else {ACCUMULATION: total // micro // ranks}
    if total is not None:
        return {MICRO: total // ranks // (steps or 1), ACCUMULATION: steps or 1}
    return {TOTAL: (micro or 0) * (steps or 1) * ranks, ACCUMULATION: steps or 1}


def _holds(numbers: Numbers, origins: Mapping[str, str], ranks: int, found: Findings) -> bool:
    total, micro, steps = (numbers[name] for name in (TOTAL, MICRO, ACCUMULATION))
    if total == micro * steps * ranks and micro and steps:
        return True
    derived = "" if len(origins) == 3 else f" ({', '.join(name for name in PATHS if name not in origins)} derived)"
    product = f"{micro} x {steps} x {ranks} = {micro * steps * ranks}"
    rule = f"{total} is not micro-batch x accumulation x ranks, {product}{derived}"
    found.wrong(TOTAL if TOTAL in origins else MICRO, f"{rule}; DeepSpeed refuses it; make the numbers fit")
    return False
