"""The check of the figures in README and docs finds what is not so."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomllib

from benchmarks import claims, figures, history, recompute

PAGE = ("docs/page.md",)


def of_age(found: claims.Claim, root: Path) -> list[str]:
    """Without what stands in the README, where nothing stale may be stated."""
    return [s for s in claims.problems([found], root) if "without a claim" not in s]


def claim(root: Path, **given: object) -> claims.Claim:
    row = {
        "text": "off by {median:.1%} of the step",
        "values": {"median": "summary.median"},
        "file": "x_2026-01-02.json",
        "where": ("README.md",),
        "command": "make bench ONLY=x",
        "fitted": "nothing",
        "result": {"summary": {"median": 0.0712}, "device": "a card", "sources": claims.SOURCES},
    }
    return claims.Claim("x", **{**row, **given})  # type: ignore[arg-type]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    text = (
        "## What would make it faster\n\nFixes.\n\n"
        "## How far to trust it\n\nIt is off by 7.1 %\nof the step.\n"
    )
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/page.md"):
        (tmp_path / name).write_text(text)
    return tmp_path


OLDER = {"summary": {"median": 0.0712}, "device": "a card", "sources": {}, "commit": "0123456"}


def test_what_is_stale_is_not_stated_in_the_readme(texts: Path) -> None:
    (found,) = claims.problems([claim(texts, rooms=("fixes",), result=OLDER)], texts)
    assert "the README states" in found


def test_what_is_stale_is_marked_at_the_end_of_its_paragraph(texts: Path) -> None:
    page = texts / "docs/page.md"
    page.write_text("Figures.\n\n- It is off by 7.1 %\n  of the step.\n- No more.\n")
    old = claim(texts, rooms=("fixes",), result=OLDER, where=PAGE)
    (found,) = of_age(old, texts)
    assert "not marked" in found
    marked = claims.marked_texts([old], texts)["docs/page.md"]
    lines = marked.split("\n")
    assert lines[4] == "  *Measured on 0123456; the code has changed since.*"
    assert lines[5] == "- No more."
    page.write_text(marked)
    assert of_age(old, texts) == []
    # Measured again, the mark has to go.
    new = claim(texts, rooms=("fixes",), where=PAGE)
    (found,) = of_age(new, texts)
    assert "mark stands where nothing is" in found
    assert "Measured" not in claims.marked_texts([new], texts)["docs/page.md"]


def test_a_paragraph_that_is_stale_in_part_says_so_and_a_table_at_its_end() -> None:
    told = {"rooms": ("fixes",), "text": "{median:.1%} of it"}
    both = [claim(Path(), **told, result=OLDER), claim(Path(), text="and more", values={})]
    assert "*Measured in part on 0123456;" in claims.marked("7.1 % of it\nand more\n", both)
    table = "| a | b |\n|---|---|\n| 7.1 % of it | c |\n\nText.\n"
    marked = claims.marked(table, both)
    assert marked.split("\n")[3:5] == ["", "*Measured on 0123456; the code has changed since.*"]
    assert claims.marked(marked, both) == marked
    assert claims.marked(marked, both[1:]) == table


LISTED = tomllib.loads(claims.LIST.read_text())
RESULTS = sorted({row["file"] for name, row in LISTED.items() if name != "condition"})


@pytest.mark.torch
@pytest.mark.parametrize("name", RESULTS)
def test_a_summary_that_its_rows_do_not_give_is_found(name: str) -> None:
    pytest.importorskip("torch")
    result = json.loads((claims.RESULTS / name).read_text())
    again = recompute.recomputed(result)
    assert list(recompute.differences(result, again)) == []
    if not again:
        pytest.skip("nothing makes its summary again")

    def wrong(value: object, made: object) -> object:
        if isinstance(value, dict) and isinstance(made, dict):
            return {**value, **{k: wrong(value[k], made[k]) for k in made.keys() & value.keys()}}
        if isinstance(value, list) and isinstance(made, (list, tuple)):
            return [*map(wrong, value, made)]
        return value + 1 if isinstance(value, (int, float)) else value

    told = list(recompute.differences(wrong(result, again), again))
    assert told and all("its rows give" in each for each in told)


def test_no_file_is_added_to_those_without_rows() -> None:
    for name in [*recompute.WITHOUT_ROWS, *recompute.OLDER_ROWS]:
        (day,) = re.findall(r"\d{4}-\d\d-\d\d", name)
        assert day <= recompute.NO_FILE_AFTER


def test_what_is_stated_is_measured_or_made_again() -> None:
    again = {"summary": {"median": 0.1}}
    assert recompute.rests_on_rows("summary.median", again)
    assert recompute.rests_on_rows("rows.0.step_s / summary.median", again)
    assert not recompute.rests_on_rows("summary.worst", again)
    assert not recompute.rests_on_rows("rows.0.step_s / said.median", again)


def test_a_text_that_says_what_the_file_does_passes(texts: Path) -> None:
    assert list(claims.problems([claim(texts)], texts)) == []


def test_a_text_that_says_something_else_is_found(texts: Path) -> None:
    other = {"summary": {"median": 0.09}, "sources": claims.SOURCES}
    found = list(claims.problems([claim(texts, result=other)], texts))
    assert any("README.md does not say" in sentence for sentence in found)


def test_a_figure_without_a_claim_is_found(texts: Path) -> None:
    found = list(claims.problems([], texts))
    assert len(found) == 1 and "7.1 %" in found[0]


def test_a_figure_over_fitted_and_unseen_rows_is_found(texts: Path) -> None:
    for fitted in ("half of the rows", "only half of the rows"):
        found = list(claims.problems([claim(texts, fitted=fitted)], texts))
        assert any("averages what was fitted" in sentence for sentence in found)


@pytest.mark.parametrize("fitted", ["in view", "all"])
def test_what_was_fitted_or_seen_must_be_said_in_the_text(texts: Path, fitted: str) -> None:
    (silent,) = claims.problems([claim(texts, fitted=fitted)], texts)
    assert "README.md does not say what was fitted" in silent
    words = "chosen with these in view"
    told = claim(texts, fitted=fitted, disclosed=words)
    assert len(list(claims.problems([told], texts))) == 1
    (texts / "README.md").write_text((texts / "README.md").read_text() + f"\n{words}\n")
    assert list(claims.problems([told], texts)) == []
    assert words in claims.evidence([told])


def test_a_file_named_beside_a_figure_is_the_one_that_it_is_read_from(texts: Path) -> None:
    page = texts / "docs/page.md"
    row = "| error | off by 7.1 % of the step | `{}` |\n"
    page.write_text("| a | b | c |\n|---|---|---|\n" + row.format("x_2026-01-02.json"))
    assert list(claims.problems([claim(texts, where=PAGE)], texts))[1:] == []
    page.write_text(page.read_text() + "| other | none | `x_2026-01-01.json` |\n")
    assert list(claims.problems([claim(texts, where=PAGE)], texts))[1:] == []
    page.write_text(row.format("x_2026-01-01.json"))
    found = list(claims.problems([claim(texts, where=PAGE)], texts))
    assert "names x_2026-01-01.json beside what is read from x_2026-01-02.json" in found[-1]


def test_a_claim_is_stale_once_the_code_behind_its_file_has_changed(texts: Path) -> None:
    measured = {"summary": {"median": 0.0712}, "device": "a card", "commit": None}
    changed = claim(
        texts, result={**measured, "sources": {"prediction": "0123"}}, rooms=("prediction",)
    )
    assert changed.stale and changed.changed_since() == ("prediction",)
    assert not claim(
        texts, result={**measured, "sources": claims.SOURCES}, rooms=("prediction",)
    ).stale


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository of two commits, in which claims look for theirs."""
    root = tmp_path / "clone"
    root.mkdir()
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    for message in ("one", "two"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", message], check=True)
    monkeypatch.setattr(history, "ROOT", root)
    history.in_history.cache_clear()
    yield root
    history.in_history.cache_clear()


def test_what_nothing_tells_the_age_of_is_stale(texts: Path, clone: Path) -> None:
    measured = {"summary": {"median": 0.0712}, "device": "a card"}
    for commit in ("0123456", None):
        assert claim(texts, result={**measured, "commit": commit}, rooms=("prediction",)).stale
    lost = claim(texts, result={**measured, "commit": "0123456"}, rooms=("prediction",))
    assert "commit 0123456 (commit not in this history), a card; **stale**" in claims.evidence(
        [lost]
    )
    assert "commit unknown" in claims.evidence([claim(texts, result=measured)])
    first = history.git("rev-parse", "HEAD~1")
    known = claim(texts, result={**measured, "commit": first}, rooms=("prediction",))
    assert list(claims.problems([known], texts)) == []
    assert f"commit {first[:7]}, a card" in claims.evidence([known])


@pytest.mark.torch
def test_without_the_whole_history_a_sentence_says_so(
    tmp_path: Path, clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    shallow = tmp_path / "shallow"
    asked = ["git", "clone", "-q", "--depth", "1", f"file://{clone}", str(shallow)]
    subprocess.run(asked, check=True)
    monkeypatch.setattr(history, "ROOT", shallow)
    with pytest.raises(history.NoHistoryError, match="shallow"):
        history.in_history("0123456")
    unpacked = clone / "sources"
    unpacked.mkdir()
    monkeypatch.setattr(history, "ROOT", unpacked)
    monkeypatch.setattr("sys.argv", ["claims.py", "--check"])
    assert claims.main() == 2
    assert "is not a clone of gobrrr's repository" in capsys.readouterr().err


def test_a_room_that_does_not_exist_is_an_error(texts: Path) -> None:
    with pytest.raises(claims.ClaimError, match="no room attic"):
        claim(texts, rooms=("attic",)).changed_since()


def test_a_path_that_is_not_in_the_file_is_an_error(texts: Path) -> None:
    with pytest.raises(claims.ClaimError, match=r"has no summary\.mean"):
        claim(texts, values={"median": "summary.mean"}).rendered()


@pytest.mark.torch
def test_the_list_of_the_project_can_be_read_and_the_page_written() -> None:
    pytest.importorskip("torch")
    found, conditions = claims.read_claims(), claims.read_conditions()
    assert found and conditions
    page = claims.evidence(found, conditions)
    assert all(one.file in page for one in found)
    assert all(one.why in page for one in conditions)
    assert json.dumps(page)


def test_a_key_may_hold_dots(texts: Path) -> None:
    result = {"vector.float32": {"ratio": 0.954}, "rows": [{"a": 1}]}
    assert claim(texts, result=result).figure("vector.float32.ratio") == 0.954
    assert claim(texts, result=result).figure("rows.0.a") == 1
    with pytest.raises(claims.ClaimError, match=r"has no vector\.none"):
        claim(texts, result=result).figure("vector.none")


def test_a_figure_may_be_in_another_unit() -> None:
    assert figures.as_written(782_884_864, "1e-9*.2f") == "0.78"
    assert figures.as_written(0.0712, ".1%") == "7.1 %"
    assert figures.as_written(["a", "b"], "len") == "2"


def test_of_a_list_a_figure_is_a_number_or_its_range() -> None:
    took = [4.648, 5.176, 4.348]
    assert figures.as_written(took, ".2f s") == "4.35 to 5.18 s"
    assert figures.as_written(took, "max .1f s") == "5.2 s"
    assert figures.as_written(took, "len runs") == "3 runs"
    assert figures.as_written([0.1, -0.05, 0.2, None], "within 0.1") == "2"
    assert figures.as_written(["a", "b", "a"], "distinct") == "2"
    assert figures.as_written(took, "median .2f s") == "4.65 s"
    assert figures.as_written(418, "on one host") == "418 on one host"


def test_a_path_may_name_all_of_a_list_or_those_with_a_value(texts: Path) -> None:
    rows = [{"case": {"fault": "gc"}, "error": 0.1}, {"case": {"fault": "late"}, "error": 0.3}]
    found = claim(texts, result={"rows": rows})
    assert found.figure("rows.*.error") == [0.1, 0.3]
    assert found.figure("rows.[case.fault=late].*.error") == [0.3]
    assert found.figure("rows.*.error / rows.0.error") == pytest.approx([1.0, 3.0])
    assert found.figure("rows.*.error / rows.*.error") == 1.0
    assert found.figure("rows.0.case.*") == ["gc"]
    with pytest.raises(claims.ClaimError, match="has no rows"):
        found.figure("rows.*.miss")


@pytest.mark.parametrize(
    "figure",
    ["7.2 %", "84 of 100 jobs", "17 of the 24", "0.77 GB", "23 s", "2.0 ms", "53 MB/s", "50 us",
     "64 KiB", "3.03x", "16 times", "tau 0.93", "2 minutes"],
)  # fmt: skip
def test_figures_of_any_unit_need_a_claim_or_a_condition(texts: Path, figure: str) -> None:
    text = (texts / "README.md").read_text()
    (texts / "README.md").write_text(f"It took {figure}.\n{text}")
    (found,) = claims.problems([claim(texts)], texts)
    assert "a figure without a claim" in found
    excused = claims.Condition("README.md", f"took {figure}", "a setting")
    assert list(claims.problems([claim(texts)], texts, [excused])) == []


def test_names_dates_and_versions_are_no_figures(texts: Path) -> None:
    text = (texts / "README.md").read_text()
    words = "PyTorch 2.6, Python 3.10 to 3.13, arXiv:2507.03114, 2026-11-23, 3 spikes, x_1.5.json"
    (texts / "README.md").write_text(f"{words}\n{text}")
    assert list(claims.problems([claim(texts)], texts)) == []


def test_a_condition_must_stand_in_its_text(texts: Path) -> None:
    gone = claims.Condition("README.md", "at most 9 s", "a limit")
    (found,) = claims.problems([claim(texts)], texts, [gone])
    assert "README.md does not say 'at most 9 s'" in found


def test_the_page_calls_a_percentile_what_it_is(texts: Path) -> None:
    page = claims.evidence([claim(texts, p90="summary.median:.0%", spread="summary.median:.1%")])
    assert "- 90th percentile: 7 %" in page and "- spread: 7.1 %" in page
    assert "worst" not in page


def test_an_example_with_figures_must_be_said_to_be_one(texts: Path) -> None:
    text = (texts / "README.md").read_text()
    (texts / "README.md").write_text(f"{text}\n```\nfaster 5.34x, 12 %\nand 3.1 ms\n```\n")
    (found,) = claims.problems([claim(texts)], texts)
    assert "5.34x" in found and "example" in found
    printed = claims.Condition("README.md", "faster 5.34x", "what one run printed")
    assert list(claims.problems([claim(texts)], texts, [printed])) == []


def test_figures_in_a_benchmark_s_readme_need_a_claim(texts: Path) -> None:
    readme = texts / "benchmarks/x/README.md"
    readme.parent.mkdir(parents=True)
    readme.write_text("It took 23 s.\n")
    (found,) = claims.problems([claim(texts)], texts)
    assert found.startswith("benchmarks/x/README.md: a figure without a claim")


def test_a_page_that_is_not_what_its_file_makes_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claims.accuracy_problems() == []
    changed = tmp_path / "accuracy.md"
    changed.write_text(claims.ACCURACY.read_text().replace("%", "per cent", 1))
    monkeypatch.setattr(claims, "ACCURACY", changed)
    assert "is not what" in claims.accuracy_problems()[0]
