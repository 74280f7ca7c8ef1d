"""The best set is measured once more before it is told, on made-up programs: no torch, no clock."""

import pytest
from msgspec.structs import replace
from tests.search.test_search import Made, make, run, trial

from gobrrr.verification.confirmation import confirmed


class Checked(Made):
    """A program on which a second measurement gives the speedups in ``again``."""

    def __init__(self, saves, again, **more):
        super().__init__(saves, **more)
        self.again, self.checked = again, []

    def measure_again(self, fixes, first, null, budget_s, limit_s):
        self.now_s += self.cost_s
        names = tuple(fix.name for fix in fixes)
        self.checked.append(names)
        ratio = self.again.get(names)
        if ratio is None:
            return first
        verdict = "faster" if ratio > 1.01 else "slower" if ratio < 0.99 else "same"
        second = trial(names, verdict, ratio, 1 / ratio)
        return confirmed(first, replace(second, reason="1.00x, or so"), "in fresh processes")


def test_what_is_slower_in_fresh_processes_is_no_win():
    bench = Checked({"lucky": 0.1}, {("lucky",): 0.85})
    found = run(bench, [make("lucky", 0.2)])
    assert found.best is None
    assert found.diagnosis.fixes.best == []
    (finding,) = found.diagnosis.findings
    assert finding.verification.verdict == "slower"
    assert finding.saving_s == pytest.approx(1 - 1 / 0.85)
    (notice,) = found.diagnosis.fixes.notices
    assert notice.startswith("lucky was faster, but not when measured again in fresh processes: ")
    assert "in the search 1.11x" in notice


def test_the_next_best_takes_the_place_of_what_does_not_hold():
    bench = Checked({"lucky": 0.5, "true": 0.3}, {("lucky",): 1.0})
    found = run(bench, [make("lucky", 0.5, claims=("x",)), make("true", 0.3, claims=("x",))])
    assert bench.checked == [("lucky",), ("true",)]
    assert found.best.fixes == ["true"]


def test_the_more_cautious_of_two_measurements_is_told():
    bench = Checked({"a": 0.9}, {("a",): 3.0})
    found = run(bench, [make("a", 0.5)])
    assert found.best.speedup.median == pytest.approx(3.0)
    # Both measurements lie inside.
    assert found.best.speedup.low == pytest.approx(2.97)
    assert found.best.speedup.high == pytest.approx(10.1)
    assert found.best.after_s == pytest.approx(1 / 3)


def test_another_that_is_now_faster_is_checked_too():
    bench = Checked({"a": 0.9, "b": 0.8}, {("a",): 2.0})
    found = run(bench, [make("a", 0.5, claims=("x",)), make("b", 0.4, claims=("x",))])
    assert bench.checked == [("a",), ("b",)]
    assert found.best.fixes == ["b"]


def test_what_was_not_measured_again_is_not_told():
    saves = {name: 0.5 - 0.01 * i for i, name in enumerate("abcd")}
    bench = Checked(saves, {(name,): 1.0 for name in "abc"})
    found = run(bench, [make(name, saves[name], claims=("x",)) for name in "abcd"])
    assert bench.checked == [("a",), ("b",), ("c",)]
    assert found.best is None


def test_a_change_of_precision_does_not_move_up_unless_it_is_allowed():
    bench = Checked({"half": 0.6, "a": 0.3}, {("a",): 1.0})
    fixes = [make("half", 0.6, precision="bfloat16"), make("a", 0.3)]
    assert run(bench, fixes).best is None
    assert ("half",) not in bench.checked


def test_the_check_is_made_when_the_budget_is_spent():
    bench = Checked({"a": 0.2}, {("a",): 1.2}, cost_s=30.0)
    found = run(bench, [make("a", 0.3)], budget_s=10.0)
    assert bench.checked == [("a",)]
    assert found.best.speedup.median == pytest.approx(1.2)


def test_a_combination_that_does_not_hold_leaves_its_parts():
    bench = Checked({"a": 0.3, "b": 0.2}, {("a", "b"): 1.0})
    found = run(bench, [make("a", 0.3), make("b", 0.2)])
    assert found.best.fixes == ["a"]
    assert [t.verdict for t in found.combinations] == ["same"]


def test_a_second_measurement_that_fails_is_no_win():
    first = trial(("a",), "faster", 1.5, 0.6)
    told = confirmed(first, trial(("a",), "failed"), "in fresh processes")
    assert told.verdict == "failed"
    # What the search measured is no longer the set's speedup; the reason still names it.
    assert told.speedup is None
    assert "in the search 1.50x (" in told.reason
