"""The command nccl: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_measured_nccl_log import PATTERNS, init, lines_of, table, write

README = Path(__file__).parent.parent / "README.md"


def test_the_command_of_the_readme(call: Callable[..., Any], tmp_path: Path) -> None:
    words = shlex.split(README.read_text(encoding="utf-8").split("<!-- nccl command -->\n```sh\n")[1].split("```")[0])
    assert words[:2] == ["simcollectives", "nccl"]
    done = call(*words[1:], "-o", "out")
    assert done.returncode == 0
    for part in ("1 node of 8 GPUs", "4 nodes of 8 GPUs", "nvls/Simple", "NCCL 2.30.7"):
        assert part in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"nccl.json", "nccl_choice.png", "nccl_times.png"}
    data = json.loads((tmp_path / "out" / "nccl.json").read_text(encoding="utf-8"))
    assert [one["nodes"] for one in data["nccl"]] == [1, 4]


def test_json(call: Callable[..., Any]) -> None:
    done = call("nccl", "--machine", "h100-dgx", "--collective", "all_gather", "--nodes", "4", "--json")
    (one,) = json.loads(done.stdout)["nccl"]
    assert [point["choice"] for point in one["points"]][:: len(one["points"]) - 1] == ["ring/LL", "ring/Simple"]


def test_figures_of_a_log(call: Callable[..., Any], tmp_path: Path) -> None:
    write(tmp_path, lines_of([init(), *table("2.19")]))
    done = call("nccl", "--machine", "dgx-h100", "--nodes", "2", "--tuning", "run.log")
    assert done.returncode == 0
    assert "run.log, line 3" in done.stdout
    assert "the log lists no calls" in done.stdout
    refused = call("nccl", "--machine", "dgx-h100", "--nodes", "2", "--nodes", "4", "--tuning", "run.log")
    assert refused.returncode == 2
    assert "no table is of all_reduce on 32 ranks, 4 nodes" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        (
            ["--machine", "dgx-h10", "--collective", "all_to_all", "--tuning", "no.log"],
            ["did you mean", "no \"all_to_all\"; it has: all_reduce", "no.log: there is no such file"],
        ),
        (["--machine", "mi300x-8"], ["NCCL's graph of mi300x-8 is not known; take one of dgx-1v"]),
        (["--machine", "dgx-h100", "--nodes", "9" * 400], ["--nodes"]),
    ],
)  # fmt: skip
def test_all_problems_at_once(call: Callable[..., Any], arguments: list[str], problems: list[str]) -> None:
    done = call("nccl", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    for problem in problems:
        assert problem in done.stderr


def test_logs_that_say_too_little(call: Callable[..., Any], tmp_path: Path) -> None:
    asked = ["nccl", "--machine", "dgx-h100", "--tuning", "run.log", "--nodes", "2"]
    write(tmp_path, lines_of(table("2.30")))
    assert "taken to be of 16 ranks, which it does not say" in " ".join(call(*asked).stdout.split())
    refused = call(*asked, "--collective", "reduce")  # a table without figures of it
    assert (refused.returncode, refused.stderr.split(":")[0]) == (2, "run.log")
    write(tmp_path, lines_of([*PATTERNS, init(ranks=8, nodes=1)]))
    assert "it has: channels of one node; take" in call(*asked).stderr
