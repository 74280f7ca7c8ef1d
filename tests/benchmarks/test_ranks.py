"""What the benchmark of slow ranks takes for the truth."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.ranks.run import FirstTold, mean_after, told


def test_the_mean_between_two_means_leaves_the_first_steps_out() -> None:
    # 500 ms once, then 6 ms in one step of three.
    first = {"spent_s": 0.518 / 10, "steps": 10}
    last = {"spent_s": 0.698 / 100, "steps": 100}
    assert mean_after(first, last) == pytest.approx(0.002)
    assert mean_after(last, last) is None


def test_the_first_that_a_program_tells_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_text("")
    assert told(path) is None
    with FirstTold(path) as first:
        path.write_text(json.dumps({"spent_s": 1.0, "steps": 10}))
        first.join(timeout=10)
        path.write_text(json.dumps({"spent_s": 2.0, "steps": 20}))
    assert first.told == {"spent_s": 1.0, "steps": 10}
    with FirstTold(tmp_path / "none.json") as nothing:
        pass
    assert nothing.told is None
