"""What an experiment is: a question, claims with what would make them hold, and what was found.

A claim states before anything is measured in which range a quantity has to lie for it to hold. The
verdict compares that range with the interval of the measurement, never with a point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from gobrrr.lab.setting import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ARTICLE = "https://horace.io/brrr_intro.html"
FORMAT = 1

Verdict = Literal["holds", "does not hold here", "cannot tell"]
Row = dict[str, Any]


class Measured(NamedTuple):
    """A quantity with its 95 % interval, in the unit of its claim."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence that can be tested.

    Attributes:
        key: names it within its experiment.
        text: the claim.
        article: the article's figure, as it stands there.
        quantity: what is measured for it.
        unit: of the quantity; ``""`` for a ratio.
        least: the claim holds at or above this; ``None`` for no lower end.
        most: the claim holds at or below this; ``None`` for no upper end.
        source: where the claim stands.
        timed: whether the quantity comes from times here, so that a busy machine spoils it.
    """

    key: str
    text: str
    article: str
    quantity: str
    unit: str = ""
    least: float | None = None
    most: float | None = None
    source: str = ARTICLE
    timed: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found for a claim: the quantity (``None``: could not be measured), and why."""

    measured: Measured | None
    because: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What a run returns: an answer per claim, the rows behind it, and notes for the reader.

    ``rows`` are plain data (numbers, texts, lists), all that the plot is drawn from. ``context``
    holds single numbers that the plot needs: ceilings, sizes.
    """

    answers: Mapping[str, Answer]
    rows: list[Row]
    context: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Judged(msgspec.Struct, kw_only=True):
    """A claim with its verdict, as saved. ``low`` and ``high`` are the interval of ``value``."""

    key: str
    claim: str
    article: str
    source: str
    quantity: str
    unit: str
    least: float | None
    most: float | None
    value: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    because: str


class Outcome(msgspec.Struct, kw_only=True):
    """The saved result of one experiment; plots and pages are made from it alone.

    ``state`` is ``complete``, ``interrupted``, ``failed`` or ``skipped``; ``reason`` says why it is
    not complete. ``waiting_share``: of the time that threads wanted a processor while timed, the
    part they had none; ``None`` if unknown or nothing was timed.
    """

    format: int = FORMAT
    name: str
    title: str
    question: str
    state: Literal["complete", "interrupted", "failed", "skipped"] = "complete"
    reason: str = ""
    device: str
    device_kind: str
    date: str
    duration_s: float
    waiting_share: float | None = None
    seed: int
    claims: list[Judged] = []
    rows: list[Row] = []
    context: dict[str, Any] = {}
    notes: list[str] = []
    environment: dict[str, Any] = {}


@dataclass(frozen=True)
class Experiment:
    """One experiment; each module of ``gobrrr.lab`` that ``EXPERIMENTS`` names has one.

    Attributes:
        name: as typed.
        title: a few words.
        question: one sentence.
        claims: in the order of the report.
        run: measures; raises ``SkipExperimentError`` with one sentence where it cannot.
        draw: draws the outcome on an empty figure.
        budget_s: seconds it may take on two CPU cores, compilation included.
        devices: kinds of device it can run on.
    """

    name: str
    title: str
    question: str
    claims: tuple[Claim, ...]
    run: Callable[[Setting], Findings]
    draw: Callable[[Outcome, Figure], None]
    budget_s: float
    devices: tuple[str, ...] = ("cpu", "cuda")


class SkipExperimentError(Exception):
    """An experiment cannot run here; the message is the sentence that says why."""


def judge(claim: Claim, answer: Answer | None) -> Judged:
    """The verdict of a claim.

    It holds if the whole interval lies in the claimed range, does not hold if all of it lies
    outside on one side, and cannot be told if the interval reaches over an end of the range.
    """
    if answer is None or answer.measured is None:
        because = answer.because if answer is not None else "it was not measured"
        return _judged(claim, None, "cannot tell", because)
    return _judged(claim, answer.measured, _compare(claim, answer.measured), answer.because)


def _compare(claim: Claim, measured: Measured) -> Verdict:
    above = claim.least is None or measured.low >= claim.least
    below = claim.most is None or measured.high <= claim.most
    if above and below:
        return "holds"
    too_low = claim.least is not None and measured.high < claim.least
    too_high = claim.most is not None and measured.low > claim.most
    return "does not hold here" if too_low or too_high else "cannot tell"


def _judged(claim: Claim, measured: Measured | None, verdict: Verdict, because: str) -> Judged:
    return Judged(
        key=claim.key,
        claim=claim.text,
        article=claim.article,
        source=claim.source,
        quantity=claim.quantity,
        unit=claim.unit,
        least=claim.least,
        most=claim.most,
        value=None if measured is None else measured.value,
        low=None if measured is None else measured.low,
        high=None if measured is None else measured.high,
        verdict=verdict,
        because=because,
    )
