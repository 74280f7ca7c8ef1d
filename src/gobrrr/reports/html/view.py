"""The parts of the page that need no script: text, bars and tables, ready for the template."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gobrrr.diagnosis.schema import BatchDoubling, Diagnosis, Finding, RankRow
from gobrrr.reports import sentences
from gobrrr.reports.cause_lines import cause_saving, with_remedy
from gobrrr.reports.compare import counter_label, counter_text
from gobrrr.reports.fix_table import CANNOT_TELL, verdict_word
from gobrrr.reports.html.lanes import LanesView, lanes_view
from gobrrr.reports.html.waterfall import Fall, percent_of, waterfall_of
from gobrrr.reports.memory_table import memory_lines, memory_table
from gobrrr.reports.rank_tables import collective_table, exposed_table, job_line, leaf_table
from gobrrr.reports.tables import TextTable, class_table, growth_table, time_scale
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import (
    UNKNOWN,
    TimeScale,
    multiple,
    multiple_range,
    percent,
    share,
    si,
    significant,
    time_text,
)

_SENTENCE = re.compile(r"^(.+?[.!?])\s+(.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Segment:
    """One level of the split bar; ``left`` and ``width`` are percent of the bar."""

    level: str
    time: str
    share: str
    left: float
    width: float
    parts: tuple[SegmentPart, ...]


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """One cause under a level; ``width`` is percent of the largest part of the diagnosis."""

    label: str
    time: str
    share: str
    width: float
    note: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A headline number."""

    label: str
    value: str
    note: str


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding with its prediction beside its verification; bars in percent of the step.

    ``figures``: label, value and what is said of it, of what is known; ``predicted`` is empty
    without a bar.
    """

    index: int
    title: str
    because: str
    figures: tuple[tuple[str, str, str], ...]
    predicted: str
    low: float
    expected: float
    high: float
    numerics: tuple[tuple[str, str], ...]
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank; widths are percent of the slowest rank."""

    rank: int
    time: str
    segments: tuple[tuple[str, float, str], ...]
    why: str


@dataclass(frozen=True, slots=True)
class GrowthView:
    """The batch-doubling test: bars in percent of the longest."""

    sentence: str
    bars: tuple[tuple[str, str, float, str], ...]
    agrees: bool | None
    table: TextTable


@dataclass(frozen=True, slots=True)
class CeilingView:
    """A ceiling; ``link`` is its source if that is a web page."""

    name: str
    value: str
    how: str
    source: str
    link: str


@dataclass(frozen=True, slots=True)
class Page:
    """All of the static page."""

    title: str
    lead: str
    rest: str
    regime: str
    close: bool
    step_time: str
    what_a_step_is: str
    seen_steps: str
    wall_time: str
    slow_steps: str
    figures: tuple[Figure, ...]
    segments: tuple[Segment, ...]
    light: float | None
    light_text: str
    falls: tuple[Fall, ...]
    fall_note: str
    findings: tuple[FindingView, ...]
    memory: TextTable
    memory_front: tuple[str, ...]
    classes: TextTable
    growth: GrowthView | None
    ranks: tuple[RankView, ...]
    lanes: LanesView | None
    leaves: TextTable
    exposed: TextTable
    collectives: TextTable
    environment: tuple[tuple[str, str], ...]
    ceilings: tuple[CeilingView, ...]
    measuring: tuple[str, ...]
    unmodelled: tuple[tuple[str, str, str], ...]
    modelled: str
    above: tuple[tuple[str, str, str, str], ...]
    concurrent: tuple[tuple[str, str, str], ...]
    notices: tuple[str, ...]
    counters: tuple[tuple[str, str], ...] = field(default=())


