"""Fixes: what was predicted beside what was measured, what was ruled out, and the best set."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from gobrrr.diagnosis.fix_schema import FASTER, INCOMPARABLE, SAME, SLOWER
from gobrrr.diagnosis.schema import Diagnosis, Finding, FixSummary, Ratio, Verification
from gobrrr.measure.noise import is_quiet, reach_of, why_so_far
from gobrrr.measure.summary import Interval
from gobrrr.reports.tables import Column, Row, TextTable, time_scale
from gobrrr.timeline.names import plain_name, short_source
from gobrrr.timeline.quantities import count, multiple_range, whole_seconds

# In the place of a prediction whose interval cannot be missed.
CANNOT_TELL = "cannot tell"

TOO_NOISY = "too noisy"
_UNTRIED, _ADVICE = "not tried", "advice"
_CAUSES = "Known causes, with what they take of the wall time"
_HELPS = "Would help, with the saving per step"
_PRECISION = "Would help at lower precision (in the best set only with --allow precision)"
_NO_GAIN = "Tried, no gain"
_COSTS = "Not expected to help, by prediction or by the trial of a variant"
_TOGETHER = "Tried together"


def fix_table(diagnosis: Diagnosis) -> TextTable:
    """Every fix with a prediction or a trial: both savings as part of the same step.

    The largest saving first, sets of several fixes last. What a trial measured is its
    speedup r, as a saving of the diagnosed step: step x (1 - 1 / r).
    """
    columns = (
        Column("fix", number=False, flexible=True),
        Column("predicted"),
        Column("measured"),
        Column("speedup"),
        Column("", number=False),
    )
    scale, step_s = time_scale(diagnosis), diagnosis.accounted_s
    findings = by_saving(found for found in diagnosis.findings if not found.is_cause)
    count = Counter(finding.fix for finding in findings)
    rows = tuple(_row(finding, diagnosis, count[finding.fix] > 1) for finding in findings)
    title = f"Fixes: {scale.unit} saved of the step's {scale.text(step_s)}, predicted and measured"
    # A name that is cut could not be given to --only.
    return TextTable(title, columns, rows, second_line=True)


def by_saving(findings: Iterable[Finding]) -> list[Finding]:
    """The largest saving first, measured or expected; what has neither last, in its own order."""

    def place(finding: Finding) -> float:
        return math.inf if finding.worth_s is None else -finding.worth_s

    return sorted(findings, key=place)


def finding_groups(diagnosis: Diagnosis) -> list[tuple[str, list[Finding]]]:
    """Headings with the findings under them: what would help, and after a search the rest too.

    A predicted slowdown helps nobody: without a search it is not shown, with one it stands behind,
    because what came of its trial should be told.
    """
    groups: dict[str, list[Finding]] = {
        _CAUSES: [finding for finding in diagnosis.findings if finding.is_cause],
        _HELPS: [],
        _PRECISION: [],
        _NO_GAIN: [],
        _COSTS: [],
        _TOGETHER: [],
    }
    for finding in by_saving(found for found in diagnosis.findings if not found.is_cause):
        helps = _PRECISION if finding.precision else _HELPS
        if finding.worth_s is not None:
            tried = finding.verification is not None and finding.saving_s is not None
            without = _NO_GAIN if tried else _COSTS
            groups[helps if finding.worth_s > 0 else without].append(finding)
        else:
            groups[helps if finding.verification is None else _TOGETHER].append(finding)
    shown = [_CAUSES, _HELPS, _PRECISION] if diagnosis.fixes is None else list(groups)
    return [(heading, groups[heading]) for heading in shown if groups[heading]]


def verdict_word(tried: Verification) -> str:
    """A trial's verdict in words; what agreed and still cannot be told was too noisy."""
    if tried.verdict == INCOMPARABLE and _agreed(tried):
        return TOO_NOISY
    return plain_name(tried.verdict).replace("_", " ")


def trial_line(tried: Verification, null: Ratio | None = None, precision: str = "") -> str:
    """A trial in a sentence: its speedup, its verdict, and the reason where that adds anything.

    Of a change of ``precision`` its error is told.

    ``null`` is the search's own, which the summary tells: a trial that was too noisy beside a quiet
    one had another (processes of its own), which is told here.
    """
    word, reason = verdict_word(tried), plain_name(tried.reason, 500)
    if tried.speedup is None:
        return f"{word}: {reason}" if reason else word
    # The reason of a verdict on time alone is the span again, beside the null's.
    if _agreed(tried) and tried.verdict in (FASTER, SAME, SLOWER):
        reason = _error_of(tried) if precision else ""
    elif word == TOO_NOISY:
        word, reason = (reason or word, "") if null is None or _quiet(null) else (word, "")
    return f"{_span(tried.speedup)}, {word}" + (f": {reason}" if reason else "")


def _error_of(tried: Verification) -> str:
    numerics = tried.numerics or {}
    if numerics.get("error") is None:
        return ""
    as_it_was = numerics.get("original_error") or 0.0
    return f"relative error {numerics['error']:.1e}, unchanged {as_it_was:.1e}"


