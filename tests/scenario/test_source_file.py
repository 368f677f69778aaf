from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from simcollectives.errors import InputError
from simcollectives.scenario.source_file import MAX_FILE_BYTES, decode, read_source


def refusal(path: Path | str) -> str:
    with pytest.raises(InputError) as caught:
        read_source(path)
    assert caught.value.source == os.fspath(path)
    return str(caught.value.problems[0])


def test_utf8_with_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes("\ufefftitle: µs\r\n".encode())
    assert read_source(path) == "title: µs\r\n"


def test_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "x.yaml") == "there is no such file; check the path"
    assert "nor a folder" in refusal(tmp_path / "y" / "x.yaml")


def test_a_folder_names_the_scenarios_in_it(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").touch()
    assert refusal(tmp_path) == "this is a folder; name a scenario file (.yaml) in it: it has ring.yaml"


def test_a_path_that_no_file_system_takes() -> None:
    assert refusal("a\0b") == "a file's name holds no zero byte; check the path"
    assert "check the path" in refusal("x" * 5000)


def test_a_large_file_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.yaml"
    with path.open("wb") as stream:
        stream.truncate(100 * 10**6)
    assert refusal(path) == "100000000 bytes; a scenario file has at most 1048576 (1 MiB): is this the right file?"


def test_a_file_of_just_1_mib_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"#" * MAX_FILE_BYTES)
    assert len(read_source(path)) == MAX_FILE_BYTES


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system here")
def test_pipes_and_devices_do_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a file" in refusal(tmp_path / "pipe")
    for device in ("/dev/zero", "/dev/null"):
        assert "not a file" in refusal(device)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.touch(mode=0o000)
    assert "permissions" in refusal(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"title: x\ndescription: caf\xe9\n", "line 2: byte 0xe9 at line 2 is not UTF-8: save the file as UTF-8"),
        (b"\x7fELF\x00\x01", "line 1: byte 0x00: this is a binary file; a scenario is YAML text, saved as UTF-8"),
        ("title: x".encode("utf-16"), "the file is UTF-16 text; save it as UTF-8"),
        (b"\xfe\xff" + "title: x".encode("utf-16-be"), "the file is UTF-16 text; save it as UTF-8"),
        ("title: x".encode("utf-32"), "the file is UTF-32 text; save it as UTF-8"),
        (b"\x00\x00\xfe\xff" + "title: x".encode("utf-32-be"), "the file is UTF-32 text; save it as UTF-8"),
        (b"title: x\n\x1b[31m", "line 2: the control character U+001B cannot stand in a YAML file; take it out"),
    ],
)
def test_what_is_not_text(content: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(content, "x.yaml")
    assert [str(problem) for problem in caught.value.problems] == [message]


@pytest.mark.parametrize("path", [5, None, ["x.yaml"], b"x.yaml"])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(InputError, match="is not the name of a file; write the path of a scenario, as text"):
        read_source(path)
