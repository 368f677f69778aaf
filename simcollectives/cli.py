"""The command line. Exit codes: 0 done, 1 an expectation failed, 2 bad input, 3 a bug, 130 interrupted."""

import errno
import json
import os
import sys
import traceback
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from simcollectives.errors import InputError, show_value, suggestion
from simcollectives.report.runs import ExitCode, report_all, run_all

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="How long collective operations take on a cluster, why, and what to change.",
)


class Catalogue(StrEnum):
    """What ``list`` can list."""

    ALGORITHMS = "algorithms"
    STRATEGIES = "strategies"
    MACHINES = "machines"
    MODELS = "models"


MAX_NODES = 1 << 20

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON (SI units) instead of tables.")]
CollectiveOption = Annotated[str | None, typer.Option(help="The collective, where a log does not say it.")]
RanksOption = Annotated[int | None, typer.Option(help="The number of ranks, where a log does not say it.")]
LogNodesOption = Annotated[int | None, typer.Option(help="The number of nodes, where a log does not say it.")]
FolderOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write rows.csv, result.json and plots here.")
]
ModelOption = Annotated[str | None, typer.Option(help="A model of `list models`, or a config.json.")]
SequenceOption = Annotated[int | None, typer.Option(help="Tokens of a sequence.", min=1)]


