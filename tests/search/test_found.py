"""What a search writes into the diagnosis: one row for each flaw."""

from __future__ import annotations

import pytest
from tests.fixes.facts import facts
from tests.reports.test_fixes import DATA

from gobrrr.diagnosis.fix_schema import NOT_APPLIED, Verification
from gobrrr.diagnosis.out_of_proportion import SORTS
from gobrrr.diagnosis.remedies import without_gain
from gobrrr.diagnosis.schema import Finding, Prediction
from gobrrr.diagnosis.storage import load
from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.fix import Prospect
from gobrrr.reports.fix_table import finding_groups, trial_line
from gobrrr.search.found import Found, Tried, write_findings

BY_NAME = {fix.name: fix for fix in FIXES}
SORTED = "Sorting and selecting takes 80 % of the step"


def test_what_found_no_place_to_change_keeps_its_prediction() -> None:
    diagnosis = load(DATA)
    step_s = diagnosis.accounted_s
    trial = Verification(verdict=NOT_APPLIED, reason="fused_attention had no effect")
    prospect = Prospect(0.0, 0.5 * step_s, step_s, "arithmetic", ("a.py:6",))
    found = Found(diagnosis, facts(step_s=step_s))
    found.tried = [Tried(BY_NAME["fused_attention"], prospect, trial)]
    write_findings(found)
    ((heading, (finding, *_)), *_) = finding_groups(diagnosis)
    assert finding.fix == "fused_attention" and finding.sources == ["a.py:6"]
    assert finding.saving_s == pytest.approx(0.5 * step_s)
    assert "Would help" in heading
    assert trial_line(trial) == "not applied: fused_attention had no effect"
    assert "fused_attention" not in without_gain(diagnosis)


def rows(tried: str, saving_s: float, line: str) -> list[str]:
    diagnosis = load(DATA)
    step_s = diagnosis.accounted_s
    prediction = Prediction(low_s=0.0, expected_s=0.8 * step_s, high_s=0.8 * step_s, speedup=5.0)
    diagnosis.findings = [
        Finding(fix=SORTS, title=SORTED, prediction=prediction, because="", sources=["a.py:6"])
    ]
    found = Found(diagnosis, facts(step_s=step_s))
    prospect = Prospect(0.0, saving_s * step_s, step_s, "", (line,))
    found.tried = [Tried(BY_NAME[tried], prospect)]
    write_findings(found)
    # The verdict says it in any case.
    assert SORTED in diagnosis.verdict
    return [finding.fix for finding in diagnosis.findings]


def test_a_change_of_the_author_s_stands_for_what_takes_long_on_its_line() -> None:
    assert rows("topk", 0.5, "a.py:6") == ["topk"]


@pytest.mark.parametrize(
    ("tried", "saving_s", "line"),
    # Another line; a small part of it; a fix that is tried and may turn out to change nothing.
    [("topk", 0.5, "a.py:7"), ("topk", 0.1, "a.py:6"), ("compile", 0.5, "a.py:6")],
)
def test_what_takes_long_is_told_where_no_such_change_is_known(
    tried: str, saving_s: float, line: str
) -> None:
    assert set(rows(tried, saving_s, line)) == {tried, SORTS}
