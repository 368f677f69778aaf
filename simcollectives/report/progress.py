"""Progress on standard error: a bar on a terminal, elsewhere a line now and then."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from simcollectives.engines.estimate import rough_time
from simcollectives.scenario import Progress, Standing

_SECONDS_BETWEEN_DRAWINGS = 0.1
_SECONDS_BETWEEN_LINES = 60.0


@contextmanager
def shown_progress(name: str, stream: TextIO, clock: Callable[[], float] = monotonic) -> Iterator[Progress]:
    """Show how far the scenario ``name`` is while the context lasts; a bar goes away at its end."""
    if not stream.isatty():
        yield _lines(name, stream, clock)
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]}"))
    with Bar(*columns, TextColumn("{task.fields[left]}"), console=Console(file=stream), transient=True) as bar:
        task = bar.add_task(name, total=None, rows="", left="")

        def draw(standing: Standing, left: str) -> None:
            rows = f"{standing.done}/{standing.total}"
            bar.update(task, completed=standing.seconds_done, total=standing.seconds, rows=rows, left=left)

        yield _paced(draw, _SECONDS_BETWEEN_DRAWINGS, clock, at_once=True)


def _lines(name: str, stream: TextIO, clock: Callable[[], float]) -> Progress:
    def write(standing: Standing, left: str) -> None:
        share = f"{100 * standing.seconds_done / standing.seconds:.0f} % of the work"
        print(f"{name}: {standing.done} of {standing.total} done, {share}, {left}", file=stream, flush=True)

    return _paced(write, _SECONDS_BETWEEN_LINES, clock, at_once=False)


def _paced(
    show: Callable[[Standing, str], None], every_seconds: float, clock: Callable[[], float], *, at_once: bool
) -> Progress:
    """Show a standing, with the time to go, only where some seconds have passed since the last one."""
    begun = clock()
    last = begun - every_seconds if at_once else begun

    def progress(standing: Standing) -> None:
        nonlocal last
        now = clock()
        if now - last >= every_seconds:
            last = now
            show(standing, time_to_go(standing, now - begun))

    return progress


def time_to_go(standing: Standing, took_seconds: float) -> str:
    """Return the time to go in words: the work that is left, at the pace of the work that is done.

    >>> time_to_go(Standing(1, 4, 20.0, 80.0), 40.0)
    'about 2 min to go'
    """
    left = standing.seconds - standing.seconds_done
    # Before much is done its pace says little, and the estimate counts.
    pace = (took_seconds + 1.0) / (standing.seconds_done + 1.0)
    return f"about {rough_time(left * pace)} to go"
