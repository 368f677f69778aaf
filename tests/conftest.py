"""One way to run property tests on a laptop and in CI."""

from __future__ import annotations

import os

from hypothesis import settings

# Deadlines measure the machine, not the code; in CI the same examples run every time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