def page_of(diagnosis: Diagnosis) -> Page:
    """Lay out a diagnosis; every text is plain (``quantities.plain_name``)."""
    scale = time_scale(diagnosis)
    step_s = diagnosis.accounted_s
    lead, rest = split_verdict(diagnosis)
    light_s = diagnosis.speed_of_light_s
    falls, note = waterfall_of(diagnosis)
    coverage = diagnosis.coverage
    return Page(
        title=sentences.title(diagnosis),
        lead=lead,
        rest=rest,
        regime=regime_class(diagnosis.regime or ""),
        close=diagnosis.close,
        step_time=sentences.step_time(diagnosis),
        what_a_step_is=sentences.what_a_step_is(diagnosis),
        seen_steps=sentences.seen_steps(diagnosis),
        wall_time=sentences.wall_time(diagnosis),
        slow_steps=sentences.slow_steps(diagnosis),
        figures=_figures(diagnosis, scale),
        segments=segments_of(diagnosis),
        light=None if light_s is None else percent_of(light_s, step_s),
        light_text=f"speed of light {scale.text(light_s)}" if light_s is not None else "",
        falls=falls,
        fall_note=note,
        findings=tuple(_finding(i, f, scale, step_s) for i, f in enumerate(diagnosis.findings)),
        memory=memory_table(diagnosis),
        memory_front=tuple(memory_lines(diagnosis)),
        classes=class_table(diagnosis, 100),
        growth=_growth(diagnosis),
        ranks=_ranks(diagnosis.ranks or ()),
        lanes=lanes_view(diagnosis.lanes),
        leaves=leaf_table(diagnosis),
        exposed=exposed_table(diagnosis, 200),
        collectives=collective_table(diagnosis, 200, wide=True),
        environment=_environment(diagnosis),
        ceilings=_ceilings(diagnosis),
        measuring=tuple(
            text
            for text in (
                sentences.measuring(diagnosis),
                sentences.card(diagnosis),
                sentences.device_time(diagnosis),
                job_line(diagnosis),
            )
            if text
        ),
        unmodelled=tuple(
            (plain_name(op.op), scale.text(op.time_s), plain_name(op.reason or ""))
            for op in coverage.unmodelled
        ),
        modelled=percent(coverage.modelled_time_fraction, 1),
        above=tuple(
            (plain_name(op.op), plain_name(op.shapes, 200), scale.text(op.time_s),
             scale.text(op.roof_s))
            for op in diagnosis.above_ceiling
        ),
        concurrent=tuple(
            (plain_name(row.thread), plain_name(row.name), scale.text(row.time_s))
            for row in diagnosis.concurrent
        ),
        notices=tuple(plain_name(notice, 2000) for notice in diagnosis.notices),
        counters=tuple(
            (counter_label(plain_name(name)), counter_text(name, value))
            for name, value in diagnosis.counters.items()
        ),
    )  # fmt: skip


def regime_class(regime: str) -> str:
    """A regime that the style sheet knows; anything else is ``unmodelled``."""
    return regime if regime in ("compute", "memory", "overhead") else "unmodelled"


def split_verdict(diagnosis: Diagnosis) -> tuple[str, str]:
    """The first sentence of the verdict, and the rest; without one the regime, if there is one."""
    # A number and its percent sign stay on one line.
    verdict = plain_name(diagnosis.verdict, 4000).replace(" %", "\u00a0%")
    if not verdict:
        regime = diagnosis.regime
        return (
            "No verdict." if regime is None else f"{plain_name(regime).capitalize()}-bound."
        ), ""
    found = _SENTENCE.match(verdict)
    return (found[1], found[2]) if found else (verdict, "")


def segments_of(diagnosis: Diagnosis) -> tuple[Segment, ...]:
    """The split bar, levels in the order of the accounting."""
    scale, step_s = time_scale(diagnosis), diagnosis.accounted_s
    levels = sentences.split_levels(diagnosis)
    most = max((part.time_s for level in levels for part in level.parts), default=0.0)
    segments, left = [], 0.0
    for level in levels:
        width = percent_of(level.time_s, step_s)
        parts = tuple(
            SegmentPart(
                part.label, scale.text(part.time_s), share(part.time_s, step_s, 1),
                percent_of(part.time_s, most), part.note,
            )
            for part in level.parts
        )  # fmt: skip
        segments.append(
            Segment(
                level.name, scale.text(level.time_s), share(level.time_s, step_s), left, width,
                parts,
            )
        )  # fmt: skip
        left += width
    return tuple(segments)


def _figures(diagnosis: Diagnosis, scale: TimeScale) -> tuple[Figure, ...]:
    light_s = diagnosis.speed_of_light_s
    figures = [
        Figure(
            f"per {plain_name(diagnosis.step.kind)}",
            scale.text(diagnosis.accounted_s),
            sentences.spread_of_step(diagnosis),
        )
    ]
    if light_s is not None:
        ratio = significant(diagnosis.accounted_s / light_s) if light_s else UNKNOWN
        figures.append(Figure("speed of light", scale.text(light_s), f"{ratio}x faster than now"))
    if diagnosis.mfu is not None:
        of = f"of the {plain_name(diagnosis.mfu_dtype)} peak" if diagnosis.mfu_dtype else ""
        of += f"; HFU {percent(diagnosis.hfu, 1)}" if diagnosis.hfu is not None else ""
        figures.append(Figure("MFU", percent(diagnosis.mfu, 1), of))
    if diagnosis.energy is not None:
        power, board = si(diagnosis.energy.mean_w, "W"), si(diagnosis.energy.board_w, "W")
        figures.append(
            Figure("energy, predicted", si(diagnosis.energy.joules, "J"), f"{power} of {board}")
        )
    modelled = diagnosis.coverage.modelled_time_fraction
    if modelled is not None:
        figures.append(Figure("modelled", percent(modelled, 1), "of kernel time"))
    return tuple(figures)


