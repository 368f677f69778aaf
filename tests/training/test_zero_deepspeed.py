"""What DeepSpeed communicates, entry by entry: real runs on gloo beside ours, and beside what was recorded of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.test_zero_traces import given_of
from tests.training.zero_models import RECORDED, entries, model_b, program_of, training_of

pytestmark = pytest.mark.torch

CASES = ("z2_norank", "z3_L12_live1200", "z3_persist100", "z3_tied")


def test_deepspeed_still_communicates_what_was_recorded(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    cases = [case for case in RECORDED["recorded"] if case["case"] in CASES]
    # And one that was not recorded.
    cases.append(cases[0] | {"case": "more", "blocks": 3, "accumulation": 3})
    given, events = tmp_path / "cases.json", tmp_path / "events.json"
    given.write_text(json.dumps(cases), encoding="utf-8")
    subprocess.run(
        [sys.executable, str(Path(__file__).parent / "zero_recorder.py"), str(given), str(events)],
        check=True,
        timeout=600,
    )
    found = json.loads(events.read_text(encoding="utf-8"))
    for case in cases:
        for step, iteration in (("first", 0), ("second", 1), ("third", None)):
            model = model_b(case["blocks"], tied=case.get("tied", False))
            training = training_of(model, case["world_size"], accumulation=case["accumulation"], iteration=iteration)
            program = program_of(case["zero_optimization"], training, **given_of(case))
            assert entries(program) == found[case["case"]][step], (case["case"], step)
