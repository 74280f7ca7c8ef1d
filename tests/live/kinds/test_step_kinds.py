"""Steps told apart by their calls: windows written by hand, lengths and shares in closed form."""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace

import pytest

from gobrrr.live.kinds.same_steps import same_steps, seen_steps
from gobrrr.live.kinds.step_forms import runs_of
from gobrrr.live.kinds.step_kinds import (
    LinesOf,
    differ,
    is_one_token,
    shares_by_size,
    sort_windows,
)
from gobrrr.live.kinds.wall_time import wall_time, with_slow_steps
from gobrrr.live.measurements import Measurements
from gobrrr.timeline.step_kinds import (
    PLAIN,
    PROFILED,
    RECORDED,
    WARM,
    Call,
    CallKey,
    Mark,
    StepWindow,
)

MS = 1_000_000
TRAIN = CallKey("Net", 0, True, True, ((8, 16),))
EVAL = CallKey("Net", 0, False, False, ((8, 16),), source="train.py:9 in evaluate")


def key(*shape: int, training: bool = True, instance: int = 0, tokens: bool = False) -> CallKey:
    return CallKey("Net", instance, training, training, (shape,), tokens)


class Loop:
    """Makes windows one after the other: (key or None, milliseconds) in turn."""

    def __init__(self) -> None:
        self.now = 0
        self.windows: list[StepWindow] = []

    def step(
        self, *parts: tuple[CallKey | None, float], phase: str = PLAIN, save_ms: float = 0.0
    ) -> Loop:
        begin, calls, marks = self.now, [], []
        if save_ms:
            end = self.now + round(save_ms * MS)
            marks.append(Mark("checkpointing", self.now, end, "train.py:30 in <module>"))
            self.now = end
        for called, length_ms in parts:
            end = self.now + round(length_ms * MS)
            if called is not None:
                calls.append(Call(called, self.now, end))
            self.now = end
        self.windows.append(StepWindow(begin, self.now, tuple(calls), tuple(marks), phase))
        return self


def seen_in(loop: Loop, odd: dict[int, str]) -> LinesOf:
    """Lines noted in the middle of each window's first gap: in ordinary ones the step's."""
    noted = {
        window.begin_ns + MS // 2: odd.get(i, "train.py:12 in step")
        for i, window in enumerate(loop.windows)
        if i in odd or (len(window.calls) == 1 and window.length_ns == 6 * MS)
    }
    return lambda begin, end: Counter(
        line for at, line in noted.items() if begin <= at < end and line
    )


# A step: 1 ms of data, 2 ms forward, 3 ms backward and optimizer.
def plain(called: CallKey = TRAIN, scale: float = 1.0) -> list[tuple[CallKey | None, float]]:
    return [(None, 1.0 * scale), (called, 2.0 * scale), (None, 3.0 * scale)]


def nested(periods: int = 4, steps: int = 8, batches: int = 40) -> Loop:
    """Training steps of 6 ms and then evaluation batches of 1 ms each, 0.5 ms between them."""
    loop = Loop()
    for period in range(periods):
        for step in range(steps):
            evaluation = [(None, 0.5), (EVAL, 1.0)] * batches if period and step == 0 else []
            loop.step(*evaluation, *plain())
    return loop


@pytest.mark.parametrize("first", range(9))
def test_evaluation_between_steps_is_no_part_of_them_wherever_one_begins_to_look(
    first: int,
) -> None:
    found = sort_windows(nested().windows[first:])
    assert found.shape == (TRAIN,)
    assert not found.varying
    assert all(found.own)
    for i, window in enumerate(found.windows):
        evaluated = len(window.calls) > 1
        assert found.pure(i) is not evaluated
        # What is left of a window with evaluation in it is a step, to the nanosecond.
        assert found.step_ns(i) == pytest.approx(6 * MS)
        if evaluated:
            (extra,) = found.extras[i]
            assert extra.name == "evaluation"
            assert extra.time_ns == pytest.approx(60 * MS)  # 40 * (0.5 + 1)
            assert extra.source == "train.py:9 in evaluate"


