"""One way to run property tests on a laptop and in CI."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from hypothesis import settings

# Deadlines measure the machine, not the code; in CI the same examples run every time.
settings.register_profile("default", deadline=None, max_examples=25)
settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True)
# Scripts that other tests start where torch is installed.
TORCH_SCRIPTS = [str(path) for path in Path(__file__).parent.rglob("*_recorder.py")] + ["peers/torch_data_parallel.py"]
collect_ignore = [] if importlib.util.find_spec("torch") else TORCH_SCRIPTS
settings.load_profile("ci" if os.environ.get("CI") else "default")
