"""What the verdict begins with where most of the wall time is outside the diagnosed steps."""

from __future__ import annotations

from pathlib import Path

import pytest

import gobrrr
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.diagnosis.verdict import split_of, verdict_of
from gobrrr.timeline.step_kinds import WallPart, WallTime


@pytest.fixture
def diagnosis(data: Path) -> Diagnosis:
    return gobrrr.load(data / "training.json")


def with_part(diagnosis: Diagnosis, name: str, share: float) -> str:
    part = WallPart(name, 1.0, share, 0.1, "train.py:9 in evaluate")
    diagnosis.wall = WallTime(1.0 - share, (part,), 20)
    return verdict_of(diagnosis)


def test_what_takes_most_outside_the_steps_comes_first(diagnosis: Diagnosis) -> None:
    verdict = with_part(diagnosis, "evaluation", 0.96)
    first = verdict.partition(". ")[0]
    assert first.startswith("Most of the wall time is outside the steps: evaluation 96 %")
    assert "train.py:9" in first and "Compute-bound" in verdict
    assert with_part(diagnosis, "evaluation", 0.3).startswith("Compute-bound")


def test_work_within_the_fixed_cost_of_ops_is_not_told_as_none(diagnosis: Diagnosis) -> None:
    def told(compute_share: float) -> str:
        step_s = diagnosis.accounted_s
        for name in diagnosis.leaves:
            diagnosis.leaves[name] = 0.0
        diagnosis.leaves["compute.matrix.roof"] = compute_share * step_s
        diagnosis.leaves["overhead.python"] = (1 - compute_share) * step_s
        diagnosis.split, diagnosis.regime = split_of(diagnosis.leaves), "overhead"
        return verdict_of(diagnosis)

    assert any(row.flops for row in diagnosis.ops)
    assert "fixed cost of its ops" in told(0.0) and "fixed cost of its ops" in told(0.001)
    assert "fixed cost of its ops" not in told(0.1)
    diagnosis.ops = []
    assert "fixed cost of its ops" not in told(0.0)


def test_two_kinds_of_steps_are_told_as_two_kinds(diagnosis: Diagnosis) -> None:
    verdict = with_part(diagnosis, "steps of other shapes (8x3x64x64)", 0.4)
    assert verdict.startswith("There are two kinds of steps: those diagnosed here take 60 %")
    assert with_part(diagnosis, "steps of other shapes (8x1)", 0.05).startswith("Compute-bound")