def test_the_wall_time_is_split_into_steps_and_what_is_between_them() -> None:
    wall = wall_time(sort_windows(nested(periods=5).windows[8:]))
    assert wall is not None
    # Each period: 8 steps of 6 ms, 60 ms of evaluation.
    assert wall.steps_share == pytest.approx(48 / 108)
    (part,) = wall.parts
    assert (part.name, part.share) == ("evaluation", pytest.approx(60 / 108))
    assert part.per_step == pytest.approx(1 / 8)
    assert part.time_s == pytest.approx(60e-3)
    assert wall.windows == 32


def test_beside_the_steps_of_a_device_stands_what_its_own_clock_says() -> None:
    # A step is issued in 2 ms and takes the device 10, so that the host is ahead: it meets an
    # evaluation of 40 ms with seven steps still to be done, and waits for them too. Now and then it
    # waits in a step for nothing but a full queue.
    loop, device_ns = Loop(), {}
    for step in range(48):
        evaluates = step % 8 == 0
        if evaluates:
            behind = 7 * 8.0 if step else 0.0
            loop.step((EVAL, 40.0 + behind), *plain(scale=1 / 3))
        elif step % 8 == 4:
            loop.step((None, 8.0), *plain(scale=1 / 3))
        else:
            loop.step(*plain(scale=1 / 3))
        device_ns[step] = round((50 if evaluates else 10) * MS)
    found = sort_windows(loop.windows)
    assert {extra.name for extras in found.extras for extra in extras} == {
        "evaluation", "between steps",
    }  # fmt: skip
    wall = wall_time(found, device_ns=device_ns)
    assert wall is not None
    (part,) = wall.parts
    assert (part.name, part.source) == ("evaluation", "train.py:9 in evaluate")
    assert wall.steps_share == pytest.approx(80 / 120)
    assert (part.time_s, part.share) == (pytest.approx(40e-3), pytest.approx(40 / 120))
    assert part.per_step == pytest.approx(1 / 8)
    # By the host's clock it would be another loop.
    by_host = wall_time(found)
    assert by_host is not None and by_host.steps_share < 0.25
    assert wall_time(found, device_ns={}) is None


def test_a_window_of_another_kind_is_as_long_as_on_the_device() -> None:
    loop, device_ns = Loop(), {}
    for step in range(40):
        loop.step((EVAL, 1.0)) if step % 10 == 9 else loop.step(*plain())
        device_ns[step] = (30 if step % 10 == 9 else 6) * MS
    wall = wall_time(sort_windows(loop.windows), device_ns=device_ns)
    assert wall is not None
    (part,) = wall.parts
    assert (part.name, part.time_s) == ("evaluation", pytest.approx(30e-3))
    assert wall.steps_share == pytest.approx(54 / 84)


def test_how_often_is_counted_over_all_windows_and_how_long_over_undisturbed_ones() -> None:
    loop = Loop()
    for step in range(40):
        disturbed = 10 <= step < 20
        evaluation = [(EVAL, 30.0 if disturbed else 10.0)] if step % 10 == 0 else []
        loop.step(*evaluation, *plain(), phase=PROFILED if disturbed else PLAIN)
    wall = wall_time(sort_windows(loop.windows))
    assert wall is not None
    assert wall.parts[0].time_s == pytest.approx(10e-3)
    assert wall.parts[0].share == pytest.approx(10 / (10 + 60))


@pytest.mark.parametrize("looked_at", [(1, 40), (1, 45), (5, 34), (9, 59), (10, 51)])
def test_what_comes_regularly_has_its_period_wherever_one_looks(looked_at: tuple[int, int]) -> None:
    # An evaluation of 10 ms before each tenth step of 6 ms.
    loop = Loop()
    for step in range(60):
        loop.step(*([(EVAL, 10.0)] if step % 10 == 0 else []), *plain())
    wall = wall_time(sort_windows(loop.windows[slice(*looked_at)]))
    assert wall is not None
    assert wall.parts[0].share == pytest.approx(10 / (10 + 60))
    assert wall.parts[0].per_step == pytest.approx(1 / 10)


