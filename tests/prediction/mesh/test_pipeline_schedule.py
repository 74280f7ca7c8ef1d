"""Pipelines replayed: bubbles worked out by hand, and what must hold of any."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.prediction.mesh.pipeline_schedule import Schedule, StageTime, passes, pipeline_time
from gobrrr.timeline.errors import InputError

times = st.floats(0.01, 10.0)
stage_times = st.builds(StageTime, times, times, st.floats(0.0, 1.0))
EACH = (Schedule.GPIPE, Schedule.ONE_F_ONE_B)


@pytest.mark.parametrize("schedule", EACH)
def test_equal_stages_wait_as_the_formula_says(schedule: Schedule) -> None:
    found = pipeline_time([StageTime(1.0, 2.0)] * 4, 4, 8, schedule)
    # (8 + 4 - 1) x 3 = 33, of which 9 is bubble: 3 / 11.
    assert found.seconds == 33.0
    assert found.busy_s == (24.0,) * 4
    assert found.bubble_s == (9.0,) * 4
    first, last = found.stages[0], found.stages[3]
    assert (first[0].begin_s, first[-1].end_s) == (0.0, 33.0)
    assert (last[0].begin_s, last[-1].end_s) == (3.0, 27.0)


def test_interleaving_divides_the_bubble() -> None:
    found = pipeline_time([StageTime(0.5, 1.0)] * 8, 4, 8, Schedule.INTERLEAVED)
    # v = 2: 24 of work and (4 - 1) x 1.5 of bubble.
    assert found.seconds == 28.5
    assert found.busy_s == (24.0,) * 4


def test_one_stage_waits_for_nobody() -> None:
    found = pipeline_time([StageTime(1.0, 2.0, 5.0)], 1, 3)
    assert (found.seconds, found.bubble_s) == (9.0, (0.0,))


def test_a_slow_last_stage_sets_the_pace() -> None:
    found = pipeline_time([StageTime(1.0, 2.0), StageTime(2.0, 4.0)], 2, 5)
    # The first forward, five times the slow stage, the last backward of the first.
    assert found.seconds == 1.0 + 5 * 6.0 + 2.0


def test_gradients_are_added_up_from_the_second_microbatch_on() -> None:
    found = pipeline_time([StageTime(1.0, 2.0, add_s=0.5)] * 2, 2, 3)
    # The first stage: two forward passes wait for nobody, the last backward pass adds up too.
    assert found.busy_s == (10.0, 10.0)
    assert found.seconds == 1 + 10.0 + 2.5
    assert pipeline_time([StageTime(1.0, 2.0, add_s=0.5)], 1, 1).seconds == 3.0


def test_sending_delays_each_way_once() -> None:
    found = pipeline_time([StageTime(1.0, 2.0, 0.25)] * 2, 2, 1)
    assert found.seconds == 1 + 0.25 + 1 + 2 + 0.25 + 2


def test_one_forward_one_backward_holds_few_activations() -> None:
    chunks = [StageTime(1.0, 2.0)] * 4
    assert pipeline_time(chunks, 4, 16, Schedule.GPIPE).in_flight == (16,) * 4
    assert pipeline_time(chunks, 4, 16).in_flight == (4, 3, 2, 1)


def test_the_order_of_a_stage() -> None:
    order = passes(0, 2, 2, 3, Schedule.ONE_F_ONE_B)
    text = "".join(f"{'b' if p.backward else 'f'}{p.microbatch}" for p in order)
    assert text == "f0f1b0f2b1b2"


@given(st.lists(stage_times, min_size=1, max_size=6), st.integers(1, 9), st.sampled_from(EACH))
def test_a_step_is_no_shorter_than_its_parts(
    chunks: list[StageTime], microbatches: int, schedule: Schedule
) -> None:
    found = pipeline_time(chunks, len(chunks), microbatches, schedule)
    through = sum(c.forward_s + c.backward_s + 2 * c.send_s for c in chunks) - 2 * chunks[-1].send_s
    assert found.seconds >= max(found.busy_s) - 1e-9
    assert found.seconds >= through - 1e-9
    assert all(wait >= -1e-9 for wait in found.bubble_s)


@given(st.lists(stage_times, min_size=4, max_size=4), st.sampled_from([2, 4, 8]), st.integers(0, 3))
def test_a_slower_part_never_makes_a_step_faster(
    chunks: list[StageTime], microbatches: int, which: int
) -> None:
    slower = list(chunks)
    one = chunks[which]
    slower[which] = StageTime(one.forward_s * 2, one.backward_s, one.send_s + 1)
    for stages, schedule in (
        (4, Schedule.GPIPE),
        (4, Schedule.ONE_F_ONE_B),
        (2, Schedule.INTERLEAVED),
    ):
        before = pipeline_time(chunks, stages, microbatches, schedule)
        after = pipeline_time(slower, stages, microbatches, schedule)
        assert after.seconds >= before.seconds - 1e-9
        assert before.seconds >= max(before.busy_s) - 1e-9  # all passes have run


@given(st.integers(1, 4), st.integers(2, 4), st.integers(1, 4))
def test_every_pass_runs_once(rounds: int, stages: int, v: int) -> None:
    microbatches = rounds * stages
    for stage in range(stages):
        order = passes(stage, stages * v, stages, microbatches, Schedule.INTERLEAVED)
        assert len(order) == len(set(order)) == 2 * v * microbatches


def test_what_cannot_be_scheduled_is_one_sentence() -> None:
    chunk = StageTime(1.0, 2.0)
    with pytest.raises(InputError, match="at least one stage and one microbatch"):
        pipeline_time([chunk], 1, 0)
    with pytest.raises(InputError, match="evenly among 2 stages"):
        pipeline_time([chunk] * 3, 2, 2)
    with pytest.raises(InputError, match="need the interleaved schedule"):
        pipeline_time([chunk] * 4, 2, 2)
    with pytest.raises(InputError, match="rounds of 2"):
        pipeline_time([chunk] * 4, 2, 3, Schedule.INTERLEAVED)
