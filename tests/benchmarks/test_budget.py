from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tomllib")

from benchmarks.budget import Size

from benchmarks import budget

SOURCE = '''"""What it is.

More of it.
"""

# Why.
def double(x):
    """Twice."""

    text = """a string
    is code"""
    return 2 * x
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "room" / "inner").mkdir(parents=True)
    (tmp_path / "__init__.py").write_text("X = 1\n")
    (tmp_path / "room" / "one.py").write_text(SOURCE)
    (tmp_path / "room" / "inner" / "two.py").write_text("Y = 2\n\n")
    return tmp_path


def test_blank_lines_and_docstrings_are_no_code() -> None:
    # 4 + 1 lines of docstrings, 2 blank; what is left: the comment, def, two of the string, return.
    assert budget.size_of(SOURCE) == Size(12, 5)


def test_rooms_are_counted_with_what_is_inside_them(package: Path) -> None:
    assert budget.sizes(package) == {
        "gobrrr": Size(1, 1), "room": Size(14, 6), "all": Size(15, 7),
    }  # fmt: skip


def test_more_lines_than_allowed_are_told() -> None:
    found = {"room": Size(14, 6), "all": Size(14, 6)}
    assert not list(budget.problems(found, found))
    (told,) = budget.problems(found, {**found, "room": Size(14, 5)})
    assert "room" in told and "1 too many" in told


def test_a_room_without_a_budget_and_a_budget_without_a_room_are_told() -> None:
    told = list(budget.problems({"new": Size(1, 1)}, {"gone": Size(1, 1)}))
    assert [sentence.split(":")[0] for sentence in told] == ["gone", "new"]


def test_writing_only_lowers(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "budget.toml"
    listed.write_text(budget.as_text({"room": Size(20, 3), "gone": Size(9, 9), "all": Size(20, 9)}))
    monkeypatch.setattr(budget, "LIST", listed)
    allowed = budget.lowered(budget.sizes(package), budget.budgets(listed))
    assert allowed == {"room": Size(14, 3), "all": Size(15, 7)}


def test_the_command_fails_where_there_are_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "budget.toml"
    known = budget.sizes()
    fewer = Size(known["all"].lines - 1, known["all"].code)
    listed.write_text(budget.as_text({**known, "all": fewer}))
    # Its defaults are read when it is defined.
    monkeypatch.setattr(budget, "budgets", lambda: {**known, "all": fewer})
    monkeypatch.setattr(sys, "argv", ["budget.py", "--check"])
    assert budget.main() == 1
    assert "all" in capsys.readouterr().err
