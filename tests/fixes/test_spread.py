"""Intervals of predictions: a fix's own, widened by what trials of its class were off by."""

from dataclasses import replace

import pytest
from tests.fixes.facts import facts

from gobrrr.fixes.catalogue import FIXES
from gobrrr.fixes.fix import Fix, Prospect
from gobrrr.fixes.spread import FLOOR, SPREADS, UNSUPPORTED, interval_of

KIND = "compilers"


def made(low_s, expected_s, high_s, kind=KIND):
    return Fix("made", "Made", (), (), lambda _: Prospect(low_s, expected_s, high_s, "why"),
               judged_with=kind)  # fmt: skip


def test_every_class_has_trials_enough_and_some_fix_is_judged_by_it():
    assert {fix.judged_with for fix in FIXES} - {""} == set(SPREADS)
    for spread in SPREADS.values():
        assert spread.programs >= 5
        assert 0.0 <= spread.below <= UNSUPPORTED.below
        assert 0.0 <= spread.above <= UNSUPPORTED.above
    assert UNSUPPORTED.programs == 0


def test_an_interval_grows_by_its_class_and_by_what_a_trial_is_uncertain_by():
    given = facts(step_s=1.0)
    spread = SPREADS[KIND]
    found = made(0.1, 0.2, 0.25).considered(given)
    assert found.expected_s == 0.2
    assert found.low_s == pytest.approx(0.2 - spread.below * (0.1 + FLOOR))
    assert found.high_s == pytest.approx(0.2 + spread.above * (0.05 + FLOOR))


def test_what_no_trial_supports_is_widest_and_so_is_everything_on_a_gpu():
    given = facts(step_s=1.0)
    low_s, high_s = interval_of("", given, 0.1, 0.2, 0.25)
    assert low_s == pytest.approx(0.2 - UNSUPPORTED.below * (0.1 + FLOOR))
    assert high_s == pytest.approx(0.2 + UNSUPPORTED.above * (0.05 + FLOOR))
    assert interval_of("no such class", given, 0.1, 0.2, 0.25) == (low_s, high_s)
    on_gpu = replace(given, device_kind="cuda")
    assert interval_of(KIND, on_gpu, 0.1, 0.2, 0.25) == (low_s, high_s)


def test_on_a_gpu_no_fix_saves_more_than_it_acts_on_or_loses_what_it_cannot():
    leaves = {"overhead.python": 0.3}
    given = facts(step_s=1.0, leaves=leaves, device_kind="cuda")
    acting = replace(made(0.1, 0.2, 0.25), leaves=("overhead.python",))
    found = acting.considered(given)
    assert (found.low_s, found.expected_s, found.high_s) == (0.0, 0.2, pytest.approx(0.3))
    # One whose own arithmetic says that it may lose, loses no more than it acts on.
    losing = replace(made(-0.05, 0.2, 0.25), leaves=("overhead.python",))
    assert losing.considered(given).low_s == pytest.approx(-0.3)


def test_ends_that_were_measured_on_the_device_are_kept():
    given = facts(step_s=1.0, device_kind="cuda")
    found = interval_of(KIND, given, 0.1, 0.2, 0.25, own_ends=True)
    assert found == (pytest.approx(0.1 - FLOOR), pytest.approx(0.25 + FLOOR))


def test_nothing_saves_more_than_the_step():
    found = made(0.5, 0.9, 0.99, kind="").considered(facts(step_s=1.0))
    assert found.high_s == 1.0
    assert found.low_s < 0.5
