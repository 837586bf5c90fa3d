"""What an import costs and what it brings along. Every proc pays it."""

import ast
import json
import os
import subprocess
import sys

import pytest

import danaus
from architecture.source import PACKAGE, modules
from danaus import errors
from danaus.config import VERSION

# CPU time, because that of the wall depends on whatever else the machine does.
MEASURE = """
import sys, time
start = time.process_time()
{statement}
spent_s = time.process_time() - start
import json
print(json.dumps([spent_s, sorted(sys.modules)]))
"""
HEAVY = {"torch", "numpy", "pyarrow", "datafusion", "kubernetes"}
PUBLIC = sorted(set(danaus.__all__) - {"__version__"})


@pytest.fixture(scope="module")
def environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Lets the measured interpreters keep bytecode, as an installed package does, wherever the sources lie."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode"))}


def imported(statement: str, environ: dict[str, str]) -> tuple[float, set[str]]:
    """CPU seconds that `statement` takes in a fresh interpreter, and the modules loaded after it."""
    command = [sys.executable, "-c", MEASURE.format(statement=statement)]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, check=True, timeout=60)
    spent_s, names = json.loads(run.stdout)
    return spent_s, set(names)


def best_of(rounds: int, *statements: str, environ: dict[str, str]) -> list[float]:
    """The least CPU seconds each statement took, measured in turns; the first turn writes the bytecode."""
    turns = [[imported(statement, environ)[0] for statement in statements] for _ in range(rounds)]
    return [min(column) for column in zip(*turns, strict=True)]


def test_import_danaus_costs_next_to_nothing(environ: dict[str, str]) -> None:
    (spent_s,) = best_of(6, "import danaus", environ=environ)
    assert spent_s < 0.005


def test_import_danaus_brings_nothing_along(environ: dict[str, str]) -> None:
    _, before = imported("pass", environ)
    _, after = imported("import danaus", environ)
    assert after - before == {"danaus"}


def test_the_actor_api_costs_at_most_two_imports_of_asyncio(environ: dict[str, str]) -> None:
    api, asyncio = best_of(6, f"from danaus import {', '.join(PUBLIC)}", "import asyncio", environ=environ)
    assert api <= 2 * asyncio, f"{api * 1e3:.0f} ms, against {asyncio * 1e3:.0f} ms for asyncio"


def test_no_layer_of_the_runtime_loads_a_heavy_library(environ: dict[str, str]) -> None:
    layers = ("protocol", "transport", "runtime", "mesh", "config", "topology", "errors")
    names = [
        module.name for module in modules() if module.name.startswith(layers) and not module.name.endswith("__main__")
    ]
    _, loaded = imported("import " + ", ".join(f"danaus.{name}" for name in names), environ)
    assert not HEAVY & loaded


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_resolves(name: str) -> None:
    assert getattr(danaus, name) is not None
    assert name in dir(danaus)


def test_what_checkers_see_is_what_is_loaded() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("danaus.")
        for alias in node.names
    }
    homes = {name: f"danaus.{home}" for name, home in vars(danaus)["_HOMES"].items()}
    assert seen == homes
    assert sorted(homes) == PUBLIC


def test_every_exception_is_public() -> None:
    own = {name for name, value in vars(errors).items() if getattr(value, "__module__", "") == "danaus.errors"}
    assert {name for name in own if not name.startswith("_")} <= set(PUBLIC)


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Actr"):
        danaus.Actr  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_the_same_wherever_it_stands() -> None:
    assert danaus.__version__ == VERSION
