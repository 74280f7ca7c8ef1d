"""The factors of intervals, computed from scores of trials."""

import json

import pytest
from benchmarks.command import RESULTS
from benchmarks.fixes import spread

from gobrrr.fixes.spread import SPREADS, UNSUPPORTED

RECORDED = RESULTS / "fixes_amd-epyc_2026-11-21.json"


def row(low, expected, high, saved, **more):
    return {"fix": "compile", "verdict": "faster", "low": low, "expected": expected, "high": high,
            "saved": saved, **more}  # fmt: skip


def test_the_factors_in_the_code_are_those_of_the_recorded_trials():
    scores = spread.scores_of(json.loads(RECORDED.read_text()))
    assert spread.table(scores) == dict(SPREADS)
    assert spread.widest(scores) == UNSUPPORTED


def test_a_score_is_in_times_of_the_fix_s_own_reach_and_the_floor():
    # 0.2 above what was expected, with a reach of 0.07 and the floor of 0.03.
    assert spread.score(row(0.1, 0.3, 0.37, 0.5)) == pytest.approx(2.0)
    assert spread.score(row(0.13, 0.3, 0.37, 0.2)) == pytest.approx(-0.5)


def test_eight_of_ten_further_scores_lie_inside():
    scores = [float(n) for n in range(-9, 10)]
    # The second lowest and highest of 19: ranks 2 and 18 of 20.
    assert spread.factors(scores) == (8.0, 8.0)
    # All above what was expected: nothing says that less may be saved.
    assert spread.factors([float(n) for n in range(1, 20)]) == (0.0, 18.0)


def test_few_scores_give_one_width_for_both_sides():
    assert spread.factors([0.5, -1.5, 0.2, 0.1, 1.0]) == (1.5, 1.5)


def test_a_program_counts_once_in_a_class_with_the_score_farthest_off():
    rows = [row(0.2, 0.3, 0.37, 0.3), row(0.2, 0.3, 0.37, 0.5), row(0.2, 0.3, 0.37, 0.1)]
    left_out = [row(0.0, 0.1, 0.2, 0.9, verdict="failed"), row(0.0, 0.1, 0.2, None)]
    programs = [{"name": str(n), "fixes": rows + left_out} for n in range(9)]
    scores = spread.scores_of({"sets": {"original": programs, "new": [{"name": "x"}]}})
    assert {kind for kind, _ in scores} == {"compilers"}
    assert all(len(found) == 3 for found in scores.values())
    (found,) = spread.table(scores).values()
    assert (found.below, found.above, found.programs) == (0.0, 2.0, 9)
    # Four programs say nothing of a class.
    assert spread.table(dict(list(scores.items())[:4])) == {}
