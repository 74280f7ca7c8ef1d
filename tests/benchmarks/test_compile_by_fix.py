"""How two sides of several processes are compared."""

import pytest
from benchmarks.compile_by_fix.sides import compared, measured

ROUNDS = 8


def process(step_s, machine=(1.0,) * ROUNDS):
    return [step_s * factor for factor in machine]


def test_one_slow_process_of_three_is_no_difference_of_the_sides():
    seconds = {"by hand": [process(1.0)] * 3, "by fix": [process(1.0), process(1.6), process(1.0)]}
    made = compared(seconds, "by hand", "by fix")
    assert made["median"] == pytest.approx(1.0)
    # Three others of them might have been two slow ones.
    assert made["low"] == pytest.approx(1 / 1.6) and made["high"] == pytest.approx(1.0)


def test_a_difference_of_all_processes_is_seen_and_its_interval_is_narrow():
    seconds = {"by hand": [process(1.0), process(1.01), process(0.99)],
               "by fix": [process(1.25), process(1.24), process(1.26)]}  # fmt: skip
    made = compared(seconds, "by hand", "by fix")
    assert made["median"] == pytest.approx(0.8)
    assert 0.77 < made["low"] <= made["median"] <= made["high"] < 0.83


def test_rounds_in_which_the_machine_is_slow_slow_both_sides():
    machine = (1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 1.0, 2.0)
    seconds = {"by hand": [process(1.0, machine)] * 3, "by fix": [process(1.1, machine)] * 3}
    made = compared(seconds, "by hand", "by fix")
    for value in made.values():
        assert value == pytest.approx(1 / 1.1)


def test_a_program_is_told_with_what_its_processes_differ_by():
    seconds = {"original": [process(3.0)], "by fix": [process(1.0), process(1.5), process(1.2)],
               "by hand": [process(1.2), process(1.2), process(1.2)]}  # fmt: skip
    made = measured(seconds)
    assert made["original_s"] == 3.0
    assert made["ratios"]["by fix"]["median"] == pytest.approx(2.5)
    assert made["by_fix_over_by_hand"]["median"] == pytest.approx(1.0)
    assert made["processes_differ_by"] == {"by fix": pytest.approx(1.5), "by hand": 1.0}


def test_a_side_of_which_no_process_started_has_no_figure():
    made = measured({"original": [process(3.0)], "by hand": [process(1.0)]})
    assert set(made["ratios"]) == {"by hand"} and "by_fix_over_by_hand" not in made
    assert measured({"by hand": [process(1.0)]}) == {"ratios": {}}