@pytest.mark.parametrize("at", [(30,), (3, 5, 31), (2, 4, 6), (36, 38)])
def test_what_does_not_come_regularly_counts_as_often_as_it_was_seen(at: tuple[int, ...]) -> None:
    loop = Loop()
    for step in range(40):
        loop.step(*([(EVAL, 10.0)] if step in at else []), *plain())
    wall = wall_time(sort_windows(loop.windows))
    assert wall is not None
    assert wall.parts[0].per_step == pytest.approx(len(at) / 40)


def test_what_follows_the_last_step_is_a_part_like_those_between_steps() -> None:
    # 3 times 8 steps of 6 ms and an evaluation of 15 ms, the last with no step behind it.
    loop = nested(periods=3, batches=10)
    ended = Loop()
    ended.now = loop.now
    last = ended.step(*([(None, 0.5), (EVAL, 1.0)] * 10), save_ms=7.0).windows[0]
    found = sort_windows(loop.windows)
    seen = wall_time(found)
    whole = wall_time(found, after_last=last)
    assert seen is not None and whole is not None
    assert {part.name: part.time_s for part in whole.parts} == {
        "evaluation": pytest.approx(0.015),
        "checkpointing": pytest.approx(0.007),
    }
    # 24 * 6 = 144 ms of steps, 3 * 15 = 45 of evaluations, 7 of a checkpoint.
    assert whole.steps_share == pytest.approx(144 / (144 + 45 + 7))
    # Two evaluations, 8 steps apart.
    assert seen.steps_share == pytest.approx(144 / (144 + 45))


def test_calls_beside_steps_of_inference_evaluate_nothing() -> None:
    # A request is answered by one model; each tenth time a second one looks at the answer too.
    second = replace(EVAL, instance=7, module="Judge")
    loop = Loop()
    for step in range(40):
        loop.step(*([(second, 4.0)] if step % 10 == 0 else []), (EVAL, 2.0))
    seen = wall_time(sort_windows(loop.windows))
    assert seen is not None
    assert [part.name for part in seen.parts] == ["calls of Judge"]


@pytest.mark.parametrize("begun", [[(TRAIN, 2.0)], [(EVAL, 2.0)]])
def test_a_step_that_was_begun_and_not_ended_is_no_part(
    begun: list[tuple[CallKey | None, float]],
) -> None:
    # Each step looks at the batch first, then trains on it.
    loop = Loop()
    for _ in range(12):
        loop.step((EVAL, 2.0), *plain())
    found = sort_windows(loop.windows)
    last = Loop().step(*begun).windows[0]
    assert wall_time(found, after_last=last) == wall_time(found)


def test_what_every_step_does_is_the_step() -> None:
    # Distillation: a teacher without gradients in each step.
    teacher = CallKey("Teacher", 1, False, False, ((8, 16),))
    loop = Loop()
    for _ in range(20):
        loop.step((None, 1.0), (teacher, 2.0), *plain())
    found = sort_windows(loop.windows)
    assert found.shape == (teacher, TRAIN)
    assert all(found.pure(i) for i in range(20))
    assert wall_time(found).parts == ()  # type: ignore[union-attr]


@pytest.mark.parametrize(("others_ms", "chosen"), [(1.0, 0), (8.0, 1)])
def test_of_two_kinds_of_steps_the_one_of_most_wall_time_is_the_step(
    others_ms: float, chosen: int
) -> None:
    kinds = replace(TRAIN, module="Large"), replace(TRAIN, module="Small", instance=1)
    loop = Loop()
    for i in range(30):
        # One of three takes 10 ms.
        loop.step((kinds[i % 3 > 0], others_ms if i % 3 else 10.0))
    assert sort_windows(loop.windows).shape == (kinds[chosen],)


