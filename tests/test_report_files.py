"""Files: complete or absent, readable again, and honest about what they cannot hold."""

from __future__ import annotations

import csv
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcollectives import __version__
from simcollectives.errors import InputError
from simcollectives.report import files
from simcollectives.report.files import json_text, plain_data, rows_csv, to_json, write_outputs, write_whole
from simcollectives.scenario import ScenarioResult, load_scenario, run_scenario

TEXT = """
title: Files, "quoted"
cluster: {devices: 4, link: {alpha: 5 us, bandwidth: 450 GB/s}}
collective: {name: all_reduce, algorithms: [ring, parameter_server]}
sweep: {message: [0 B, 4 KiB, 1 MiB], parameter_server.servers: [1, 2]}
expect:
  - {seconds: {algorithm: ring, message: 4 KiB}, at_most: 1 ms}
timeline: {algorithm: ring, message: 4 KiB}
"""
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> ScenarioResult:
    path: Path = tmp_path_factory.mktemp("scenarios") / "my files.yaml"
    text = TEXT.replace("{parameter_server: {servers: 1}}", "parameter_server").replace(
        "of: rounds", "of: bytes_sent_max"
    )
    path.write_text(text, encoding="utf-8")
    return run_scenario(load_scenario(path))


def test_a_folder_with_rows_result_and_figures(result: ScenarioResult, tmp_path: Path) -> None:
    written = write_outputs(result, tmp_path / "new" / "out")
    folder = tmp_path / "new" / "out" / "my_files"
    assert sorted(written) == sorted(folder.iterdir())
    names = {path.name for path in written}
    assert {"rows.csv", "result.json", "time.png", "busbw.png", "bytes.png"} < names
    assert any(name.startswith("timeline_ring") for name in names)
    assert all(path.read_bytes().startswith(PNG) for path in written if path.suffix == ".png")
    data = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert data == to_json([result])["scenarios"][0]
    again = write_outputs(result, tmp_path / "new" / "out")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in written]


def test_rows_csv_holds_every_number_exactly(result: ScenarioResult) -> None:
    table = list(csv.DictReader(rows_csv(result.rows).splitlines()))
    assert len(table) == len(result.rows)
    for line, row in zip(table, result.rows, strict=True):
        assert float(line["seconds"]) == row["seconds"]
        assert json.loads(line["options"]) == row["options"]
        assert line["point.message"] == str(row["point"]["message"])
        assert line["point.parameter_server.servers"] == str(row["point"].get("parameter_server.servers", ""))
        assert line["verified"] == "true"
        assert line["busbw"] == ("" if row["busbw"] is None else repr(row["busbw"]))


def test_json_has_the_contract_and_more(result: ScenarioResult) -> None:
    data = json.loads(json_text(to_json([result])))
    assert data["version"] == __version__
    (scenario,) = data["scenarios"]
    assert list(scenario)[:5] == ["file", "title", "rows", "checks", "warnings"]
    assert scenario["title"] == 'Files, "quoted"'
    assert {"fastest", "measured", "passed", "notes"} <= set(scenario)
    assert scenario["measured"] is None
    assert scenario["fastest"][0]["message_bytes"] == 0
    assert set(scenario["checks"][0]) == {"expect", "line", "passed", "value", "message"}


def test_nothing_that_json_does_not_know() -> None:
    odd: dict[str, Any] = {
        "nan": float("nan"),
        "inf": np.float64("inf"),
        "number": np.int64(3),
        "list": (np.float32(0.5), np.array([1, 2])),
        "flag": np.bool_(True),
        "path": Path("a"),
    }
    text = json_text(odd)
    assert json.loads(text) == {"nan": None, "inf": None, "number": 3, "list": [0.5, [1, 2]], "flag": True, "path": "a"}
    assert plain_data({1: None}) == {"1": None}


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "rows.csv"
    write_whole(target, b"old")

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="no space left on device"):
        write_whole(target, b"new content")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_what_is_no_regular_file_is_left_alone(tmp_path: Path) -> None:
    """To replace a device would take it from everybody; a pipe stands for it here."""
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    link.symlink_to(target)
    with pytest.raises(InputError, match=r"pipe: it is no regular file; give"):
        write_whole(pipe, b"new")
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    for folder in (tmp_path, Path("")):
        with pytest.raises(InputError, match=r"is a directory; give"):
            write_whole(folder, b"new")
    write_whole(link, b"new")
    assert (link.is_symlink(), target.read_bytes()) == (True, b"new")


def test_an_interrupt_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "rows.csv", b"new")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_half_way_leaves_whole_files_only(
    result: ScenarioResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_figure: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr(files, "png_bytes", broken)
    with pytest.raises(MemoryError):
        write_outputs(result, tmp_path)
    assert sorted(path.name for path in (tmp_path / "my_files").iterdir()) == ["result.json", "rows.csv"]


@pytest.mark.parametrize("way", ["file for folder", "file for scenario", "folder for file"])
def test_what_is_in_the_way_is_an_input_error(result: ScenarioResult, tmp_path: Path, way: str) -> None:
    out = tmp_path / "out"
    if way == "file for folder":
        out.write_text("", encoding="utf-8")
    elif way == "file for scenario":
        out.mkdir()
        (out / "my_files").write_text("", encoding="utf-8")
    else:
        (out / "my_files" / "rows.csv" / "x").mkdir(parents=True)
    with pytest.raises(InputError, match=r"cannot write .*give a folder that can be written to"):
        write_outputs(result, out)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_an_input_error(result: ScenarioResult, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="permission denied"):
        write_outputs(result, tmp_path / "out")


def test_an_interrupt_before_the_first_row_leaves_earlier_files(tmp_path: Path) -> None:
    result = run_scenario(load_scenario("scenarios/small.yaml"))
    written = write_outputs(result, tmp_path)
    before = {path: path.read_bytes() for path in written}
    assert write_outputs(replace(result, rows=(), checks=(), interrupted=True), tmp_path) == []
    assert {path: path.read_bytes() for path in written} == before
