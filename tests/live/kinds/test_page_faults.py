"""Page faults of timed steps: what one costs, and which steps are those of the program alone."""

import random
from dataclasses import replace

import pytest

from gobrrr.live.bare_steps import BareBlock
from gobrrr.live.kinds.page_faults import cost_of_fault
from gobrrr.live.kinds.same_steps import same_steps
from gobrrr.live.kinds.step_kinds import sort_windows
from gobrrr.live.measurements import Measurements
from gobrrr.timeline.step_kinds import PLAIN, PROFILED, WARM, Call, CallKey, StepWindow

MS = 1_000_000
WORK_NS, FAULT_NS = 30 * MS, 2_100
KEY = CallKey("Net", 0, True, True, ((8, 4),), False, "train.py:3")
KEY_CALL = Call(KEY, 0, MS)


def steps(faults: list[int], phase: str = PLAIN) -> list[StepWindow]:
    """Windows one after the other, each as long as its work and its page faults take."""
    windows, now = [], 0
    for each in faults:
        end = now + WORK_NS + each * FAULT_NS
        windows.append(StepWindow(now, end, (Call(KEY, now, now + MS),), (), phase, each))
        now = end
    return windows


def measured(before: list[int], after: list[int]) -> Measurements:
    windows = [*steps(before), *steps([9_999] * 4, PROFILED), *steps(after)]
    first, last = range(len(before)), range(len(before) + 4, len(windows))
    return Measurements(
        windows=windows,
        plain_windows=[list(first), list(last)],
        plain_ns=[[windows[i].length_ns for i in part] for part in (first, last)],
    )


def test_steps_that_lost_their_page_faults_are_not_those_of_the_program_alone() -> None:
    found = same_steps(measured([9_200] * 12, [8] * 30))
    assert found.plain_ns == [[WORK_NS + 9_200 * FAULT_NS] * 12, []]
    assert found.kind.page_faults == 9_200
    assert found.kind.fault_ns == pytest.approx(FAULT_NS)
    assert "8 page faults each, the 12 timed before" in found.notices[0]


def test_steps_that_gained_page_faults_are_left_out_too() -> None:
    found = same_steps(measured([0] * 12, [5_000] * 30))
    assert set(found.all_plain_ns) == {WORK_NS} and len(found.notices) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([9_200] * 12, [9_300] * 30),  # no other number of them
        ([100] * 12, [300] * 30),  # another, of 0.4 ms of 30
        ([9_200] * 2, [8] * 30),  # too few steps to tell
    ],
)
def test_all_steps_count_where_their_page_faults_are_alike(
    before: list[int], after: list[int]
) -> None:
    found = same_steps(measured(before, after))
    assert len(found.all_plain_ns) == len(before) + len(after) and not found.notices


def test_what_a_fault_costs_is_read_off_steps_that_have_more_and_fewer() -> None:
    noise = random.Random(0)
    faults = [noise.randrange(0, 16_000) for _ in range(60)]
    points = [(n, round((WORK_NS + n * FAULT_NS) * noise.uniform(0.97, 1.03))) for n in faults]
    assert cost_of_fault(points) == pytest.approx(FAULT_NS, rel=0.1)


@pytest.mark.parametrize("faults", [[500] * 40, [500, 510] * 20])
def test_steps_with_the_same_faults_do_not_tell_what_one_costs(faults: list[int]) -> None:
    noise = random.Random(0)
    assert cost_of_fault([(n, WORK_NS + noise.randrange(MS)) for n in faults]) is None


def test_lengths_that_do_not_follow_the_faults_say_nothing_of_them() -> None:
    noise = random.Random(0)
    points = [(noise.randrange(9_000), WORK_NS + noise.randrange(20 * MS)) for _ in range(40)]
    assert cost_of_fault(points) is None


def test_steps_of_different_sizes_are_not_compared() -> None:
    windows = []
    for i, window in enumerate(steps([9_000] * 12 + [0] * 12)):
        key = CallKey("Net", 0, True, True, ((8, 4 + i),), False, "train.py:3")
        call = Call(key, window.begin_ns, window.begin_ns + MS)
        windows.append(
            StepWindow(window.begin_ns, window.end_ns, (call,), (), PLAIN, window.page_faults)
        )
    assert sort_windows(windows).varying
    first, last = range(12), range(12, 24)
    found = same_steps(
        Measurements(
            windows=windows,
            plain_windows=[list(first), list(last)],
            plain_ns=[[windows[i].length_ns for i in part] for part in (first, last)],
        )
    )
    assert len(found.all_plain_ns) == 24 and not found.notices


def bare(faults: list[int], hooks_ns: int = 0) -> BareBlock:
    lengths_ns = [WORK_NS - hooks_ns + each * FAULT_NS for each in faults]
    return BareBlock(lengths_ns, faults, list(range(len(faults))))


def test_the_step_told_is_that_of_bare_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gobrrr.live.kinds.same_steps.MOST_WATCHING_NS", 10 * MS)
    given = measured([], [0] * 30)
    given.windows[:0] = steps([0] * 3, WARM)
    given.plain_windows[1] = [i + 3 for i in given.plain_windows[1]]
    given.bare = {0: bare([0] * 20, hooks_ns=MS), 1: bare([0] * 30, hooks_ns=2 * MS)}
    found = same_steps(given)
    assert found.all_plain_ns == [WORK_NS - MS] * 20 + [WORK_NS - 2 * MS] * 30
    assert found.kind.bare and len(found.plain_ended_s) == 50
    assert ["7% longer" in notice for notice in found.notices] == [True]


def test_bare_steps_that_lost_their_page_faults_are_left_out() -> None:
    given = measured([], [8] * 30)
    given.bare = {0: bare([9_200] * 20), 1: bare([8] * 30)}
    found = same_steps(given)
    assert found.all_plain_ns == [WORK_NS + 9_200 * FAULT_NS] * 20
    assert found.kind.page_faults == 9_200 and len(found.notices) == 1


def test_bare_steps_are_not_told_where_others_have_something_beside_them() -> None:
    given = measured([], [0] * 30)
    for at in range(0, 30, 3):
        # An evaluation that takes as long as the step.
        window = given.windows[4 + at]
        other = replace(KEY, training=False, gradients=False, instance=1)
        calls = (Call(other, window.begin_ns, window.begin_ns + WORK_NS // 2), *window.calls)
        calls = (calls[0], replace(KEY_CALL, begin_ns=calls[0].end_ns, end_ns=window.end_ns - MS))
        given.windows[4 + at] = replace(window, calls=calls)
    given.bare = {0: bare([0] * 20, hooks_ns=MS)}
    found = same_steps(given)
    assert not found.kind.bare and not found.bare and len(found.all_plain_ns) == 20


def test_bare_steps_of_another_machine_are_not_told() -> None:
    """No hook makes a step of 20 ms one of 30: something else ran meanwhile."""
    given = measured([], [0] * 30)
    given.bare = {0: bare([0] * 20), 1: bare([0] * 30, hooks_ns=10 * MS)}
    found = same_steps(given)
    assert not found.kind.bare and found.all_plain_ns == [WORK_NS] * 30


def test_a_script_that_ends_after_bare_steps_is_told_by_them() -> None:
    given = Measurements(windows=steps([0] * 4, WARM), bare={0: bare([0] * 20, hooks_ns=MS)})
    assert same_steps(given).all_plain_ns == [WORK_NS - MS] * 20
