"""The clocks of several hosts: brought together by what their ranks share, or left apart."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from gobrrr.ranks.job import compare_records
from gobrrr.ranks.job_clocks import Clock, clocks_of
from gobrrr.ranks.job_trace import trace_of_job
from gobrrr.ranks.rank_record import Call, RankRecord

STEP, STEPS = 200_000, 4
# What its clock is ahead of the first host's, in ns.
AHEAD = 7_000_000_000

# Name, group and size of a collective -> its start and end in each step, in ns.
_Calls = Mapping[tuple[str, str, int], tuple[int, int]]


def _rank(rank: int, host: str, calls: _Calls, *, ahead: int = 0, alone: str = "") -> RankRecord:
    """Four steps of 200 us with these collectives, by a clock that is ``ahead``."""
    made = [
        Call(
            start_ns=ahead + step * STEP + start,
            end_ns=ahead + step * STEP + end,
            which=which,
            phase="backward",
            module=group,
            exposed_ns=(end - start) / STEPS,
            duration_ns=(end - start) / STEPS,
            waits=[(ahead + step * STEP + start, ahead + step * STEP + end)],
        )
        for step in range(STEPS)
        for which, ((_, group, _), (start, end)) in enumerate(calls.items())
    ]
    return RankRecord(
        rank=rank,
        host=host,
        steps=[(ahead + step * STEP, ahead + (step + 1) * STEP) for step in range(STEPS)],
        own_ns=[40_000.0] * STEPS,
        collectives=[(name, 1000, "float32", size, group) for name, group, size in calls],
        calls=made,
        alone=alone,
    )


def _tensor_parallel(late: int = 0, second: int = AHEAD) -> list[RankRecord]:
    """Two hosts of two ranks each: tensors within a host, data across; no collective of all.

    Rank 3 comes ``late`` to the all-reduce that it shares with rank 1.
    """
    inside = {rank: ("all_gather", f"tp (ranks {rank // 2 * 2}-{rank // 2 * 2 + 1})", 2)
              for rank in range(4)}  # fmt: skip
    across = {rank: ("all_reduce", f"dp (ranks {rank % 2}, {rank % 2 + 2})", 2)
              for rank in range(4)}  # fmt: skip
    return [
        _rank(
            rank,
            "one" if rank < 2 else "two",
            {
                inside[rank]: (30_000, 40_000),
                across[rank]: (60_000 + (late if rank == 3 else 0), 155_000),
            },
            ahead=0 if rank < 2 else second,
        )
        for rank in range(4)
    ]


def test_ranks_that_share_nothing_with_the_first_are_on_its_clock_all_the_same() -> None:
    records = _tensor_parallel(late=20_000)
    assert clocks_of(records) == (Clock(0, 0), Clock(0, 0), Clock(0, AHEAD), Clock(0, AHEAD))
    found = compare_records(records, 4)
    waits = [[0.0] * 4 for _ in range(4)]
    waits[1][3] = 20_000.0
    assert found.waits_for_ns.tolist() == waits
    # Of 10 us within the host and 95 across.
    assert found.waited_share == (0.0, pytest.approx(20 / 105), 0.0, 0.0)
    assert found.clock_residual_ns == 0.0


def test_the_lanes_of_a_trace_lie_beside_each_other_with_their_arrows() -> None:
    events = trace_of_job(_tensor_parallel(late=60_000))["traceEvents"]
    steps = {e["pid"]: e["ts"] for e in events if e.get("name") == "step 2"}
    assert steps == dict.fromkeys(range(4), 200.0)
    arrows = [(e["ph"], e["pid"], e["ts"]) for e in events if e["ph"] in "sf"]
    # Rank 1 comes at 60 us, rank 3 at 120.
    assert arrows[:2] == [("s", 1, 60.0), ("f", 3, 120.0)]
    assert len(arrows) == 2 * STEPS
    assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        "rank 0", "rank 1", "rank 2", "rank 3",
    }  # fmt: skip


def test_what_ranks_beside_the_first_see_is_in_the_residual() -> None:
    records = _tensor_parallel()
    # Rank 3 sees the ends of what it shares with rank 1 a little later than the clock says.
    records[3].calls = [
        replace(call, end_ns=call.end_ns + (4_000 if call.module.startswith("dp") else 0))
        for call in records[3].calls
    ]
    # The clock of the second host: between 0 of one pair of ranks and 4 us of the other.
    assert clocks_of(records)[3] == Clock(0, AHEAD + 2_000)
    assert compare_records(records, 4).clock_residual_ns == 2_000.0


def test_hosts_are_tied_through_others() -> None:
    pair = {place: ("all_reduce", place, 2) for place in ("ab", "bc")}
    records = [
        _rank(0, "a", {pair["ab"]: (10_000, 50_000)}),
        _rank(1, "b", {pair["ab"]: (20_000, 50_000), pair["bc"]: (60_000, 90_000)}, ahead=-AHEAD),
        _rank(2, "c", {pair["bc"]: (65_000, 90_000)}, ahead=3 * AHEAD),
    ]
    assert clocks_of(records) == (Clock(0, 0), Clock(0, -AHEAD), Clock(0, 3 * AHEAD))
    found = compare_records(records, 3)
    assert found.waits_for_ns.tolist() == [[0, 10_000, 0], [0, 0, 5_000], [0, 0, 0]]


def test_steps_with_as_many_calls_tie_hosts_where_others_have_not() -> None:
    world = ("all_reduce", "world", 2)
    records = [
        _rank(0, "one", {world: (60_000, 95_000)}),
        _rank(1, "two", {world: (70_000, 95_000)}, ahead=AHEAD),
    ]
    extra = records[0].calls[0]
    records[0].calls.insert(1, replace(extra, start_ns=96_000, end_ns=97_000, waits=[]))
    assert clocks_of(records)[1] == Clock(0, AHEAD)
    # In three of four steps.
    assert compare_records(records, 2).waits_for_ns.tolist() == [[0, 7_500], [0, 0]]


def test_clocks_that_nothing_ties_together_are_not_compared() -> None:
    """A broadcast is over for its root before the others have come."""
    broadcast = ("broadcast", "world", 4)
    records = [
        _rank(
            rank,
            "one" if rank < 2 else "two",
            {("all_reduce", f"tp {rank // 2}", 2): (30_000 + 5_000 * (rank % 2), 60_000),
             broadcast: (70_000 if rank < 2 else 140_000, 160_000)},
            ahead=0 if rank < 2 else AHEAD,
        )
        for rank in range(4)
    ]  # fmt: skip
    # Those of the second host have one another's.
    assert [clock.of for clock in clocks_of(records)] == [0, 0, 1, 1]
    found = compare_records(records, 4)
    assert found.waits_for_ns.tolist() == [
        [0, 5_000, 0, 0], [0, 0, 0, 0], [0, 0, 0, 5_000], [0, 0, 0, 0],
    ]  # fmt: skip
    assert {f.name: f.matched for f in found.figures} == {"all_reduce": True, "broadcast": False}
    assert {part.module: part.wait_ns for part in found.exposed} == {
        "tp 0": pytest.approx(1_250.0), "tp 1": pytest.approx(1_250.0), "world": None,
    }  # fmt: skip
    events = trace_of_job(records)["traceEvents"]
    assert {e["pid"]: e["ts"] for e in events if e.get("name") == "step 1"} == dict.fromkeys(
        range(4), 0.0
    )
    titles = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert titles[1] == "rank 1"
    assert titles[2] == "rank 2 (its clock against that of rank 0 is unknown)"
    assert not [event for event in events if event["ph"] in "sf"]


def test_a_rank_without_anybody_on_its_clock_is_not_said_to_wait_for_nobody() -> None:
    broadcast = ("broadcast", "world", 3)
    tensor = ("all_reduce", "tp", 2)
    records = [
        _rank(0, "one", {tensor: (30_000, 60_000), broadcast: (70_000, 90_000)}),
        _rank(1, "one", {tensor: (30_000, 60_000), broadcast: (70_000, 90_000)}),
        _rank(2, "two", {broadcast: (70_000, 90_000)}, ahead=AHEAD),
    ]
    assert compare_records(records, 3).waited_share == (0.0, 0.0, None)


def test_messages_tie_hosts_where_they_go_both_ways() -> None:
    there, back = ("send from rank 0 to 1", "pp", 2), ("send from rank 1 to 0", "pp", 2)
    # Each message takes 8 us, but one of them is taken late by 30 more.
    records = [
        _rank(0, "one", {there: (10_000, 12_000), back: (40_000, 88_000)}),
        _rank(1, "two", {there: (5_000, 20_000), back: (70_000, 80_000)}, ahead=AHEAD),
    ]
    last = records[0].calls[-1]
    records[0].calls[-1] = replace(last, end_ns=last.end_ns + 30_000)
    assert clocks_of(records) == (Clock(0, 0), Clock(0, AHEAD))
    # One way they tell an order only.
    for record in records:
        record.calls = [call for call in record.calls if call.which == 0]
    assert [clock.of for clock in clocks_of(records)] == [0, 1]
    assert compare_records(records, 2).waited_share == (None, None)


@pytest.mark.parametrize("host", ["one", "two"])
def test_ranks_that_took_other_steps_are_not_compared(host: str) -> None:
    """Their first steps are a second apart: as waiting, that would be all of each collective."""
    world = ("all_reduce", "world", 2)
    records = [
        _rank(0, "one", {world: (60_000, 95_000)}, alone="rank 1 did not reach a step within 60 s"),
        _rank(1, host, {world: (60_000, 95_000)}, ahead=1_000_000_000),
    ]
    records[1].own_ns = [90_000.0] * STEPS
    found = compare_records(records, 2)
    assert found.waited_share == (None, None)
    assert not found.waits_for_ns.any()
    assert found.slowest is None
    assert found.clock_residual_ns is None
    assert [(f.matched, f.last_rank, f.transfer_ns) for f in found.figures] == [(False, None, None)]
    assert [clock.of for clock in found.clocks] == [0, 0 if host == "one" else 1]
    # How long each is busy is its own.
    assert found.ahead_ns == (-50_000.0, 50_000.0)
    events = trace_of_job(records)["traceEvents"]
    assert not [event for event in events if event["ph"] in "sf"]
