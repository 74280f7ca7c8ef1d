"""What the wall time goes to, as a sentence: what came once is not told as if it came again."""

from __future__ import annotations

import pytest

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.reports.sentences import wall_time
from gobrrr.timeline.step_kinds import WallPart, WallTime


@pytest.mark.parametrize(
    ("per_step", "windows", "how_often"),
    [
        (1 / 8, 40, ", once in 8 steps"),
        # 40 / 25 = 1.6: two were seen, 25 steps apart.
        (1 / 25, 40, ", once in 25 steps"),
        (1 / 71, 72, ", seen once"),
        (1.0, 72, ""),
        (4.0, 10, ", 4 times a step"),
    ],
)
def test_how_often_a_part_comes(
    minimal: Diagnosis, per_step: float, windows: int, how_often: str
) -> None:
    part = WallPart(name="evaluation", time_s=0.041, share=0.57, per_step=per_step, source="t.py:9")
    minimal.step.kind = "training step"
    minimal.wall = WallTime(steps_share=0.43, parts=(part,), windows=windows)
    assert wall_time(minimal) == (
        f"Wall time: training steps 43 %, evaluation 57 % (t.py:9, 41.0 ms{how_often})."
    )
