"""What the README shows is what the project does."""

import gzip
import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from simcollectives.interop.chrome_trace import trace_text
from simcollectives.interop.huggingface import read_model
from simcollectives.report.tables import measured_blocks, rendered, show
from simcollectives.scenario import Scenario, load_scenario, run_scenario
from simcollectives.scenario.keys import kind_of
from simcollectives.scenario.yaml_text import parse_document
from simcollectives.training import load_model, tensor_model, uniform_model
from simcollectives.training.model import Parameter
from tests.scenario.training_texts import GPT2, NODES, UNIFORM, training

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block_after(marker: str) -> str:
    """Content of the fenced block after an HTML comment."""
    found = re.search(rf"<!-- {marker} -->\n```\w*\n(.*?)```", README, re.DOTALL)
    if found is None:
        pytest.fail(f"README.md has no block after <!-- {marker} -->")
    return found.group(1)


def test_scenario_is_short() -> None:
    assert len(block_after("scenario").splitlines()) <= 10


@pytest.mark.parametrize(
    ("marker", "file"), [("", "scenarios/small.yaml"), ("training ", "scenarios/ddp_on_two_nodes.yaml")]
)
def test_output_is_what_run_prints(marker: str, file: str) -> None:
    assert block_after(f"{marker}scenario") == (ROOT / file).read_text(encoding="utf-8")
    command = [sys.executable, "-m", "simcollectives.cli", "run", file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert block_after(f"{marker}output").rstrip() == done.stdout.rstrip()


def test_python_examples_run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) == 3
    for code in examples:
        exec(code, {})
        printed = re.search(r"print\(.*\)  # (.*)", code)
        assert printed is not None
        assert capsys.readouterr().out.strip() == printed.group(1)


def test_models_of_ones_own_are_made_as_shown() -> None:
    assert read_model(GPT2).model.elements == load_model("gpt2").elements
    assert uniform_model(1.3e9, 24, 16).elements == 1_300_000_000
    assert tensor_model("mine", [Parameter("wte.weight", (50257, 768))]).elements == 50257 * 768
    for name in ("read_model", "uniform_model", "tensor_model", "Parameter"):
        assert f"{name}(" in README


def test_measured_sweeps_are_off_as_shown() -> None:
    path = ROOT / "scenarios" / "measured_ring_on_4_and_16_nodes.yaml"
    assert block_after("measured sweeps") in path.read_text(encoding="utf-8")
    scenario = load_scenario(path)
    assert isinstance(scenario, Scenario)
    result = run_scenario(replace(scenario, expectations=()))
    stream = io.StringIO()
    show(rendered(measured_blocks(result.measured), 120), stream, 120)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    shown = block_after("measured errors").splitlines()
    assert lines[1 : 1 + len(shown)] == shown


def test_measured_steps_are_written_as_shown(tmp_path: Path) -> None:
    text = training(UNIFORM, cluster=NODES)
    (tmp_path / "scenario.yaml").write_text(text, encoding="utf-8")
    trace = trace_text(run_scenario(load_scenario(tmp_path / "scenario.yaml")).steps[0].step)
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(trace.encode()))
    (tmp_path / "scenario.yaml").write_text(f"{text}\n{block_after('measured steps')}", encoding="utf-8")
    result = run_scenario(load_scenario(tmp_path / "scenario.yaml"))
    assert [one.world_size for one in result.measured_steps] == [8, 16]
    assert [check.passed for check in result.checks] == [True, True]


def test_every_file_that_is_named_exists() -> None:
    names = re.findall(r"\]\(([^)#:]+)\)", README) + re.findall(r"`(scenarios/[\w/]+\.yaml)`", README)
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_glossary_names_the_three_sizes() -> None:
    for word in ("`message_bytes`", "`algbw`", "`busbw`"):
        assert f"| {word} |" in README


def test_keys_that_are_shown_take_the_values_that_are_shown() -> None:
    sweep = parse_document(block_after("keys"), "README.md").data["sweep"]
    assert len(sweep) > 10
    for key, values in sweep.items():
        kind = kind_of(key)
        assert kind is not None, key
        assert len({kind.parse(value) for value in values}) == len(values), key
