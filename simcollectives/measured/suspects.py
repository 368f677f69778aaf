"""Points that no fit should follow: those that are out of line with their neighbours, as ``read`` warns of them."""

from dataclasses import replace

from simcollectives.measured.logs.checks import slow_points, suspects
from simcollectives.measured.sweep import MeasuredSweep, with_points

MOST_LEFT_OUT = 0.2
"""Share of a sweep's messages beyond which it is noise, which a robust fit weighs, and no slip of single points."""


def without_suspects(sweep: MeasuredSweep) -> MeasuredSweep:
    """The sweep without points that are out of line; ``dropped`` or ``noted`` says which, and why."""
    found = suspects(sweep.message_bytes, sweep.seconds)
    messages = set(sweep.message_bytes)
    if not found:
        return sweep
    why = "; ".join(slow_points(sweep.message_bytes, sweep.seconds))
    if len(found) > MOST_LEFT_OUT * len(messages):
        told = f"{len(found)} of {len(messages)} messages are out of line, too many to leave out ({why})"
        return replace(sweep, noted=(*sweep.noted, told))
    kept = [point for point in zip(sweep.message_bytes, sweep.seconds, strict=True) if point[0] not in found]
    return with_points(sweep, kept, f"left out of the fit: {why}")
