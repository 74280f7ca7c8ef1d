"""The outcome of a search for fixes, in the terminal and as Markdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.diagnosis.schema import Finding, FixSummary, Prediction, Ratio, Verification
from gobrrr.diagnosis.storage import load
from gobrrr.fixes.catalogue import FIXES
from gobrrr.measure.summary import Interval
from gobrrr.reports.fix_table import fix_table, summary_lines
from gobrrr.reports.html import report_html
from gobrrr.reports.markdown import render
from gobrrr.reports.terminal import Options, report_text
from gobrrr.verification.numerics import Numerics
from gobrrr.verification.timing import Null, Timed
from gobrrr.verification.trial import Measured, trial_of

DATA = Path(__file__).parents[1] / "data" / "training.json"
ALL = Options(verbose=True)
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
        ruled_out={"tf32": "it applies to GPUs only"}, null=Ratio(median=1.0, low=0.99, high=1.01),
        notices=["A notice."],
    )  # fmt: skip
    return found


def test_the_terminal_shows_predicted_beside_measured(diagnosis):
    text = report_text(diagnosis, ALL)
    (row,) = [line for line in text.splitlines() if "1.50x (1.45 to 1.55)" in line
              and line.startswith("  compile")]  # fmt: skip
    assert row.endswith("faster")
    assert any(line.startswith("  in_place") and line.endswith("not tried")
               for line in text.splitlines())  # fmt: skip
    joined = " ".join(text.split())
    assert (
        "Best: compile: 1.50x (1.45 to 1.55); setting it up takes 12 s, break-even after 120"
        in joined
    )
    assert "largest relative error 1.0e-06 (unchanged: 2.0e-07)" in joined
    assert "tf32: it applies to GPUs only" in joined
    assert "A notice." in joined
    assert "    model = torch.compile(model)" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_nothing_found_is_said(diagnosis):
    diagnosis.fixes = FixSummary(ruled_out={"tf32": "it applies to GPUs only"})
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


def finding(name, expected_s, **more):
    prediction = Prediction(
        low_s=expected_s - 1e-3, expected_s=expected_s, high_s=expected_s + 1e-3, speedup=1.0
    )
    return Finding(fix=name, title=f"The {name}", prediction=prediction, because="sums", **more)


def trial(verdict, median, numerics="passed", reason="said twice"):
    return Verification(
        speedup=Ratio(median=median, low=median - 0.1, high=median + 0.1), verdict=verdict,
        reason=reason, numerics={"verdict": numerics}, before_s=9.0, after_s=9.0 / median,
    )  # fmt: skip


def rows(diagnosis):
    return {row.cells[0]: row.cells for row in fix_table(diagnosis).rows}


def test_a_measured_saving_is_of_the_diagnosed_step(diagnosis):
    # The trial's own step took 9 s; the diagnosed one takes 0.1 s.
    diagnosis.findings = [finding("fast", 0.02, verification=trial("faster", 1.25))]
    assert diagnosis.accounted_s == pytest.approx(0.1)
    assert rows(diagnosis)["fast"][1:3] == ("20.0", "20.0")
    assert "of the step's 100.0 ms" in fix_table(diagnosis).title


def test_the_largest_expected_saving_is_first_and_sets_are_last(diagnosis):
    together = Finding(fix="a+b", prediction=None, because="", verification=trial("faster", 1.2))
    diagnosis.findings = [finding("a", 0.01), together, finding("b", 0.03), finding("c", -0.02)]
    assert list(rows(diagnosis)) == ["b", "a", "c", "a+b"]
    together.title = "a + b"
    text = report_text(diagnosis, ALL)
    assert "Tried together" in text and "a + b" in text
    assert "    a+b\n" not in text


def test_a_predicted_slowdown_would_not_help(diagnosis):
    diagnosis.findings = [finding("slow", -0.02), finding("good", 0.01)]
    text = report_text(diagnosis, ALL)
    assert text.index("1 The good") < text.index("Not expected to help") < text.index("1 The slow")
    assert "    Sums\n" in text
    diagnosis.fixes = None
    assert "The slow" not in report_text(diagnosis)
    assert "The slow" not in render(diagnosis, top=8, by=()).decode()


def test_noise_is_not_called_incomparable(diagnosis):
    random = "random numbers are drawn"
    diagnosis.findings = [
        finding("noise", 0.03, verification=trial("incomparable", 1.0)),
        finding("dice", 0.02, verification=trial("incomparable", 1.0, "incomparable", random)),
        finding("mine", 0.01, advice=True),
    ]
    assert [cells[-1] for cells in rows(diagnosis).values()] == [
        "too noisy", "incomparable", "advice"
    ]  # fmt: skip
    diagnosis.fixes.null = Ratio(median=1.0, low=0.9, high=1.1)
    text = report_text(diagnosis, ALL)
    assert f"tried: 1.00x (0.90 to 1.10), incomparable: {random}" in text
    assert "tried: 1.00x (0.90 to 1.10), too noisy\n" in text
    assert "said twice" not in text
    # Beside a quiet null the trial had a noisy one of its own.
    diagnosis.fixes.null = Ratio(median=1.0, low=0.99, high=1.01)
    assert "tried: 1.00x (0.90 to 1.10), said twice\n" in report_text(diagnosis, ALL)


def test_the_null_is_told_once(diagnosis):
    said = "Too noisy to tell: the program timed against itself: 0.917 (0.850 to 0.980)."
    diagnosis.fixes.null = Ratio(median=0.917, low=0.85, high=0.98)
    diagnosis.fixes.notices = [said]
    lines = summary_lines(diagnosis)
    assert sum("0.917" in line for line in lines) == 1
    assert "only if its whole range is above 1.19x" in lines[2]


@pytest.mark.parametrize(
    ("null", "pairs"),
    [((0.965, 0.787, 0.971), 12), ((0.965, 0.787, 0.971), 4), ((1.133, 0.964, 1.301), 12)],
)
def test_what_counts_beside_a_noisy_program_is_what_its_trials_were_judged_by(
    diagnosis, null, pairs
):
    median, low, high = null
    measured = Null(Interval(median, low, high), False, 1.0)
    _, bar = measured.bar(pairs)
    timed = Timed((bar * 1.1,) * pairs, (1.0,) * pairs)
    seen = {}
    for name, least in (("above", bar * 1.01), ("below", bar * 0.99)):
        ratio = Interval(bar * 1.1, least, bar * 1.2)
        numerics = Numerics("passed", "", tolerance=1e-3)
        fix = next(fix for fix in FIXES if fix.name == "compile")
        tried = trial_of((fix,), Measured(timed, ratio, (0.0, 0.0)), numerics, measured, None)
        diagnosis.findings = [finding(name, 0.01, verification=tried)]
        (row,) = fix_table(diagnosis).rows
        seen[name] = row.cells[-1], row.detail
    diagnosis.fixes.null = Ratio(median=median, low=low, high=high)
    assert seen["above"] == ("faster", "")
    assert seen["below"][0] == "too noisy"
    assert f"{bar:.2f}x" in seen["below"][1]
    said = summary_lines(diagnosis)[-1]
    assert f"above {measured.bar()[1]:.2f}x" in said
    assert ("few turns" in said) == (pairs < 6)


def test_a_name_is_never_cut_so_that_it_can_be_pasted(diagnosis):
    names = ["compile_reduce_overhead", "compile_max_autotune+fused_optimizer+bf16_autocast"]
    diagnosis.findings = [finding(name, 0.01, verification=trial("faster", 1.5)) for name in names]
    lines = [line.split() for line in report_text(diagnosis).splitlines()]
    table = lines[next(i for i, words in enumerate(lines) if words[:1] == ["Fixes:"]) :]
    assert all(any(name in words for words in table) for name in names)


def test_findings_of_one_name_are_told_apart(diagnosis):
    diagnosis.findings = [
        finding("fusion", 0.02, sources=["package/model.py:12 in forward"]),
        finding("fusion", 0.01, sources=["package/model.py:40 in forward"]),
    ]
    assert list(rows(diagnosis)) == ["fusion model.py:12", "fusion model.py:40"]


@pytest.mark.parametrize(
    ("high", "counts"), [(1.029, "outside that range"), (1.002, "above 1.02x")]
)
def test_what_counts_as_a_speedup_is_said_of_a_quiet_null(diagnosis, high, counts):
    """Of a null that is narrower than a quiet one may be, its own range is not what counts."""
    diagnosis.fixes.null = Ratio(median=1.0, low=0.992, high=high)
    (line,) = [line for line in summary_lines(diagnosis) if "against itself" in line]
    assert line.endswith(f"; only a speedup {counts} counts.")


@pytest.mark.parametrize(
    ("low", "expected", "high", "told"),
    [
        (0.1, 0.3, 0.4, True),
        (-0.1, 0.2, 0.4, True),
        # More may be lost than is expected to be won; as wide as the step; surely slower.
        (-0.3, 0.2, 0.4, False),
        (-0.1, 0.5, 0.95, False),
        (-0.4, -0.3, -0.1, True),
    ],
)
def test_a_prediction_that_cannot_be_missed_tells_nothing(diagnosis, low, expected, high, told):
    step_s = diagnosis.accounted_s
    prediction = Prediction(
        low_s=low * step_s, expected_s=expected * step_s, high_s=high * step_s, speedup=1.5
    )
    diagnosis.findings[1].prediction = prediction
    assert ("cannot tell" in report_text(diagnosis)) != told
    assert ("cannot tell" in report_html(diagnosis)) != told
    assert diagnosis.findings[1].prediction.high_s == high * step_s
