"""What was read of logs of measurements: sweeps and steps, where their facts are from, and what was skipped."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from simcollectives.measured.logs import LogSweep, MeasuredStep, ReadLog
from simcollectives.report.text import NOTHING, Block, Column, TextTable, caption, heading, with_unit
from simcollectives.units import format_bytes, format_ratio, format_seconds

_STEP_QUANTITIES = ("step", "compute", "communication", "exposed", "waiting", "idle")


def log_blocks(log: ReadLog) -> list[Block]:
    """Return a row for each sweep and step of a log, then what was skipped and why."""
    blocks: list[Block] = [
        Text(log.source, style="bold underline"),
        caption(f"{log.format}, {log.lines} lines or rows"),
    ]
    if log.sweeps:
        blocks += [Text(""), heading("Sweeps"), _sweeps_table(log.sweeps), caption(_sources(log.sweeps))]
    if log.steps:
        blocks += [Text(""), heading("Steps"), _steps_table(log.steps)]
    blocks += [Text(str(skipped), style="yellow") for skipped in log.skipped]
    return blocks


def _sweeps_table(sweeps: Sequence[LogSweep]) -> TextTable:
    measured = [found.sweep for found in sweeps]
    return TextTable(
        [
            Column("set", [sweep.name for sweep in measured], right=False, wrap_at=40),
            Column("collective", [sweep.collective or "unknown" for sweep in measured], right=False),
            Column("ranks", ["unknown" if sweep.world_size is None else str(sweep.world_size) for sweep in measured]),
            Column("nodes", [NOTHING if sweep.nodes is None else str(sweep.nodes) for sweep in measured]),
            Column("type", [found.dtype or NOTHING for found in sweeps], right=False),
            Column("place", [sweep.place for sweep in measured], right=False),
            Column("points", [str(len(sweep.seconds)) for sweep in measured]),
            Column("from", [format_bytes(sweep.message_bytes[0]) for sweep in measured]),
            Column("to", [format_bytes(sweep.message_bytes[-1]) for sweep in measured]),
            with_unit("first time", [format_seconds(sweep.seconds[0]) for sweep in measured]),
            with_unit("last time", [format_seconds(sweep.seconds[-1]) for sweep in measured]),
        ]
    )


def _sources(sweeps: Sequence[LogSweep]) -> str:
    """Where collectives and ranks are from, in one line."""
    collective = ", ".join(dict.fromkeys(found.collective_from for found in sweeps))
    ranks = ", ".join(dict.fromkeys(found.world_size_from for found in sweeps))
    return f"collective: {collective}; ranks: {ranks}"


def _steps_table(steps: Sequence[MeasuredStep]) -> TextTable:
    def seconds(name: str) -> list[str]:
        values = [getattr(step, f"{name}_seconds") for step in steps]
        return [NOTHING if value is None else format_seconds(value) for value in values]

    return TextTable(
        [
            Column("step", [step.name for step in steps], right=False),
            Column("collectives", [str(len(step.collectives)) for step in steps]),
            *(with_unit(name, seconds(name)) for name in _STEP_QUANTITIES),
            Column("overlap", [NOTHING if step.overlap is None else format_ratio(step.overlap, 3) for step in steps]),
        ]
    )


def log_json(log: ReadLog) -> dict[str, Any]:
    """Return everything that was read of a log, in SI units."""
    return {
        "file": log.source,
        "format": log.format,
        "lines": log.lines,
        "sweeps": [_sweep_json(found) for found in log.sweeps],
        "steps": [_step_json(step) for step in log.steps],
        "skipped": [{"reason": one.reason, "count": one.count, "lines": list(one.lines)} for one in log.skipped],
        "warnings": list(log.warnings),
    }


def _sweep_json(found: LogSweep) -> dict[str, Any]:
    sweep = found.sweep
    facts = ("name", "collective", "world_size", "nodes", "gpu", "nccl_version", "caveats", "place")
    return {
        **{fact: getattr(sweep, fact) for fact in facts},
        "collective_from": found.collective_from,
        "world_size_from": found.world_size_from,
        "dtype": found.dtype,
        "redop": found.redop,
        "root": found.root,
        "message_bytes": list(sweep.message_bytes),
        "seconds": list(sweep.seconds),
    }


def _step_json(step: MeasuredStep) -> dict[str, Any]:
    return {
        "name": step.name,
        "rank": step.rank,
        **{f"{name}_seconds": getattr(step, f"{name}_seconds") for name in _STEP_QUANTITIES},
        "overlap": step.overlap,
        "collectives": [vars(one) for one in step.collectives],
    }
