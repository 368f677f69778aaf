"""The probe for real: local ranks that PyTorch joins by gloo, from the command line to a fit."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simcollectives.measured import load_sweep
from simcollectives.measured.load import load_sweeps
from simcollectives.measured.logs import read_log
from simcollectives.measured.probe import PLACES_OF, Placement
from simcollectives.measured.probe.collectives import make_operation
from simcollectives.measured.probe.group import Group
from tests.conftest import Done

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parent.parent
PROBE = ["-m", "simcollectives.cli", "probe", "--backend", "gloo", "--seconds-per-point", "20 ms", "--timeout", "60 s"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(autouse=True)
def torch_is_here() -> None:
    pytest.importorskip("torch")


def run(folder: Path, *command: str) -> Done:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_all_collectives_are_measured_read_and_fitted(tmp_path: Path, call: Callable[..., Done]) -> None:
    sizes = ["--from", "4 B", "--to", "256 KiB", "--factor", "8"]
    done = run(tmp_path, *PROBE, *sizes, "--matmul", "--copies", "-o", "mine.csv")
    assert done.returncode == 0, done.stderr
    # 4 B are one float32: no part for each of two ranks.
    left_out = re.findall(r"left out: (\w+) in float32 below 8 B", done.stderr)
    assert left_out == ["reduce_scatter", "all_gather", "all_to_all"]
    assert "Matrix products in float32" in done.stdout
    assert "memory to memory" in done.stdout
    (tmp_path / "printed.log").write_text(done.stdout)
    log = read_log(tmp_path / "printed.log")
    assert log.skipped == ()
    assert {(one.sweep.collective, one.sweep.place) for one in log.sweeps} == {
        (collective, place) for collective, places in PLACES_OF.items() for place in places
    }
    for one in log.sweeps:
        written = load_sweep(tmp_path / "mine.csv", f"mine_{one.sweep.collective}", one.sweep.place)
        assert written.message_bytes == one.sweep.message_bytes
        assert written.message_bytes[-1] == 256 << 10
        assert written.seconds == pytest.approx(one.sweep.seconds, rel=1e-3)
        assert (written.world_size, written.nodes) == (2, 1) == (one.sweep.world_size, one.sweep.nodes)
    assert len(load_sweeps(tmp_path / "mine.csv")) == len(PLACES_OF)
    fitted = call("fit", "mine.csv", "--json")
    assert fitted.returncode == 0, fitted.stderr
    fits = json.loads(fitted.stdout)["fits"]
    assert {one["collective"] for one in fits} == set(PLACES_OF)
    for one in fits:
        values = {parameter["name"]: parameter["value"] for parameter in one["parameters"]}
        assert 0 < values["B"] < math.inf
        assert 0 < values["alpha"] < math.inf


class IdleTorch:
    """PyTorch, but its collectives do nothing."""

    def __init__(self) -> None:
        names = ("all_reduce", "reduce", "broadcast", "reduce_scatter_single", "all_gather_single", "all_to_all_single")
        self.distributed = SimpleNamespace(**dict.fromkeys(names, lambda *_: None))

    def __getattr__(self, name: str) -> Any:
        import torch

        return getattr(torch, name)


@pytest.mark.parametrize(
    ("collective", "place"), [(collective, place) for collective, places in PLACES_OF.items() for place in places]
)
def test_a_collective_that_does_nothing_is_found_wrong(collective: str, place: str) -> None:
    torch = IdleTorch()
    rank = 0 if collective == "reduce" else 1  # the root of a reduction checks it, that of a broadcast has it
    group = Group(torch, torch.device("cpu"), Placement(rank, 3, rank, 3))
    operation = make_operation(group, collective, place, 30, "int8")
    operation.prepare()
    operation.call()
    assert operation.wrong() > 0


def test_three_ranks_of_torchrun_with_other_element_types(tmp_path: Path) -> None:
    options = ["--dtype", "int8,bfloat16", "--from", "3 KiB", "--to", "3 KiB", "--iterations", "5", "-o", "x.csv"]
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "3"]
    done = run(tmp_path, *torchrun, *PROBE, *options, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("wrote 12 of 12 points") == 1
    found = json.loads(done.stdout)  # rank 0 alone has printed
    assert len(found["rows"]) == 2 * sum(map(len, PLACES_OF.values()))
    assert {one["wrong"] for one in found["rows"]} == {0}
    assert {one["world_size"] for one in found["rows"]} == {3}
    assert all(0 < one["seconds_p10"] <= one["seconds"] <= one["seconds_p90"] for one in found["rows"])
    assert load_sweep(tmp_path / "x.csv", "x_all_to_all_int8").message_bytes == (3072,)


def test_ranks_of_other_options_end_with_the_reason(tmp_path: Path) -> None:
    started = []
    for rank in ("0", "1"):
        meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29617"}
        environment = {**ENVIRONMENT, **meeting, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"}
        command = [sys.executable, *PROBE, "--collectives", "reduce", "--to", ("1 KiB", "2 KiB")[int(rank)]]
        started.append(subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True))
    for process in started:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 2, errors
        assert "--from, --to, --factor: another value on rank 1 than on rank 0" in errors


def stopped_after_two_rows(folder: Path, stop: Callable[[subprocess.Popen[str], dict[int, int]], None]) -> Done:
    """The command, of which ``stop`` is told its process and those of its ranks once two points are printed."""
    command = [sys.executable, *PROBE, "--collectives", "all_reduce", "--to", "1 GiB", "-o", "x.csv"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        printed, ranks, rows = [], {}, 0
        for line in process.stdout:
            printed.append(line)
            if found := re.match(r"# +Rank +(\d+) .*Pid +(\d+) ", line):
                ranks[int(found[1])] = int(found[2])
            if " float32 " in line:
                rows += 1
                if rows == 2:
                    stop(process, ranks)
        _, errors = process.communicate(timeout=60)
    return Done(process.returncode, "".join(printed), errors)


def test_interrupted_it_keeps_its_points(tmp_path: Path) -> None:
    done = stopped_after_two_rows(tmp_path, lambda process, ranks: process.send_signal(signal.SIGINT))
    assert done.returncode == 130, done.stderr
    found = load_sweep(tmp_path / "x.csv", place="in").message_bytes
    assert found[:2] == (1024, 2048)
    assert f"interrupted after {len(found)} of 21 points, in x.csv and sets.csv" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_rank_ends_all_and_is_named(tmp_path: Path) -> None:
    done = stopped_after_two_rows(tmp_path, lambda process, ranks: os.kill(ranks[1], signal.SIGKILL))
    assert done.returncode == 2, done.stderr
    assert "rank 1: was killed by SIGKILL" in done.stderr
    assert "rank 0:" not in done.stderr
    assert "Traceback" not in done.stderr
    assert load_sweep(tmp_path / "x.csv", place="in").message_bytes[:2] == (1024, 2048)
