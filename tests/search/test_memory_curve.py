"""The curve of memory against time, from trials with round numbers: no torch, no clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.fixes.facts import facts, product
from tests.reports.test_fixes import DATA

from gobrrr.diagnosis.fix_schema import FixSummary, Ratio, Verification
from gobrrr.diagnosis.storage import load
from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.compilation.memory_budget import FAMILY, MEMORY_BUDGET_FIXES, recomputed_s
from gobrrr.fixes.fix import Prospect, RuledOut
from gobrrr.reports.html import report_html
from gobrrr.reports.markdown import render
from gobrrr.reports.memory_table import memory_lines
from gobrrr.reports.terminal import report_text
from gobrrr.search.found import Found, Tried, write_findings
from gobrrr.search.memory_curve import memory_curve
from gobrrr.search.options import Options, select

NAMES_OF_BUDGETS = [fix.name for fix in MEMORY_BUDGET_FIXES]
BY_NAME = {fix.name: fix for fix in FIXES}
MB = 1_000_000


def tried(name, speedup, megabytes, verdict="same", before_mb=100):
    """A fix and its trial: 1 s as it was, an interval of 2 % to either side."""
    ratio = Ratio(median=speedup, low=speedup * 0.98, high=speedup * 1.02)
    trial = Verification(
        fixes=[name], verdict=verdict, speedup=ratio, before_s=1.0, after_s=1.0 / speedup,
        step_memory_bytes=None if megabytes is None else megabytes * MB,
        step_memory_before_bytes=before_mb * MB,
    )  # fmt: skip
    return BY_NAME[name], trial


CURVE = [
    tried("compile", 2.0, 80, "faster"),
    tried("memory_budget_75", 1.6, 60, "faster"),
    tried("memory_budget_50", 1.25, 70, "faster"),  # slower than 75, and larger
    tried("memory_budget_25", 1.0, 40),
    tried("memory_budget_10", 0.8, 30, "failed"),
]


def test_points_have_their_price_and_what_they_save_and_the_front_is_told():
    curve = memory_curve(CURVE)
    assert curve.reference == "compile"
    by_name = {point.fix: point for point in curve.points}
    # The failed setting computes something else.
    assert list(by_name) == ["", "compile", "memory_budget_50", "memory_budget_75",
                             "memory_budget_25"]  # fmt: skip
    assert [p.fix for p in curve.points if p.on_front] == ["compile", "memory_budget_75",
                                                           "memory_budget_25"]  # fmt: skip
    cheap = by_name["memory_budget_75"]
    assert cheap.saved_bytes == 20 * MB
    assert cheap.price.median == pytest.approx(1.25)  # 2.0 / 1.6
    assert cheap.price.low == pytest.approx(1.25 * 0.98 / 1.02)
    assert cheap.price.high == pytest.approx(1.25 * 1.02 / 0.98)
    assert cheap.step_s == pytest.approx(1 / 1.6)
    assert by_name["compile"].price.low == by_name["compile"].price.high == 1.0
    assert by_name[""].saved_bytes == -20 * MB and by_name[""].price.median == pytest.approx(2.0)


def test_equal_points_are_both_on_the_front():
    curve = memory_curve([tried("compile", 2.0, 80), tried("memory_budget_75", 2.0, 80)])
    assert [p.fix for p in curve.points if p.on_front] == ["compile", "memory_budget_75"]


def test_without_compile_the_program_as_it_is_is_the_reference():
    curve = memory_curve(CURVE[1:])
    assert curve.reference == ""
    prices = {point.fix: point.price.median for point in curve.points}
    assert prices["memory_budget_75"] == pytest.approx(1 / 1.6)


def test_there_is_no_curve_without_a_setting_whose_memory_is_known():
    assert memory_curve(CURVE[:1]) is None
    assert memory_curve([CURVE[0], tried("memory_budget_75", 1.6, None)]) is None
    assert memory_curve([CURVE[0], (BY_NAME["memory_budget_75"], None)]) is None


def test_a_family_is_asked_for_by_one_name_and_comes_with_its_beginning():
    assert {f.name for f in select(FIXES, Options(only=(FAMILY,)))} == {
        "compile", *NAMES_OF_BUDGETS
    }  # fmt: skip
    one = select(FIXES, Options(only=("memory_budget_50",)))
    assert [fix.name for fix in one] == ["memory_budget_50"]
    left = {fix.name for fix in select(FIXES, Options(exclude=(FAMILY,)))}
    assert "compile" in left and not left & set(NAMES_OF_BUDGETS)


def test_what_is_recomputed_is_the_cheapest_per_byte():
    # 30 of 40 MB are to go: the 20 MB of 1 ms, then half of the 20 MB of 3 ms.
    ops = [product(kernel_s=1e-3, fresh_bytes=20e6), product(kernel_s=3e-3, fresh_bytes=20e6)]
    given = facts(ops, step_s=0.01)
    assert recomputed_s(given, 0.25) == pytest.approx(1e-3 + 0.5 * 3e-3)
    assert recomputed_s(given, 1.0) == 0.0
    assert recomputed_s(facts([]), 0.5) == 0.0


def test_a_setting_is_considered_when_asked_for_and_there():
    given = facts([product(fresh_bytes=20e6)], trains=True, has_memory_budget=True)
    fix = BY_NAME["memory_budget_25"]
    prospect = fix.considered(given, {FAMILY})
    assert isinstance(prospect, Prospect) and "25 %" in prospect.because
    assert isinstance(fix.considered(given), RuledOut)
    gone = fix.considered(replace(given, has_memory_budget=False), {FAMILY})
    assert isinstance(gone, RuledOut) and "activation_memory_budget" in gone.reason


def test_a_price_that_the_noise_hides_is_not_told():
    diagnosis = load(DATA)
    diagnosis.fixes = FixSummary(
        memory_curve=memory_curve([tried("compile", 2.0, 80), tried("memory_budget_75", 1.99, 60)])
    )
    (line,) = memory_lines(diagnosis)
    assert "memory_budget_75 saves 20.0 MB in the same time, within the noise" in line


def test_the_reports_name_the_front(tmp_path):
    diagnosis = load(DATA)
    found = Found(diagnosis, facts(step_s=diagnosis.step_s))
    prospect = Prospect(0.0, 0.0, 0.0, "arithmetic")
    found.tried = [Tried(fix, prospect, trial) for fix, trial in CURVE]
    write_findings(found)
    diagnosis.save(tmp_path / "d.json")
    assert load(tmp_path / "d.json").fixes.memory_curve == memory_curve(CURVE)
    page = report_html(diagnosis)
    assert "Peak memory of a step against its time" in page
    assert "memory_budget_25" in page
    text = report_text(diagnosis)
    joined = " ".join(text.split())
    assert (
        "relative to compile: compile itself; memory_budget_75 saves 20.0 MB for 25 % more time; "
        "memory_budget_25 saves 40.0 MB for 100 % more time."
    ) in joined
    (row,) = [line for line in text.splitlines() if "75" in line and line.endswith("front")]
    assert "1.25x (1.20 to 1.30)" in row
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "budget\\_75 saves" in render(diagnosis, top=8, by=()).decode()
