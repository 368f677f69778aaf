"""The probe without PyTorch: options, sizes, what is printed and written of points that are made up."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simcollectives.errors import InputError
from simcollectives.measured import load_sweep
from simcollectives.measured.logs import read_log
from simcollectives.measured.probe import (
    PLACES_OF,
    Copied,
    Event,
    Half,
    LeftOut,
    Multiplied,
    Placement,
    Plan,
    Row,
    Started,
    System,
    Times,
    placement_of,
)
from simcollectives.measured.probe.local import products
from simcollectives.measured.probe.plan import check_same
from simcollectives.metrics import busbw
from simcollectives.report import probe_options, probing
from simcollectives.report.table_probe import copy_line, matmul_line
from simcollectives.scenario import load_scenario
from tests.conftest import Done

Call = Callable[..., Done]
SIZES = (1024, 4096, 16384)
TORCHRUN = {
    **{"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"},
    **{"MASTER_ADDR": "a", "MASTER_PORT": "29500"},
}


def system(ranks: int = 4, nccl: str = "", nodes: int = 1) -> System:
    each = ranks // nodes
    started = [Started(rank, f"host{rank // each}", 100 + rank, rank % each, "none: Z80") for rank in range(ranks)]
    return System("nccl" if nccl else "gloo", "2.13.0", nccl, "2026-01-02T03:04:05+00:00", "by hand", tuple(started))


def times(seconds: float) -> Times:
    return Times(seconds, 0.9 * seconds, 1.2 * seconds, 50)


def row(collective: str, size: int, dtype: str = "float32", wrong: int = 0) -> Row:
    halves = tuple(
        Half(place, times(20e-6 + size / 1e9 + 1e-6 * number), wrong)
        for number, place in enumerate(PLACES_OF[collective])
    )
    return Row(collective, dtype, size, size // 4, halves)


ROWS = [row(collective, size) for collective in PLACES_OF for size in SIZES]


@pytest.fixture
def with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if PyTorch were there, and nobody else had started this process."""
    monkeypatch.setattr(probe_options, "_check_torch", lambda: None)
    for name in (*TORCHRUN, "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def measuring(
    with_torch: None, call: Call, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], Iterator[Event]]], Call]:
    """The command, with ranks that find made-up events."""

    def of(events: Callable[[], Iterator[Event]]) -> Call:
        def run_local(plan: Plan, ranks: int, report: Callable[[Event], None]) -> None:
            for event in events():
                report(event)

        monkeypatch.setattr(probing, "run_local", run_local)
        return lambda *arguments: call("probe", "--backend", "gloo", *arguments)

    return of


