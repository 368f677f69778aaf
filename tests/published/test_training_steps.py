"""Training steps that others have measured: the table of benchmarks/published.py, whose docstring has the sources.

The goal is 15 %. The one figure beyond it is reserved memory, which is more than what is allocated.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "published.py"
BEYOND = {"P21, 8 GPUs": 0.16}


@pytest.mark.benchmark
def test_predictions_are_within_fifteen_per_cent() -> None:
    script = runpy.run_path(str(SCRIPT))
    rows = [*script["torchtitan_rows"](), *script["oumi_rows"]()]
    assert sum(row.calibrated for row in rows) == 3
    for row in rows:
        assert abs(row.error) <= (1e-3 if row.calibrated else BEYOND.get(row.name, 0.15)), row
