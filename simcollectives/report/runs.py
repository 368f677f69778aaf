"""Scenarios run one after another, as the command line does: tables here, files there, and what the process returns."""

import sys
from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from simcollectives.errors import InputError, counted

if TYPE_CHECKING:
    from simcollectives.scenario import AnyScenario, Plan, ScenarioResult, StepPlan


class ExitCode(IntEnum):
    """What the process returns; the highest of several wins."""

    DONE = 0
    EXPECTATION_FAILED = 1
    BAD_INPUT = 2
    BUG = 3
    INTERRUPTED = 130


def run_all(paths: Sequence[Path], *, as_json: bool, checks_only: bool, output: Path | None = None) -> ExitCode:
    """Load all scenarios, then run each, print it and write its files. All bad files are named before any runs."""
    scenarios, code = _load_all(paths)
    if code is ExitCode.DONE and output is not None:
        from simcollectives.report.files import check_folders

        check_folders([scenario.file for scenario in scenarios])
    if code is not ExitCode.DONE and not checks_only:
        return code
    return max(code, report_all(scenarios, output=output, as_json=as_json, checks_only=checks_only))


def report_all(
    scenarios: Sequence["AnyScenario"], *, as_json: bool, checks_only: bool = False, output: Path | None = None
) -> ExitCode:
    """Run scenarios, print each and write its files."""
    code = ExitCode.DONE
    results: list[ScenarioResult] = []
    for scenario in scenarios:
        if checks_only and not scenario.expectations:
            continue
        result, outcome = _run_one(scenario, output)
        code = max(code, outcome)
        if result is not None:
            results.append(result)
            if not as_json:
                _print_tables(result, checks_only=checks_only)
        if outcome is ExitCode.INTERRUPTED:
            break
    if as_json:
        from simcollectives.report.files import json_text, to_json

        typer.echo(json_text(to_json(results)))
    elif checks_only and results:
        _print_summary(results)
    return code


def _load_all(paths: Sequence[Path]) -> tuple[list["AnyScenario"], ExitCode]:
    from simcollectives.scenario import load_scenario

    scenarios, code = [], ExitCode.DONE
    for path in paths:
        try:
            scenarios.append(load_scenario(path))
        except InputError as error:
            typer.echo(str(error), err=True)
            code = ExitCode.BAD_INPUT
    return scenarios, code


def _run_one(scenario: "AnyScenario", output: Path | None) -> tuple["ScenarioResult | None", ExitCode]:
    """Run one scenario and write its files; what an interrupt leaves finished is kept."""
    from simcollectives.report.progress import shown_progress
    from simcollectives.scenario import run_scenario

    result, code = None, ExitCode.DONE
    try:
        if output is not None:
            from simcollectives.report.files import prepare_folder, write_outputs

            prepare_folder(scenario.file, output)
        with shown_progress(scenario.file, sys.stderr) as progress:
            result = run_scenario(scenario, progress, partial(_say_cost, scenario.file))
        if output is not None:
            for path in write_outputs(result, output):
                typer.echo(f"wrote {path}", err=True)
    except InputError as error:
        typer.echo(str(error if error.source else InputError(error.problems, scenario.file)), err=True)
        code = ExitCode.BAD_INPUT
    if result is None:
        return None, code
    for warning in result.warnings:
        typer.echo(f"warning: {scenario.file}: {warning}", err=True)
    if result.problems:
        typer.echo(str(InputError(result.problems, scenario.file)), err=True)
        code = ExitCode.BAD_INPUT
    if result.interrupted:
        typer.echo(f"interrupted: {scenario.file} has {counted(len(result.rows), 'finished row')}", err=True)
        return result, ExitCode.INTERRUPTED
    return result, max(code, ExitCode.DONE if result.passed else ExitCode.EXPECTATION_FAILED)


def _say_cost(name: str, plan: "Plan | StepPlan") -> None:
    """Say what a run costs before it, where it costs anything to speak of."""
    from simcollectives.scenario.advice import advice, cost_line, free_memory_bytes

    free_bytes = free_memory_bytes()
    line = cost_line(plan, free_bytes)
    if line is not None:
        typer.echo(f"{name}: {line}", err=True)
    for text in advice(plan, free_bytes):
        typer.echo(f"warning: {name}: {text}", err=True)


def _print_tables(result: "ScenarioResult", *, checks_only: bool) -> None:
    from simcollectives.report import tables

    width = tables.make_console(sys.stdout).width
    tables.show((tables.check_tables if checks_only else tables.result_tables)(result, width), sys.stdout)
    typer.echo("")


def _print_summary(results: Sequence["ScenarioResult"]) -> None:
    checks = [check for result in results for check in result.checks]
    failed = sum(not check.passed for check in checks)
    passed = f"{counted(len(checks) - failed, 'expectation')} passed"
    typer.echo(f"{passed}, {failed} failed, in {counted(len(results), 'scenario')}")
