"""Ranks side by side: who is waited for, by when each came and how long each was busy."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from gobrrr.ranks.job import compare_records
from gobrrr.ranks.job_clocks import Clock, clocks_of
from gobrrr.ranks.job_trace import trace_of_job
from gobrrr.ranks.rank_record import Call, RankRecord

STEP = 100_000


def _record(
    rank: int,
    busy: list[int],
    starts: list[int],
    *,
    world: int = 2,
    ends: int = 95_000,
    host: str = "one",
    ahead: int = 0,
) -> RankRecord:
    """Steps of 100 us with one all-reduce that the rank waits for until 95 us."""
    calls = [
        Call(
            start_ns=ahead + i * STEP + start,
            end_ns=ahead + i * STEP + ends,
            which=0,
            phase="backward",
            module="net",
            exposed_ns=(ends - start) / len(busy),
            duration_ns=(ends - start) / len(busy),
            waits=[(ahead + i * STEP + start, ahead + i * STEP + ends)],
        )
        for i, start in enumerate(starts)
    ]
    return RankRecord(
        rank=rank,
        host=host,
        steps=[(ahead + i * STEP, ahead + (i + 1) * STEP) for i in range(len(busy))],
        own_ns=[float(ns) for ns in busy],
        collectives=[("all_reduce", 1000, "float32", world, "world")],
        calls=calls,
    )


def test_two_buckets_on_one_link_are_not_each_told_half_of_its_bandwidth() -> None:
    records = [_record(rank, [50_000] * 3, [35_000] * 3) for rank in (0, 1)]
    for record in records:
        # A second one from 15 to 75 us: 20 us alone, 40 beside the first, which has 20 alone then.
        record.collectives.append(("all_reduce", 3000, "float32", 2, "world"))
        second = [
            replace(call, which=1, start_ns=call.start_ns - 20_000, end_ns=call.end_ns - 20_000,
                    waits=[(start - 20_000, end - 20_000) for start, end in call.waits])
            for call in record.calls
        ]  # fmt: skip
        record.calls[:] = sorted([*record.calls, *second], key=lambda call: call.start_ns)
    figures = {f.bytes_moved: f for f in compare_records(records, 2).figures}
    # Each takes 60 us; both together move 4000 bytes from 15 to 95 us.
    assert sorted(size or 0 for size in figures) == [1000, 3000]
    for figure in figures.values():
        assert figure.transfer_ns == 60_000
        assert figure.algorithm_bytes_per_s == pytest.approx(4000 / 80e-6)


def test_both_directions_of_a_pair_are_links_of_their_own() -> None:
    records = [_record(rank, [50_000] * 3, [35_000] * 3) for rank in (0, 1)]
    for record in records:
        record.collectives[:] = [
            (f"send from rank {pair}", 1000, "float32", 2, "pp") for pair in ("0 to 1", "1 to 0")
        ]
        back = [replace(call, which=1) for call in record.calls]
        record.calls[:] = sorted([*record.calls, *back], key=lambda call: call.start_ns)
    figures = compare_records(records, 2).figures
    assert len(figures) == 2
    for figure in figures:
        assert figure.algorithm_bytes_per_s == pytest.approx(1000 / 60e-6)


def test_the_rank_that_comes_last_and_is_busiest_is_named() -> None:
    fast = _record(0, [40_000, 41_000, 39_000, 40_000], [35_000] * 4)
    slow = _record(1, [60_000, 60_500, 60_000, 61_000], [55_000] * 4)
    found = compare_records([fast, slow], 2)
    assert found.ranks[found.slowest or 0] == 1
    # It comes 20 us after the other, which waits those of the 60 from 35 to 95.
    assert found.waits_for_ns.tolist() == [[0.0, 20_000.0], [0.0, 0.0]]
    assert found.waited_share == (pytest.approx(20 / 60), 0.0)
    # Of the sixteen differences of a step of one and a step of the other the median.
    assert found.ahead_ns == (-20_250.0, 20_250.0)
    (figure,) = found.figures
    assert (figure.last_rank, figure.skew_ns, figure.transfer_ns) == (1, 20_000.0, 40_000.0)
    # 1000 bytes in 40 us; of two ranks all of them cross the link once in all-reduce.
    assert figure.algorithm_bytes_per_s == pytest.approx(25e6)
    assert figure.bus_bytes_per_s == pytest.approx(25e6)
    (part,) = found.exposed
    assert (part.group, part.phase, part.module) == ("world", "backward", "net")
    # (60 + 40) / 2, of which (20 + 0) / 2 waited.
    assert (part.time_ns, part.wait_ns) == (50_000.0, pytest.approx(10_000.0))


@pytest.mark.parametrize(
    "busy",
    [
        # Less than 3 % of the step.
        [42_000, 42_000, 42_000, 42_000],
        # As often behind as ahead.
        [60_000, 30_000, 55_000, 35_000],
        # More than its spread allows: 10 us ahead, give or take 20.
        [80_000, 30_000, 60_000, 40_000],
    ],
)
def test_nobody_is_named_for_chance(busy: list[int]) -> None:
    usual = _record(0, [40_000] * 4, [35_000] * 4)
    other = _record(1, busy, [36_000] * 4)
    assert compare_records([usual, other], 2).slowest is None


def test_a_group_of_which_a_rank_is_missing_tells_no_waiting() -> None:
    ranks = [_record(rank, [40_000] * 4, [35_000 + rank] * 4, world=3) for rank in range(2)]
    found = compare_records(ranks, 3)
    assert found.waited_share == (0.0, 0.0)
    assert found.figures[0].transfer_ns is None


def test_clocks_of_two_hosts_are_brought_together_by_the_ends_of_collectives() -> None:
    here = _record(0, [40_000] * 4, [35_000] * 4)
    there = _record(1, [60_000] * 4, [55_000] * 4, host="two", ahead=7_000_000_000)
    assert clocks_of([here, there]) == (Clock(0, 0), Clock(0, 7_000_000_000))
    found = compare_records([here, there], 2)
    assert found.ranks[found.slowest or 0] == 1
    assert found.clock_residual_ns == 0.0
    assert np.allclose(found.waits_for_ns, [[0, 20_000], [0, 0]])
    # Of one host the clock is one, and what the ends differ by is the residual.
    late = _record(1, [60_000] * 4, [55_000] * 4, ends=96_000)
    assert clocks_of([here, late]) == (Clock(0, 0), Clock(0, 0))
    assert compare_records([here, late], 2).clock_residual_ns == 1000.0


def test_a_trace_of_all_ranks_is_on_one_clock_with_arrows_to_the_last() -> None:
    here = _record(0, [40_000] * 4, [35_000] * 4)
    there = _record(1, [60_000] * 4, [95_000] * 4, ends=195_000, host="two", ahead=7_000_000_000)
    here.calls = [replace(call, end_ns=call.end_ns + STEP) for call in here.calls]
    there.spans = [("aten::mm", 7_000_010_000, 7_000_020_000, 0)]
    events = trace_of_job([here, there])["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {"pid": 1, "tid": 0, "name": "aten::mm", "ts": 10.0, "dur": 10.0, "ph": "X"} in spans
    steps = [(e["pid"], e["ts"]) for e in spans if e["name"] == "step 2"]
    assert steps == [(0, 100.0), (1, 100.0)]
    # Rank 0 comes at 35 us and waits for rank 1, which comes at 95: in each of four steps.
    arrows = [(e["ph"], e["pid"], e["ts"]) for e in events if e["ph"] in "sf"]
    assert arrows[:2] == [("s", 0, 35.0), ("f", 1, 95.0)]
    assert len(arrows) == 8


def test_the_part_that_is_longer_in_every_step_is_told_from_one_that_is_at_times() -> None:
    fast = _record(0, [40_000] * 6, [35_000] * 6)
    slow = _record(1, [50_000] * 6, [45_000] * 6)
    fast.parts = {"overhead.python": [5e3] * 6, "kernels|forward": [20e3, 21e3] * 3}
    # Something else ran in every other step, for far longer than what was added to each.
    slow.parts = {"overhead.python": [4e3, 90e3] * 3, "kernels|forward": [30e3, 31e3] * 3}
    longer = compare_records([fast, slow], 2).longer
    assert longer[0] == ("kernels|forward", 10e3)


def test_what_a_rank_runs_longer_and_its_pauses_are_of_timed_steps() -> None:
    fast = _record(0, [40_000] * 4, [35_000] * 4)
    slow = _record(1, [60_000] * 4, [55_000] * 4)
    fast.ran_ns, fast.paused_ns = [30_000] * 6, [0] * 6
    # One step in three is paused, and one was disturbed by far.
    slow.ran_ns, slow.paused_ns = [42_000, 41_000, 43_000, 42_000, 900_000], [0, 9_000, 0, 0, 0]
    found = compare_records([fast, slow], 2)
    assert found.runs_longer_ns == (-12_000.0, 12_000.0)
    assert found.pauses_ns == (0.0, 1_800.0)
    # The profiled steps, of which there are as many, say nothing of it.
    assert found.ahead_ns == (-20_000.0, 20_000.0)
    slow.ran_ns, slow.paused_ns = [], []
    untold = compare_records([fast, slow], 2)
    assert (untold.runs_longer_ns, untold.pauses_ns) == ((), ())


def test_work_that_differs_from_step_to_step_is_no_rank_s() -> None:
    """Whichever has the most to do: 10 us more than the mean of both in two steps of three."""
    first = _record(0, [40_000] * 4, [35_000] * 4)
    second = _record(1, [40_000] * 4, [35_000] * 4)
    first.ran_ns = [30_000, 50_000, 30_000] * 4
    second.ran_ns = [30_000, 30_000, 50_000] * 4
    assert compare_records([first, second], 2).uneven_ns == pytest.approx(2 / 3 * 10_000)
    # One that has more to do in every step is slow, and its work is not uneven.
    second.ran_ns = [ran_ns + 10_000 for ran_ns in first.ran_ns]
    assert compare_records([first, second], 2).uneven_ns == 0.0
    second.ran_ns = []
    assert compare_records([first, second], 2).uneven_ns is None


def test_timed_steps_tell_a_slow_rank_that_few_profiled_ones_do_not() -> None:
    """Five of six profiled steps are longer; of the timed steps, which are others, all are."""
    fast = _record(0, [40_000, 41_000, 42_000, 43_000, 44_000, 61_000], [35_000] * 6)
    slow = _record(1, [50_000, 51_000, 52_000, 53_000, 54_000, 42_500], [55_000] * 6)
    assert compare_records([fast, slow], 2).slowest is None
    fast.ran_ns = [30_000 + i for i in range(12)]
    slow.ran_ns = [40_000 + i for i in range(12)]
    assert compare_records([fast, slow], 2).slowest == 1
    # However sure, a difference that does not matter (2 % of 100 us) is no evidence.
    slow.ran_ns = [32_000 + i for i in range(12)]
    assert compare_records([fast, slow], 2).slowest is None
    # Nor is one between two other ranks, or of the timed steps alone.
    fast.ran_ns, slow.ran_ns = slow.ran_ns, fast.ran_ns
    assert compare_records([fast, slow], 2).slowest is None
    same = _record(
        0,
        [40_000] * 6,
        [35_000] * 6,
    )
    alike = _record(1, [40_500] * 6, [55_000] * 6)
    same.ran_ns, alike.ran_ns = [30_000] * 12, [40_000] * 12
    assert compare_records([same, alike], 2).slowest is None


def test_waiting_for_a_processor_is_told_of_each_rank() -> None:
    fast = _record(0, [40_000] * 4, [35_000] * 4)
    slow = _record(1, [60_000] * 4, [55_000] * 4)
    assert compare_records([fast, slow], 2).queued_ns == ()
    fast.queued_ns, slow.queued_ns = [1_000] * 4, [8_000, 9_000, 9_000, 70_000]
    assert compare_records([fast, slow], 2).queued_ns == (1_000, 9_000)


def _kernels(times: list[float]) -> dict[str, list[float]]:
    return {"kernels|backward": times}


def test_a_stretch_on_a_slower_processor_names_nobody() -> None:
    """Twelve steps are 8 us longer, then twelve are not: of steps in a row that is one chance."""
    fast = _record(0, [40_000 + 90 * (i % 5) for i in range(24)], [35_000] * 24)
    slower = [48_000] * 15 + [39_000] * 9
    slow = _record(1, [ns + 70 * (i % 7) for i, ns in enumerate(slower)], [45_000] * 24)
    assert compare_records([fast, slow], 2).slowest is None
    # The same steps in turns are as many chances.
    turned = [slow.own_ns[(i * 7) % 24] for i in range(24)]
    assert compare_records([fast, replace(slow, own_ns=turned)], 2).slowest == 1


def test_a_part_that_is_longer_in_every_step_names_its_rank_among_kernels_that_vary() -> None:
    """Kernels differ by 8 us from step to step; one rank takes 4 us more for its Python."""
    kernels = [[30e3, 38e3, 34e3, 31e3, 37e3], [37e3, 31e3, 32e3, 38e3, 30e3, 34e3]]
    varying = [[each[i % len(each)] for i in range(20)] for each in kernels]
    python = [[2e3 + 50 * (i % 3) for i in range(20)], [6e3 + 50 * (i % 4) for i in range(20)]]

    def found(python_1: list[float], kernels_1: list[float], runs_ns: int) -> int | None:
        records = [
            _record(rank, [int(sum(both)) for both in zip(k, p)], [35_000 + 9_000 * rank] * 20)
            for rank, (k, p) in enumerate(((varying[0], python[0]), (kernels_1, python_1)))
        ]
        records[0].parts = _kernels(varying[0]) | {"overhead.python": python[0]}
        records[1].parts = _kernels(kernels_1) | {"overhead.python": python_1}
        records[0].ran_ns = [32_000 + 90 * (i % 3) for i in range(30)]
        records[1].ran_ns = [32_000 + runs_ns + 90 * (i % 4) for i in range(30)]
        compared = compare_records(records, 2)
        if compared.slowest is not None:
            assert compared.longer[0][0] in ("overhead.python", "kernels|backward")
        return compared.slowest

    # It sleeps: nothing of it runs in timed steps.
    assert found(python[1], varying[1], 0) == 1
    # Without it the kernels vary as much, and nobody is named.
    assert found(python[0], varying[1], 0) is None
    # Kernels that are surely longer, which a slower processor makes too, count if they are in the
    # timed steps as well, ...
    steady = [each + 4e3 for each in varying[0]]
    own = [ns - 3e3 * (i % 2) for i, ns in enumerate(steady)]
    assert found(python[0], steady, 4_000) == 1
    assert found(python[0], own, 0) is None
    # ... and Python that other work makes up for delays nobody.
    assert found(python[1], [ns - 6e3 for ns in varying[1]], 0) is None


def test_a_rank_that_computes_longer_does_so_in_timed_steps_too() -> None:
    """All profiled steps are longer, by 5 us; of the timed ones, which are as many, none is."""
    fast = _record(0, [40_000 + 90 * (i % 5) for i in range(20)], [35_000] * 20)
    slow = _record(1, [45_000 + 70 * (i % 7) for i in range(20)], [45_000] * 20)
    fast.parts, slow.parts = _kernels(fast.own_ns), _kernels(slow.own_ns)
    assert compare_records([fast, slow], 2).slowest == 1
    fast.ran_ns, slow.ran_ns = [[30_000 + 90 * (i % n) for i in range(20)] for n in (3, 4)]
    assert compare_records([fast, slow], 2).slowest == 1
    fast.threads = slow.threads = 1
    assert compare_records([fast, slow], 2).slowest is None
    # Several threads may leave it waiting for them inside an op.
    fast.threads = slow.threads = 2
    assert compare_records([fast, slow], 2).slowest == 1
    slow.threads = 1
    slow.ran_ns = [ns + 5_000 for ns in slow.ran_ns]
    assert compare_records([fast, slow], 2).slowest == 1


def test_a_part_is_told_among_waits_for_a_processor_that_are_longer_than_it() -> None:
    """An optimizer takes 4 us longer in every step, and in some of them it waits for 20 to 90."""
    fast = _record(0, [40_000 + 9_000 * (i % 3) for i in range(14)], [35_000] * 14)
    slow = _record(1, [41_000 + 9_000 * (-i % 3) for i in range(14)], [45_000] * 14)
    waits = [0, 90, 0, 0, 0, 0, 20, 0, 60, 90, 0, 60, 0, 80]
    fast.parts = {"kernels|optimizer": [1e3 + 10 * i for i in range(14)]}
    slow.parts = {"kernels|optimizer": [5e3 + 7 * i + 1e3 * wait for i, wait in enumerate(waits)]}
    fast.ran_ns = [30_000 + 90 * (i % 3) for i in range(20)]
    # In the timed steps it runs longer, in some of them by far.
    slow.ran_ns = [34_000 + 900 * (i % 3) ** 2 for i in range(20)]
    assert compare_records([fast, slow], 2).slowest == 1
    slow.ran_ns = fast.ran_ns
    assert compare_records([fast, slow], 2).slowest is None


def test_a_thread_that_surely_does_not_run_longer_is_idle_in_what_takes_it_longer() -> None:
    fast = _record(0, [40_000 + 90 * (i % 5) for i in range(14)], [35_000] * 14)
    slow = _record(1, [48_000 + 70 * (i % 7) for i in range(14)], [45_000] * 14)
    fast.parts = {"overhead.python": [2e3 + 10 * (i % 4) for i in range(14)]}
    slow.parts = {"overhead.python": [10e3 + 10 * (i % 3) for i in range(14)]}
    # Nothing is known of timed steps, or of too few.
    assert not compare_records([fast, slow], 2).idle_in_it
    fast.ran_ns, slow.ran_ns = [30_000] * 6, [30_000] * 6
    assert not compare_records([fast, slow], 2).idle_in_it
    for longer_ns, spread_ns, idle in (
        (0, 500, True), (8_000, 500, False), (3_000, 9_000, False)
    ):  # fmt: skip
        fast.ran_ns = [30_000 + 90 * (i % 3) for i in range(20)]
        slow.ran_ns = [30_000 + longer_ns + spread_ns * (-1) ** i for i in range(20)]
        found = compare_records([fast, slow], 2)
        assert (found.slowest, found.idle_in_it) == (1, idle)
