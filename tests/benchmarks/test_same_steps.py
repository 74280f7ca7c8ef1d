"""The real scripts' clock finds the steps that gobrrr timed among all."""

from __future__ import annotations

import pytest
from benchmarks.real_scripts.run import same_steps, timed_steps


def clock(lengths: list[float]) -> dict[str, list[tuple[str, int, int]]]:
    return {"spans": [("step", 0, round(length * 1e9)) for length in lengths]}


def test_stretches_are_found_around_steps_that_gobrrr_did_not_time() -> None:
    # Lengths that repeat after 97 steps; gobrrr timed 20 to 29 and 45 to 99.
    lengths = [1.0 + (i * 37 % 97) / 97 for i in range(120)]
    timed = [*range(20, 30), *range(45, 100)]
    told = [0.99 * lengths[i] for i in timed]
    found = same_steps(clock(lengths), told)
    assert found == pytest.approx([lengths[i] for i in timed])


def test_steps_of_one_length_are_not_chosen_one_by_one() -> None:
    lengths = [1.0 + 0.04 * (i % 5) for i in range(200)]
    found = same_steps(clock(lengths), [1.0] * 60)
    # A stretch holds all five lengths alike; the shortest alone would be 1.0.
    assert sum(found) / len(found) == pytest.approx(1.08)


def test_other_steps_are_not_found() -> None:
    assert same_steps(clock([1.0] * 50), [2.0] * 20) == []
    assert same_steps(clock([1.0] * 5), [1.0] * 20) == []


def test_steps_are_found_by_the_clock_whatever_their_lengths() -> None:
    # Steps of 1 s every 1.5 s; gobrrr's end 0.1 s before them and are 0.95 s long.
    spans = [("step", round(1.5e9 * i), round((1.5 * i + 1.0) * 1e9)) for i in range(10)]
    spans[4] = ("step", spans[4][1], spans[4][2] + 400_000_000)
    told = {"spans": [*spans, ("evaluation", 20 * 10**9, 21 * 10**9)]}
    ended = [1.5 * i + 0.9 for i in (2, 4, 7)]
    assert timed_steps(told, [0.95] * 3, ended) == pytest.approx([1.0, 1.4, 1.0])
    # What no step of the own clock shares half of its time with is none of them.
    assert timed_steps(told, [0.95, 0.5], [20.8, 1.45]) == []
