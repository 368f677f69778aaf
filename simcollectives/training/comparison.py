"""Which strategy to train with: of those that fit with some room, and are about as fast, the one that shards least.

Sharding saves memory and costs communication, so the order of choice is plain data parallelism, then sharded optimizer
states, then gradients, then parameters; among strategies that shard as much, the fastest (Rajbhandari et al. 2020,
arXiv:1910.02054, section 7, on what each stage saves and sends). One that is more than ``NEAR`` slower than the
fastest is not chosen for its simplicity, and one that leaves less than ``ROOM`` of the memory only where no other fits:
context, workspaces and fragmentation are not in the account.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from simcollectives.training.passes import ACTIVATIONS, OPTIMIZER, PARAMETERS
from simcollectives.training.step import Step
from simcollectives.training.strategies.table import find_strategy
from simcollectives.training.strategies.types import SHARDED
from simcollectives.units import format_bytes, format_ratio, format_seconds

COMPARED = ("ddp", "zero1", "zero2", "zero3", "fsdp2")
"""The strategies that are compared where none are named."""

NEAR, ROOM = 0.1, 0.05
"""How much longer a step may be than the fastest's; the share of the device's memory that should be left."""

_ALIKE = 1e-3


@dataclass(frozen=True)
class Verdict:
    """What a comparison says of one step. ``spare_bytes`` are negative where it does not fit, None where unknown."""

    label: str
    sharded: str
    fits: bool | None
    spare_bytes: int | None
    reason: str


@dataclass(frozen=True)
class Comparison:
    """Verdicts in the order of the steps; ``chosen`` and ``fastest`` are places in it, None where nothing fits."""

    verdicts: tuple[Verdict, ...]
    chosen: int | None
    fastest: int | None
    advice: tuple[str, ...]


def sharded(step: Step) -> str:
    """Return the last of ``SHARDED`` that a rank of a step holds only a part of."""
    return find_strategy(step.strategy).shards(step.options)


def compare(steps: Sequence[tuple[str, Step]]) -> Comparison:
    """Compare steps of one model on one cluster, each with its label.

    Where the memory of the device is not known, all are taken to fit.
    """
    stages = [SHARDED.index(sharded(step)) for _, step in steps]
    spares = [_spare(step) for _, step in steps]
    fitting = [place for place, spare in enumerate(spares) if spare is None or spare >= 0]
    seconds = [step.step_seconds for _, step in steps]
    roomy = [place for place in fitting if not _barely(steps[place][1])] or fitting
    fastest = min(roomy, key=lambda place: (seconds[place], stages[place]), default=None)
    near = [place for place in roomy if fastest is not None and seconds[place] <= (1 + NEAR) * seconds[fastest]]
    chosen = min(near, key=lambda place: (stages[place], seconds[place]), default=None)
    reference = steps[chosen] if chosen is not None else None
    verdicts = []
    for place, (label, step) in enumerate(steps):
        if place not in fitting:
            reason = _too_large(step)
        elif reference is None or place == chosen:
            reason = _least(stages, near, place, known=spares[place] is not None)
        else:
            reason = _against(step, *reference)
        if place in fitting and _barely(step):
            reason = f"barely fits: what is not included needs more; {reason}"
        fits = None if spares[place] is None else place in fitting
        verdicts.append(Verdict(label, SHARDED[stages[place]], fits, spares[place], reason))
    advice = _advice(steps, verdicts, chosen, fastest)
    return Comparison(tuple(verdicts), chosen, fastest, tuple(advice))


def _spare(step: Step) -> int | None:
    capacity = step.training.cluster.device.memory_bytes
    return None if capacity is None else int(capacity) - step.peak_bytes


def _barely(step: Step) -> bool:
    spare, capacity = _spare(step), step.training.cluster.device.memory_bytes
    return spare is not None and capacity is not None and 0 <= spare < ROOM * capacity


def _too_large(step: Step) -> str:
    item = max(step.memory, key=lambda name: step.memory[name])
    lacks = _size(-(_spare(step) or 0))
    return f"does not fit, by {lacks}; the largest item: {item}, {_size(step.memory[item])}"


def _size(size: float) -> str:
    return format_bytes(size, family="decimal")


def _least(stages: Sequence[int], fitting: Sequence[int], place: int, *, known: bool) -> str:
    fits = "fits, and " if known else ""
    if stages[place] == 0:
        return f"{fits}shards nothing"
    alike = sum(stages[other] == stages[place] for other in fitting) > 1
    return f"{fits}shards least{'; the fastest that does' if alike else ''}"


def _against(step: Step, label: str, chosen: Step) -> str:
    """Why a step is longer or shorter than the one that is chosen."""
    longer = step.step_seconds / chosen.step_seconds - 1 if chosen.step_seconds else 0.0
    if abs(longer) < _ALIKE:
        return f"as fast as {label}"
    word = "longer" if longer > 0 else "shorter"
    parts = []
    for name, what in (("exposed_seconds", "exposed"), ("compute_seconds", "computing"), ("idle_seconds", "idle")):
        mine, its = getattr(step, name), getattr(chosen, name)
        if (mine - its) * longer > 0 and abs(mine - its) > 0.05 * abs(step.step_seconds - chosen.step_seconds):
            parts.append(f"{format_seconds(mine)} {what} instead of {format_seconds(its)}")
    sent, before = (sum(one.sent_bytes.values()) for one in (step, chosen))
    if _size(sent) != _size(before):
        many, few = len(step.collectives), len(chosen.collectives)
        counts = f", in {many} collectives instead of {few}" if many != few else ""
        parts.append(f"sends {_size(sent)} instead of {_size(before)}{counts}")
    return f"{format_ratio(abs(longer), 3)} {word} than {label}: {'; '.join(parts)}"


def _advice(
    steps: Sequence[tuple[str, Step]], verdicts: Sequence[Verdict], chosen: int | None, fastest: int | None
) -> list[str]:
    if chosen is None or fastest is None:
        return _none_fits(steps)
    label, step = steps[chosen]
    found = [f"choose {label}: of those that fit and are about as fast, it shards least ({verdicts[chosen].sharded})"]
    if verdicts[chosen].sharded == "nothing":
        found = [f"choose {label}: it fits, so that nothing has to be sharded"]
    if verdicts[chosen].fits is None:
        found = [f"{label} shards least; whether it fits is not known, since the device's memory is not"]
    if _barely(step):
        found.append(f"{label} leaves {_size(_spare(step) or 0)}, which context and workspaces may need")
    if verdicts[chosen].fits is not None and not step.training.activations:
        found.append("activations are not known for this model: they need memory beside what is counted here")
    other, faster = steps[fastest]
    if faster.step_seconds < step.step_seconds * (1 - _ALIKE):
        gain = format_ratio(1 - faster.step_seconds / step.step_seconds, 3)
        fits = " that fits" if verdicts[fastest].fits else ""
        found.append(f"{other} is the fastest{fits}, {gain} shorter, and shards {verdicts[fastest].sharded}")
    return found


def _none_fits(steps: Sequence[tuple[str, Step]]) -> list[str]:
    label, step = min(steps, key=lambda one: one[1].peak_bytes)
    item = max(step.memory, key=lambda name: step.memory[name])
    lacks = _size(-(_spare(step) or 0))
    smaller = ", or a smaller micro_batch" if step.training.micro_batch > 1 else ""
    remedies = {
        ACTIVATIONS: f"take recomputation: full{smaller}",
        PARAMETERS: "take more ranks, or zero3 with offload_param",
        OPTIMIZER: "take more ranks, or DeepSpeed's offload_optimizer",
    }
    remedy = remedies.get(item, "take more ranks")
    return [f"nothing fits; {label} comes nearest and lacks {lacks}, most of it {item}: {remedy}"]
