"""What was read of a log, in the words of the tests: its points, what was skipped, why it was refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from simcollectives.errors import InputError
from simcollectives.measured.logs import ReadLog, read_log
from tests.made_up_logs import SIZES, Era, printed_seconds


def points(log: ReadLog, place: str = "out") -> list[tuple[int, float]]:
    """Messages (B) and seconds of the only sweep of a place."""
    (found,) = [one.sweep for one in log.sweeps if one.sweep.place == place]
    return list(zip(found.message_bytes, found.seconds, strict=True))


def expected(era: Era, place: str = "out", sizes: Sequence[int] = SIZES) -> list[tuple[int, float]]:
    """The points that a made-up log of an era holds."""
    return [(size, printed_seconds(era, size, place)) for size in sizes]


def skipped(log: ReadLog) -> dict[str, int]:
    """How many lines were skipped, by reason."""
    return {one.reason: one.count for one in log.skipped}


def failure(path: Path, **asked: object) -> str:
    """Why a file is refused."""
    with pytest.raises(InputError) as raised:
        read_log(path, **asked)  # type: ignore[arg-type]
    return str(raised.value)