def test_a_short_last_batch_is_a_step_of_another_shape() -> None:
    loop = Loop()
    for step in range(40):
        loop.step(*plain(key(8, 16) if step % 10 != 9 else key(3, 16)))
    found = sort_windows(loop.windows)
    assert found.shape == (key(8, 16),)
    assert [i for i in range(40) if not found.own[i]] == [9, 19, 29, 39]
    assert found.other[9] == "steps of other shapes (3x16)"


def test_without_a_usual_shape_steps_vary_and_all_of_them_count() -> None:
    loop = Loop()
    for step in range(40):
        length = 8 + step * 7 % 40
        loop.step(*plain(key(8, length), scale=length / 16))
    found = sort_windows(loop.windows)
    assert found.varying
    assert found.shape == ()
    assert all(found.pure(i) for i in range(40))


def test_rollouts_of_different_lengths_are_one_kind_of_step() -> None:
    act = CallKey("Net", 0, True, False, ((1, 16),))
    loop = Loop()
    for step in range(30):
        moves = 5 + step * 3 % 11
        loop.step(*[(act, 0.5)] * moves, *plain(key(moves, 16)))
    found = sort_windows(loop.windows)
    assert found.varying
    assert all(found.pure(i) for i in range(30))


def test_prefill_is_not_a_decode_step() -> None:
    token = key(1, 1, training=False, tokens=True)
    loop = Loop()
    for prompt in range(4):
        loop.step((None, 1.0), (key(1, 12 + prompt, training=False, tokens=True), 9.0))
        for _ in range(31):
            loop.step((None, 1.0), (token, 3.0))
    found = sort_windows(loop.windows)
    assert is_one_token(found.shape)
    assert {found.other[i] for i in range(len(loop.windows)) if not found.own[i]} == {"prefill"}
    wall = wall_time(found)
    assert wall is not None
    assert wall.steps_share == pytest.approx(31 * 4 / (31 * 4 + 10))


def test_a_checkpoint_has_its_name_and_its_line() -> None:
    loop = Loop()
    for step in range(30):
        loop.step(*plain(), save_ms=12.0 if step % 10 == 9 else 0.0)
    found = sort_windows(loop.windows)
    assert found.step_ns(9) == pytest.approx(6 * MS)
    wall = wall_time(found)
    assert wall is not None
    (part,) = wall.parts
    assert (part.name, part.source) == ("checkpointing", "train.py:30 in <module>")
    assert part.share == pytest.approx(12 / 72)


def test_a_long_gap_that_nothing_explains_is_between_steps_with_the_line_that_ran() -> None:
    loop = Loop()
    for step in range(40):
        loop.step(*([(None, 20.0)] if step % 5 == 4 else []), *plain())
    wall = wall_time(sort_windows(loop.windows), seen_in(loop, {4: "train.py:40 in log"}))
    assert wall is not None
    (part,) = wall.parts
    assert (part.name, part.source) == ("between steps", "train.py:40 in log")
    # Where a line was seen once, gaps like it are the program's too.
    assert part.share == pytest.approx(20 / 50)


def test_gaps_are_counted_where_they_can_be_told_from_what_gobrrr_adds() -> None:
    loop = Loop()
    for step in range(60):
        phase = PROFILED if 12 <= step < 44 else PLAIN
        loop.step(*([(None, 20.0)] if step % 5 == 4 else []), *plain(), phase=phase)
    wall = wall_time(sort_windows(loop.windows), seen_in(loop, {4: "train.py:40 in log"}))
    assert wall is not None
    (part,) = wall.parts
    # Six in the 28 windows that nobody disturbed.
    assert part.per_step == pytest.approx(6 / 28)


def test_an_evaluation_that_compiles_is_not_what_an_evaluation_takes() -> None:
    loop = Loop()
    for step in range(40):
        length_ms = 5000.0 if step == 9 else 10.0
        loop.step(*([(EVAL, length_ms)] if step % 10 == 9 else []), *plain())
    wall = wall_time(sort_windows(loop.windows))
    assert wall is not None
    (part,) = wall.parts
    assert part.time_s == pytest.approx(10e-3)
    # 4 of 10 ms beside 40 steps of 6.
    assert part.share == pytest.approx(40 / 280)


