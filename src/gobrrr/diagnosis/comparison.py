"""Two diagnoses side by side: what moved, per leaf, per op and per counter."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

from msgspec.structs import replace

from gobrrr.attribution.leaves import LEAVES
from gobrrr.diagnosis.figures import SYNCHRONISATIONS, Figures, figures_of
from gobrrr.diagnosis.schema import Diagnosis, OpRow, Ratio, Record, Split, Spread
from gobrrr.timeline.quantities import percent

COMPARISON_VERSION = 1
# Fewer steps say nothing of their spread.
FEWEST_STEPS = 3
_OF_MACHINE = "A difference of such times is the machine's as much as the program's."


class Side(Record, kw_only=True):
    """One of the two, in short. ``step_s`` is what its leaves sum to."""

    name: str
    device: str
    torch: str | None
    step_s: float
    time_s: Spread
    split: Split
    regime: str | None
    speed_of_light_s: float | None
    mfu: float | None


class Change(Record, kw_only=True):
    """Seconds per step (or a count) before and after; ``None`` where it is not there.

    ``where``: of a count that grew, the lines that count towards it, as far as they are known.
    """

    name: str
    before: float | None
    after: float | None
    where: str = ""


class OpChange(Record, kw_only=True):
    """An op before and after. ``matched``: ``shapes`` (all equal), ``module`` (its shapes or
    dtypes changed), ``before`` or ``after`` (only there). ``in_noise``: it ran as often on equal
    shapes, and its time changed by no more than those of the steps vary.
    """

    name: str
    module: str | None
    phase: str | None
    shapes_before: str | None
    shapes_after: str | None
    matched: str
    before_s: float | None
    after_s: float | None
    count_before: float | None
    count_after: float | None
    regime_before: str | None
    regime_after: str | None
    in_noise: bool = False

    @property
    def delta_s(self) -> float:
        """Seconds per step that were added (negative: saved)."""
        return (self.after_s or 0.0) - (self.before_s or 0.0)


class Comparison(Record, kw_only=True):
    """What moved. ``speedup`` is before / after; ``verdict``: faster, slower, same, unknown.

    The interval of ``speedup`` divides the ends of the two intervals, so it is wider than 95 %:
    the two were not measured side by side. ``None``: one of them has too few steps for one, or was
    measured on a machine too busy to time it.
    Ops have no interval: a diagnosis keeps their means alone.
    """

    comparison_version: int = COMPARISON_VERSION
    before: Side
    after: Side
    speedup: Ratio | None
    ratio: float | None
    verdict: str
    leaves: list[Change]
    ops: list[OpChange]
    counters: list[Change]
    notices: list[str]


def compare(before: Diagnosis, after: Diagnosis) -> Comparison:
    """Match leaves, counters and ops (``match_ops``), ops with the largest change first.

    Counters are a gate's (``Figures``), those of them that it holds first.
    """
    ratio, speedup = speedup_of(before, after)
    old, new = figures_of(before), figures_of(after)
    counted = [*old.held, *new.held, *old.counted, *new.counted]
    noise = _noise(before, after)
    ops = [replace(op, in_noise=_in_noise(op, noise)) for op in match_ops(before.ops, after.ops)]
    return Comparison(
        before=_side(before),
        after=_side(after),
        speedup=speedup,
        ratio=ratio,
        verdict=_verdict(speedup),
        leaves=[
            Change(
                name=name, before=before.leaves.get(name, 0.0), after=after.leaves.get(name, 0.0)
            )
            for name in LEAVES
        ],
        ops=sorted(ops, key=lambda op: op.in_noise),
        counters=[_counted(name, old, new) for name in dict.fromkeys(counted)],
        notices=_notices(before, after),
    )


def _counted(name: str, old: Figures, new: Figures) -> Change:
    before, after = old.counted.get(name), new.counted.get(name)
    grew = name == SYNCHRONISATIONS and (after or 0.0) > (before or 0.0)
    return Change(name=name, before=before, after=after, where=new.where if grew else "")


def _noise(before: Diagnosis, after: Diagnosis) -> float:
    """The factor that times change by without a reason: what the steps vary by.

    Infinite where a machine was too busy to time the program.
    """
    if before.timed_on_busy_machine or after.timed_on_busy_machine:
        return math.inf
    factor = 1.0
    for time in (before.step.time_s, after.step.time_s):
        if time.n >= FEWEST_STEPS and time.high is not None and time.low > 0:
            factor *= time.high / time.low
    return factor


def _in_noise(op: OpChange, noise: float) -> bool:
    if op.matched != "shapes" or op.count_before != op.count_after:
        return False
    if not op.before_s or not op.after_s:
        return noise == math.inf or op.before_s == op.after_s
    return 1 / noise <= op.after_s / op.before_s <= noise


def speedup_of(before: Diagnosis, after: Diagnosis) -> tuple[float | None, Ratio | None]:
    """The ratio of the steps, and with an interval where both have enough steps for one."""
    if not (before.accounted_s > 0 and after.accounted_s > 0):
        return None, None
    ratio = before.accounted_s / after.accounted_s
    if before.timed_on_busy_machine or after.timed_on_busy_machine:
        return ratio, None
    old, new = before.step.time_s, after.step.time_s
    if min(old.n, new.n) < FEWEST_STEPS or not (old.low > 0 and new.low > 0):
        return ratio, None
    if old.high is None or new.high is None:
        return ratio, None
    return ratio, Ratio(median=ratio, low=old.low / new.high, high=old.high / new.low)


def _verdict(speedup: Ratio | None) -> str:
    if speedup is None:
        return "unknown"
    if speedup.low > 1:
        return "faster"
    return "slower" if speedup.high < 1 else "same"


def _side(diagnosis: Diagnosis) -> Side:
    torch_version = diagnosis.environment.get("torch")
    return Side(
        name=str(diagnosis.source.get("name") or ""),
        device=diagnosis.device.name,
        torch=str(torch_version) if torch_version else None,
        step_s=diagnosis.accounted_s,
        time_s=diagnosis.step.time_s,
        split=diagnosis.split,
        regime=diagnosis.regime,
        speed_of_light_s=diagnosis.speed_of_light_s,
        mfu=diagnosis.mfu,
    )


def match_ops(before: Sequence[OpRow], after: Sequence[OpRow]) -> list[OpChange]:
    """Rows of equal name, module, phase, shapes and dtypes; then, of what is left, those whose
    name, module and phase are equal and unique on both sides (their shapes changed).
    """
    exact = ("name", "module", "phase", "shapes", "dtypes")
    old, new = _grouped(before, exact), _grouped(after, exact)
    changes = [_change(old.pop(key), new.pop(key), "shapes") for key in [*old] if key in new]
    loose = ("name", "module", "phase")
    left_old = _grouped([row for rows in old.values() for row in rows], loose)
    left_new = _grouped([row for rows in new.values() for row in rows], loose)
    for key in [*left_old]:
        if key in left_new and _one_shape(left_old[key]) and _one_shape(left_new[key]):
            changes.append(_change(left_old.pop(key), left_new.pop(key), "module"))
    exact_old = _grouped([row for rows in left_old.values() for row in rows], exact)
    exact_new = _grouped([row for rows in left_new.values() for row in rows], exact)
    changes += [_change(rows, [], "before") for rows in exact_old.values()]
    changes += [_change([], rows, "after") for rows in exact_new.values()]
    changes.sort(key=lambda change: -abs(change.delta_s))
    return changes


def _grouped(rows: Sequence[OpRow], fields: Sequence[str]) -> dict[Hashable, list[OpRow]]:
    groups: dict[Hashable, list[OpRow]] = defaultdict(list)
    for row in rows:
        groups[tuple(getattr(row, name) for name in fields)].append(row)
    return dict(groups)


def _one_shape(rows: Sequence[OpRow]) -> bool:
    return len({(row.shapes, row.dtypes) for row in rows}) == 1


def _change(old: Sequence[OpRow], new: Sequence[OpRow], matched: str) -> OpChange:
    first = (*old, *new)[0]

    def of(rows: Sequence[OpRow], name: str) -> Any:
        return getattr(rows[0], name) if rows else None

    def total(rows: Sequence[OpRow], name: str) -> float | None:
        return sum(getattr(row, name) for row in rows) if rows else None

    return OpChange(
        name=first.name,
        module=first.module,
        phase=first.phase,
        shapes_before=of(old, "shapes"),
        shapes_after=of(new, "shapes"),
        matched=matched,
        before_s=total(old, "time_s"),
        after_s=total(new, "time_s"),
        count_before=total(old, "count"),
        count_after=total(new, "count"),
        regime_before=of(old, "regime"),
        regime_after=of(new, "regime"),
    )


def _notices(before: Diagnosis, after: Diagnosis) -> list[str]:
    """What differs between the two that is not the program."""
    pairs = [
        ("device", before.device.name, after.device.name),
        ("threads", before.device.threads, after.device.threads),
        ("torch", before.environment.get("torch"), after.environment.get("torch")),
        ("Python", before.environment.get("python"), after.environment.get("python")),
        ("gobrrr", before.environment.get("gobrrr"), after.environment.get("gobrrr")),
        ("kind of step", before.step.kind, after.step.kind),
    ]
    busy = sides_that(
        ("before", before.timed_on_busy_machine), ("after", after.timed_on_busy_machine)
    )
    return [
        *(
            [f"Measured on a machine too busy to time the program: {busy}. {_OF_MACHINE}"]
            if busy
            else []
        ),
        *_of_two_programs(before, after),
        *(
            f"Not the same {what}: {old or 'unknown'} before, {new or 'unknown'} after."
            for what, old, new in pairs
            if old != new
        ),
    ]


# Matched ops that take less than this share of either step: hardly one program before and after.
_HARDLY_MATCHED = 0.5


def _of_two_programs(before: Diagnosis, after: Diagnosis) -> list[str]:
    """A notice where two files hardly run an op in common: no change of one program."""
    # One file has several functions and arguments; a file that was renamed runs the same ops.
    names = [
        str(side.source.get("name") or "").partition(":")[0].split(" ")[0]
        for side in (before, after)
    ]
    if not all(names) or names[0] == names[1]:
        return []
    matched = [op for op in match_ops(before.ops, after.ops) if op.matched == "shapes"]
    shares = []
    for rows, common_s in (
        (before.ops, sum(op.before_s or 0.0 for op in matched)),
        (after.ops, sum(op.after_s or 0.0 for op in matched)),
    ):
        total_s = sum(row.time_s for row in rows)
        if not total_s:
            return []
        shares.append(common_s / total_s)
    if max(shares) >= _HARDLY_MATCHED:
        return []
    return [
        f"Two programs, it seems: {names[0]} before, {names[1]} after, and ops with equal shapes "
        f"take {percent(shares[0])} and {percent(shares[1])} of their op time. A ratio of their "
        "times says nothing of a change."
    ]


def sides_that(*sides: tuple[str, bool]) -> str:
    """The names of those that are true, with an "and" between two; or nothing."""
    return " and ".join(name for name, is_one in sides if is_one)
