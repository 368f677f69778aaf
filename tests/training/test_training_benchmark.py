"""benchmarks/training.py, small: what it times are steps, and it prints its figures."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "training.py"


@pytest.mark.benchmark
def test_the_script_prints_its_figures(tmp_path: Path) -> None:
    small = ["--model", "gpt2", "--nodes", "2", "--points", "3", "--repeats", "1"]
    small += ["--sharded", "gpt2", "--sharded-nodes", "2", "--jittered-nodes", "3"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *small], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert re.match(r"gpt2 on 16 GPUs, ddp: \d+ operations, \d+ of them collectives\n", done.stdout)
    assert "3 bucket sizes" in done.stdout
    assert "gpt2 on 16 GPUs, fsdp2: " in done.stdout
    assert "gpt2, each of 24 ranks played with 1 % jitter: " in done.stdout
    assert all(name in done.stdout for name in ("whole", "program", "play", "prices"))
