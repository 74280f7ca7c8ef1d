"""Gates: what a step may not exceed, and what it may not grow by.

What is counted (FLOPs, bytes, kernels, synchronisations, ...) is the same on any machine, so it is
held exactly, sums of work nearly so; times are held with a tolerance, and only on the device of the
baseline.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gobrrr.attribution.leaves import TOP_LEVELS
from gobrrr.diagnosis.comparison import FEWEST_STEPS, sides_that
from gobrrr.diagnosis.figures import COUNTED, SYNCHRONISATIONS, Figures, StepTime, figures_of
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import TimeScale, percent, percent_change

_KNOWN = frozenset((*COUNTED, "page_faults", "compiled_graphs", "reads_by_optimizer"))
# Sums of floats in another order; far under one op of the smallest step.
_ROUNDING = 1e-9
# Of steps that differ in size counts are means over those that happened to be measured.
_OF_MEANS = 0.1
DEFAULT_TIME_TOLERANCE = 0.1
# FLOPs and bytes are sums over ops that a library may word differently without any being slower.
_SUMS, DEFAULT_TOLERANCE = ("flops", "bytes"), 0.005
# What a baseline holds beside counters.
STEP = "step"


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


def _nearest(name: str) -> str:
    """The counter that a mistyped, shortened or otherwise spelt name means; empty: none is near."""
    short = name.lower().removeprefix("max_").replace("iz", "is").removesuffix("s")
    begins = [known for known in sorted(_KNOWN) if short and known.startswith(short)]
    return next(iter(begins or difflib.get_close_matches(short, sorted(_KNOWN), n=1)), "")


def over_limits(step: Diagnosis | Figures, limits: Limits) -> list[str]:
    """One line per limit that does not hold; a limit on what was not counted does not hold.

    Raises InputError for a counter that no diagnosis has.
    """
    figures = _figures(step)
    breaches = []
    for name, most in limits.counters.items():
        if name not in figures.counters and name not in _KNOWN:
            near = _nearest(name)
            meant = f"did you mean {near}? There" if near else "there"
            raise InputError(f"no counter {name!r}; {meant} are {', '.join(sorted(_KNOWN))}")
        value = figures.counters.get(name)
        if value is None:
            known = ", ".join(sorted(figures.counters)) or "nothing"
            breaches.append(f"{name}: not counted in this diagnosis (it counts {known})")
        elif not value <= most * (1 + _ROUNDING):
            breaches.append(
                f"{name}: {_plain(value)} per step, at most {_plain(most)} allowed"
                f"{_where(name, figures)}"
            )
    if limits.regime is not None and figures.regime != limits.regime:
        found = figures.regime or "no verdict could be drawn"
        breaches.append(f"regime: {found}, expected {limits.regime}")
    if limits.max_overhead is not None:
        breaches += _too_much_overhead(figures.overhead, limits.max_overhead)
    if limits.max_step_s is not None and not isinstance(step, Figures):
        # The usual step, whatever its parts sum to.
        scale, most = TimeScale.of(step.step_s), limits.max_step_s
        if not step.step_s <= most:
            breaches.append(
                f"step: {scale.text(step.step_s)}, at most {scale.number(most)} allowed"
            )
    return breaches


def _figures(step: Diagnosis | Figures) -> Figures:
    return step if isinstance(step, Figures) else figures_of(step)


def _where(name: str, figures: Figures) -> str:
    return f": {figures.where}" if name == SYNCHRONISATIONS and figures.where else ""


def _too_much_overhead(share: float | None, most: float) -> list[str]:
    allowed = f"at most {percent(most, 1)} allowed"
    if share is None:
        return [f"overhead: no verdict could be drawn, {allowed}"]
    return [] if share <= most else [f"overhead: {percent(share, 1)} of the step, {allowed}"]


@dataclass(frozen=True, slots=True)
class GateResult:
    """``breaches``: one line each, none if the gate holds. ``notes``: what else there is to say.

    ``better``: the figures that are less than in the baseline. ``held``: the names of what was
    compared.
    """

    breaches: tuple[str, ...]
    notes: tuple[str, ...] = ()
    better: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


def against_baseline(
    step: Diagnosis | Figures,
    baseline: Diagnosis | Figures,
    *,
    exact: bool = False,
    times: bool = True,
    tolerance: float = DEFAULT_TOLERANCE,
    time_tolerance: float = DEFAULT_TIME_TOLERANCE,
    only: Sequence[str] = (),
) -> GateResult:
    """Counters that grew (``exact``: changed) and, on the same device, times that grew.

    FLOPs and bytes may grow by ``tolerance`` (0.005 is 0.5 %), other counts by nothing. ``only``:
    names of counters, and ``step`` for its time, that are compared; empty: all.

    The step time is in breach if it grew by more than ``time_tolerance`` (0.1 is 10 %) and the two
    95 % intervals lie apart. Where that cannot be told, times are not compared and a note says why:
    another device, a machine too busy to time the program, fewer than three steps on a side. A
    prediction is no sample: against another prediction the first alone decides.

    Raises:
        InputError: there is nothing in the baseline to hold this step against, or no figure of a
            name in ``only``.
    """
    now, before = _figures(step), _figures(baseline)
    _refuse_unknown(only, before)
    held = [name for name in before.held if not only or name in only]
    times = times and (not only or STEP in only)
    if not held and not times:
        raise InputError("the baseline has no counters, and times are not to be compared")
    breaches: list[str] = []
    notes: list[str] = []
    better: list[str] = []
    varying = now.varying or before.varying
    if varying:
        notes.append(f"steps differ in size: counts are means, held within {percent(_OF_MEANS)}")
    counts_alone = now.time is None
    compared: list[str] = []
    uncounted: list[str] = []
    for name in held:
        old, new = before.counters[name], now.counters.get(name)
        if new is None:
            if counts_alone and name not in only:
                uncounted.append(name)
            else:
                breaches.append(f"{name}: {_plain(old)} per step in the baseline, not counted here")
            continue
        compared.append(name)
        slack = max(_OF_MEANS if varying else 0.0, tolerance if name in _SUMS else 0.0, _ROUNDING)
        slack *= abs(old)
        line = f"{name}: {_plain(new)} per step, {_plain(old)} in the baseline{_growth(old, new)}"
        if new > old + slack:
            breaches.append(f"{line}{_where(name, now)}")
        elif new < old - slack:
            (breaches if exact else better).append(line)
    if uncounted:
        notes.append(f"of one recorded step not counted: {', '.join(uncounted)}")
    if times:
        reason = _not_comparable(now, before)
        if reason:
            notes.append(f"times not compared: {reason}")
        else:
            assert now.time is not None and before.time is not None
            compared.append(STEP)
            line, worse = _changed(now.time, before.time, time_tolerance)
            (breaches if worse else better).extend([line] if line else [])
    return GateResult(tuple(breaches), tuple(notes), tuple(better), tuple(compared))


def _refuse_unknown(only: Sequence[str], baseline: Figures) -> None:
    there = (*baseline.held, *((STEP,) if baseline.time is not None else ()))
    for name in only:
        if name not in there:
            raise InputError(f"no figure {name!r} in the baseline; it has {', '.join(there)}")


def _not_comparable(here: Figures, there: Figures) -> str:
    """Why no growth of the step time could be the program's; nothing where it could."""
    if here.time is None or there.time is None:
        return "nothing was timed" + (" for the baseline" if here.time is not None else "")
    if (here.device, here.kind, here.threads) != (there.device, there.kind, there.threads):
        return f"this is {here.device or 'unknown'}, the baseline {there.device or 'unknown'}"
    busy = sides_that(("this diagnosis", here.time.busy), ("the baseline", there.time.busy))
    if busy:
        return f"the machine was too busy to time {busy}; measure again on an idle machine"
    now, before = here.time.steps, there.time.steps
    if now == before == 0:
        return ""
    if min(now, before) < FEWEST_STEPS:
        return (
            f"too few steps for an interval ({now} here, {before} in the baseline; "
            f"{FEWEST_STEPS} are enough)"
        )
    return ""


def _changed(now: StepTime, before: StepTime, tolerance: float) -> tuple[str, bool]:
    """What is to be said of the step time, if anything, and whether it is a breach."""
    if not before.step_s > 0:
        return "", False
    scale = TimeScale.of(now.step_s)
    line = (
        f"step: {scale.text(now.step_s)}, {scale.number(before.step_s)} in the baseline"
        f"{_growth(before.step_s, now.step_s)}"
    )
    if now.step_s <= before.step_s * (1 + tolerance):
        faster = now.steps and now.high_s is not None and now.high_s < before.low_s
        return (line, False) if faster else ("", False)
    if now.steps and (before.high_s is None or now.low_s <= before.high_s):
        return "", False
    return f"{line}, more than {percent(tolerance)} allowed", True


def _growth(before: float, now: float) -> str:
    return f" ({percent_change(before, now, 1)})" if before else ""


def _plain(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.6g}"
