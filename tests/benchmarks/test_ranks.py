"""What the benchmark of slow ranks takes for the truth."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from benchmarks.ranks import run
from benchmarks.ranks.run import FirstTold, mean_after, told
from benchmarks.ranks.second.truth import Spent, spent


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


def _written(path: Path, delays: list[tuple[float, float, float]]) -> Path:
    path.write_text(json.dumps({"spent": delays, "ended_s": []}))
    return path


def test_only_delays_in_timed_steps_count_by_what_they_run(tmp_path: Path) -> None:
    # Steps of 1 s that end at 11, 12 and 20; the delay at 15 began in none of them.
    delays = [(10.5, 0.4, 0.2), (11.5, 0.5, 0.25), (11.8, 0.1, 0.05), (15.0, 9.0, 9.0),
              (19.1, 0.9, 0.4)]  # fmt: skip
    path = _written(tmp_path / "rank0.json", delays)
    # 0.2, 0.25 + 0.05 and 0.4 s; by the wall 0.4, 0.6 and 0.9.
    found = spent(path, "forward", [11.0, 12.0, 20.0], [1.0, 1.0, 1.0])
    assert found == Spent(pytest.approx(0.3), pytest.approx(0.6), 3)
    # A sleep runs on no processor.
    assert spent(path, "sleep", [11.0, 12.0, 20.0], [1.0] * 3).took_s == pytest.approx(0.6)
    assert spent(path, "forward", [], []) == Spent(None, None, 0)
    assert spent(tmp_path / "none.json", "forward", [1.0], [1.0]) == Spent(None, None, 0)


def test_pauses_count_by_their_mean_over_all_steps_between_timed_ones(tmp_path: Path) -> None:
    # Before, within (one of them in a step that was not timed), after.
    delays = [(9.0, 8.0, 8.0), (10.5, 0.0, 0.0), (11.5, 0.6, 0.5), (12.5, 0.0, 0.0),
              (13.5, 0.8, 0.7), (14.5, 5.0, 5.0)]  # fmt: skip
    path = _written(tmp_path / "rank1.json", delays)
    # (0.5 + 0.7) / 4, and (0.6 + 0.8) / 4 by the wall.
    found = spent(path, "gc", [11.0, 14.0], [1.0, 1.0])
    assert found == Spent(pytest.approx(0.3), pytest.approx(0.35), 4)


def test_the_sets_stand_beside_each_other(tmp_path: Path) -> None:
    right = {"case": {"fault": "none", "ranks": 2}, "right": True}
    wrong = {"case": {"fault": "none", "ranks": 2}, "right": False}
    late = {"case": {"fault": "late", "ranks": 2}, "right": True, "error": 0.5}
    both = run.body("both", [right], [right], [wrong, late])
    assert (both["summary"]["right"], both["summary"]["cases"]) == (1, 1)
    assert (both["second"]["summary"]["right"], both["second"]["summary"]["cases"]) == (1, 2)
    assert both["second"]["summary"]["named_without_fault"] == 1
    assert "second" not in run.body("first", [right], [right], [])
    assert list(run.body("second", [], [], [wrong])) == ["second"]


def test_the_keys_of_the_second_set_are_those_that_its_script_makes() -> None:
    folder = run.HERE / "second"
    made = runpy.run_path(str(folder / "cases.py"))["cases"]()
    assert made == json.loads((folder / "cases.json").read_text())
    assert len(made) == 100
    assert all((case["rank"] is None) == (case["fault"] == "none") for case in made)
    assert all(case["rank"] is None or case["rank"] < case["ranks"] for case in made)


def _outcome(fault: str, step_s: float, ranks: int = 4, **more: object) -> dict[str, object]:
    case = {"fault": fault, "ranks": ranks, "parallel": "ddp"}
    return {"case": case, "right": True, "step_s": step_s, **more}


def test_what_is_lost_stands_beside_how_much_longer_the_steps_are() -> None:
    outcomes = [
        _outcome("none", 0.060), _outcome("late", 0.064), _outcome("none", 0.062),
        _outcome("none", 0.010, ranks=2),
        _outcome("python", 0.080, truth_s=0.020, found={"lost_s": 0.019}),
        _outcome("sleep", 0.066, truth_s=0.005, found={"lost_s": 0.006}),
        # Wrong, of few steps, or with nothing beside it.
        _outcome("python", 0.090, truth_s=1.0, found={"lost_s": None}) | {"right": False},
        _outcome("gc", 0.062, truth_s=1.0, found={"lost_s": 1.0}),
    ]  # fmt: skip
    found = run.by_ranks(outcomes)
    assert found["4"] == pytest.approx(
        {"cases": 2, "lost_s": 0.025, "truth_s": 0.025, "steps_longer_s": 0.018 + 0.004}
    )
    assert found["2"]["cases"] == 0
