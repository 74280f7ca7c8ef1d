"""The ranks of a job as lanes on one axis of time: a layout of ``Diagnosis.lanes``.

Across, everything is in percent of the drawn step; down, in pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.diagnosis.schema import JobLanes, RankLane
from gobrrr.reports.html.waterfall import percent_of
from gobrrr.reports.words import PHASE_SHORT
from gobrrr.timeline.names import plain_name
from gobrrr.timeline.quantities import time_text

# From how many lanes on each is this high: its work, its collectives, what is between two lanes.
_HEIGHTS = ((33, (7, 4, 3)), (17, (10, 6, 6)), (0, (17, 10, 11)))
_GAP = 2
_FOOT = 20
# Arrows that can be told from each other, and the least wait that is seen as wide as one.
_MOST_ARROWS = 100
_LEAST_WAIT = 0.005
_MOST_TICKS = 6
# A stretch this wide has room for its phase, in percent.
_ROOM_FOR_LABEL = 9.0
_KNOWN_PHASES = ("forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class BarView:
    """A stretch of time; ``title`` is what a pointer over it shows."""

    kind: str
    left: float
    width: float
    label: str = ""
    title: str = ""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One rank: ``top`` of its work, ``calls_top`` of its collectives."""

    rank: int
    top: int
    calls_top: int
    own: BarView
    work: tuple[BarView, ...]
    calls: tuple[BarView, ...]