def test_an_evaluation_in_which_something_was_compiled_says_nothing_of_the_others() -> None:
    loop = Loop()
    for step in range(40):
        # Only three times as long as the others: the compiler's own count tells it apart.
        length_ms = 30.0 if step < 20 else 10.0
        loop.step(*([(EVAL, length_ms)] if step % 10 == 9 else []), *plain())
    loop.windows = [replace(w, compiles=i in (9, 19)) for i, w in enumerate(loop.windows)]
    wall = wall_time(sort_windows(loop.windows))
    assert wall is not None
    (part,) = wall.parts
    assert part.time_s == pytest.approx(10e-3)
    assert part.share == pytest.approx(40 / 280)


def test_a_step_that_was_slow_at_its_own_lines_is_one_step() -> None:
    loop = Loop()
    for step in range(40):
        loop.step(*([(None, 60.0)] if step == 17 else []), *plain())
    found = sort_windows(loop.windows)
    assert not found.pure(17)
    seen = seen_in(loop, {17: "train.py:12 in step"})
    wall = wall_time(with_slow_steps(found, seen), seen)
    assert wall is not None
    assert (wall.steps_share, wall.parts) == (1.0, ())
    # Nor is it anything else where no line was seen in it.
    seen = seen_in(loop, {17: ""})
    assert wall_time(with_slow_steps(found, seen), seen) == wall
    # A line of its own says nothing where the machine was taken away in the midst of it.
    seen = seen_in(loop, {17: "train.py:40 in log"})
    assert wall_time(with_slow_steps(found, seen), seen) != wall
    assert wall_time(with_slow_steps(found, seen, taken_away=True), seen) == wall
    # Where nobody looks at lines, a gap is taken for one.
    unseen = wall_time(found)
    assert unseen is not None
    assert unseen.steps_share == pytest.approx(240 / 300)


def test_slow_steps_are_among_the_timed_ones_and_each_has_the_time_at_which_it_ended() -> None:
    loop = Loop()
    for step in range(40):
        slow, evaluates = step == 17, step == 30
        beside: list[tuple[CallKey | None, float]] = [(None, 60.0)] if slow else []
        loop.step(*([(EVAL, 9.0)] if evaluates else beside), *plain())
    places = list(range(40))
    measured = Measurements(
        windows=loop.windows,
        plain_ns=[[window.length_ns for window in loop.windows], []],
        plain_windows=[places, []],
        lines_between=seen_in(loop, {17: "train.py:12 in step", 30: "train.py:9 in evaluate"}),
    )
    found = same_steps(measured)
    # The mean is that of all steps; only the one beside an evaluation is left out.
    assert sorted(found.all_plain_ns)[-2:] == [6 * MS, 66 * MS]
    assert len(found.all_plain_ns) == len(found.plain_ended_s) == 39
    ends = [window.end_ns * 1e-9 for i, window in enumerate(loop.windows) if i != 30]
    assert found.plain_ended_s == ends
    assert found.kind.seen is not None
    assert found.kind.seen.count == 40
    assert found.kind.seen.mean_s == pytest.approx((39 * 6 + 66) / 40 * 1e-3)


def test_steps_without_modules_are_all_of_one_kind() -> None:
    loop = Loop()
    for step in range(20):
        loop.step((None, 6.0 if step != 7 else 30.0))
    found = sort_windows(loop.windows)
    assert all(found.pure(i) for i in range(20))
    assert not found.varying


def test_runs_of_calls_count_as_one() -> None:
    loop = Loop().step(*[(EVAL, 1.0)] * 3, *[(TRAIN, 1.0)] * 4)
    assert runs_of(loop.windows[0]) == ((0, False, False), (0, True, True))


