"""What logs are read for: the command ``read``, files of this project, and scenarios."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from simcollectives.cli import app
from simcollectives.errors import InputError
from simcollectives.interop.chrome_trace import trace_text
from simcollectives.measured import load_sweep
from simcollectives.measured.logs import read_log
from simcollectives.scenario import load_scenario, run_scenario
from tests import made_up_logs as made
from tests.made_up_logs import ERAS, SIZES
from tests.training.steps import uniform_step

NEWEST = ERAS["2025"]


def put(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    lines = made.log(NEWEST)
    at = next(number for number, line in enumerate(lines) if " float " in line)
    lines[at + 3] = lines[at + 3][:60]
    return put(tmp_path / "all_reduce.log", lines)


def invoke(*arguments: object) -> tuple[int, str, str]:
    try:
        done = CliRunner().invoke(app, ["read", *map(str, arguments)], catch_exceptions=False)
    except InputError as error:  # what main() turns into exit code 2
        return 2, "", str(error)
    return done.exit_code, done.stdout, done.stderr


def test_read_shows_what_is_there(log: Path) -> None:
    code, out, _ = invoke(log)
    assert code == 0
    row = next(line.split() for line in out.splitlines() if line.split()[:1] == ["all_reduce"])
    assert row == ["all_reduce", "all_reduce", "16", "2", "float", "out", "10", "1", "KiB", "1", "GiB", *row[11:]]
    assert "collective: the log; ranks: the device lines" in out
    assert "1 skipped: a row is cut off before its first time is whole (line 29)" in out


def test_read_writes_files_that_load(log: Path, tmp_path: Path) -> None:
    other = put(tmp_path / "gather.log", made.log(ERAS["2.0"], "all_gather", 8))
    output = tmp_path / "out" / "measured.csv"
    output.parent.mkdir()
    (output.parent / "sets.csv").write_text("name,n_gpus,collective,mine\nold,4,reduce,x\ngather,2,reduce,y\n")
    code, _, err = invoke(log, other, "--collective", "all_gather", "-o", output)
    assert code == 0
    assert err.count("wrote") == 2
    for name, place in (("all_reduce", "out"), ("gather", "out"), ("gather", "in")):
        written = load_sweep(output, name, place)
        (found,) = [
            one for one in read_log(log if name == "all_reduce" else other, "all_gather").measured if one.place == place
        ]
        for fact in ("message_bytes", "seconds", "collective", "world_size", "nodes", "gpu", "nccl_version", "source"):
            assert getattr(written, fact) == getattr(found, fact)
    with (output.parent / "sets.csv").open(encoding="utf-8") as stream:
        rows = {row["name"]: row for row in csv.DictReader(stream)}
    assert list(rows) == ["old", "all_reduce", "gather"]
    assert (rows["old"]["mine"], rows["gather"]["n_gpus"], rows["gather"]["mine"]) == ("x", "8", "")
    with output.open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            rate = int(row["size_bytes"]) / float(row["time_us"]) / 1e3
            assert float(row["algbw_GBps"]) == pytest.approx(rate, abs=0.0006)


def test_read_as_json(log: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    step = uniform_step(elements=10**6, layers=2, tensors=2)
    trace.write_text(trace_text(step), encoding="utf-8")
    code, out, _ = invoke(log, trace, "--json")
    assert code == 0
    first, second = json.loads(out)["logs"]
    assert [len(one["seconds"]) for one in first["sweeps"]] == [len(SIZES) - 1] * 2
    assert first["skipped"][0]["count"] == 1
    assert second["steps"][0]["step_seconds"] == pytest.approx(step.step_seconds, abs=1e-9)
    assert len(second["steps"][0]["collectives"]) == len(step.collectives)


def test_read_names_every_log_that_fails_and_shows_the_others(log: Path, tmp_path: Path) -> None:
    other = put(tmp_path / "other.log", ["nothing"])
    code, _, err = invoke(log, other, tmp_path / "none.log")
    assert code == 2
    assert "other.log: nothing in this file is known" in err
    assert "none.log: there is no such file" in err


def test_nothing_is_written_without_collective_and_ranks(tmp_path: Path) -> None:
    path = put(tmp_path / "x.log", made.log(ERAS["2023"], "broadcast", listed=False))
    code, _, err = invoke(path, "-o", tmp_path / "x.csv")
    assert (code, err) == (2, "x: nothing says its ranks; give --ranks")
    assert not (tmp_path / "x.csv").exists()
    assert invoke(path, "-o", tmp_path / "x.csv", "--ranks", "8")[0] == 0
    assert load_sweep(tmp_path / "x.csv").world_size == 8


@pytest.mark.parametrize("name", ["all_reduce.log", "sets.csv", "x.txt"])
def test_files_that_are_not_written(log: Path, name: str) -> None:
    before = log.read_bytes()
    assert invoke(log, "-o", log.with_name(name))[0] == 2
    assert log.read_bytes() == before


def test_two_sets_of_one_name_are_not_written(log: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = put(tmp_path / "b" / log.name, made.log(NEWEST))
    code, _, err = invoke(log, other, "-o", tmp_path / "x.csv")
    assert code == 2
    assert 'two sets are called "all_reduce"' in err


def test_one_sweep_of_a_log(tmp_path: Path, log: Path) -> None:
    assert load_sweep(log).seconds == load_sweep(log, "all_reduce", "out").seconds
    assert load_sweep(log, place="in").place == "in"
    two = put(tmp_path / "two.log", made.log(NEWEST) * 2)
    with pytest.raises(InputError, match="holds 2 sets; name one of them: two_1, two_2"):
        load_sweep(two)
    assert load_sweep(two, "two_2").name == "two_2"
    with pytest.raises(InputError, match="did you mean"):
        load_sweep(two, "two2")


SCENARIO = """title: measured
cluster: {{devices: 8, link: {{alpha: 5 us, bandwidth: 450 GB/s}}}}
collective: {{name: {collective}, message: 1 MiB, algorithms: [ring]}}
measured: {{file: run.log, algorithm: ring{more}}}
"""


@pytest.mark.parametrize("kind", ["text", "json", "osu", "old"])
def test_scenarios_take_any_log(tmp_path: Path, kind: str) -> None:
    collective = "all_gather" if kind in ("osu", "old") else "all_reduce"
    sizes = [size * 8 for size in SIZES]
    lines = {
        "text": lambda: made.log(NEWEST, ranks=8),
        "json": lambda: [json.dumps(made.nccl_document(ranks=8))],
        "osu": lambda: made.osu("Allgather"),
        "old": lambda: made.log(ERAS["2.0"], "all_gather", 8, sizes),
    }[kind]()
    put(tmp_path / "run.log", lines)
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO.format(collective=collective, more=""), encoding="utf-8")
    (measured,) = run_scenario(load_scenario(scenario)).measured  # type: ignore[arg-type]
    wanted = [8 * size for size in SIZES] if kind in ("osu", "old") else list(SIZES)
    assert list(measured.sweep.message_bytes) == wanted
    # 150 GB/s of algorithm bandwidth on 8 ranks: each message goes 14/8 or 7/8 times over a link.
    assert measured.fit.alpha * (7 if collective == "all_gather" else 14) == pytest.approx(20e-6, rel=0.05)


def test_scenarios_refuse_another_log(tmp_path: Path) -> None:
    put(tmp_path / "run.log", made.log(NEWEST, ranks=16) + made.log(NEWEST, ranks=4))
    scenario = tmp_path / "scenario.yaml"
    for more, text in (
        ("", "$.measured.file (line 4): run.log: run.log: set: the file holds 2 sets; name one of them: run_1, run_2"),
        (", set: run_1", "$.measured.set (line 4): run_1 ran on 16 GPUs, the cluster has 8"),
    ):
        scenario.write_text(SCENARIO.format(collective="all_reduce", more=more), encoding="utf-8")
        with pytest.raises(InputError) as raised:
            load_scenario(scenario)
        assert text.replace("run.log: run.log: ", "run.log: ") in str(raised.value)
