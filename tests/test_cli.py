"""The command line: folders, exit codes, what is kept and what is refused."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done

HEAD = "title: t\ncluster: {devices: 8, link: {alpha: 5 us, bandwidth: 450 GB/s}}\n"
RING = f"{HEAD}collective: {{name: all_reduce, message: 4 KiB, algorithms: [ring]}}\n"


Call = Callable[..., Done]


def test_names_in_any_script_have_their_own_folders(tmp_path: Path, call: Call) -> None:
    for name in ("漢字", "日本"):
        (tmp_path / f"{name}.yaml").write_text(RING, encoding="utf-8")
    done = call("run", "漢字.yaml", "日本.yaml", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["日本", "漢字"]


def test_two_scenarios_never_share_a_folder(tmp_path: Path, call: Call) -> None:
    for name in ("a b", "a_b"):
        (tmp_path / f"{name}.yaml").write_text(RING, encoding="utf-8")
    done = call("run", "a b.yaml", "a_b.yaml", "-o", "out")
    assert done.returncode == 2
    assert "would write into the same folder" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way_is_found_before_the_run(tmp_path: Path, call: Call) -> None:
    (tmp_path / "ring.yaml").write_text(RING, encoding="utf-8")
    (tmp_path / "taken").write_text("", encoding="utf-8")
    done = call("run", "ring.yaml", "-o", "taken")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot write taken/ring" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full here")
def test_a_full_standard_output_is_no_bug(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text(RING, encoding="utf-8")
    command = [sys.executable, "-m", "simcollectives.cli", "run", "ring.yaml"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_root_that_is_given_to_an_algorithm_is_its_root(tmp_path: Path, call: Call) -> None:
    text = "collective: {name: broadcast, message: 1 MiB, root: 2, algorithms: [{tree: {root: 7}}, direct]}\n"
    (tmp_path / "root.yaml").write_text(HEAD + text, encoding="utf-8")
    done = call("run", "root.yaml")
    assert "tree (root: 7)" in done.stdout
    assert "direct (root: 2)" in done.stdout


@pytest.mark.parametrize(
    ("rest", "part"),
    [
        (
            "collective: {name: broadcast, message: 1 MiB, algorithms: [{tree: {root: 7}}]}\nsweep: {root: [0, 5]}\n",
            "$.sweep.root (line 4): every algorithm is given a root of its own",
        ),
        (
            "collective: {name: all_reduce, algorithms: [ring]}\n"
            f"sweep: {{message: {{from: 4 B, to: 4 MB, factor: {'9' * 399}}}}}\n",
            "$.sweep.message (line 4): a whole number of 1326 bits is too large a factor",
        ),
        (
            "collective: {name: all_reduce, message: 4 KiB, algorithms: [{parameter_server: {servers: 3000}}]}\n"
            "contributions: {algorithm: parameter_server}\n",
            "27,072,000 cells are too many to print",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, rest: str, part: str, call: Call) -> None:
    (tmp_path / "bad.yaml").write_text(HEAD + rest, encoding="utf-8")
    done = call("run", "bad.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_runs_that_are_too_large_leave_the_others(tmp_path: Path, call: Call) -> None:
    text = (
        "title: t\ncluster: {nodes: 2, gpus_per_node: 8, intra: {alpha: 5 us, bandwidth: 450 GB/s},"
        " inter: {alpha: 5 us, bandwidth: 50 GB/s}}\n"
        "collective: {name: all_reduce, message: 1 MiB, algorithms: [tree, direct]}\n"
        "sweep: {nodes: [2, 1024]}\nengine: event\nverify: never\n"
    )
    (tmp_path / "late.yaml").write_text(text, encoding="utf-8")
    done = call("run", "late.yaml", "-o", "out")
    assert done.returncode == 2
    assert "direct on 8192 ranks" in done.stderr
    rows = (tmp_path / "out" / "late" / "rows.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 1 + 3
    assert "some runs could not be made" in done.stdout


LONG = (
    f"{HEAD}collective: {{name: all_reduce, message: 1 MiB, algorithms: [ring]}}\n"
    "sweep: {devices: [8, 6144]}\njitter: {alpha: {lognormal: 20%}}\nengine: event\nverify: never\n"
)
START = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from simcollectives.cli import main
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX has them")
def test_ctrl_c_inside_a_long_run_keeps_the_rows_before_it(tmp_path: Path) -> None:
    """75 million messages in the event engine take many minutes; the interrupt comes once the first row is there."""
    (tmp_path / "long.yaml").write_text(LONG, encoding="utf-8")
    command = [sys.executable, "-c", START, "run", "long.yaml", "--json", "-o", "out"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        watchdog = threading.Timer(120, running.kill)
        watchdog.start()
        assert running.stderr is not None
        said = [running.stderr.readline() for _ in range(2)]
        threading.Event().wait(3)  # the first row takes a millisecond, the second minutes
        still = running.poll()
        running.send_signal(signal.SIGINT)
        out, rest = running.communicate()
        watchdog.cancel()
    assert still is None, rest
    assert said[0].startswith(f"long.yaml: {8 * 14 + 6144 * 2 * 6143:,} messages, about ")
    assert said[1].startswith("warning: long.yaml: ring at devices: 6144 takes about ")
    assert "; vectorized is exact there, too, in about " in said[1]
    assert said[1].endswith(": write engine: auto\n")
    assert running.returncode == 130, rest
    assert "interrupted: long.yaml has 1 finished row\n" in rest
    (scenario,) = json.loads(out)["scenarios"]
    assert [row["world_size"] for row in scenario["rows"]] == [8]
    assert len((tmp_path / "out" / "long" / "rows.csv").read_text(encoding="utf-8").splitlines()) == 2


def test_nothing_is_said_of_a_short_run(tmp_path: Path, call: Call) -> None:
    (tmp_path / "ring.yaml").write_text(RING, encoding="utf-8")
    done = call("run", "ring.yaml", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["scenarios"][0]["rows"][0]["rounds"] == 14


def test_what_cannot_be_listed_is_told_with_what_can(call: Call) -> None:
    unknown, misspelt = (call("list", word) for word in ("foo", "algoritms"))
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert unknown.stderr == 'there is no list of "foo"; there are: algorithms, strategies, machines, models\n'
    assert misspelt.stderr == 'there is no list of "algoritms"; did you mean "algorithms"?\n'


def test_one_expectation_is_not_several(tmp_path: Path, call: Call) -> None:
    (tmp_path / "one.yaml").write_text(f"{RING}expect: [{{rounds: {{algorithm: ring}}, equals: 14, abs: 0}}]\n")
    done = call("check", "one.yaml")
    assert "1 of 1 expectation holds\n" in done.stdout
    assert done.stdout.endswith("1 expectation passed, 0 failed, in 1 scenario\n")
