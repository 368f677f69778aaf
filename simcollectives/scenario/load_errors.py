"""Expectations about errors against measurements: ``median_error``, ``p90_error`` and ``largest_error``."""

from collections.abc import Sequence
from typing import Any

from simcollectives.errors import listing, show_value
from simcollectives.measured.spread import RANGES, range_of
from simcollectives.scenario.bounds import load_bound
from simcollectives.scenario.keys import RATIO, point_text, without_options
from simcollectives.scenario.load_points import BaseNamer
from simcollectives.scenario.places import Path
from simcollectives.scenario.types import Common, ErrorExpectation, Measurement


def load_error(
    namer: BaseNamer, path: Path, raw: dict[str, Any], parsed: Any, shared: dict[str, Any], common: Common
) -> ErrorExpectation | None:
    """Return an expectation about the errors of the measurements that it names, or note why there is none."""
    subject = next(key for key in raw if key.endswith("_error"))
    here = (*path, subject)
    bound = load_bound(namer.context, path, parsed, RATIO)
    selector, written = getattr(parsed, subject), raw[subject]
    own = list(type(selector).model_fields)
    if "message" in written or "message" in shared:
        namer.context.add(here, "errors are of many messages; take a range: messages: large")
        return None
    point = namer.point(here, written, own)
    reference = getattr(selector, namer.names)
    found = None if reference is None else namer.entry((*here, namer.names), reference)
    if point is None or namer.measured is None or (reference is not None and found is None):
        return None
    entry, fixed = (None, {}) if found is None else found
    point = {**shared, **point, **fixed}
    name, messages = (getattr(selector, key, None) for key in ("set", "messages"))
    metric = getattr(parsed, "of", "seconds")
    chosen = [
        place
        for place, one in enumerate(namer.measured)
        if entry in (None, one.entry)
        and name in (None, one.name)
        and all(namer.number(one.point, key) == value for key, value in point.items())
    ]
    reason = _lacking(namer.measured, chosen, metric, messages, by_set="set" in own)
    if reason is not None:
        namer.context.add(here, reason)
    if reason is not None or bound is None:
        return None
    having = tuple(place for place in chosen if metric in namer.measured[place].metrics)
    words = ["" if entry is None else entry.label, name or "", point_text(without_options(point))]
    words.append("" if messages is None else f"messages {RANGES[messages]}")
    what = ", ".join(filter(None, words)) or "all"
    return ErrorExpectation(*common, subject.removesuffix("_error"), metric, having, messages, what, bound)


def _lacking(
    measured: Sequence[Measurement], chosen: Sequence[int], metric: str, messages: str | None, *, by_set: bool
) -> str | None:
    """Why there are no errors to speak of, with the remedy."""
    if not measured:
        return "nothing is measured, so that there are no errors; write measured: in the scenario"
    if not chosen:
        has = [
            f"{one.entry.label} at {point_text(without_options(one.point)) or 'the point as written'}"
            + (f" (set: {one.name})" if by_set else "")
            for one in measured
        ]
        return f"none of what is measured is there; measured: has {listing(has)}"
    known = list(dict.fromkeys(name for place in chosen for name in measured[place].metrics))
    if metric not in known:
        return f"{metric} is not measured there; write of: {' or '.join(known)}"
    sizes = [size for place in chosen for size in measured[place].message_bytes]
    if messages is not None and not any(range_of(size) == messages for size in sizes):
        return f"no measured message is {messages}, {RANGES[messages]}; take {show_value(range_of(sizes[0]))}"
    return None
