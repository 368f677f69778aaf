"""The command import: exit codes, what it prints and writes, and that its scenarios run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Done

CONFIGS = Path(__file__).parent / "data" / "configs"


SMALL = ("--cluster", "dgx-h100", "--model", "gpt2", "--micro-batch", "1", "--sequence", "128")


def test_a_scenario_is_written_and_runs(call: Callable[..., Done], tmp_path: Path) -> None:
    made = call("import", str(CONFIGS / "accelerate_fsdp2.yaml"), *SMALL, "-o", "made.yaml")
    assert made.returncode == 0, made.stderr
    assert "fsdp2.reshard_after_forward" in made.stdout
    assert "wrote made.yaml" in made.stderr
    done = call("run", "made.yaml")
    assert done.returncode == 0, done.stderr
    assert "fsdp2" in done.stdout


def test_a_deepspeed_config_runs_with_every_option_in_its_row(call: Callable[..., Done], tmp_path: Path) -> None:
    made = call("import", str(CONFIGS / "ds_zero2.json"), *SMALL[:4], "--nodes", "2", "-o", "made.yaml")
    assert made.returncode == 0, made.stderr
    text = (tmp_path / "made.yaml").read_text("utf-8")
    assert "implementation: deepspeed" in text
    assert "reduce_bucket_size: 200000000  # " in text
    assert "round_robin_gradients: false  # DeepSpeed's default" in text
    assert call("run", "made.yaml").returncode == 0


def test_without_a_place_the_scenario_is_the_output(call: Callable[..., Done], tmp_path: Path) -> None:
    made = call("import", str(CONFIGS / "accelerate_hsdp.yaml"), *SMALL)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("# made by simcollectives import")
    assert "in the scenario" in made.stderr
    (tmp_path / "made.yaml").write_text(made.stdout, "utf-8")
    assert call("run", "made.yaml").returncode == 0


def test_values_are_shown_without_machine_and_model(call: Callable[..., Done], tmp_path: Path) -> None:
    shown = call("import", str(CONFIGS / "ds_zero2.json"))
    assert shown.returncode == 0, shown.stderr
    assert "reduce_bucket_size" in shown.stdout
    assert "no scenario: a scenario needs --cluster and --model, too" in shown.stderr
    refused = call("import", str(CONFIGS / "ds_zero2.json"), "-o", "made.yaml")
    assert refused.returncode == 2
    assert not (tmp_path / "made.yaml").exists()


def test_bad_input_writes_nothing(call: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stag": 2}, "train_batch_size": "many"}', "utf-8")
    made = call("import", "ds.json", *SMALL, "-o", "made.yaml")
    assert made.returncode == 2
    assert 'ds.json: $.zero_optimization.stag: this key is not known; did you mean "stage"?' in made.stderr
    assert "ds.json: $.train_batch_size" in made.stderr
    assert (made.stdout, (tmp_path / "made.yaml").exists()) == ("", False)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--mfu", "0%", "not a share of the peak"),
        ("--mfu", "x", "--mfu"),
        ("--peak", "3 kg", "--peak"),
        ("--peak", "0 TFLOP/s", '--peak: "0 TFLOP/s" is out of range'),
        ("--auto", "deepsped", '"deepspeed"?'),
    ],
)
def test_quantities_are_checked(call: Callable[..., Done], tmp_path: Path, option: str, value: str, said: str) -> None:
    made = call("import", str(CONFIGS / "accelerate_fsdp2.yaml"), *SMALL, option, value)
    assert made.returncode == 2
    assert said in made.stderr


def test_inputs_are_never_written_over(call: Callable[..., Done], tmp_path: Path) -> None:
    text = (CONFIGS / "accelerate_fsdp2.yaml").read_text("utf-8")
    (tmp_path / "a.yaml").write_text(text, "utf-8")
    made = call("import", "a.yaml", *SMALL, "-o", "./a.yaml")
    assert made.returncode == 2
    assert "one of the files that are read" in made.stderr
    assert (tmp_path / "a.yaml").read_text("utf-8") == text


def test_a_peak_that_the_machine_lacks_is_asked_for(call: Callable[..., Done], tmp_path: Path) -> None:
    config = str(CONFIGS / "accelerate_multi_gpu.yaml")
    refused = call("import", config, *SMALL, "-o", "made.yaml")
    assert refused.returncode == 2
    assert "the peak of a dgx-h100 in float32 is not known" in refused.stderr
    made = call("import", config, *SMALL, "--peak", "60 TFLOP/s", "-o", "made.yaml")
    assert made.returncode == 0, made.stderr
    assert call("run", "made.yaml").returncode == 0


def test_a_scenario_that_cannot_run_is_not_written(call: Callable[..., Done], tmp_path: Path) -> None:
    made = call("import", str(CONFIGS / "accelerate_fsdp2.yaml"), *SMALL[:4], "--sequence", "4096", "-o", "m.yaml")
    assert made.returncode == 2
    assert "learned positions for 1024" in made.stderr
    assert not (tmp_path / "m.yaml").exists()
