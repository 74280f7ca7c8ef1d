"""Gates: what a step may not exceed, and what it may not grow by.

What is counted (FLOPs, bytes, kernels, synchronisations, ...) is the same on any machine, so it is
held exactly; times are held with a tolerance, and only on the device of the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gobrrr.attribution.leaves import TOP_LEVELS
from gobrrr.diagnosis.comparison import FEWEST_STEPS, busy_sides
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import TimeScale, percent, percent_change

# Counters that depend on the program alone. Page faults depend on the allocator and the system.
COUNTED: tuple[str, ...] = (
    "flops", "bytes", "ops", "kernels", "copies", "collectives", "synchronisations",
    "reads_of_one_value", "graph_breaks", "recompilations",
)  # fmt: skip
_KNOWN = frozenset((*COUNTED, "page_faults", "compiled_graphs"))
# Sums of floats in another order; far under one op of the smallest step.
_ROUNDING = 1e-9
# Of steps that differ in size counts are means over those that happened to be measured.
_OF_MEANS = 0.1
DEFAULT_TIME_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Limits:
    """What a step may not exceed; ``None`` is no limit.

    Attributes:
        counters: the most per step, by name of a counter (``Diagnosis.counters``).
        regime: ``compute``, ``memory`` or ``overhead``.
        max_overhead: the largest share of the step (0 to 1) that may be overhead.
        max_step_s: seconds per step. A time: flaky on a machine that does other things too.
    """

    counters: Mapping[str, float] = field(default_factory=dict)
    regime: str | None = None
    max_overhead: float | None = None
    max_step_s: float | None = None

    def __post_init__(self) -> None:
        if self.regime is not None and self.regime not in TOP_LEVELS:
            raise InputError(f"no regime {self.regime!r}; there are {', '.join(TOP_LEVELS)}")
        if self.max_overhead is not None and not 0 <= self.max_overhead <= 1:
            raise InputError(f"max_overhead is a share from 0 to 1, not {self.max_overhead}")


def _counter_of(diagnosis: Diagnosis, name: str) -> str:
    # A CPU has nothing to synchronise with; what reads one value there (``.item()``) waits for the
    # device on any other.
    missing = name == "synchronisations" and name not in diagnosis.counters
    return "reads_of_one_value" if missing and diagnosis.device.kind == "cpu" else name


def over_limits(diagnosis: Diagnosis, limits: Limits) -> list[str]:
    """One line per limit that does not hold; a limit on what was not counted does not hold.

    Raises InputError for a counter that no diagnosis has.
    """
    breaches = []
    for name, most in limits.counters.items():
        if name not in diagnosis.counters and name not in _KNOWN:
            raise InputError(f"no counter {name!r}; there are {', '.join(sorted(_KNOWN))}")
        name = _counter_of(diagnosis, name)
        value = diagnosis.counters.get(name)
        if value is None:
            known = ", ".join(sorted(diagnosis.counters)) or "nothing"
            breaches.append(f"{name}: not counted in this diagnosis (it counts {known})")
        elif not value <= most * (1 + _ROUNDING):
            breaches.append(f"{name}: {_plain(value)} per step, at most {_plain(most)} allowed")
    if limits.regime is not None and diagnosis.regime != limits.regime:
        found = diagnosis.regime or "no verdict could be drawn"
        breaches.append(f"regime: {found}, expected {limits.regime}")
    if limits.max_overhead is not None:
        breaches += _too_much_overhead(diagnosis, limits.max_overhead)
    if limits.max_step_s is not None and not diagnosis.step_s <= limits.max_step_s:
        scale, most = TimeScale.of(diagnosis.step_s), limits.max_step_s
        breaches.append(
            f"step: {scale.text(diagnosis.step_s)}, at most {scale.number(most)} allowed"
        )
    return breaches


def _too_much_overhead(diagnosis: Diagnosis, most: float) -> list[str]:
    allowed = f"at most {percent(most, 1)} allowed"
    # Without a verdict something contradicts the parts of the step, which may be its overhead.
    if diagnosis.regime is None or not diagnosis.accounted_s > 0:
        return [f"overhead: no verdict could be drawn, {allowed}"]
    share = diagnosis.split.overhead_s / diagnosis.accounted_s
    return [] if share <= most else [f"overhead: {percent(share, 1)} of the step, {allowed}"]


@dataclass(frozen=True, slots=True)
class GateResult:
    """``breaches``: one line each, none if the gate holds. ``notes``: what else there is to say."""

    breaches: tuple[str, ...]
    notes: tuple[str, ...]


def against_baseline(
    diagnosis: Diagnosis,
    baseline: Diagnosis,
    *,
    exact: bool = False,
    times: bool = True,
    time_tolerance: float = DEFAULT_TIME_TOLERANCE,
) -> GateResult:
    """Counters that grew (``exact``: changed) and, on the same device, times that grew.

    The step time is in breach if it grew by more than ``time_tolerance`` (0.1 is 10 %) and the two
    95 % intervals lie apart. Where that cannot be told, times are not compared and a note says why:
    another device, a machine too busy to time the program, fewer than three steps on a side. A
    prediction is no sample: against another prediction the first alone decides.

    Raises:
        InputError: there is nothing in the baseline to hold this diagnosis against.
    """
    breaches, notes = [], []
    held = [name for name in COUNTED if name in baseline.counters]
    if not held and not times:
        raise InputError("the baseline has no counters, and times are not to be compared")
    slack_of = _ROUNDING
    if diagnosis.step.varying or baseline.step.varying:
        slack_of = _OF_MEANS
        notes.append(f"steps differ in size: counts are means, held within {percent(_OF_MEANS)}")
    for name in held:
        before, now = baseline.counters[name], diagnosis.counters.get(name)
        if now is None:
            breaches.append(f"{name}: {_plain(before)} per step in the baseline, not counted here")
            continue
        slack = slack_of * abs(before)
        line = f"{name}: {_plain(now)} per step, {_plain(before)} in the baseline"
        if now > before + slack or (exact and now < before - slack):
            breaches.append(f"{line}{_growth(before, now)}")
        elif now < before - slack:
            notes.append(f"{line}{_growth(before, now)}; a new baseline would make this the limit")
    if not times:
        return GateResult(tuple(breaches), tuple(notes))
    reason = _not_comparable(diagnosis, baseline)
    if reason:
        notes.append(f"times not compared: {reason}")
    else:
        breaches += _slower(diagnosis, baseline, time_tolerance)
    return GateResult(tuple(breaches), tuple(notes))


def _not_comparable(diagnosis: Diagnosis, baseline: Diagnosis) -> str:
    """Why no growth of the step time could be the program's; nothing where it could."""

    def device_of(side: Diagnosis) -> tuple[str, str, int | None]:
        return side.device.name, side.device.kind, side.device.threads

    if device_of(diagnosis) != device_of(baseline):
        here, there = diagnosis.device.name or "unknown", baseline.device.name or "unknown"
        return f"this is {here}, the baseline {there}"
    busy = busy_sides(diagnosis, baseline, "this diagnosis", "the baseline")
    if busy:
        return f"the machine was too busy to time {busy}; measure again on an idle machine"
    now, before = diagnosis.step.time_s.n, baseline.step.time_s.n
    if now == before == 0:
        return ""
    if min(now, before) < FEWEST_STEPS:
        return (
            f"too few steps for an interval ({now} here, {before} in the baseline; "
            f"{FEWEST_STEPS} are enough)"
        )
    return ""


def _slower(diagnosis: Diagnosis, baseline: Diagnosis, tolerance: float) -> list[str]:
    before, now = baseline.accounted_s, diagnosis.accounted_s
    if not before > 0 or now <= before * (1 + tolerance):
        return []
    old, new = baseline.step.time_s, diagnosis.step.time_s
    if new.n and (old.high is None or new.low <= old.high):
        return []
    scale = TimeScale.of(now)
    return [
        f"step: {scale.text(now)}, {scale.number(before)} in the baseline{_growth(before, now)}, "
        f"more than {percent(tolerance)} allowed"
    ]


def _growth(before: float, now: float) -> str:
    return f" ({percent_change(before, now, 1)})" if before else ""


def _plain(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.6g}"
