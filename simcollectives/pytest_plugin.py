"""pytest plugin: every expectation of a scenario file is a test.

``pytest --simcollectives scenarios/`` collects the YAML files below a folder that have an ``expect:`` block. A failure
names the value, the bound, the tolerance and the line. A file that is not a valid scenario is one failing test.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from simcollectives.scenario import AnyScenario, Check

_EXPECT = re.compile(rb"^[\"']?expect[\"']?\s*:", re.MULTILINE)
_SCENARIO = (
    re.compile(rb"^[\"']?cluster[\"']?\s*:", re.MULTILINE),
    re.compile(rb"^[\"']?(collective|training|numerics)[\"']?\s*:", re.MULTILINE),
)
_READ_AT_MOST = 1 << 20


class ExpectationError(Exception):
    """An expectation does not hold."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --simcollectives."""
    parser.getgroup("simcollectives").addoption(
        "--simcollectives",
        action="store_true",
        help="collect scenario files (*.yaml with an expect: block) as tests",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Take YAML files that have an ``expect:`` block, or look like scenarios otherwise."""
    if not parent.config.getoption("--simcollectives") or file_path.suffix not in (".yaml", ".yml"):
        return None
    with file_path.open("rb") as file:
        start = file.read(_READ_AT_MOST)
    # A misspelt key must not hide a scenario: what has a cluster and something that runs on it is one, and is checked.
    looks_like_one = _EXPECT.search(start) or all(key.search(start) for key in _SCENARIO)
    return ScenarioFile.from_parent(parent, path=file_path) if looks_like_one else None


class ScenarioFile(pytest.File):
    """A scenario file; run once, when its first test is."""

    def collect(self) -> Iterator[pytest.Item]:
        """One test an expectation, or one that fails with all the problems of the file."""
        from simcollectives.errors import InputError

        try:
            expectations = self.scenario.expectations
        except InputError as error:
            yield InvalidScenario.from_parent(self, name="valid", error=error)
            return
        for index, expectation in enumerate(expectations):
            name = expectation.text if len(expectation.text) <= 100 else f"{expectation.text[:97]}..."
            yield ExpectationTest.from_parent(self, name=name, index=index, line=expectation.line)

    @cached_property
    def scenario(self) -> "AnyScenario":
        """The loaded file."""
        from simcollectives.scenario import load_scenario

        return load_scenario(self.path)

    @cached_property
    def checks(self) -> tuple["Check", ...]:
        """The outcome of every expectation."""
        from simcollectives.errors import InputError
        from simcollectives.scenario import run_scenario

        result = run_scenario(self.scenario)
        if result.interrupted:
            raise KeyboardInterrupt
        if result.problems:
            raise InputError(result.problems, result.scenario.file)
        return result.checks


class _ScenarioItem(pytest.Item):
    line: int | None = None

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the test is: pytest counts lines from 0."""
        return self.path, None if self.line is None else self.line - 1, self.name

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the message alone where the fault is the scenario's."""
        from simcollectives.errors import InputError

        if isinstance(excinfo.value, ExpectationError | InputError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)


class ExpectationTest(_ScenarioItem):
    """One expectation."""

    def __init__(self, *, index: int, line: int | None, **rest: Any) -> None:
        super().__init__(**rest)
        self.index, self.line = index, line

    def runtest(self) -> None:
        """Run the scenario, unless an earlier test has, and look at this expectation.

        Raises:
            ExpectationError: it does not hold.
        """
        if not isinstance(self.parent, ScenarioFile):
            raise TypeError("an expectation belongs to a scenario file")
        check = self.parent.checks[self.index]
        if not check.passed:
            raise ExpectationError(f"{self.path}: {check.message}\n  {check.text}")


class InvalidScenario(_ScenarioItem):
    """A file that cannot be loaded."""

    def __init__(self, *, error: Exception, **rest: Any) -> None:
        super().__init__(**rest)
        self.error = error

    def runtest(self) -> None:
        """Fail with all problems of the file."""
        raise self.error
