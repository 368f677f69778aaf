"""The house: every module stands on a floor, and imports only go down. `import simcollectives.cli` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "simcollectives"
TOP = "__init__"
FLOORS = {
    "errors": 0,
    "units": 0,
    "metrics": 0,
    "schedule": 1,
    "cluster": 2,
    "algorithms": 3,
    "engines": 4,
    "training": 5,
    "measured": 6,
    "interop": 6,
    "scenario": 7,
    "report": 8,
    "cli": 9,
    "pytest_plugin": 9,
    TOP: 10,
    "__main__": 10,
}
# The ground floor has an order of its own; elsewhere, neighbours on one floor do not know each other.
NEIGHBOURS = {("units", "errors"), ("metrics", "errors"), ("metrics", "units")}


def house_of(parts: tuple[str, ...]) -> str:
    """Return the top-level module of a dotted name below the package, given as its parts."""
    return parts[0] if parts else TOP


def imported(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield (line, top-level module) of each import from our package, wherever it stands in the file.

    `package` is the dotted name of the package that the file is in, which relative imports start from.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (parts := tuple(alias.name.split(".")))[0] == PACKAGE:
                    yield node.lineno, house_of(parts[1:])
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            parts = base + tuple(node.module.split(".") if node.module else ())
            if parts == (PACKAGE,):  # "from simcollectives import units"; __version__ is a constant and no floor
                for alias in node.names:
                    if alias.name != "__version__":
                        yield node.lineno, alias.name if alias.name in FLOORS else TOP
            elif parts[0] == PACKAGE:
                yield node.lineno, house_of(parts[1:])
        elif isinstance(node, ast.Call) and called_name(node.func) in ("import_module", "__import__"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and str(argument.value).split(".")[0] == PACKAGE:
                    yield node.lineno, house_of(tuple(str(argument.value).split(".")[1:]))


def called_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def violations(source: str, path: Path) -> list[str]:
    """Return what is wrong with the imports of the file `path`, which is relative to the folder of the package."""
    house = path.parts[0].removesuffix(".py")
    if house not in FLOORS:
        return [f"{path}: {house!r} is on no floor; give it one in FLOORS"]
    found = []
    for line, other in imported(ast.parse(source), (PACKAGE, *path.parts[:-1])):
        if other not in FLOORS:
            found.append(f"{path}:{line}: imports {other!r}, which is on no floor")
        elif other == house or (house, other) in NEIGHBOURS:
            continue
        elif FLOORS[other] >= FLOORS[house]:
            found.append(f"{path}:{line}: {house} (floor {FLOORS[house]}) imports {other} (floor {FLOORS[other]})")
    return found


def test_imports_only_go_down() -> None:
    folder = ROOT / PACKAGE
    files = sorted(folder.rglob("*.py"))
    assert files
    found = [text for file in files for text in violations(file.read_text("utf-8"), file.relative_to(folder))]
    assert not found, "\n".join(found)


UPWARD = [
    "import simcollectives.engines.event",
    "import simcollectives.engines as e",
    "import numpy, simcollectives.engines",
    "from simcollectives.engines import simulate",
    "from simcollectives.engines.event import simulate",
    "from simcollectives import engines",
    "from .. import engines",
    "from ..engines import simulate",
    "from ..engines.event import simulate",
    "def f():\n    from simcollectives.engines import simulate",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..engines import Run",
    "try:\n    import simcollectives.engines\nexcept ImportError:\n    pass",
    "import importlib\nimportlib.import_module('simcollectives.engines')",
    "import simcollectives",
    "import simcollectives as sc",
    "from simcollectives import Link",
    "from .. import Link",
]


@pytest.mark.parametrize("source", UPWARD)
def test_an_upward_import_is_found(source: str) -> None:
    assert len(violations(source, Path("algorithms/ring.py"))) == 1


DOWNWARD = [
    "import numpy as np",
    "import simcollectivesx",
    "from simcollectives.schedule import Round",
    "from simcollectives.errors import InputError",
    "from simcollectives import __version__, errors, units",
    "from simcollectives.algorithms.table import find",
    "from . import table",
    "from .table import find",
    "from .types import Algorithm",
    "from ..cluster.types import Link",
]


@pytest.mark.parametrize("source", DOWNWARD)
def test_a_downward_import_or_one_inside_a_package_is_not(source: str) -> None:
    assert violations(source, Path("algorithms/ring.py")) == []


@pytest.mark.parametrize(
    ("path", "source", "wrong"),
    [
        ("measured/fit.py", "from simcollectives.interop import trace", True),
        ("interop/trace.py", "from simcollectives.measured.fit import Fit", True),
        ("cli.py", "from simcollectives import pytest_plugin", True),
        ("pytest_plugin.py", "import simcollectives.cli", True),
        ("errors.py", "from simcollectives.units import parse_bytes", True),
        ("units.py", "from .errors import UnitError", False),
        ("metrics.py", "from simcollectives.units import parse_bytes", False),
        ("__init__.py", "from simcollectives.report import view", False),
        ("__init__.py", "from .cluster import Link", False),
        ("cluster/__init__.py", "from .types import Link", False),
        ("cluster/__init__.py", "from ..algorithms import ring", True),
        ("attic.py", "", True),
        ("attic/old.py", "", True),
        ("cli.py", "from simcollectives.attic import old", True),
    ],
)
def test_neighbours_and_unknown_modules(path: str, source: str, wrong: bool) -> None:
    assert bool(violations(source, Path(path))) == wrong


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    if not (ROOT / PACKAGE / "cli.py").exists():
        pytest.skip("there is no simcollectives.cli yet")
    code = "import sys, simcollectives.cli; print(*sorted({'matplotlib', 'scipy', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
