"""The outcome of a search for fixes, in the terminal and as Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.diagnosis.schema import Finding, FixSummary, Prediction, Ratio, Verification
from gobrrr.diagnosis.storage import load
from gobrrr.reports.markdown import render
from gobrrr.reports.terminal import report_text

DATA = Path(__file__).parents[1] / "data" / "training.json"
TRIED = Verification(
    speedup=Ratio(median=1.5, low=1.45, high=1.55), verdict="faster", before_s=0.3, after_s=0.2,
    compile_s=12.0, break_even_steps=120, numerics={"error": 1e-6, "original_error": 2e-7},
)  # fmt: skip


@pytest.fixture
def diagnosis():
    found = load(DATA)
    step_s = found.step_s
    prediction = Prediction(
        low_s=0.1 * step_s, expected_s=0.3 * step_s, high_s=0.4 * step_s, speedup=1.43
    )
    found.findings = [
        Finding(fix="compile", prediction=prediction, because="arithmetic", verification=TRIED),
        Finding(fix="in_place", prediction=prediction, because="more of it"),
    ]
    found.fixes = FixSummary(
        best=["compile"], verification=TRIED, snippet="model = torch.compile(model)",
        ruled_out={"tf32": "a setting of GPUs"}, null=Ratio(median=1.0, low=0.99, high=1.01),
        notices=["A notice."],
    )  # fmt: skip
    return found


def test_the_terminal_shows_predicted_beside_measured(diagnosis):
    text = report_text(diagnosis)
    (row,) = [line for line in text.splitlines() if "1.50x (1.45 to 1.55)" in line
              and line.startswith("  compile")]  # fmt: skip
    assert row.endswith("faster")
    assert any(line.startswith("  in_place") and line.endswith("not tried")
               for line in text.splitlines())  # fmt: skip
    joined = " ".join(text.split())
    assert "Best: compile: 1.50x (1.45 to 1.55); takes 12 s once, won back after 120" in joined
    assert "largest error 1.0e-06 (as it was: 2.0e-07)" in joined
    assert "tf32: a setting of GPUs" in joined
    assert "A notice." in joined
    assert "    model = torch.compile(model)" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_nothing_found_is_said(diagnosis):
    diagnosis.fixes = FixSummary(ruled_out={"tf32": "a setting of GPUs"})
    diagnosis.findings = []
    assert "No fix was verified to be faster" in report_text(diagnosis)


def test_markdown_has_the_table_and_the_code(diagnosis):
    text = render(diagnosis, top=8, by=()).decode()
    assert "```python\nmodel = torch.compile(model)\n```" in text
    assert "1.50x" in text
    assert "Best: compile" in text


def test_the_summary_survives_a_file(diagnosis, tmp_path):
    diagnosis.save(tmp_path / "d.json")
    assert load(tmp_path / "d.json").fixes == diagnosis.fixes
