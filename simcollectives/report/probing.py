"""The command ``probe``: measures here and now, printing and writing every point as soon as it is there."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from simcollectives import __version__
from simcollectives.errors import InputError, Problem, counted
from simcollectives.measured.logs.write import sets_csv, timings_csv
from simcollectives.measured.probe import (
    PLACES_OF,
    Copied,
    Event,
    LeftOut,
    Multiplied,
    Plan,
    Row,
    System,
    placement_of,
    spread_columns,
    sweeps_of,
)
from simcollectives.measured.probe.group import chosen_backend, first_line
from simcollectives.measured.probe.rank import run_rank
from simcollectives.measured.probe.spawn import run_local
from simcollectives.report.files import json_text, write_whole
from simcollectives.report.probe_options import Asked, read_options
from simcollectives.report.runs import ExitCode
from simcollectives.report.table_probe import device_blocks, first_lines, foot_line, head_lines, probe_json, row_line
from simcollectives.report.text import make_console, rendered, show
from simcollectives.units import format_bytes

DEFAULT_CPU_RANKS = 2
_LATER_SECONDS = 2.0


def run_probe(
    options: Mapping[str, str | None], *, matmul: bool, copies: bool, output: Path | None, as_json: bool
) -> ExitCode:
    """Measure what options ask for, print it and write it; under torchrun as one of its ranks.

    Raises:
        InputError: options are wrong, PyTorch or a backend is missing, a rank failed, a file cannot be written.
    """
    speaks, tells = _voice(os.environ)
    output = output if speaks else None
    plan = Plan(tuple(PLACES_OF), ("float32",), (), matmul=matmul, copies=copies)
    try:
        asked = read_options({**options, "output": None if output is None else str(output)}, plan, os.environ)
        asked = _settled(asked)
        session = Session(asked.plan, output, as_json=as_json)
    except InputError:
        if tells:
            raise
        time.sleep(_LATER_SECONDS)  # the first rank of the node says the same, before torchrun ends all
        return ExitCode.BAD_INPUT
    try:
        _measure(asked, session)
    except KeyboardInterrupt:
        session.end()
        if speaks:
            _say(f"interrupted after {session.kept}")
        return ExitCode.INTERRUPTED
    except InputError as error:
        session.end()
        if session.rows:
            _say(f"kept {session.kept}")
        if asked.placement is not None:
            _end_at_once(error)
        raise
    session.end()
    if session.found_nothing:
        raise InputError("nothing was measured: all that was asked for is left out; ask for other sizes or types")
    if session.output is not None:
        _say(f"wrote {session.kept}")
    if session.wrong:
        _say(f"wrong results at {counted(session.wrong, 'point')}: see #wrong; they are in no file")
    return ExitCode.EXPECTATION_FAILED if session.wrong else ExitCode.DONE


def _voice(environment: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether this process says what is found, as rank 0 or alone; and what is wrong in options, as one of each node.

    One that has no place among the ranks says so.
    """
    try:
        placement = placement_of(environment)
    except InputError:
        return True, True
    if placement is None:
        return True, True
    return placement.rank == 0, placement.local_rank == 0 or placement.rank == 0


def _end_at_once(error: InputError) -> NoReturn:
    """End a rank that failed without its exit handlers: threads of its libraries wait for other ranks, or abort."""
    _say(str(error))
    sys.stdout.flush()
    os._exit(ExitCode.BAD_INPUT)


def _settled(asked: Asked) -> Asked:
    """The plan for the ranks there are: as many as GPUs by default, and no collective of one rank."""
    gpus, backend = 0, asked.plan.backend
    if backend != "gloo":
        import torch

        backend = chosen_backend(torch, backend)
        gpus = torch.cuda.device_count() if backend == "nccl" else 0
    ranks = asked.ranks or gpus or DEFAULT_CPU_RANKS
    if asked.placement is not None:
        ranks = asked.placement.world_size
    elif gpus and ranks > gpus:
        rule = f"{ranks} ranks need as many GPUs, and PyTorch sees {gpus}"
        raise InputError([Problem("--ranks", f"{rule}; give at most {gpus}, or --backend gloo")])
    plan = replace(asked.plan, backend=backend)
    if ranks == 1 and plan.collectives:
        rule = "one rank has nobody to send to, so no collective can be measured"
        if not (plan.matmul or plan.copies):
            raise InputError([Problem("--ranks", f"{rule}; give 2 or more, or --matmul or --copies")])
        plan = replace(plan, collectives=())
        _say(f"left out: collectives: {rule}")
    return replace(asked, plan=plan, ranks=ranks)


