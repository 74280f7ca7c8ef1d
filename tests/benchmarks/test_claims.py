"""The check of the figures in README and docs finds what is not so."""

import json
from pathlib import Path

import pytest

from benchmarks import claims


def claim(root: Path, **given: object) -> claims.Claim:
    row = {
        "text": "off by {median:.1%} of the step",
        "values": {"median": "summary.median"},
        "file": "x_2026-01-02.json",
        "where": ("README.md",),
        "command": "make bench ONLY=x",
        "fitted": "nothing",
        "result": {"summary": {"median": 0.0712}, "commit": "abc", "device": "a card"},
    }
    return claims.Claim("x", **{**row, **given})  # type: ignore[arg-type]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "README.md").write_text(
        "## What would make it faster\n\nFixes.\n\n"
        "## How far to trust it\n\nIt is off by 7.1 %\nof the step.\n"
    )
    return tmp_path


def test_a_text_that_says_what_the_file_does_passes(texts: Path) -> None:
    assert list(claims.problems([claim(texts)], texts)) == []


def test_a_text_that_says_something_else_is_found(texts: Path) -> None:
    found = list(claims.problems([claim(texts, result={"summary": {"median": 0.09}})], texts))
    assert any("README.md does not say" in sentence for sentence in found)


def test_a_figure_without_a_claim_is_found(texts: Path) -> None:
    found = list(claims.problems([], texts))
    assert len(found) == 1 and "7.1 %" in found[0]


def test_a_figure_over_fitted_and_unseen_rows_is_found(texts: Path) -> None:
    found = list(claims.problems([claim(texts, fitted="half of the rows")], texts))
    assert any("averages what was fitted" in sentence for sentence in found)


def test_a_change_of_the_code_behind_a_file_must_be_said(texts: Path) -> None:
    measured = {"summary": {"median": 0.0712}, "device": "a card", "commit": None}
    changed = {"result": {**measured, "sources": {"models": "0123"}}, "rooms": ("models",)}
    assert any("measure again" in s for s in claims.problems([claim(texts, **changed)], texts))
    assert list(claims.problems([claim(texts, **changed, stale=True)], texts)) == []
    same = {"result": {**measured, "sources": claims.SOURCES}, "rooms": ("models",)}
    assert list(claims.problems([claim(texts, **same)], texts)) == []
    assert any("is not" in s for s in claims.problems([claim(texts, **same, stale=True)], texts))


def test_a_path_that_is_not_in_the_file_is_an_error(texts: Path) -> None:
    with pytest.raises(claims.ClaimError, match=r"has no summary\.mean"):
        claim(texts, values={"median": "summary.mean"}).rendered()


def test_the_list_of_the_project_can_be_read_and_the_page_written() -> None:
    found = claims.read_claims()
    assert found
    page = claims.evidence(found)
    assert all(one.file in page for one in found)
    assert json.dumps(page)


def test_a_key_may_hold_dots(texts: Path) -> None:
    result = {"vector.float32": {"ratio": 0.954}, "rows": [{"a": 1}]}
    assert claim(texts, result=result).figure("vector.float32.ratio") == 0.954
    assert claim(texts, result=result).figure("rows.0.a") == 1
    with pytest.raises(claims.ClaimError, match=r"has no vector\.none"):
        claim(texts, result=result).figure("vector.none")


def test_a_figure_may_be_in_another_unit() -> None:
    assert claims.as_written(782_884_864, "1e-9*.2f") == "0.78"
    assert claims.as_written(0.0712, ".1%") == "7.1 %"
    assert claims.as_written(["a", "b"], "len") == "2"


def test_what_a_command_printed_is_no_claim(texts: Path) -> None:
    text = (texts / "README.md").read_text()
    (texts / "README.md").write_text(f"{text}\n```\nfaster 5.34x, 12 %\n```\n")
    assert list(claims.problems([claim(texts)], texts)) == []


def test_a_page_that_is_not_what_its_file_makes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claims.accuracy_problems() == []
    changed = tmp_path / "accuracy.md"
    changed.write_text(claims.ACCURACY.read_text().replace("%", "per cent", 1))
    monkeypatch.setattr(claims, "ACCURACY", changed)
    assert "is not what" in claims.accuracy_problems()[0]