@app.command()
def run(
    scenarios: Annotated[list[Path], typer.Argument(metavar="SCENARIO.yaml...", help="Scenario files.")],
    output: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run scenarios: tables here, files into DIR/<scenario>/."""
    raise typer.Exit(run_all(scenarios, output=output, as_json=as_json, checks_only=False))


@app.command()
def check(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="Files or folders; default: scenarios/.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check every `expect:` block of scenario files, in folders recursively."""
    if not paths and not Path("scenarios").is_dir():
        raise InputError("there is no folder scenarios/ here; give a file or a folder: simcollectives check PATH")
    from simcollectives.scenario.source_file import scenario_files

    raise typer.Exit(run_all(scenario_files(paths or [Path("scenarios")]), as_json=as_json, checks_only=True))


@app.command()
def compare(
    scenario: Annotated[
        Path | None, typer.Argument(metavar="[SCENARIO.yaml]", help="A training scenario, whatever its strategy.")
    ] = None,
    model: ModelOption = None,
    machine: Annotated[str | None, typer.Option(help="A machine of `list machines`.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes of the machine; 1, if left out.", min=1)] = None,
    sequence: SequenceOption = None,
    micro_batch: Annotated[int | None, typer.Option(help="Sequences of a rank in one pass; 1.", min=1)] = None,
    accumulation: Annotated[int | None, typer.Option(help="Micro-batches of a step; 1.", min=1)] = None,
    mfu: Annotated[str | None, typer.Option(help="Share of the device's peak that kernels reach; 40%.")] = None,
    recomputation: Annotated[str | None, typer.Option(help="none, selective, operators or full; none.")] = None,
    strategies: Annotated[str | None, typer.Option(help="Names with commas between, or all (the default).")] = None,
    save: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the scenario here, to go on from.")] = None,
    output: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say which strategy to train with: what fits, by how much, how long it takes, and why.

    Of a scenario file, or of --model on --machine.
    """
    from simcollectives.report.files import write_whole
    from simcollectives.scenario import compare as comparing

    settings = {"model": model, "micro_batch": micro_batch, "sequence": sequence, "accumulation": accumulation}
    settings |= {"mfu": mfu, "recomputation": recomputation}
    if scenario is not None:
        given = {**settings, "machine": machine, "nodes": nodes, "save": save}
        if several := [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]:
            raise InputError(f"{', '.join(several)}: the scenario says it already; give a file or options")
        compared = comparing.read_comparison(scenario, strategies)
    elif model is None or machine is None:
        raise InputError("nothing to compare; give a scenario file, or --model llama-3-8b --machine dgx-h100")
    else:
        settings["mfu"] = mfu or "40%"
        place = save or Path("comparison.yaml")
        text = comparing.write_comparison(
            settings, machine, nodes or 1, "all" if strategies is None else strategies, place.parent
        )
        compared = comparing.load_comparison(text, None if save is None else str(place))
        if save is not None:
            typer.echo(f"wrote {write_whole(save, text.encode())}", err=True)
    raise typer.Exit(report_all([compared], output=output, as_json=as_json))


@app.command()
def fit(
    measured: Annotated[list[str], typer.Argument(metavar="LOG_OR_CSV_OR_SET...", help="Files, or shipped sets.")],
    model: Annotated[str, typer.Option(help="physical, piecewise3, piecewise2 or alpha_beta.")] = "physical",
    predict: Annotated[
        list[str] | None, typer.Option(metavar="LOG_OR_CSV_OR_SET", help="Sweeps to predict; may be repeated.")
    ] = None,
    nodes: Annotated[
        list[int] | None, typer.Option(min=1, max=MAX_NODES, help="Nodes to predict; may be repeated.")
    ] = None,
    machine: Annotated[str | None, typer.Option(help="Where links come from that no sweep shows.")] = None,
    place: Annotated[str, typer.Option(help="out or in: results of place, or in it.")] = "out",
    collective: Annotated[
        str | None, typer.Option(help="The sweeps of this collective only; also where a log does not say it.")
    ] = None,
    ranks: RanksOption = None,
    log_nodes: LogNodesOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.yaml", help="Write a cluster and a residual plot.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Fit measured times: parameters, errors, predictions for other node counts, and a cluster for scenarios."""
    from simcollectives.report.fit_report import Asked, run_fit

    asked = Asked(place, collective, ranks, log_nodes)
    run_fit(measured, model, predict or (), nodes or (), machine, asked, output=output, as_json=as_json)


@app.command("import")
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="ds_config.json of DeepSpeed, YAML of accelerate, config.json of a model."
        ),
    ],
    cluster: Annotated[str | None, typer.Option("--cluster", "--machine", help="A machine of `list machines`.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes of it; 1, if no file says.", min=1)] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="GPUs of a node, if not all are used.", min=1)] = None,
    model: ModelOption = None,
    sequence: SequenceOption = None,
    micro_batch: Annotated[int | None, typer.Option(help="Sequences of a rank in one pass.", min=1)] = None,
    accumulation: Annotated[int | None, typer.Option(help="Micro-batches of a step.", min=1)] = None,
    dtype: Annotated[str | None, typer.Option(help="To train in, where files leave it open: bfloat16, ..")] = None,
    mfu: Annotated[str | None, typer.Option(help="Share of the device's peak that kernels reach.")] = None,
    peak: Annotated[str | None, typer.Option(help="That peak, if the machine's is not known: 60 TFLOP/s.")] = None,
    recomputation: Annotated[str | None, typer.Option(help="none, selective, operators or full.")] = None,
    auto: Annotated[str, typer.Option(help='Who resolves "auto": hugging_face or deepspeed.')] = "hugging_face",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the scenario here; else it is printed.")
    ] = None,
) -> None:
    """Make a scenario of the configs of other tools: every value with its origin, and what is not modelled.

    Without -o the scenario goes to the standard output, and the tables to the standard error.
    """
    from simcollectives.report.imported import run_import

    options = {"cluster": cluster, "nodes": nodes, "gpus_per_node": gpus_per_node, "model": model, "mfu": mfu}
    options |= {"peak": peak, "sequence": sequence, "micro_batch": micro_batch, "accumulation": accumulation}
    options |= {"dtype": dtype, "recomputation": recomputation, "auto": auto}
    run_import(files, options, output)


@app.command()
def read(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs, CSV, JSON or profiler traces; gzip too.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.csv", help="Write times here, sets.csv beside it.")
    ] = None,
    collective: CollectiveOption = None,
    ranks: RanksOption = None,
    log_nodes: LogNodesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read measurements of nccl-tests, rccl-tests, OSU or PyTorch's profiler: what is there, what was skipped, why."""
    from simcollectives.report.reading import read_and_show

    say = partial(typer.echo, err=True)
    read_and_show(logs, (collective, ranks, log_nodes), output, as_json=as_json, say=say)


