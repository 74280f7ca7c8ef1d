"""What is done as soon as a program has imported a module."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gobrrr.live.import_hook import when_imported


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
    leave = when_imported(module, lambda: pytest.fail("it has not run"))
    with pytest.raises(ValueError, match="mine"):
        importlib.import_module(module)
    leave()


def test_who_asks_whether_there_is_such_a_module_changes_nothing(module: str) -> None:
    """As transformers does of torch, before anything imports it."""
    seen: list[int] = []
    for number in range(3):
        when_imported(module, lambda number=number: seen.append(number))  # type: ignore[misc]
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.loader is not None and seen == []
    # What a loader is asked for besides is the real one's.
    assert spec.loader.get_filename(module).endswith("late_arrival.py")  # type: ignore[attr-defined]
    importlib.import_module(module)
    assert sorted(seen) == [0, 1, 2]


def test_what_fails_there_is_no_error_of_the_import(
    module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise AttributeError("a name that torch has no more")

    when_imported(module, fails)
    assert importlib.import_module(module).value == 3
    assert "a bug in gobrrr, not in the program" in capsys.readouterr().err


def test_an_import_that_failed_may_be_tried_again(module: str, tmp_path: Path) -> None:
    source = tmp_path / f"{module}.py"
    text = source.read_text()
    source.write_text("raise ValueError('mine')\n")
    seen: list[str] = []
    when_imported(module, lambda: seen.append("done"))
    with pytest.raises(ValueError, match="mine"):
        importlib.import_module(module)
    source.write_text(text)
    importlib.invalidate_caches()
    importlib.import_module(module)
    assert seen == ["done"]
