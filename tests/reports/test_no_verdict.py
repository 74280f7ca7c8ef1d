"""Where no verdict is drawn, every report tells what was measured, and no regime."""

from __future__ import annotations

from pathlib import Path

import pytest

import gobrrr
from gobrrr.diagnosis.advice import advice_of
from gobrrr.diagnosis.comparison import compare
from gobrrr.diagnosis.schema import NO_VERDICT, Diagnosis
from gobrrr.measure.load import TOO_LONG
from gobrrr.reports.advice_lines import HEADING, UNRANKED, heading, saving_of
from gobrrr.reports.compare import comparison_text
from gobrrr.reports.html import report_html
from gobrrr.reports.html.view import page_of
from gobrrr.reports.markdown import report_markdown
from gobrrr.reports.prediction_table import prediction_table
from gobrrr.reports.sentences import spread_of_step
from gobrrr.reports.terminal import Options, gist_text, report_text

WHY = "These times describe the machine and not the program, so there is no verdict."


@pytest.fixture
def without(training: Diagnosis) -> Diagnosis:
    training.regime, training.verdict, training.notices = None, "", [WHY]
    return training


def test_it_is_saved_and_read(without: Diagnosis, tmp_path: Path) -> None:
    path = without.save(tmp_path / "d.json")
    assert '"regime":null' in path.read_text()
    assert gobrrr.load(path).regime is None


def test_no_report_names_a_regime(without: Diagnosis) -> None:
    assert page_of(without).lead == "No verdict."
    for text in (report_text(without), report_html(without), report_markdown(without)):
        assert WHY in " ".join(text.replace("!", "").split())
        assert "-bound." not in text


def test_it_is_compared(without: Diagnosis, minimal: Diagnosis) -> None:
    compared = compare(without, minimal)
    assert (compared.before.regime, compared.after.regime) == (None, minimal.regime)
    assert comparison_text(compared, Options())


def test_a_row_of_devices_says_that_it_is_unknown(without: Diagnosis) -> None:
    without.close = False
    assert " - " in prediction_table([without], 120)


def test_the_short_report_at_the_end_says_why(without: Diagnosis, minimal: Diagnosis) -> None:
    def gist(diagnosis: Diagnosis) -> str:
        return " ".join(gist_text(diagnosis).replace("!", "").split())

    assert NO_VERDICT in WHY
    assert WHY in gist(without)
    # What is said of a job comes first, and is not the reason.
    without.notices = ["The figures are those of rank 0.", WHY, "Something else."]
    assert WHY in gist(without)
    assert "rank 0" not in gist(without) and "Something else" not in gist(without)
    # Where there is a verdict, it alone is told.
    minimal.notices = [WHY]
    assert minimal.regime is not None
    assert WHY not in gist(minimal)


def test_times_that_are_too_long_give_no_interval_of_a_saving(training: Diagnosis) -> None:
    finding = next(f for f in training.findings if f.prediction is not None)
    finding.verification, training.fixes = None, None
    (advised,) = (a for a in advice_of(training) if a.finding is finding)
    assert " to " in saving_of(advised, training)
    assert "alone" not in spread_of_step(training)
    # Where they merely may be, nothing is known of it.
    training.notices = [f"Other processes hold memory: if they also run on it, {TOO_LONG}."]
    assert not training.too_long
    training.notices = [f"Other programs took 40 % of the processor time: {TOO_LONG}."]
    assert " to " not in saving_of(advised, training)
    assert "steps alone" in spread_of_step(training)


def test_advice_is_not_ranked_by_savings_that_cannot_be_told(without: Diagnosis) -> None:
    without.fixes = None
    assert heading(without) == UNRANKED
    without.notices = []
    assert heading(without) == HEADING
