"""Which value of a strategy's option makes the shortest step, and why smaller and larger ones are worse.

For bucket sizes above all. Steps of two values differ by parts that sum to the difference of their lengths:

    step = compute + idle + exposed;   exposed = latency + rest

``latency`` is what would not be exposed if every collective lasted as long as its bytes need, without its latency. Of
the rest, ``tail`` is what the last collective of a backward pass exposes by itself, if those before it took no time;
``late start`` is what those before it add, because they start late or have more to send than there is time. Where two
steps send different bytes the rest is ``traffic``. Each part is found by playing the step's own programs once more with
collectives that are cheaper so; nothing is estimated.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from simcollectives.errors import InputError, Problem
from simcollectives.training.pricing import Price
from simcollectives.training.program import Call, Operation, Program
from simcollectives.training.step import Step
from simcollectives.training.streams import play
from simcollectives.training.timeline import Span, total, union, without
from simcollectives.units import format_bytes, format_ratio, format_seconds

Part = Literal["latency", "late start", "tail", "traffic", "compute", "idle"]
Reason = Part | Literal["flat", "end of sweep"]

NOTICEABLE = 1e-3
"""Steps that differ by a smaller share count as equally long."""


@dataclass(frozen=True)
class Numbers:
    """What explains one point, in seconds; ``first_start`` is the share of the backward before its first collective.

    ``last_bytes`` and ``collectives`` are of the backward pass; ``latency_each`` is a collective's, on average.
    ``latency``, ``rest`` and ``tail`` are exposed time.
    """

    value: Any
    step: float
    exposed: float
    latency: float
    rest: float
    tail: float
    collectives: int
    latency_each: float
    first_start: float | None
    last_bytes: int


@dataclass(frozen=True)
class Difference:
    """How much longer the step is at ``value`` than at the best point, in parts; the largest is the reason."""

    value: Any
    seconds: float
    parts: Mapping[Part, float]

    @property
    def reason(self) -> Part:
        """The part that is largest."""
        return max(self.parts, key=lambda part: self.parts[part])


@dataclass(frozen=True)
class Advice:
    """The best value, and the reasons on either side.

    ``alike`` are the values around it whose steps are as long, but for 0.1 %. ``below`` and ``above`` are the nearest
    value on a side whose step is longer, and the farthest; ``numbers`` are those of the best point and of these.
    """

    optimum: Any
    alike: tuple[Any, ...]
    reason_below: Reason
    reason_above: Reason
    below: tuple[Difference, ...]
    above: tuple[Difference, ...]
    numbers: tuple[Numbers, ...]

    def numbers_at(self, value: Any) -> Numbers:
        """Return the numbers of a point that was compared."""
        return next(numbers for numbers in self.numbers if numbers.value == value)


def advise(points: Sequence[tuple[Any, Step]]) -> Advice:
    """Find the shortest step of a sweep over one option, and why its neighbours are longer.

    Numbers are sorted; other values are taken in the order given, the first being the smallest.

    Raises:
        InputError: there are no points, or more than the option differs between them.
    """
    ordered = _checked(points)
    lengths = [step.step_seconds for _, step in ordered]
    best = lengths.index(min(lengths))
    longer = [length > lengths[best] * (1 + NOTICEABLE) for length in lengths]
    before = [index for index in range(best) if longer[index]]
    after = [index for index in range(best + 1, len(ordered)) if longer[index]]
    first, last = (before[-1] + 1 if before else 0), (after[0] if after else len(ordered))
    chosen = dict.fromkeys([best, *before[-1:], *before[:1], *after[:1], *after[-1:]])
    numbers = {index: explain(*ordered[index]) for index in chosen}

    def differences(indices: Sequence[int]) -> tuple[Difference, ...]:
        return tuple(_difference(ordered[best], ordered[i], numbers[best], numbers[i]) for i in dict.fromkeys(indices))

    below, above = differences([*before[-1:], *before[:1]]), differences([*after[:1], *after[-1:]])
    return Advice(
        optimum=ordered[best][0],
        alike=tuple(value for value, _ in ordered[first:last]),
        reason_below=_reason(below, best == 0),
        reason_above=_reason(above, best == len(ordered) - 1),
        below=below,
        above=above,
        numbers=tuple(numbers.values()),
    )


def _checked(points: Sequence[tuple[Any, Step]]) -> list[tuple[Any, Step]]:
    if not points:
        raise InputError("there are no steps to compare; sweep an option of a strategy")
    first = points[0][1]
    problems = [
        Problem(str(value), "the strategy, the model, the cluster or the batch is another; sweep one option only")
        for value, step in points[1:]
        if step.strategy != first.strategy or step.training != first.training
    ]
    if problems:
        raise InputError(problems)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value, _ in points):
        return sorted(points, key=lambda point: point[0])
    return list(points)


def _reason(side: Sequence[Difference], at_end: bool) -> Reason:
    if side:
        return side[0].reason
    return "end of sweep" if at_end else "flat"


def _difference(best: tuple[Any, Step], other: tuple[Any, Step], its: Numbers, others: Numbers) -> Difference:
    before, after = best[1], other[1]
    parts: dict[Part, float] = {
        "compute": after.compute_seconds - before.compute_seconds,
        "idle": after.idle_seconds - before.idle_seconds,
        "latency": others.latency - its.latency,
    }
    if _sent(before) != _sent(after):
        parts["traffic"] = others.rest - its.rest
    else:
        less, more, sign = (its, others, 1) if others.rest >= its.rest else (others, its, -1)
        by_tail = max(more.tail, less.rest)
        parts["tail"] = sign * (by_tail - less.rest) + 0.0  # never -0.0
        parts["late start"] = sign * (more.rest - by_tail) + 0.0
    return Difference(other[0], after.step_seconds - before.step_seconds, parts)


def _sent(step: Step) -> Counter[tuple[str, str]]:
    """Bytes of all collectives by kind and group, whatever their number."""
    sent: Counter[tuple[str, str]] = Counter()
    for collective in step.collectives:
        sent[collective.kind, collective.group] += collective.bytes
    return sent


def explain(value: Any, step: Step) -> Numbers:
    """Take the exposed time of a step apart, by playing it again with cheaper collectives."""
    spans = sorted(step.timeline.of_rank(0), key=lambda span: span.place)
    reduced = [span for span in spans if span.operation.call is not None and span.operation.phase == "backward"]
    last = {span.operation.micro_batch: span.place for span in reduced}
    others = {span.place for span in reduced} - set(last.values())
    rest = _exposed_again(step, lambda _place, operation: operation)
    tail = _exposed_again(step, lambda place, operation: _freed(operation) if place in others else operation)
    return Numbers(
        value=value,
        step=step.step_seconds,
        exposed=step.exposed_seconds,
        latency=step.exposed_seconds - rest,
        rest=rest,
        tail=min(tail, rest),
        collectives=len(reduced),
        latency_each=sum(span.price.latency_seconds for span in reduced if span.price) / max(len(reduced), 1),
        first_start=_first_start(spans, reduced),
        last_bytes=reduced[-1].operation.call.bytes if reduced and reduced[-1].operation.call else 0,
    )


def _freed(operation: Operation) -> Operation:
    return replace(operation, call=None, seconds=0.0)


def _exposed_again(step: Step, change: Callable[[int, Operation], Operation]) -> float:
    """Exposed seconds with changed operations, where collectives have no latency."""
    spans: dict[int, list[Span]] = {}
    for span in step.timeline.spans:
        spans.setdefault(span.rank, []).append(span)
    programs = {
        rank: Program(tuple(change(s.place, s.operation) for s in sorted(some, key=lambda span: span.place)))
        for rank, some in spans.items()
    }
    prices = {span.operation.call: _without_latency(span.price) for span in step.timeline.spans if span.price}

    def price(call: Call) -> Price:
        return prices[call]

    played = play(programs, price).of_rank(0)
    collectives = union((span.start, span.end) for span in played if span.operation.kind == "collective")
    compute = union((span.start, span.end) for span in played if span.operation.kind == "compute")
    return total(without(collectives, compute))


def _without_latency(price: Price) -> Price:
    seconds = max(price.seconds - price.latency_seconds, 0.0)
    use = {level: min(share * price.seconds / seconds, 1.0) for level, share in price.use.items()} if seconds else {}
    return replace(price, seconds=seconds, latency_seconds=0.0, use=use)


def _first_start(spans: Sequence[Span], reduced: Sequence[Span]) -> float | None:
    """The share of the kernels of the backward pass that has run when its first collective starts."""
    if not reduced:
        return None
    micro_batch = reduced[0].operation.micro_batch
    kernels = [
        span
        for span in spans
        if span.operation.kind == "compute"
        and span.operation.phase == "backward"
        and span.operation.micro_batch == micro_batch
        and span.place < reduced[-1].place
    ]
    length = total(union((span.start, span.end) for span in kernels))
    before = total(union((span.start, min(span.end, reduced[0].start)) for span in kernels))
    return before / length if length > 0 else None


def advice_lines(advice: Advice, key: str, show: Callable[[Any], str] = str) -> list[str]:
    """Return the advice as three lines: the best value, and each side. ``show`` writes a value."""
    best = advice.numbers_at(advice.optimum)
    line = f"best {key}: {show(advice.optimum)}, {format_seconds(best.step)} a step"
    if len(advice.alike) > 1:
        reach = f"{show(advice.alike[0])} to {show(advice.alike[-1])}"
        line += f"; from {reach} the step is as long, within {format_ratio(NOTICEABLE)}"
    sides = ("smaller", advice.reason_below, advice.below), ("larger", advice.reason_above, advice.above)
    return [line, *(_side_line(advice, best, name, reason, side, show) for name, reason, side in sides)]


def _side_line(
    advice: Advice,
    best: Numbers,
    name: str,
    reason: Reason,
    side: Sequence[Difference],
    show: Callable[[Any], str],
) -> str:
    if reason == "flat":
        return f"{name}: flat; no step on this side is longer by more than {format_ratio(NOTICEABLE)}"
    if reason == "end of sweep":
        return f"{name}: not swept; the best value may be {name} still"
    told = [_difference_text(one, best, advice.numbers_at(one.value), show) for one in side]
    return f"{name}: {reason}; {'; '.join(told)}"


def _difference_text(one: Difference, best: Numbers, its: Numbers, show: Callable[[Any], str]) -> str:
    told = {part: seconds for part, seconds in one.parts.items() if abs(seconds) >= 0.05 * one.seconds}
    largest = sorted(told, key=lambda part: -abs(told[part]))
    parts = [f"{part} {_signed(told[part])}{_why(part, best, its) if part == one.reason else ''}" for part in largest]
    return f"at {show(one.value)} the step is {format_seconds(one.seconds, 3)} longer: {', '.join(parts)}"


def _signed(seconds: float) -> str:
    return f"{'+' if seconds >= 0 else '-'}{format_seconds(abs(seconds), 3)}"


def _why(part: Part, best: Numbers, its: Numbers) -> str:
    if part == "latency":
        each = format_seconds(its.latency_each, 3)
        if its.collectives <= best.collectives:
            return f" (more of it is exposed; a collective has {each})"
        return f" ({its.collectives} collectives instead of {best.collectives}, each with {each} of latency)"
    if part == "tail":
        return f" (the last collective is of {format_bytes(its.last_bytes)} instead of {format_bytes(best.last_bytes)})"
    if part == "late start" and its.first_start is not None and best.first_start is not None:
        begins, instead = (format_ratio(numbers.first_start or 0.0, 3) for numbers in (its, best))
        if its.first_start > best.first_start and begins != instead:
            return f" (the first collective starts after {begins} of the backward instead of {instead})"
        return " (collectives before the last end later)"
    return ""
