"""What benchmarks import from gobrrr and from each other is there: most run rarely."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(ROOT.glob("benchmarks/**/*.py"))


def imported(path: Path) -> set[tuple[str, str]]:
    """Modules of this project and the names that a file imports from them."""
    return {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0
        if node.module.partition(".")[0] in ("gobrrr", "benchmarks")
        for alias in node.names
    }


def is_there(module: str, name: str) -> bool:
    if hasattr(importlib.import_module(module), name):
        return True
    # A submodule that nothing has imported yet.
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.torch
@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_imported_is_there(path: Path) -> None:
    for module, name in sorted(imported(path)):
        assert is_there(module, name), f"{path.name}: no {name} in {module}"


def test_a_name_that_is_not_there_is_seen() -> None:
    assert is_there("gobrrr.devices", "identify")
    assert not is_there("gobrrr.devices", "no_such_name")