@dataclass(frozen=True, slots=True)
class ArrowView:
    """From where a collective begins to wait to where the rank comes that it waits for."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True)
class TickView:
    """A time on the axis; ``anchor`` is how its label stands to it."""

    at: float
    label: str
    anchor: str


@dataclass(frozen=True, slots=True)
class LanesView:
    """All lanes, and what is said of them."""

    title: str
    clocks: str
    summary: str
    left_out: str
    height: int
    pitch: int
    work_height: int
    calls_height: int
    lanes: tuple[LaneView, ...]
    arrows: tuple[ArrowView, ...]
    ticks: tuple[TickView, ...]
    phases: tuple[str, ...]
    full: str


def lanes_view(drawn: JobLanes | None) -> LanesView | None:
    """The layout; ``None`` if there is nothing to lay out."""
    if drawn is None or not drawn.lanes or drawn.duration_ns <= 0:
        return None
    count = len(drawn.lanes)
    work, calls, between = next(heights for least, heights in _HEIGHTS if count >= least)
    pitch = work + _GAP + calls + between
    lanes = tuple(
        _lane(lane, drawn, i * pitch, i * pitch + work + _GAP) for i, lane in enumerate(drawn.lanes)
    )
    arrows, too_many = _arrows(drawn, lanes, calls)
    phases = dict.fromkeys(bar.kind for lane in lanes for bar in lane.work)
    untold = any(wait is None for lane in drawn.lanes for wait in lane.call_wait_ns)
    return LanesView(
        title=f"All ranks in one step ({plain_name(drawn.step)}, {_time(drawn.duration_ns)})",
        clocks=_clocks(drawn),
        summary=_summary(drawn),
        left_out=_left_out(drawn, too_many),
        height=count * pitch + _FOOT,
        pitch=pitch,
        work_height=work,
        calls_height=calls,
        lanes=lanes,
        arrows=arrows,
        ticks=_ticks(drawn.duration_ns),
        phases=tuple(phase for phase in (*_KNOWN_PHASES, "other") if phase in phases),
        full="transfer, or waiting and transfer that are not told apart" if untold else "transfer",
    )


def _time(ns: float) -> str:
    return time_text(ns * 1e-9)


def _lane(lane: RankLane, drawn: JobLanes, top: int, calls_top: int) -> LaneView:
    whole = drawn.duration_ns

    def bar(kind: str, start_ns: int, ns: int, label: str = "", title: str = "") -> BarView:
        return BarView(kind, percent_of(start_ns, whole), percent_of(ns, whole), label, title)

    work = []
    for phase, start, ns in zip(lane.work_phase, lane.work_start_ns, lane.work_duration_ns):
        label = PHASE_SHORT.get(phase, "") if percent_of(ns, whole) >= _ROOM_FOR_LABEL else ""
        kind = phase if phase in _KNOWN_PHASES else "other"
        work.append(bar(kind, start, ns, label, f"{kind}: {_time(ns)}"))
    calls = []
    for which, start, ns, wait, last in zip(
        lane.call_name, lane.call_start_ns, lane.call_duration_ns, lane.call_wait_ns,
        lane.call_waits_for,
    ):  # fmt: skip
        waited = min(wait or 0, ns)
        title = f"{plain_name(drawn.names[which])}: {_time(ns)}"
        if last is not None:
            title += f", {_time(waited)} of it waiting for rank {last}"
        if waited:
            calls.append(bar("wait", start, waited, title=title))
        calls.append(bar("transfer", start + waited, ns - waited, title=title))
    own = bar("own", lane.start_ns, lane.end_ns - lane.start_ns)
    return LaneView(lane.rank, top, calls_top, own, tuple(work), tuple(calls))


def _arrows(
    drawn: JobLanes, lanes: tuple[LaneView, ...], calls_height: int
) -> tuple[tuple[ArrowView, ...], int]:
    """The longest waits as arrows, and how many more there are; what no eye can see is none."""
    whole = drawn.duration_ns
    middle = {view.rank: view.calls_top + calls_height / 2 for view in lanes}
    waits = [
        (wait, start, lane.rank, last)
        for lane in drawn.lanes
        for start, wait, last in zip(lane.call_start_ns, lane.call_wait_ns, lane.call_waits_for)
        if wait and last is not None and last in middle and wait >= _LEAST_WAIT * whole
    ]
    waits.sort(key=lambda found: -found[0])
    shown = waits[:_MOST_ARROWS]
    return tuple(
        ArrowView(
            percent_of(start, whole), middle[rank], percent_of(start + wait, whole), middle[last]
        )
        for wait, start, rank, last in shown
    ), len(waits) - len(shown)


def _clocks(drawn: JobLanes) -> str:
    text = "The ranks ran on one host and share its clock"
    if not drawn.one_clock:
        text = "The ranks' clocks are aligned by the ends of collectives, which all ranks see"
    if drawn.clock_residual_s is None:
        return f"{text}."
    apart = time_text(drawn.clock_residual_s)
    return f"{text}; the recorded ends of a collective differ by {apart} between ranks (median)."


def _summary(drawn: JobLanes) -> str:
    """What the picture shows, for who does not see it."""
    text = f"{len(drawn.lanes)} ranks in a step of {_time(drawn.duration_ns)}."
    waits = [
        (wait, lane.rank, last, drawn.names[which])
        for lane in drawn.lanes
        for wait, last, which in zip(lane.call_wait_ns, lane.call_waits_for, lane.call_name)
        if wait and last is not None
    ]
    if not waits:
        return f"{text} No collective waits for another rank."
    wait, rank, last, name = max(waits, key=lambda found: found[0])
    return (
        f"{text} The longest wait is that of rank {rank}, {_time(wait)} for rank {last} in "
        f"{plain_name(name)}."
    )


def _left_out(drawn: JobLanes, arrows: int) -> str:
    calls = sum(lane.left_out for lane in drawn.lanes)
    parts = []
    if drawn.ranks > len(drawn.lanes):
        parts.append(
            f"{drawn.ranks - len(drawn.lanes)} of {drawn.ranks} ranks (those that wait least and "
            "are waited for least)"
        )
    if calls:
        parts.append(f"the {calls:,} shortest collectives")
    if arrows:
        parts.append(f"arrows of the {arrows:,} shortest waits")
    return f"Not drawn: {'; '.join(parts)}." if parts else ""


def _ticks(whole_ns: int) -> tuple[TickView, ...]:
    """Round times, at most ``_MOST_TICKS``."""
    unit = 10 ** max(0, len(str(whole_ns)) - 2)
    every = next(
        size
        for size in (unit * factor for factor in (1, 2, 5, 10, 20, 50, 100))
        if whole_ns // size < _MOST_TICKS
    )
    ticks = []
    for at_ns in range(0, whole_ns + 1, every):
        at = percent_of(at_ns, whole_ns)
        anchor = "start" if not at_ns else "end" if at > 94 else "middle"
        ticks.append(TickView(at, _time(at_ns) if at_ns else "0", anchor))
    return tuple(ticks)