@pytest.mark.parametrize("wanted", [[10, 30], [12, 17, 25], [5, 40, 20], [20] * 5])
def test_shares_reproduce_whatever_is_linear_in_size(wanted: list[int]) -> None:
    sizes = [30.0, 10.0, 20.0, 20.0]
    shares = shares_by_size(sizes, wanted)
    assert sum(shares) == pytest.approx(1)
    mean = sum(7 + 3 * size for size in wanted) / len(wanted)
    assert sum(s * (7 + 3 * size) for s, size in zip(shares, sizes)) == pytest.approx(mean)


def test_steps_differ_where_their_events_differ_in_number() -> None:
    assert differ([range(100), range(103)])
    assert not differ([range(100), range(101)])
    assert not differ([])


def test_one_short_evaluation_does_not_make_the_others_compile() -> None:
    loop = Loop()
    for step in range(40):
        length_ms = 0.5 if step == 9 else 10.0
        loop.step(*([(EVAL, length_ms)] if step % 10 == 9 else []), *plain())
    wall = wall_time(sort_windows(loop.windows))
    assert wall is not None
    assert wall.parts[0].time_s == pytest.approx(30.5e-3 / 4)


def test_all_steps_are_counted_and_what_stood_between_them_is_none_of_their_time() -> None:
    loop = Loop()
    # Two of the warm-up, one recorded, five timed, of which one evaluates first; one profiled.
    loop.step(*plain(scale=1.5), phase=WARM).step(*plain(), phase=WARM)
    loop.step(*plain(scale=3.0), phase=RECORDED)
    for _ in range(4):
        loop.step(*plain())
    loop.step((None, 0.5), (EVAL, 1.0), *plain())
    loop.step(*plain(scale=2.0), phase=PROFILED)
    seen = seen_steps(sort_windows(loop.windows))
    assert seen is not None
    assert (seen.count, seen.attached) == (7, 2)
    assert seen.mean_s == pytest.approx((9 + 6 * 6) / 7 * 1e-3)
    assert seen.median_s == pytest.approx(6e-3)
    assert seen.attached_mean_s == pytest.approx((18 + 12) / 2 * 1e-3)
    # Nothing but a recorded step says nothing of the program's own time.
    assert seen_steps(sort_windows(Loop().step(*plain(), phase=RECORDED).windows)) is None


def lines_run(windows: list[StepWindow]) -> int:
    """Lines of Python that telling these windows apart takes."""
    count = 0

    def trace(frame, event, arg):  # type: ignore[no-untyped-def]
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        sort_windows(windows)
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("modules", [1, 2, 7])
def test_telling_steps_apart_is_linear_in_their_calls(modules: int) -> None:
    def loop(calls: int) -> list[StepWindow]:
        chance, made = random.Random(0), Loop()
        for _ in range(24):
            called = [
                (key(4, instance=chance.randrange(modules)), 0.01)
                for _ in range(chance.randint(calls * 9 // 10, calls))
            ]
            made.step(*called, (None, 1.0))
        return made.windows

    few, many = lines_run(loop(100)), lines_run(loop(400))
    assert many < 4 * 1.5 * few


def test_groups_of_calls_that_are_repeated_are_one_step_of_other_length() -> None:
    policy, value = key(4, instance=0), key(4, instance=1)
    loop = Loop()
    for turns in (7, 3, 9, 5, 4, 8, 6, 2) * 3:
        loop.step(*[(policy, 1.0), (value, 1.0)] * turns, (None, 1.0))
    found = sort_windows(loop.windows)
    assert found.varying and all(found.pure(i) for i in range(24))
    assert found.pattern == (policy.alike, value.alike)


def test_steps_that_call_modules_in_ever_another_order_are_all_steps() -> None:
    chance, loop = random.Random(0), Loop()
    for i in range(30):
        loop.step(
            *[(key(4, instance=chance.randrange(9)), 1.0) for _ in range(20)],
            *[(EVAL, 5.0)] * (i % 10 == 9),
        )
    found = sort_windows(loop.windows)
    assert found.varying and all(found.own) and not any(found.extras)
