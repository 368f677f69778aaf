from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simcollectives.errors import InputError
from simcollectives.scenario import Scenario, load_scenario

Loader = Callable[[str], Scenario]
Refuser = Callable[[str], list[str]]


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    """Load a scenario from its text."""

    def load_text(text: str) -> Scenario:
        path = tmp_path / "scenario.yaml"
        path.write_text(text, encoding="utf-8")
        return load_scenario(path)

    return load_text


@pytest.fixture
def refuse(load: Loader) -> Refuser:
    """Return the problems of a scenario's text, one text each."""

    def problems(text: str) -> list[str]:
        with pytest.raises(InputError) as caught:
            load(text)
        assert caught.value.source is not None
        return [str(problem) for problem in caught.value.problems]

    return problems
