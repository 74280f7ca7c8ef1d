"""Intervals of predicted steps come from other rows than those that score them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from benchmarks.intervals import CONSTANTS, FEWEST, Constant, Row

from benchmarks import claims, intervals
from gobrrr.prediction.step import interval_table

TOLD = {"x": (0.9, 1.1, "rows"), "ANY_HOST": (1.0, 3.0, "rows")}


def of(kind: str, fit: bool | None, *ratios: float, host: float = 0.0) -> list[Row]:
    """Two rows of a group each."""
    return [Row("x", kind, "", str(n // 2), fit, ratio, host) for n, ratio in enumerate(ratios)]


def test_the_intervals_in_the_code_are_those_that_the_rows_give() -> None:
    assert intervals.table() == interval_table.INTERVALS
    assert {each.name: [*each.files] for each in CONSTANTS if each.rows} == interval_table.FILES


def test_no_group_is_in_both_halves_of_a_constant() -> None:
    for constant in CONSTANTS:
        halves: dict[str, set[bool | None]] = {}
        for row in intervals.rows_of(constant):
            # Groups of any host are hosts: its halves are of programs.
            group = row.name if row.constant == "ANY_HOST" else row.group
            halves.setdefault(group, set()).add(row.fit)
        assert all(len(own) == 1 for own in halves.values()), constant.name


def test_what_is_scored_changes_no_interval() -> None:
    fit = of("a", True, *(0.9, 1.0, 1.1) * 4)
    near, far = (fit + of("a", False, *[ratio] * FEWEST) for ratio in (1.0, 9.0))
    assert intervals.taken(near) == intervals.taken(far)
    scored = intervals.summary(far, TOLD)["kinds"]["x, a"]
    assert scored == {"n": FEWEST, "inside": 0, "holds": 0.0}


def test_few_rows_give_wide_extremes_and_no_share() -> None:
    rows = of("a", True, 0.5, 2.0) + of("a", False, 1.0, 1.0)
    low, high, n = intervals.taken(rows)
    assert low < 0.5 and high > 2.0 and n == 2
    found = intervals.summary(rows, TOLD)
    assert found["kinds"]["x, a"] == {"n": 2, "inside": 2, "holds": None}
    assert found["with_a_share"] == 0


def test_without_halves_a_row_is_scored_with_other_kinds_and_groups() -> None:
    usual = [0.9, 1.0, 1.1, 1.0] * 5
    odd = of("b", None, *usual[:-2], 5.0, 5.0)
    found = intervals.summary(of("a", None, *usual) + odd, TOLD)["kinds"]
    # Not even what it is twice is in the interval that scores it.
    assert found["x, b"] == {"n": 20, "inside": 18, "holds": 0.9}


def test_an_interval_reaches_up_to_a_slow_host() -> None:
    rows = of("a", False, 2.0, 2.0, host=0.7) + of("b", False, 2.0, 2.0, host=0.5)
    found = intervals.summary(rows, TOLD)["kinds"]
    assert [found[f"x, {kind}"]["inside"] for kind in "ab"] == [2, 0]


def test_a_claim_may_not_call_the_rows_of_an_interval_free_of_fitting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "RESULTS", tmp_path)
    (tmp_path / "README.md").write_text("")
    # A run of another day has the same rows.
    (tmp_path / "x_2026-01-01.json").write_text(json.dumps({"topic": "x"}))
    result = {"topic": "x", "within": 0.8, "unseen": {"within": 0.7}, "sources": claims.SOURCES}
    source = Constant("WIDE", ("x_2026-01-01.json",), "one half", ("unseen",))

    def found(path: str, fitted: str) -> list[str]:
        made = claims.Claim(
            "held", "{share:.0%} hold", {"share": path}, "x_2026-02-02.json", (), "make", fitted,
            result=result,
        )  # fmt: skip
        return [*claims.problems([made], tmp_path, constants=[source])]

    (said,) = found("within", "nothing")
    assert said.startswith("held: says that nothing was fitted") and "WIDE" in said
    assert found("unseen.within", "nothing") == []
    assert found("within", "interval") == []