def _quiet(null: Ratio) -> bool:
    return is_quiet(Interval(null.median, null.low, null.high))


def _bar(tried: Verification) -> float:
    """What the range of a trial that was too noisy had to lie above; 0 of any other."""
    return (tried.counts_above or 0.0) if verdict_word(tried) == TOO_NOISY else 0.0


def _agreed(tried: Verification) -> bool:
    return (tried.numerics or {}).get("verdict") == "passed"


def _span(ratio: Ratio) -> str:
    return multiple_range(ratio)


def _row(finding: Finding, diagnosis: Diagnosis, ambiguous: bool) -> Row:
    scale = time_scale(diagnosis)
    predicted = measured = speedup = detail = ""
    if finding.prediction is not None:
        told = finding.prediction.tells(diagnosis.accounted_s)
        predicted = scale.number(finding.prediction.expected_s) if told else CANNOT_TELL
    verdict = _ADVICE if finding.advice else _UNTRIED
    tried = finding.verification
    if tried is not None:
        verdict = verdict_word(tried)
        if tried.speedup is not None:
            measured = scale.number(diagnosis.accounted_s * (1.0 - 1.0 / tried.speedup.median))
            speedup = _span(tried.speedup)
            detail = (
                f"too noisy to count unless all above {_bar(tried):.2f}x" if _bar(tried) else ""
            )
    name = plain_name(finding.fix)
    if ambiguous and finding.sources:
        name += f" {short_source(finding.sources[0])}"
    return Row((name, predicted, measured, speedup, verdict), detail=detail)


def summary_lines(diagnosis: Diagnosis) -> list[str]:
    """The outcome in sentences, the best set first."""
    summary = diagnosis.fixes
    if summary is None:
        return []
    lines = [_best_line(summary)]
    ends = [*_grouped("Not tried: ", summary.not_tried), *_times(summary)]
    notices = [plain_name(notice, 500) for notice in summary.notices]
    if summary.null is None:
        return [*lines, *notices, *ends]
    r = summary.null
    _, high = reach_of(Interval(r.median, r.low, r.high))
    if _quiet(r):
        against = f"The program timed against itself: {multiple_range(r, 3)}"
        counts = "outside that range" if high <= r.high else f"above {high:.2f}x"
        return [*lines, f"{against}; only a speedup {counts} counts.", *notices, *ends]
    # How noisy it is stands in a notice.
    reach = (
        f"Because of that noise a speedup counts only if its whole range is above {high:.2f}x, "
        f"{why_so_far(Interval(r.median, r.low, r.high))}"
    )
    tried = [finding.verification for finding in diagnosis.findings]
    if any(each is not None and _bar(each) > 1.005 * high for each in tried):
        reach += "; one of few turns has to be farther, as its row says"
    reach += "."
    return [*lines, *notices, reach, *ends]


def _times(summary: FixSummary) -> list[str]:
    """How long the search took, and what of that the budget was for."""
    if summary.diagnosis_s is None or summary.trials_s is None or summary.budget_s is None:
        return []
    total, diagnosed, tried, budget = map(
        whole_seconds,
        (
            summary.diagnosis_s + summary.trials_s, summary.diagnosis_s, summary.trials_s,
            summary.budget_s,
        ),
    )  # fmt: skip
    over = summary.trials_s > summary.budget_s
    why = ": a trial that has begun is not cut short at once" if over else ""
    return [f"Took {total}: {diagnosed} to diagnose, {tried} for trials (budget {budget}){why}."]


def _best_line(summary: FixSummary) -> str:
    if not summary.best or summary.verification is None or summary.verification.speedup is None:
        return "No fix was verified to be faster."
    tried = summary.verification
    assert tried.speedup is not None
    line = f"Best: {' + '.join(summary.best)}: {_span(tried.speedup)}"
    if tried.compile_s is not None and tried.compile_s >= 1.0:
        line += f"; setting it up takes {whole_seconds(tried.compile_s)}"
        if tried.break_even_steps is not None:
            line += f", break-even after {count(tried.break_even_steps)} steps"
    numerics = tried.numerics or {}
    if numerics.get("error") is not None:
        line += f"; largest relative error {numerics['error']:.1e}"
        if numerics.get("original_error") is not None:
            line += f" (unchanged: {numerics['original_error']:.1e})"
    return line + "."


def ruled_out_lines(diagnosis: Diagnosis) -> list[str]:
    """``names: reason``, in the order of the list of fixes; one line for those with one reason."""
    return [] if diagnosis.fixes is None else _grouped("", diagnosis.fixes.ruled_out)


def _grouped(lead: str, reasons: dict[str, str]) -> list[str]:
    """``names: reason``, or ``lead names (reason)``, one line for those with one reason."""
    names: dict[str, list[str]] = {}
    for name, why in reasons.items():
        names.setdefault(plain_name(why, 300), []).append(plain_name(name))
    shown = "{0}{1} ({2})." if lead else "{1}: {2}"
    return [shown.format(lead, ", ".join(named), why) for why, named in names.items()]