@app.command()
def nccl(
    machine: Annotated[str, typer.Option(help="A machine of `list machines`.")],
    nodes: Annotated[
        list[int] | None, typer.Option(min=1, max=MAX_NODES, help="Nodes of it; may be repeated; 1, if left out.")
    ] = None,
    collective: Annotated[str, typer.Option(help="The collective.")] = "all_reduce",
    tuning: Annotated[
        Path | None, typer.Option(metavar="LOG", help="A log of NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING: it counts.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write JSON and plots.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say which algorithm and protocol NCCL would pick, by its own cost model, and from which message on another."""
    from simcollectives.report.nccl import run_nccl

    say = partial(typer.echo, err=True)
    run_nccl(machine, nodes or (), collective, tuning, output, as_json=as_json, say=say)


@app.command()
def probe(
    collectives: Annotated[str | None, typer.Option(help="Names with commas between, all (default), or none.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 (default), bfloat16, ..; commas between.")] = None,
    from_: Annotated[str | None, typer.Option("--from", help="The smallest message; 1 KiB.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="The largest message; 64 MiB.")] = None,
    factor: Annotated[str | None, typer.Option(help="From one size to the next; 2.")] = None,
    ranks: Annotated[str | None, typer.Option(help="Ranks to start here; one a GPU, or 2 on CPUs.")] = None,
    backend: Annotated[str | None, typer.Option(help="auto (default), nccl or gloo.")] = None,
    warmup: Annotated[str | None, typer.Option(help="Calls before those that are timed; 5.")] = None,
    iterations: Annotated[str | None, typer.Option(help="Timed calls of a point, at most; 200.")] = None,
    seconds_per_point: Annotated[str | None, typer.Option(help="Fewer calls, 5 at least, keep to it; 500 ms.")] = None,
    timeout: Annotated[str | None, typer.Option(help="How long ranks wait for each other; 2 min.")] = None,
    matmul: Annotated[bool, typer.Option("--matmul", help="Matrix products, too: what the MFU is of.")] = False,
    copies: Annotated[bool, typer.Option("--copies", help="Copies between host and device, too.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.csv", help="Write times here, sets.csv beside it.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure collectives with PyTorch (NCCL or gloo): on this machine, or as a rank that torchrun started."""
    from simcollectives.report.probing import run_probe

    options = {"collectives": collectives, "dtype": dtype, "from": from_, "to": to, "factor": factor, "ranks": ranks}
    options |= {"backend": backend, "warmup": warmup, "iterations": iterations, "timeout": timeout}
    options["seconds-per-point"] = seconds_per_point
    raise typer.Exit(run_probe(options, matmul=matmul, copies=copies, output=output, as_json=as_json))


@app.command("list")
def list_(what: Annotated[str, typer.Argument(metavar="WHAT", help=f"One of {', '.join(Catalogue)}.")]) -> None:
    """List what scenarios can name."""
    known = list(Catalogue)
    if what not in known:
        raise InputError(f"there is no list of {show_value(what)}; {suggestion(what, known, 'there are')}")
    from simcollectives.report import tables

    makers: dict[Catalogue, Callable[[int], list[RenderableType]]] = {
        Catalogue.ALGORITHMS: tables.algorithm_tables,
        Catalogue.STRATEGIES: tables.strategy_tables,
        Catalogue.MACHINES: tables.machine_tables,
        Catalogue.MODELS: tables.model_tables,
    }
    tables.show(makers[Catalogue(what)](tables.make_console(sys.stdout).width), sys.stdout)


@app.command()
def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from simcollectives.scenario import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


def _version(wanted: bool) -> None:
    if wanted:
        from simcollectives import __version__

        typer.echo(f"simcollectives {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        app()
    except InputError as error:
        typer.echo(str(error), err=True)
        _exit(ExitCode.BAD_INPUT)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        _exit(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        _stop_quietly()
    except SystemExit as stop:
        # The command-line library turns a broken pipe into code 1, which would say that an expectation failed.
        if isinstance(stop.__context__, BrokenPipeError):
            _stop_quietly()
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF):
            # Standard output itself cannot be written: nothing may be flushed to it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            typer.echo(f"cannot write the output: {error.strerror}", err=True)
            _exit(ExitCode.BAD_INPUT)
        traceback.print_exception(error)
        typer.echo(f"this is a bug in simcollectives: {error}", err=True)
        _exit(ExitCode.BUG)


def _stop_quietly() -> None:
    """The reader (head, less) has gone: nothing more to say, and nothing to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _exit(ExitCode.DONE)


def _exit(code: ExitCode) -> None:
    sys.exit(int(code))


if __name__ == "__main__":
    main()
