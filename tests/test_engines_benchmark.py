"""benchmarks/event.py, small: both rings play the same, and memory grows with ranks, not with messages."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "event.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_event", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.benchmark
def test_both_rings_play_the_same_messages(script: ModuleType) -> None:
    barest, private, sharing, drawn = script.measure_speed(ranks=16, repeats=1)
    assert (barest.messages, private.messages) == (16 * 30, 16 * 30)
    assert private.simulated_seconds == pytest.approx(barest.simulated_seconds, rel=1e-12)
    # 126 rounds of 64 messages; four times 14 rounds inside nodes and 14 between.
    assert (sharing.messages, drawn.messages) == (126 * 64, 4 * 28 * 64)
    assert min(speed.messages_per_second for speed in (barest, private, sharing, drawn)) > 0


@pytest.mark.benchmark
def test_eight_messages_share_a_card(script: ModuleType) -> None:
    """126 rounds of 5 us and 8 x 64 KiB over a card of 50 GB/s."""
    seconds = script.event(script.sharing_job())[1]
    assert seconds == pytest.approx(126 * (5e-6 + 8 * 65536 / 50e9), rel=1e-12)


@pytest.mark.benchmark
def test_memory_grows_with_ranks_not_with_messages(script: ModuleType) -> None:
    few, more, longer = script.measure_memory((64, 256), (8, 128))
    assert (few.messages, more.messages, longer.messages) == (512, 2048, 8192)
    assert longer.peak_bytes < 1.5 * few.peak_bytes, "16 times the messages on as many ranks"
    assert more.peak_bytes > 2 * few.peak_bytes, "4 times the ranks"
    assert more.peak_bytes < 8 * few.peak_bytes


@pytest.mark.benchmark
def test_the_script_prints_its_figures(
    script: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["event.py", "--ranks", "8", "--repeats", "1"])
    monkeypatch.setattr(script, "measure_memory", lambda _ranks, _rounds: [script.Memory(8, 14, 4096)])
    script.main()
    text = capsys.readouterr().out
    assert "the first two rings have 8 ranks" in text
    for name in ("private resources", "symmetric sharing", "random capacities"):
        assert name in text
    assert "512" in text


@pytest.mark.benchmark
def test_everything_about_the_engines_is_printed(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT.with_name("engines.py")), "--repeats", "1", "--largest", "8"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "ring of 1 GiB on 4,096 ranks, every round played" in done.stdout
    assert "rabenseifner of 1 GiB on 1,048,576 ranks" in done.stdout
    assert "event == vectorized: " in done.stdout
    assert "cost of a message to its best" in done.stdout
    assert "private resources" in done.stdout


@pytest.mark.benchmark
def test_estimates_are_printed_beside_what_runs_took(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT.with_name("estimates.py")), "--most", "0.02"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert "part timed" in lines[1]
    assert {line.split()[0] for line in lines[2:]} == {
        "event",
        "vectorized",
        "lockstep",
        "closed_form",
        "one_port",
        "loggp",
    }
