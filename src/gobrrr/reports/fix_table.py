"""Fixes: what was predicted beside what was measured, what was ruled out, and the best set."""

from __future__ import annotations

from gobrrr.diagnosis.schema import Diagnosis, Finding, FixSummary
from gobrrr.reports.quantities import plain_name
from gobrrr.reports.tables import Column, Row, TextTable, time_scale

_UNTRIED = "not tried"


def fix_table(diagnosis: Diagnosis) -> TextTable:
    """Every fix with a prediction or a trial: saving predicted and measured, in the step's unit."""
    scale = time_scale(diagnosis)
    columns = (
        Column("fix", number=False, flexible=True),
        Column(f"predicted {scale.unit}"),
        Column("measured"),
        Column("speedup"),
        Column("", number=False),
    )
    rows = tuple(_row(finding, diagnosis) for finding in diagnosis.findings)
    return TextTable("Fixes: saving per step, predicted and measured", columns, rows)


def _row(finding: Finding, diagnosis: Diagnosis) -> Row:
    scale = time_scale(diagnosis)
    predicted = measured = speedup = ""
    if finding.prediction is not None:
        predicted = scale.number(finding.prediction.expected_s)
    verdict = _UNTRIED
    tried = finding.verification
    if tried is not None:
        verdict = tried.verdict.replace("_", " ")
        if tried.before_s is not None and tried.after_s is not None:
            measured = scale.number(tried.before_s - tried.after_s)
        if tried.speedup is not None:
            r = tried.speedup
            speedup = f"{r.median:.2f}x ({r.low:.2f} to {r.high:.2f})"
    return Row((plain_name(finding.fix), predicted, measured, speedup, verdict))


def summary_lines(diagnosis: Diagnosis) -> list[str]:
    """The outcome in sentences, the best set first."""
    summary = diagnosis.fixes
    if summary is None:
        return []
    lines = [_best_line(summary)]
    if summary.null is not None:
        r = summary.null
        lines.append(
            f"The program against itself: {r.median:.3f}x ({r.low:.3f} to {r.high:.3f}); a fix "
            "counts outside that."
        )
    return [*lines, *(plain_name(notice, 500) for notice in summary.notices)]


def _best_line(summary: FixSummary) -> str:
    if not summary.best or summary.verification is None or summary.verification.speedup is None:
        return "No fix was verified to be faster: the program stays as it is."
    tried = summary.verification
    assert tried.speedup is not None
    r = tried.speedup
    line = f"Best: {' + '.join(summary.best)}: {r.median:.2f}x ({r.low:.2f} to {r.high:.2f})"
    if tried.compile_s is not None and tried.compile_s >= 1.0:
        line += f"; takes {tried.compile_s:.0f} s once"
        if tried.break_even_steps is not None:
            line += f", won back after {tried.break_even_steps:,.0f} steps"
    numerics = tried.numerics or {}
    if numerics.get("error") is not None:
        line += f"; largest error {numerics['error']:.1e}"
        if numerics.get("original_error") is not None:
            line += f" (as it was: {numerics['original_error']:.1e})"
    return line + "."


def ruled_out_lines(diagnosis: Diagnosis) -> list[str]:
    """``names: reason``, in the order of the list of fixes; one line for those with one reason."""
    if diagnosis.fixes is None:
        return []
    names: dict[str, list[str]] = {}
    for name, why in diagnosis.fixes.ruled_out.items():
        names.setdefault(why, []).append(name)
    return [f"{', '.join(named)}: {plain_name(why, 300)}" for why, named in names.items()]
