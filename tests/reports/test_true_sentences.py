"""What verdicts and reports say of made-up diagnoses is true of their numbers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gobrrr.attribution.leaves import LEAVES, top_levels
from gobrrr.devices.ceilings import Ceiling
from gobrrr.diagnosis.fix_schema import VERDICTS, Finding, FixSummary, Prediction, Ratio
from gobrrr.diagnosis.fix_schema import Verification as Trial
from gobrrr.diagnosis.schema import (
    AboveCeiling,
    CollectiveRow,
    Diagnosis,
    JobRecord,
    OpRow,
    RankRow,
    SlowStep,
)
from gobrrr.diagnosis.storage import load
from gobrrr.diagnosis.verdict import LITTLE, VARY, regime_of, split_of, verdict_of
from gobrrr.reports import sentences
from gobrrr.reports.rank_tables import collective_table, job_line
from gobrrr.reports.terminal import report_text
from gobrrr.timeline.quantities import multiple, percent
from gobrrr.timeline.step_kinds import WallPart, WallTime

_DATA = Path(__file__).parent.parent / "data"
_EMPTY = load(_DATA / "minimal.json")
_ROW = load(_DATA / "training.json").ops[0]
_LEVELS = ("compute", "memory", "overhead")
_FIXES = ("compile", "bf16_autocast", "larger_batch", "channels_last", "fused_optimizer")
_LEAVES_OF_FIXES = {
    "compile": ["overhead.python", "overhead.dispatch", "memory.device.roof"],
    "bf16_autocast": ["compute.matrix.roof", "compute.matrix.below"],
    "larger_batch": ["overhead.python", "overhead.dispatch", "overhead.launch"],
    "channels_last": ["memory.device.below"],
    "fused_optimizer": ["overhead.dispatch"],
}
# Few different values, so that equals are common.
_SHARES = st.sampled_from([0.0, 0.0, 0.0, 0.01, 0.02, 0.05, 0.2, 0.3, 0.5])
_GAINS = st.sampled_from([0.9, 1.0, 1.2, 1.3, 1.3, 2.0, 3.0])


@st.composite
def steps(draw: st.DrawFn, leaves: dict[str, float]) -> dict[str, Any]:
    """Times of a step whose leaves sum to the figure that they are of."""
    total = sum(leaves.values())
    n = draw(st.sampled_from([0, 1, 1, 3, 24]))
    basis = draw(st.sampled_from(["median", "mean"]))
    other = total * (draw(st.sampled_from([1.0, 1.01, 0.3, 4.0])) if n > 1 else 1.0)
    median, mean = (other, total) if basis == "mean" else (total, other)
    spread = draw(st.sampled_from([1.0, 1.02, 1.8, 10.0])) if n > 1 else 1.0
    time = replace(
        _EMPTY.step.time_s, median=median, mean=mean, low=median, high=median * spread, n=n
    )
    slow = []
    if n == 24 and draw(st.booleans()):
        times = draw(st.lists(st.sampled_from([1.5, 1.6, 10.0]), min_size=1, max_size=9))
        slow = [SlowStep(index=i, time_s=median * by) for i, by in enumerate(times)]
    return {
        "time_s": time,
        "basis": basis,
        "slow_steps": slow,
        "varying": n > 1 and draw(st.booleans()),
        "profiled_steps": draw(st.integers(0, n)) if n else 0,
    }


@st.composite
def ops(draw: st.DrawFn, leaves: dict[str, float]) -> list[OpRow]:
    """Ops of each level, the most time first; kernels of one may be of two levels."""
    rows, sums = [], top_levels(leaves)
    for level in ("compute", "memory"):
        left = sums[level]
        for i in range(draw(st.integers(0, 4)) if left else 0):
            own = min(left, sums[level] * draw(st.sampled_from([0.25, 0.25, 0.5, 1.0])))
            left -= own
            if not own:
                break
            beside = draw(st.sampled_from([0.0, 0.0, 0.3])) * own
            below = draw(st.sampled_from([0.0, 0.4, 0.9]))
            rate = draw(st.sampled_from([None, 5e13, 4e14]))
            fixed = draw(st.sampled_from([0.0, 0.1])) * own
            rows.append(
                replace(
                    _ROW,
                    name=draw(st.sampled_from(["aten::mm", "aten::add"])),
                    shapes=f"({i},8)x(8,8)",
                    regime=level,
                    time_s=own + beside + fixed,
                    kernel_s=own + beside,
                    fixed_s=fixed,
                    roof_s=(1 - below) * own,
                    below_s=below * own,
                    roof_fraction=draw(st.sampled_from([None, 1 - below, 1.4])),
                    page_faults_s=0.0,
                    dtype=draw(st.sampled_from(["float32", "tf32", "bfloat16"])),
                    unit=draw(st.sampled_from(["matrix", "vector"])),
                    flops_per_s=rate,
                    count=draw(st.sampled_from([1, 40])),
                )
            )
    return sorted(rows, key=lambda row: -row.time_s)


@st.composite
def findings(draw: st.DrawFn, step_s: float) -> tuple[list[Finding], FixSummary | None]:
    """Fixes that are promised, or tried; and the best that was allowed."""
    searched, precision = draw(st.booleans()), draw(st.booleans())
    found = []
    for name in draw(st.lists(st.sampled_from(_FIXES), unique=True)):
        saved = draw(st.sampled_from([0.02, 0.1, 0.4])) * step_s
        trial = None
        if searched:
            verdict, gain = draw(st.sampled_from(VERDICTS)), draw(_GAINS)
            if verdict == "faster":
                gain = max(gain, 1.2)
            ratio = Ratio(median=gain, low=gain - 0.02, high=gain + 0.02)
            trial = Trial(fixes=[name], verdict=verdict, speedup=ratio)
        found.append(
            Finding(
                fix=name,
                because="",
                title=name,
                verification=trial,
                leaves=_LEAVES_OF_FIXES[name],
                precision="bfloat16" if name == "bf16_autocast" else "",
                prediction=Prediction(
                    low_s=0.8 * saved, expected_s=saved, high_s=1.2 * saved, speedup=1.1
                ),
            )
        )
    if not searched:
        return found, None
    won = [
        f.verification
        for f in found
        if f.verification is not None and f.verification.won and (precision or not f.precision)
    ]
    best = max(won, key=_gain, default=None)
    names = [] if best is None else best.fixes
    return found, FixSummary(best=names, verification=best)


@st.composite
def diagnoses(draw: st.DrawFn) -> Diagnosis:
    """A consistent diagnosis: its leaves sum to its step, its ops to no more than their levels."""
    leaves = {leaf: draw(_SHARES) for leaf in LEAVES}
    if not sum(leaves.values()):
        leaves[draw(st.sampled_from(LEAVES))] = 0.1
    scale = draw(st.sampled_from([1e-4, 1e-2, 1.0])) / sum(leaves.values())
    leaves = {leaf: scale * value for leaf, value in leaves.items()}
    step = draw(steps(leaves))
    regime, close = regime_of(leaves)
    found, summary = draw(findings(sum(leaves.values())))
    rates = {"float32": 6e13, "tf32": 5e14, "bfloat16": 9e14}
    rates = {name: rates[name] for name in draw(st.sets(st.sampled_from([*rates]), min_size=1))}
    steps_share = draw(st.sampled_from([0.3, 0.6, 1.0]))
    rest = 1 - steps_share
    names = draw(st.sampled_from([["evaluation"], ["steps of 4"], ["steps of 4", "steps of 9"]]))
    parts = [WallPart(n, 1.0, rest / len(names), 1.0) for n in names] if rest else []
    rows = draw(ops(leaves))
    above = [
        AboveCeiling(op=row.name, shapes=row.shapes, time_s=row.time_s, roof_s=1.4 * row.time_s)
        for row in rows
        if (row.roof_fraction or 0) > 1
    ]
    made = replace(
        _EMPTY,
        leaves=leaves,
        split=split_of(leaves),
        regime=regime,
        close=close,
        step=replace(_EMPTY.step, **step),
        ops=rows,
        above_ceiling=above,
        findings=found,
        fixes=summary,
        wall=draw(st.sampled_from([None, WallTime(steps_share, tuple(parts), 8)])),
        source={"kind": draw(st.sampled_from(["trace", "script"])), "name": "train.py"},
        mfu_dtype=draw(st.sampled_from([None, "float32", "tf32", "bfloat16"])),
        device=replace(
            _EMPTY.device,
            kind=draw(st.sampled_from(["cpu", "cuda"])),
            ceilings=[
                Ceiling(name=f"matrix.{k}", value=v, unit="FLOP/s", how="datasheet", source="")
                for k, v in rates.items()
            ],
        ),
    )
    made.check()
    made.verdict = verdict_of(made)
    return made


_many = settings(max_examples=400)


def _percent(text: str) -> float:
    return 0.0 if text.startswith("<") else float(text)


def an_op_takes_no_more_than_its_level(made):
    level = percent(top_levels(made.leaves)[made.regime] / made.accounted_s)
    detail = made.verdict.partition("aten::")[2].partition(". ")[0]
    for told in re.findall(r"(<?\d+) % of the step", detail):
        assert _percent(told) <= _percent(level.removesuffix(" %"))


def the_most_time_below_the_ceiling_is_in_one_op_alone(made):
    told = re.search(r"the most time below the ceiling is in (\S+ \S+),", made.verdict)
    rows = sorted((row for row in made.ops if row.regime == made.regime),
                  key=lambda row: -(row.below_s or 0.0))  # fmt: skip
    if told is not None:
        assert told[1] == f"{rows[0].name.removeprefix('aten::')} {rows[0].shapes}" or (
            told[1] == f"{rows[0].name} {rows[0].shapes}"
        )
        assert len(rows) == 1 or rows[0].below_s > rows[1].below_s


def each_step_is_said_of_several_alike(made):
    time = made.step.time_s
    apart = time.high > VARY * time.low or max(time.mean, time.median) > VARY * min(
        time.mean, time.median
    )
    if "of each step" in made.verdict:
        assert time.n > 1 and made.step.profiled_steps != 1
        assert not apart and not made.step.varying
    if "close call" in made.verdict:
        assert not apart and not made.step.varying
        sums = sorted(top_levels(made.leaves).values())
        assert sums[-1] - sums[-2] < 0.05 * made.accounted_s


def _gain(trial: Trial) -> float:
    return 0.0 if trial.speedup is None else trial.speedup.median


def what_helps_most_won_by_most(made):
    trials = [f for f in made.findings if f.verification is not None and f.verification.won]
    told = re.search(r"Of the changes tried here( that keep the precision)?, (\w+) helps most: "
                     r"([\d.]+)x", made.verdict)  # fmt: skip
    if told is not None:
        compared = [f for f in trials if not told[1] or not f.precision]
        others = [_gain(f.verification) for f in compared if f.fix != told[2]]
        assert all(float(told[3]) > gain for gain in others)
    if "proved faster" in made.verdict or "did not prove faster" in made.verdict:
        assert not trials
        verdicts = {f.verification.verdict for f in made.findings if f.verification is not None}
        assert "eliminated_work" not in verdicts


def no_finding_promises_more_than_is_said_to_be_saved_at_most(made):
    told = re.search(r"([^.]*): removing (?:it|either of them) entirely would save no more",
                     made.verdict)  # fmt: skip
    if told is None:
        return
    sums = top_levels(made.leaves)
    named = {level for level in _LEVELS if level in told[1].lower()}
    assert named and all(sums[level] < LITTLE * made.accounted_s for level in named)
    for finding in made.findings:
        levels = {leaf.partition(".")[0] for leaf in finding.leaves}
        if levels <= named:
            assert finding.worth_s <= sum(sums[level] for level in levels)


def tf32_is_advised_where_it_may_be_off(made):
    told = re.search(r"tf32( if it is not on)?, at ([\d.]+x) the peak rate", made.verdict)
    if told is None:
        return
    rates = {row.name: row.value for row in made.device.ceilings}
    assert made.mfu_dtype != "tf32" and all(row.dtype != "tf32" for row in made.ops)
    faster = [row for row in made.ops if row.dtype == "float32" and row.unit == "matrix"
              and (row.flops_per_s or 0) > 2 * rates.get("matrix.float32", 1e20)]  # fmt: skip
    assert not faster
    assert bool(told[1]) is (made.source["kind"] == "trace")
    assert told[2] == multiple(rates["matrix.tf32"] / rates[f"matrix.{made.mfu_dtype}"])


def shares_of_the_verdict_are_those_of_the_split(made):
    sums, step_s = top_levels(made.leaves), made.accounted_s
    told = re.search(r"(<?\d+ %) of (?:each|the|the mean) step", made.verdict)
    largest = max(sums.values())
    assert told is None or told[1] == percent(largest / step_s) or "There are" in made.verdict
    assert sums[made.regime] == largest
    outside = "Most of the wall time is outside the steps" in made.verdict
    assert not outside or made.wall.steps_share < 0.5
    kinds = re.search(r"There are (two|\d+) kinds of steps", made.verdict)
    if kinds is not None:
        number = 1 + sum(part.name.startswith("steps") for part in made.wall.parts)
        assert kinds[1] == ("two" if number == 2 else str(number))


def reports_say_what_may_be_behind_and_no_more(made):
    above = [line for line in sentences.coverage(made) if line.startswith("Faster than")]
    assert bool(above) == bool(made.above_ceiling)
    assert all("a formula that counts too much" in line for line in above)
    slow, times = sentences.slow_steps(made), [step.time_s for step in made.step.slow_steps]
    if "two lengths" in slow:
        assert max(times) < 2 * min(times)
    assert report_text(made)


_RULES = (
    an_op_takes_no_more_than_its_level,
    the_most_time_below_the_ceiling_is_in_one_op_alone,
    each_step_is_said_of_several_alike,
    what_helps_most_won_by_most,
    no_finding_promises_more_than_is_said_to_be_saved_at_most,
    tf32_is_advised_where_it_may_be_off,
    shares_of_the_verdict_are_those_of_the_split,
    reports_say_what_may_be_behind_and_no_more,
)


@_many
@given(diagnoses())
def test_what_is_said_is_true_of_the_numbers(made):
    for rule in _RULES:
        rule(made)


_PARTS = st.lists(
    st.builds(
        lambda what, known: f"{what} 2.00 ms ({'1.00 ms to 3.00 ms' if known else 'no interval'})",
        st.sampled_from(["products", "copies", "attention"]), st.booleans(),
    ),
    min_size=1, max_size=4,
)  # fmt: skip


@_many
@given(_PARTS)
def test_intervals_are_said_of_parts_that_have_one(parts):
    made = replace(_EMPTY, source={"kind": "prediction", "least_certain": parts})
    told = sentences.least_certain(made)
    inside, _, without = told.partition("without an interval")
    assert ("80 % intervals" in told) is any("to" in part.split("(")[1] for part in parts)
    assert "no interval" not in inside
    assert without.count("2.00 ms") == sum("no interval" in part for part in parts)
    assert told.count("2.00 ms") == len(parts)


@pytest.mark.parametrize("last", [None, 1])
@pytest.mark.parametrize("longest", [None, 1])
def test_no_rank_is_named_among_equals(last, longest):
    ranks = [
        RankRow(rank=i, step_s=1.0, split=_EMPTY.split, leaves=dict(_EMPTY.leaves))
        for i in range(2)
    ]
    row = CollectiveRow(
        name="all_reduce", bytes=8, group_size=2, ranks=[0, 1], calls=1, time_s=0.1,
        exposed_s=0.1, overlapped_s=0.0, skew_s=0.0, last_rank=last,
    )  # fmt: skip
    job = JobRecord(world_size=2, longest=_EMPTY.split, longest_rank=longest)
    made = replace(_EMPTY, ranks=ranks, collectives=[row], job=job)
    assert ("is busy longest" in job_line(made)) is (longest is not None)
    below = "".join(row.detail for row in collective_table(made, 8).rows)
    assert ("usually arrives last" in below) is (last is not None)
