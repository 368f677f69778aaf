"""Progress: a bar on a terminal, elsewhere a line a minute; nothing for short runs."""

from __future__ import annotations

import io

import pytest

from simcollectives.report.progress import shown_progress, time_to_go
from simcollectives.scenario import Standing


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_elsewhere_a_line_a_minute() -> None:
    stream, clock = io.StringIO(), Clock()
    with shown_progress("x.yaml", stream, clock) as progress:
        for second in range(150):
            clock.now = 100.0 + second
            progress(Standing(second // 50, 4, float(second), 200.0))
    assert stream.getvalue().splitlines() == [
        "x.yaml: 1 of 4 done, 30 % of the work, about 2 min to go",
        "x.yaml: 2 of 4 done, 60 % of the work, about 80 s to go",
    ]


def test_nothing_is_said_of_a_short_run() -> None:
    stream, clock = io.StringIO(), Clock()
    with shown_progress("x.yaml", stream, clock) as progress:
        clock.now += 59.0
        progress(Standing(1, 2, 1.0, 2.0))
    assert stream.getvalue() == ""


def test_a_bar_with_rows_and_the_time_to_go_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    stream, clock = Terminal(), Clock()
    with shown_progress("x.yaml", stream, clock) as progress:
        clock.now += 20.0
        progress(Standing(3, 15, 20.0, 80.0))
        progress(Standing(4, 15, 21.0, 80.0))
    drawn = stream.getvalue()
    for part in ("x.yaml", "3/15", "about 60 s to go"):
        assert part in drawn
    assert "4/15" not in drawn, "drawn at most ten times a second"
    assert capsys.readouterr() == ("", "")


def test_the_pace_of_what_is_done_corrects_the_estimate() -> None:
    assert time_to_go(Standing(0, 1, 0.0, 60.0), 0.0) == "about 60 s to go"
    assert time_to_go(Standing(0, 1, 30.0, 60.0), 300.0) == "about 5 min to go"
    assert time_to_go(Standing(1, 1, 60.0, 60.0), 300.0) == "about 0.1 s to go"
