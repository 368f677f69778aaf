"""Local ranks, started and watched by one process that measures nothing itself.

Rank 0 sends what it finds and waits until it is taken (printed, written), so that this does not disturb what comes
next. The first rank that fails ends all.
"""

import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from simcollectives.errors import InputError, Problem, SimcollectivesError, listing
from simcollectives.measured.probe.group import first_line
from simcollectives.measured.probe.launch import Placement
from simcollectives.measured.probe.plan import Plan
from simcollectives.measured.probe.rank import Report, run_rank

_GRACE_SECONDS = 2.0


class RankError(SimcollectivesError):
    """A rank failed with an error of this program."""


@dataclass(frozen=True)
class _Failed:
    """Why a rank ended: what to say of it, or the traceback of a bug."""

    text: str
    bug: bool = False


@dataclass
class _Watched:
    """One rank's process, and what is known of its end."""

    rank: int
    process: BaseProcess
    connection: Connection
    failed: _Failed | None = None

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self.process.exitcode


@dataclass
class _Ranks:
    """All of them, in the order in which they failed where they did."""

    all: list[_Watched] = field(default_factory=list)
    failed: list[_Watched] = field(default_factory=list)


def run_local(plan: Plan, ranks: int, report: Report) -> None:
    """Measure with so many ranks on this machine; ``report`` takes what rank 0 finds.

    Raises:
        InputError: a rank died, or torch.distributed failed; which rank, and why.
        RankError: a bug in a rank, with its traceback.
    """
    with tempfile.TemporaryDirectory(prefix="simcollectives-") as folder:
        meeting = (Path(folder) / "meeting").as_uri()
        started = _Ranks()
        try:
            with _deaf_to_interrupts():
                for rank in range(ranks):
                    started.all.append(_start(plan, Placement(rank, ranks, rank, ranks, meeting)))
            _follow(started, report)
        finally:
            _end(started.all)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started here ignore Ctrl-C, which a terminal sends to all: it is this one that ends them."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not in the main thread, which alone is interrupted
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start(plan: Plan, placement: Placement) -> _Watched:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_as_rank, args=(theirs, plan, placement), daemon=True)
    process.start()
    theirs.close()
    return _Watched(placement.rank, process, ours)


def _as_rank(connection: Connection, plan: Plan, placement: Placement) -> None:
    """What a started process does. It ends at once where it fails: a library might wait for others at its exit."""

    def report(event: object) -> None:
        if placement.rank == 0:
            connection.send(event)
            connection.recv()

    try:
        run_rank(plan, placement, report)
        return
    except (EOFError, BrokenPipeError):
        pass  # the starting process has gone
    except InputError as error:
        _tell(connection, _Failed(str(error)))
    except RuntimeError as error:
        _tell(connection, _Failed(first_line(error)))
    except Exception:
        _tell(connection, _Failed(traceback.format_exc(), bug=True))
    os._exit(1)


def _tell(connection: Connection, failed: _Failed) -> None:
    with suppress(OSError):
        connection.send(failed)


def _follow(ranks: _Ranks, report: Report) -> None:
    """Pass on what rank 0 finds until all have ended, or one fails."""
    running = list(ranks.all)
    while running and not ranks.failed:
        running = _step(ranks, running, report, None)
    if ranks.failed:
        until = time.monotonic() + _GRACE_SECONDS
        while running and (left := until - time.monotonic()) > 0:
            running = _step(ranks, running, report, left)
        _raise(ranks)


def _step(ranks: _Ranks, running: Sequence[_Watched], report: Report, timeout: float | None) -> list[_Watched]:
    """Take what ranks send until one of them ends; returns those that still run."""
    ends: dict[Any, _Watched] = {one.process.sentinel: one for one in running}
    pipes: dict[Any, _Watched] = {one.connection: one for one in running if not one.connection.closed}
    for ready in wait([*pipes, *ends], timeout):
        if ready in pipes:
            _take(ranks, pipes[ready], report)
    still = []
    for one in running:
        if one.code is None:
            still.append(one)
            continue
        while not one.connection.closed and one.connection.poll():
            _take(ranks, one, report)
        if one.code != 0 and one not in ranks.failed:
            ranks.failed.append(one)
    return still


def _take(ranks: _Ranks, one: _Watched, report: Report) -> None:
    try:
        message = one.connection.recv()
    except (EOFError, OSError):
        one.connection.close()
        return
    if isinstance(message, _Failed):
        one.failed = message
        ranks.failed.append(one)
        return
    report(message)
    try:
        one.connection.send(None)
    except OSError:
        one.connection.close()


def _raise(ranks: _Ranks) -> None:
    """Say which rank failed, and why: one that died of itself before one that lost its connection to it."""
    for one in ranks.failed:
        if one.failed is not None and one.failed.bug:
            raise RankError(f"rank {one.rank} failed:\n{one.failed.text}")
    died = [one for one in ranks.failed if one.failed is None]
    if died:
        raise InputError([Problem(f"rank {one.rank}", _death(one.code or 0)) for one in died])
    silent = [str(one.rank) for one in ranks.all if one.code is None and one.failed is None]
    first = ranks.failed[0]
    more = f"; it waited for rank {listing(silent)}, which did not answer" if silent else ""
    raise InputError([Problem(f"rank {first.rank}", f"{first.failed.text if first.failed else ''}{more}")])


def _death(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} before all was measured; look at what it printed above"
    name = signal.Signals(-code).name if -code in {int(one) for one in signal.Signals} else f"signal {-code}"
    hint = "; the system does that where memory runs out: measure smaller messages" if -code == signal.SIGKILL else ""
    return f"was killed by {name} before all was measured{hint}"


def _end(processes: Sequence[_Watched]) -> None:
    for one in processes:
        if one.code is None:
            one.process.terminate()
    until = time.monotonic() + _GRACE_SECONDS
    for one in processes:
        one.process.join(max(0.0, until - time.monotonic()))
        if one.code is None:
            one.process.kill()
            one.process.join()
        one.connection.close()