def test_options_are_all_looked_at(with_torch: None, call: Call) -> None:
    wrong = {
        **{"--from": "3 X", "--to": "8", "--backend": "glo", "--dtype": "float33,int9", "--ranks": "0"},
        **{"--collectives": "all_reduc", "--iterations": "1", "--timeout": "5", "-o": "x.txt", "--warmup": "a"},
    }
    done = call("probe", *(text for pair in wrong.items() for text in pair))
    assert done.returncode == 2
    assert {line.partition(":")[0] for line in done.stderr.splitlines()} == set(wrong)
    assert '"all_reduc" is no collective; did you mean "all_reduce"?' in done.stderr
    assert done.stderr.count("--dtype") == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "1 MiB", "--to", "1 KiB"], "--from, --to, --factor"),
        (["--factor", "1"], "does not lead upwards"),
        (["--collectives", "none"], "none leaves nothing to measure; add --matmul or --copies"),
        (["--matmul", "--dtype", "int8"], "--matmul: FLOP/s are of numbers with fractions"),
        (["--ranks", "1", "--backend", "gloo"], "--ranks: one rank has nobody to send to"),
        (["-o", "no/such/x.csv"], "-o: there is no folder no/such; make it first"),
        (["-o", "sets.csv"], "-o: sets.csv is no file for times"),
        (["-o", "folder.csv"], "-o: cannot write folder.csv: is a directory"),
    ],
)
def test_options_that_do_not_go_together(with_torch: None, call: Call, options: list[str], message: str) -> None:
    Path("folder.csv").mkdir()
    done = call("probe", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_without_torch_it_says_what_to_install(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = call("probe", "--ranks", "x")
    assert done.returncode == 2
    assert "pip install 'simcollectives[probe]'" in done.stderr
    assert "--ranks:" in done.stderr


def test_who_started_this_process() -> None:
    assert placement_of({}) is None
    assert placement_of(TORCHRUN) == Placement(3, 8, 3, 4, "env://")
    # A batch script of Slurm is one process, whatever the job has.
    assert placement_of({"SLURM_NTASKS": "16", "SLURM_PROCID": "0"}) is None


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"RANK": "0"}, "WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT: not set, though RANK is"),
        (TORCHRUN | {"RANK": "8"}, "RANK: 8 is not below WORLD_SIZE, 8"),
        (TORCHRUN | {"RANK": "-1", "LOCAL_RANK": "x"}, 'LOCAL_RANK: "x" is no whole number'),
        (TORCHRUN | {"MASTER_PORT": "first"}, 'MASTER_PORT: "first" is no whole number'),
        (TORCHRUN | {"MASTER_PORT": "99999"}, "MASTER_PORT: 99999 is no port from 1 to 65535"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "0"}, "LOCAL_WORLD_SIZE: 0 ranks on a node are none"),
        ({"SLURM_STEP_NUM_TASKS": "16"}, "srun started 16 processes"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "mpirun of Open MPI started 2 processes"),
    ],
)
def test_launches_that_cannot_be(environment: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as error:
        placement_of(environment)
    assert message in str(error.value)


def test_ranks_with_other_options_are_refused() -> None:
    first, other = Plan(("reduce",), ("int8",), (8,)), Plan(("reduce",), ("int8",), (8, 16), warmup=1)
    check_same([first, first])
    with pytest.raises(InputError) as error:
        check_same([first, other, first, other])
    rule = "another value on rank 1, 3 than on rank 0; give every node the same options"
    assert str(error.value).splitlines() == [f"--from, --to, --factor: {rule}", f"--warmup: {rule}"]


def test_each_node_says_what_is_wrong_in_its_options(
    with_torch: None, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_LATER_SECONDS", 0.0)
    for rank, local_rank, said in (("3", "3", ""), ("4", "0", "--factor: ")):
        for name, value in {**TORCHRUN, "RANK": rank, "LOCAL_RANK": local_rank}.items():
            monkeypatch.setenv(name, value)
        done = call("probe", "--factor", "x")
        assert (done.returncode, done.stderr[:10]) == (2, said)


def test_a_process_without_a_place_says_so(with_torch: None, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**TORCHRUN, "RANK": "8"}.items():
        monkeypatch.setenv(name, value)
    done = call("probe")
    assert (done.returncode, done.stderr) == (2, "RANK: 8 is not below WORLD_SIZE, 8; let torchrun set both\n")


def test_each_point_is_printed_and_written_when_it_comes(
    measuring: Callable[[Callable[[], Iterator[Event]]], Call], capsys: pytest.CaptureFixture[str]
) -> None:
    def events() -> Iterator[Event]:
        yield system()
        for number, one in enumerate(ROWS):
            yield one
            assert len(Path("mine.csv").read_text().splitlines()) == 1 + sum(len(r.halves) for r in ROWS[: number + 1])
            for half in one.halves:
                found = load_sweep("mine.csv", f"mine_{one.collective}", half.place)
                assert found.seconds[-1] == pytest.approx(half.times.seconds, rel=1e-12)

    Path("sets.csv").write_text("name,n_gpus,collective\nother,2,reduce\n")
    done = measuring(events)("-o", "mine.csv", "--from", "1 KiB", "--to", "16 KiB", "--factor", "4")
    assert done.returncode == 0, done.stderr
    assert "wrote 18 of 18 points, in mine.csv and sets.csv" in done.stderr
    with open("mine.csv") as stream:
        first = next(csv.DictReader(stream))
    assert (first["place"], first["p10_us"], first["p90_us"], first["calls"]) == ("in", "18.922", "25.229", "50")
    with open("sets.csv") as stream:
        sets = {line["name"]: line for line in csv.DictReader(stream)}
    assert set(sets) == {"other", *(f"mine_{collective}" for collective in PLACES_OF)}
    mine = sets["mine_all_gather"]
    assert (mine["n_gpus"], mine["n_nodes"], mine["gpu"]) == ("4", "1", "none: Z80")
    assert "torch 2.13.0, gloo, 2026-01-02" in mine["source"]
    assert "by hand" in mine["caveats"]


@pytest.mark.parametrize(("ranks", "nodes", "nccl"), [(2, 1, ""), (4, 2, "2.27.5"), (3, 1, "")])
def test_what_is_printed_is_read(
    measuring: Callable[[Callable[[], Iterator[Event]]], Call], ranks: int, nodes: int, nccl: str
) -> None:
    rows = [row(collective, size * ranks) for collective in PLACES_OF for size in SIZES]
    extra = [Multiplied("square", "float32", 512, 512, 512, times(1e-3)), Copied("memory to memory", 64, times(1e-6))]
    done = measuring(lambda: iter([system(ranks, nccl, nodes), *rows, *extra]))()
    assert done.returncode == 0, done.stderr
    assert all(len(line) <= 120 for line in done.stdout.splitlines())
    Path("printed.log").write_text(done.stdout)
    log = read_log("printed.log")
    assert (log.skipped, log.warnings) == ((), ())
    assert [(one.sweep.collective, one.sweep.place) for one in log.sweeps] == [
        (collective, place) for collective, places in PLACES_OF.items() for place in places
    ]
    for one in log.sweeps:
        assert (one.sweep.world_size, one.sweep.nodes, one.dtype) == (ranks, nodes, "float32")
        assert (one.sweep.nccl_version, one.sweep.gpu) == (nccl, "none: Z80")
        place = PLACES_OF[one.sweep.collective or ""].index(one.sweep.place)
        mine = [r for r in rows if r.collective == one.sweep.collective]
        assert one.sweep.message_bytes == tuple(r.message_bytes for r in mine)
        assert one.sweep.seconds == pytest.approx([r.halves[place].times.seconds for r in mine], rel=1e-3)


def test_wrong_results_are_shown_and_not_written(measuring: Callable[[Callable[[], Iterator[Event]]], Call]) -> None:
    rows = [row("all_reduce", 1024), row("all_reduce", 4096, wrong=7), row("all_reduce", 16384)]
    done = measuring(lambda: iter([system(), *rows]))("-o", "x.csv")
    assert done.returncode == 1
    assert "# Out of bounds values : 1 FAILED" in done.stdout
    assert "wrong results at 1 point" in done.stderr
    assert load_sweep("x.csv", place="in").message_bytes == (1024, 16384)
    assert "1 point with a wrong result left out" in load_sweep("x.csv", place="in").caveats
    Path("printed.log").write_text(done.stdout)
    assert "1 skipped: the check of the result failed" in str(read_log("printed.log").skipped[0])


@pytest.mark.parametrize(("stop", "code"), [(KeyboardInterrupt(), 130), (InputError("rank 1 died"), 2)])
def test_what_is_stopped_keeps_its_points(
    measuring: Callable[[Callable[[], Iterator[Event]]], Call], stop: BaseException, code: int
) -> None:
    def events() -> Iterator[Event]:
        yield system()
        yield from ROWS[:2]
        raise stop

    done = measuring(events)("-o", "x.csv", "--json")
    assert done.returncode == code
    assert len(load_sweep("x.csv", place="in").seconds) == 2
    assert [one["message_bytes"] for one in json.loads(done.stdout)["rows"]] == [1024, 4096]
    assert "2 of 102 points, in x.csv and sets.csv" in done.stderr
    assert ("rank 1 died" in done.stderr) == (code == 2)


def test_nothing_measured_is_an_error(measuring: Callable[[Callable[[], Iterator[Event]]], Call]) -> None:
    left_out = [LeftOut("reduce in float64 below 8 B", "a message has at least an element")]
    done = measuring(lambda: iter([system(), *left_out]))("-o", "x.csv", "--from", "1B", "--to", "4B")
    assert (done.returncode, list(Path().iterdir())) == (2, [])
    assert "left out: reduce in float64 below 8 B: a message has at least an element" in done.stderr
    assert "nothing was measured: all that was asked for is left out" in done.stderr


def test_several_element_types_are_several_sets(measuring: Callable[[Callable[[], Iterator[Event]]], Call]) -> None:
    rows = [row("reduce", 1024), row("reduce", 1024, "int32")]
    done = measuring(lambda: iter([system(), rows[0], rows[1]]))("-o", "x.csv", "--dtype", "float32,int32")
    assert done.returncode == 0, done.stderr
    assert load_sweep("x.csv", "x_reduce_int32", "in").message_bytes == (1024,)
    assert load_sweep("x.csv", "x_reduce_float32", "in").message_bytes == (1024,)


def test_json_has_everything_in_si_units(measuring: Callable[[Callable[[], Iterator[Event]]], Call]) -> None:
    events = [
        system(),
        row("all_gather", 4096),
        LeftOut("reduce", "this backend has none"),
        Multiplied("square", "float32", 2, 3, 5, times(1e-3)),
        Copied("host to device, pinned", 10**6, times(1e-3)),
    ]
    done = measuring(lambda: iter(events))("--json", "--matmul", "--copies")
    found = json.loads(done.stdout)
    assert [one["place"] for one in found["rows"]] == ["out", "in"]
    first = found["rows"][0]
    assert first["seconds"] == 20e-6 + 4096 / 1e9
    assert (first["world_size"], first["calls"], first["wrong"]) == (4, 50, 0)
    assert first["busbw"] == busbw("all_gather", 4, 4096, first["seconds"])
    assert found["matmul"][0]["flops_per_second"] == 2 * 2 * 3 * 5 / 1e-3
    assert found["copies"][0]["bandwidth"] == 1e9
    assert found["left_out"] == [{"what": "reduce", "why": "this backend has none"}]
    assert found["system"]["world_size"] == 4
    assert "left out: reduce: this backend has none" in done.stderr


def test_what_a_scenario_is_told_to_say_loads(tmp_path: Path) -> None:
    # The square at the peak of 1 PFLOP/s, the layer's products at half of that.
    rates = [1e15 if use == "square" else 0.5e15 for use, *_ in products(on_gpu=True)]
    multiplied = [
        Multiplied(use, "bfloat16", rows, inner, columns, times(2.0 * rows * inner * columns / rate))
        for (use, rows, inner, columns), rate in zip(products(on_gpu=True), rates, strict=True)
    ]
    copied = [
        Copied(kind, size, times(size / rate))
        for kind, rate in (("host to device, pinned", 55e9), ("device to host, pinned", 50e9), ("pageable", 9e9))
        for size in (1024, 2**28)
    ]
    device = re.search(r"device: \{(peak: .*?\}\}) in cluster, and (mfu: \S+) in", matmul_line(multiplied, "bfloat16"))
    link = re.search(r"device: \{(host_link: .*?)\}", copy_line(copied))
    assert device is not None
    assert link is not None
    assert (device[1], device[2], link[1]) == ("peak: {bfloat16: 1 PFLOP/s}}", "mfu: 50%", "host_link: 50 GB/s")
    path = tmp_path / "x.yaml"
    path.write_text(
        "title: x\n"
        f"cluster: {{devices: 2, link: {{alpha: 5 us, bandwidth: 1 GB/s}}, device: {{{link[1]}, {device[1]}}}\n"
        f"training: {{model: gpt2, strategy: ddp, micro_batch: 1, sequence: 64, dtype: bfloat16, {device[2]}}}\n"
    )
    assert load_scenario(path).title == "x"


def test_commands_of_the_readme_run(measuring: Callable[[Callable[[], Iterator[Event]]], Call]) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^(?:simcollectives|torchrun .*) probe (.*)$", readme, re.MULTILINE)
    assert len(commands) == 2
    for options in commands:
        done = measuring(lambda: iter([system(), row("all_reduce", 1024)]))(*options.split())
        assert done.returncode == 0, done.stderr
        assert Path("mine.csv").exists()
