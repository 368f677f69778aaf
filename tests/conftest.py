"""One way to run property tests on a laptop and in CI."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from simcollectives.cli import main

# Deadlines measure the machine, not the code; in CI the same examples run every time.
settings.register_profile("default", deadline=None, max_examples=15)
settings.register_profile("ci", deadline=None, max_examples=15, derandomize=True)
# Scripts that other tests start where torch is installed.
TORCH_SCRIPTS = [str(path) for path in Path(__file__).parent.rglob("*_recorder.py")] + ["peers/torch_data_parallel.py"]
collect_ignore = [] if importlib.util.find_spec("torch") else TORCH_SCRIPTS
settings.load_profile("ci" if os.environ.get("CI") else "default")


Write = Callable[..., Path]
"""Lines, text or bytes, and a name if it matters, to a file that holds them."""


@dataclass
class Done:
    """What a command came to."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run the command line in a folder of its own, within this process."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["simcollectives", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Done(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file into a folder of its own."""

    def write(content: Sequence[str] | str | bytes, name: str = "run.log") -> Path:
        text = content if isinstance(content, str | bytes) else "\n".join(content) + "\n"
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
