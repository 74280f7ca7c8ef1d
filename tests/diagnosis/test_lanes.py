"""One step of all ranks on one clock: which step, which calls, who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gobrrr.diagnosis import lanes as lanes_module
from gobrrr.diagnosis.lanes import lanes_of
from gobrrr.diagnosis.schema import JobLanes
from gobrrr.ranks.job import compare_records
from gobrrr.ranks.rank_record import Call, RankRecord

US = 1000


def _record(
    rank: int,
    starts_us: Sequence[int],
    *,
    lengths_us: Sequence[int] = (100, 120, 110),
    host: str = "one",
    ahead: int = 0,
    world: int = 2,
) -> RankRecord:
    """Steps of these lengths; in each one all-reduce that ends 10 us before the step."""
    steps, calls, stretches, begin = [], [], [], ahead
    for length, start in zip(lengths_us, starts_us):
        end = begin + length * US
        steps.append((begin, end))
        span = (begin + start * US, end - 10 * US)
        calls.append(Call(*span, 0, "backward", "net", 1.0, 1.0, [span]))
        stretches.append(("forward", begin + 5 * US, begin + start * US))
        begin = end
    return RankRecord(
        rank=rank,
        host=host,
        steps=steps,
        own_ns=[1.0] * len(steps),
        collectives=[("all_reduce", 1000, "float32", world, "world")],
        calls=calls,
        stretches=stretches,
    )


def _lanes(*records: RankRecord, world: int = 2) -> JobLanes | None:
    found = compare_records(records, world)
    return lanes_of(records, found.matched, found.clocks, found.clock_residual_ns)


def test_the_step_of_median_length_is_drawn_with_who_waits_for_whom() -> None:
    lanes = _lanes(_record(0, [30, 30, 30]), _record(1, [70, 70, 70]))
    assert lanes is not None
    # Of 100, 120 and 110 us the third.
    assert (lanes.step, lanes.duration_ns, lanes.ranks) == ("step 3", 110 * US, 2)
    assert lanes.one_clock
    assert lanes.clock_residual_s == 0.0
    assert lanes.names == ["all_reduce"]
    early, late = lanes.lanes
    assert (early.rank, early.start_ns, early.end_ns) == (0, 0, 110 * US)
    assert early.work_phase == ["forward"]
    assert (early.work_start_ns, early.work_duration_ns) == ([5 * US], [25 * US])
    assert (early.call_start_ns, early.call_duration_ns) == ([30 * US], [70 * US])
    assert (early.call_wait_ns, early.call_waits_for) == ([40 * US], [1])
    assert (late.call_start_ns, late.call_duration_ns) == ([70 * US], [30 * US])
    assert (late.call_wait_ns, late.call_waits_for) == ([0], [None])


def test_lanes_of_two_hosts_are_on_the_clock_of_the_first() -> None:
    there = _record(1, [70, 70, 70], host="two", ahead=7_000_000_000)
    lanes = _lanes(_record(0, [30, 30, 30]), there)
    assert lanes is not None
    assert not lanes.one_clock
    assert [lane.call_start_ns for lane in lanes.lanes] == [[30 * US], [70 * US]]
    there.calls = []
    assert _lanes(_record(0, [30, 30, 30]), there) is None


def test_of_a_group_that_is_not_complete_no_waiting_is_told() -> None:
    lanes = _lanes(_record(0, [30] * 3, world=3), _record(1, [70] * 3, world=3), world=3)
    assert lanes is not None
    assert [lane.call_wait_ns for lane in lanes.lanes] == [[None], [None]]
    assert [lane.call_waits_for for lane in lanes.lanes] == [[None], [None]]


def test_one_rank_has_no_lanes_and_ranks_without_a_step_in_common_neither() -> None:
    here, there = _record(0, [30] * 3), _record(1, [70] * 3)
    found = compare_records([here, there], 2)
    assert lanes_of([here], found.matched[:1], found.clocks[:1], None) is None
    names = [["a", "b", "c"], ["d", "e", "f"]]
    assert lanes_of([here, there], found.matched, found.clocks, None, names) is None
    names = [["a", "b", "c"], ["d", "a", "f"]]
    common = lanes_of([here, there], found.matched, found.clocks, None, names)
    assert common is not None
    assert common.step == "a"


def test_of_many_ranks_those_that_wait_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "MOST_LANES", 2)
    # Rank 2 comes last, and rank 1 waits longest for it.
    starts = {0: 60, 1: 20, 2: 70, 3: 65}
    records = [_record(rank, [start] * 3, world=4) for rank, start in starts.items()]
    lanes = _lanes(*records, world=4)
    assert lanes is not None
    assert (lanes.ranks, [lane.rank for lane in lanes.lanes]) == (4, [1, 2])


def test_the_longest_collectives_are_drawn_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes_module, "MOST_CALLS", 4)
    records = []
    for rank in range(2):
        record = _record(rank, [30], lengths_us=[100])
        for start, length in ((40, 1), (50, 20), (80, 2)):
            span = (start * US, (start + length) * US)
            record.calls.append(Call(*span, 0, "backward", "net", 1.0, 1.0, [span]))
        records.append(record)
    lanes = _lanes(*records)
    assert lanes is not None
    assert [lane.left_out for lane in lanes.lanes] == [2, 2]
    assert lanes.lanes[0].call_start_ns == [30 * US, 50 * US]