def _measure(asked: Asked, session: "Session") -> None:
    if asked.placement is None:
        _say(f"probe: starting {counted(asked.ranks or 0, 'rank')} on this machine, by {asked.plan.backend}")
        run_local(asked.plan, asked.ranks or 0, session.take)
        return
    rank = asked.placement.rank
    try:
        run_rank(asked.plan, asked.placement, session.take if rank == 0 else _ignore)
    except RuntimeError as error:
        raise InputError([Problem(f"rank {rank}", first_line(error))]) from error


def _ignore(_: Event) -> None:
    """Ranks but the first keep what they find to themselves."""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass
class Session:
    """What was found so far; each row is printed, and the files are written anew, when it comes.

    Raises:
        InputError: a file cannot be written, or the ``sets.csv`` beside it is none.
    """

    plan: Plan
    output: Path | None
    as_json: bool
    system: System | None = None
    rows: list[Row] = field(default_factory=list)
    multiplied: list[Multiplied] = field(default_factory=list)
    copied: list[Copied] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.output is not None:
            sets_csv((), self._beside(self.output))

    @property
    def found_nothing(self) -> bool:
        """Whether everything that was asked for was left out. (Ranks but the first never hear what was found.)"""
        return bool(self.left_out) and not (self.rows or self.multiplied or self.copied)

    @property
    def wrong(self) -> int:
        """At how many points a result was wrong."""
        return sum(any(half.wrong for half in row.halves) for row in self.rows)

    @property
    def kept(self) -> str:
        """How much there is, and where."""
        where = "" if self.output is None or not self.rows else f", in {self.output} and {self._beside(self.output)}"
        return f"{len(self.rows)} of {counted(self.plan.points, 'point')}{where}"

    def take(self, event: Event) -> None:
        """Take one thing that was found."""
        if isinstance(event, System):
            self._begin(event)
        elif isinstance(event, Row):
            self._add(event)
        elif isinstance(event, LeftOut):
            self.left_out.append(event)
            _say(f"left out: {event.what}: {event.why}")
        elif isinstance(event, Multiplied):
            self.multiplied.append(event)
            _say(f"probe: matmul {event.rows}x{event.inner}x{event.columns} in {event.dtype} done")
        else:
            self.copied.append(event)
            _say(f"probe: copy {event.kind}, {format_bytes(event.message_bytes)} done")

    def end(self) -> None:
        """Print what is printed last, and write again what an interrupt may have kept from being written."""
        self._write()
        if self.as_json:
            found = probe_json(self.system, self.rows, self.multiplied, self.copied, self.left_out)
            sys.stdout.write(json_text({"version": __version__, **found}) if self.system is not None else "")
            return
        if self.rows:
            print(foot_line(self._table(self.rows[-1])), flush=True)
        blocks = device_blocks(self.multiplied, self.copied)
        if blocks:
            show(rendered(blocks, make_console(sys.stdout).width), sys.stdout)

    def _begin(self, system: System) -> None:
        self.system = system
        places = f"{counted(len(system.ranks), 'rank')} on {counted(system.nodes, 'node')}"
        most = f"about {self.plan.seconds_per_point:g} s a point and place"
        what = f"; {counted(self.plan.points, 'point')}, {most}" if self.plan.points else ""
        _say(f"probe: {places}, {system.backend}, torch {system.torch_version}{what}")
        if not self.as_json and self.plan.points:
            print("\n".join(first_lines(system, __version__)), flush=True)

    def _add(self, row: Row) -> None:
        first = not self.rows or self._table(row) == []
        if first and self.rows and not self.as_json:
            print(foot_line(self._table(self.rows[-1])) + "\n", flush=True)
        self.rows.append(row)
        if first:
            done = f"{len(self.rows) - 1} of {counted(self.plan.points, 'point')} done"
            _say(f"probe: {row.collective} in {row.dtype}, {done}")
        self._write()
        if not self.as_json and self.system is not None:
            self._print(row, self.system, first=first)

    def _print(self, row: Row, system: System, *, first: bool) -> None:
        head = head_lines(system, self.plan, row.collective) if first else []
        print("\n".join([*head, row_line(row, len(system.ranks))]), flush=True)

    def _table(self, row: Row) -> list[Row]:
        return [one for one in self.rows if (one.collective, one.dtype) == (row.collective, row.dtype)]

    def _write(self) -> None:
        if self.output is None or self.system is None:
            return
        name = self.output.stem
        sweeps = sweeps_of(self.rows, self.system, self.plan, name, __version__)
        if sweeps:
            beside = self._beside(self.output)
            # The times come last: each set of theirs then has its line.
            write_whole(beside, sets_csv(sweeps, beside).encode())
            write_whole(self.output, timings_csv(sweeps, spread_columns(self.rows, self.plan, name)).encode())

    @staticmethod
    def _beside(output: Path) -> Path:
        return output.with_name("sets.csv")