def _finding(index: int, finding: Finding, scale: TimeScale, step_s: float) -> FindingView:
    p, tried = finding.prediction, finding.verification
    figures, predicted = [], ""
    if finding.of_wall is not None:
        figures.append(("saves of the wall time", cause_saving(finding, ""), ""))
    elif p is not None and not p.tells(step_s):
        figures.append(("predicted", CANNOT_TELL, ""))
        p = None
    elif p is not None:
        low, high = scale.number(p.low_s), scale.number(p.high_s)
        predicted = f"{scale.text(p.expected_s)} ({low} to {high})"
        figures.append(("predicted", multiple(p.speedup), f"saves {predicted}"))
    elif finding.cause_share is not None:
        figures.append(("takes of the wall time", percent(finding.cause_share), ""))
    if tried is not None:
        ratio = "not timed" if tried.speedup is None else multiple_range(tried.speedup)
        figures.append(("measured", ratio, verdict_word(tried)))
    elif not finding.advice and finding.prediction is not None:
        figures.append(("measured", "not tried", ""))
    return FindingView(
        index=index,
        title=plain_name(finding.title or finding.fix),
        because=plain_name(with_remedy(finding), 2000),
        figures=tuple(figures),
        predicted=predicted,
        low=0.0 if p is None else percent_of(p.low_s, step_s),
        expected=0.0 if p is None else percent_of(p.expected_s, step_s),
        high=0.0 if p is None else percent_of(p.high_s, step_s),
        numerics=_pairs((tried.numerics or {}) if tried is not None else {}),
        sources=tuple(plain_name(source) for source in finding.sources[:20]),
    )


def _growth(diagnosis: Diagnosis) -> GrowthView | None:
    test: BatchDoubling | None = diagnosis.batch_doubling
    if test is None:
        return None
    scale = time_scale(diagnosis)
    once, twice = test.time_s.median, test.doubled_time_s.median
    longest = max(once, twice, test.expected_s or 0.0)

    def bar(label: str, time_s: float, kind: str) -> tuple[str, str, float, str]:
        return label, scale.text(time_s), percent_of(time_s, longest), kind

    bars = [bar("batch 1x", once, "plain")]
    if test.expected_s is not None:
        bars.append(bar("2x, as its work grows", test.expected_s, "expected"))
    bars.append(bar("2x, measured", twice, "plain"))
    return GrowthView(plain_name(test.sentence, 2000), tuple(bars), test.agrees,
                      growth_table(diagnosis, 40))  # fmt: skip


def _ranks(ranks: Sequence[RankRow]) -> tuple[RankView, ...]:
    slowest = max((rank.step_s for rank in ranks), default=0.0)
    return tuple(
        RankView(
            rank.rank,
            time_text(rank.step_s),
            tuple(
                (level, percent_of(value, slowest), time_text(value))
                for level, value in (
                    ("compute", rank.split.compute_s),
                    ("memory", rank.split.memory_s),
                    ("overhead", rank.split.overhead_s),
                    ("unmodelled", rank.split.unmodelled_s),
                )
                if value > 0
            ),
            plain_name(rank.why or ""),
        )
        for rank in ranks
    )


def _environment(diagnosis: Diagnosis) -> tuple[tuple[str, str], ...]:
    device = diagnosis.device
    described = {
        "source": diagnosis.source.get("path") or diagnosis.source.get("name"),
        "arguments": " ".join(str(a) for a in diagnosis.source.get("argv") or ()) or None,
        "device": device.name or f"unknown {device.kind} device",
        "threads": device.threads,
        "device memory": None if device.memory_bytes is None else si(device.memory_bytes, "B"),
    }
    return _pairs({**described, **diagnosis.environment})


def _pairs(values: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (plain_name(str(key)).replace("_", " "), _value(str(key), value))
        for key, value in values.items()
        # Settings of which none is set are no row.
        if value is not None and value != {}
    )


def _value(key: str, value: Any) -> str:
    if isinstance(value, float):
        return time_text(value) if key.endswith("_s") else significant(value)
    if isinstance(value, int) and key.endswith("bytes"):
        return si(value, "B")
    if isinstance(value, Mapping):
        return plain_name(", ".join(f"{name}={its}" for name, its in value.items()), 600)
    return UNKNOWN if value is None else plain_name(str(value), 600)


def _ceilings(diagnosis: Diagnosis) -> tuple[CeilingView, ...]:
    views = []
    for row in diagnosis.device.ceilings:
        source = plain_name(row.source, 600)
        value = time_text(row.value) if row.unit == "s" else si(row.value, row.unit)
        link = source if re.fullmatch(r"https://[!-~]+", source) else ""
        views.append(CeilingView(plain_name(row.name), value, plain_name(row.how), source, link))
    return tuple(views)
