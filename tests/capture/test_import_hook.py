"""What is done as soon as a program has imported a module."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobrrr.capture.import_hook import when_imported


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that can be imported and was not."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "late_arrival.py").write_text("value = 3\n")
    importlib.invalidate_caches()
    before = list(sys.meta_path)
    yield "late_arrival"
    sys.modules.pop("late_arrival", None)
    assert sys.meta_path == before


def test_it_is_done_once_the_module_has_run(module: str) -> None:
    seen: list[int] = []
    when_imported(module, lambda: seen.append(sys.modules[module].value))
    assert seen == []
    importlib.import_module(module)
    importlib.reload(sys.modules[module])
    assert seen == [3]


def test_the_module_is_as_without_it(module: str) -> None:
    plain = importlib.import_module(module)
    spec, loader = plain.__spec__, plain.__loader__
    del sys.modules[module]
    when_imported(module, lambda: None)
    again = importlib.import_module(module)
    assert again.__spec__ == spec and type(again.__loader__) is type(loader)
    assert again.__spec__ is not None and again.__spec__.loader is again.__loader__


def test_of_a_module_that_is_there_it_is_done_at_once() -> None:
    seen: list[str] = []
    when_imported("sys", lambda: seen.append("there"))
    assert seen == ["there"]


def test_what_is_taken_back_is_not_done(module: str) -> None:
    seen: list[str] = []
    when_imported(module, lambda: seen.append("done"))()
    importlib.import_module(module)
    assert seen == []


def test_a_module_that_is_not_there_yet_may_come_later(module: str, tmp_path: Path) -> None:
    source = tmp_path / f"{module}.py"
    text = source.read_text()
    source.unlink()
    importlib.invalidate_caches()
    seen: list[str] = []
    when_imported(module, lambda: seen.append("done"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(module)
    source.write_text(text)
    importlib.invalidate_caches()
    importlib.import_module(module)
    assert seen == ["done"]


def test_an_error_in_the_module_is_the_modules(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("raise ValueError('mine')\n")
    when_imported(module, lambda: pytest.fail("it has not run"))
    with pytest.raises(ValueError, match="mine"):
        importlib.import_module(module)
