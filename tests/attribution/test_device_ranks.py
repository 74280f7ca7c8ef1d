from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.ranks.ranks import RankComparison, compare_ranks
from gobrrr.recordings.ranks import missing_ranks, read_traces
from gobrrr.timeline.errors import InputError
from trace_writing import COMMS, SHARED, WrittenTrace, rank_trace


def compared(tmp_path: Path, *traces: WrittenTrace) -> RankComparison:
    paths = [trace.write(tmp_path, f"rank{i}.json") for i, trace in enumerate(traces)]
    timelines = read_traces(paths, processes=1)
    found = [attribute_device(timeline, None, lambda call: None) for timeline in timelines]
    return compare_ranks(timelines, found, missing_ranks(timelines))


def test_the_rank_that_arrives_last_is_found_and_why(tmp_path: Path) -> None:
    result = compared(tmp_path, rank_trace(0), rank_trace(1, late_us=60))
    assert result.slowest == 1
    (reduce,) = result.collectives
    assert (reduce.name, reduce.bytes_moved, reduce.calls) == ("allreduce", 4_000_000, 1)
    assert (reduce.ranks, reduce.group_size) == ((0, 1), 2)
    # rank 0: 100 us from its arrival, 60 of them waiting; rank 1: 40 us
    assert reduce.duration_ns == (100_000, 40_000)
    assert reduce.transfer_ns == 40_000
    assert reduce.wait_ns == (60_000, 0)
    assert reduce.skew_ns == 60_000
    assert reduce.last_rank == 1
    # 4 MB in 40 us = 100 GB/s; of 2 ranks 2 * (2 - 1) / 2 = 1 of it crosses the bus
    assert reduce.algorithm_bytes_per_s == pytest.approx(100e9)
    assert reduce.bus_bytes_per_s == pytest.approx(100e9)
    assert result.ranks[0].wait_ns == 60_000
    assert result.ranks[0].waits_for_ns == (0, 60_000)
    assert result.ranks[0].why == "waits 60.0 µs per step, all of it for rank 1"
    # 60 us of loading against 1 us, less what the first step's idle time before it differs by
    assert (
        result.ranks[1].why == "arrives last: 59.0 µs more per step than the others on data loading"
    )


def test_waiting_is_apart_from_transfer_where_all_ranks_are_present(tmp_path: Path) -> None:
    result = compared(tmp_path, rank_trace(0), rank_trace(1, late_us=60))
    early, late = (r.attribution.leaves_ns for r in result.ranks)
    assert (early["memory.network_wait"], early["memory.network"]) == (60_000, 40_000)
    assert (late["memory.network_wait"], late["memory.network"]) == (0, 40_000)


def test_with_a_rank_missing_waiting_stays_part_of_the_network(tmp_path: Path) -> None:
    traces = [rank_trace(r, late_us=60 * r, world=4, group_size=4) for r in range(2)]
    result = compared(tmp_path, *traces)
    assert result.missing == (2, 3)
    assert "Traces of 2 ranks are missing (2, 3)" in result.notices[0]
    assert result.ranks[0].attribution.leaves_ns["memory.network_wait"] == 0
    assert result.ranks[0].attribution.leaves_ns["memory.network"] == 100_000
    (reduce,) = result.collectives
    # Rank 0 did wait 60 us for rank 1; how long both waited for the missing is unknown.
    assert (reduce.skew_ns, reduce.last_rank) == (60_000, 1)
    assert reduce.transfer_ns is None
    assert reduce.bus_bytes_per_s is None


def test_a_group_that_is_complete_is_told_though_ranks_are_missing(tmp_path: Path) -> None:
    traces = [rank_trace(r, late_us=60 * r, world=4, group_size=2) for r in range(2)]
    result = compared(tmp_path, *traces)
    assert "except in groups that are complete" in result.notices[0]
    assert result.ranks[0].attribution.leaves_ns["memory.network_wait"] == 60_000
    assert result.collectives[0].transfer_ns == 40_000


def test_groups_are_compared_within_themselves(tmp_path: Path) -> None:
    late = (0, 60, 30, 0)
    traces = [
        rank_trace(r, late_us=late[r], world=4, group_size=2, group=f"pair{r // 2}")
        for r in range(4)
    ]
    result = compared(tmp_path, *traces)
    figures = {f.ranks: f for f in result.collectives}
    assert {ranks: f.last_rank for ranks, f in figures.items()} == {(0, 1): 1, (2, 3): 2}
    assert {ranks: f.skew_ns for ranks, f in figures.items()} == {(0, 1): 60_000, (2, 3): 30_000}
    assert [r.wait_ns for r in result.ranks] == [60_000, 0, 0, 30_000]
    assert result.slowest == 1


def test_several_groups_under_one_name_are_not_compared(tmp_path: Path) -> None:
    traces = [rank_trace(r, late_us=20 * r, world=3, group_size=2) for r in range(3)]
    result = compared(tmp_path, *traces)
    assert [f.matched for f in result.collectives] == [False]
    assert [r.wait_ns for r in result.ranks] == [None, None, None]


def test_waiting_behind_other_kernels_holds_nobody_up(tmp_path: Path) -> None:
    traces = [rank_trace(r, late_us=60 * r) for r in range(2)]
    for step in range(2):
        # Over all of rank 0's waiting, 110 to 170 us.
        traces[0].kernel("gemm", 1000 * step + 105, 65, 600 + step)
    result = compared(tmp_path, *traces)
    assert result.ranks[0].wait_ns == 0
    assert result.slowest is None


def test_ranks_that_arrive_together_have_no_slowest(tmp_path: Path) -> None:
    result = compared(tmp_path, rank_trace(0, late_us=60), rank_trace(1, late_us=60))
    assert result.slowest is None
    assert [r.why for r in result.ranks] == ["", ""]


def test_an_overlapped_collective_is_not_exposed(tmp_path: Path) -> None:
    traces = []
    for rank in range(2):
        trace = rank_trace(rank, late_us=60)
        # A kernel over 30 of the 40 us of each all-reduce.
        for step in range(2):
            trace.kernel("gemm", 1000 * step + 170, 30, 500 + step)
        traces.append(trace)
    result = compared(tmp_path, *traces)
    (reduce,) = result.collectives
    assert reduce.exposed_ns == (10_000, 10_000)
    assert reduce.overlapped_ns == (30_000, 30_000)


def test_collectives_that_differ_between_ranks_are_not_compared(tmp_path: Path) -> None:
    more = rank_trace(1)
    for step in range(2):
        more.op("record_param_comms", 1000 * step + 300, 9, **COMMS)
        more.launch(
            "ncclDevKernel_AllReduce(x)", 1000 * step + 301, 1000 * step + 310, 9, 700 + step
        )
    result = compared(tmp_path, rank_trace(0), more)
    assert [f.matched for f in result.collectives] == [False]
    assert result.slowest is None
    assert "left out of the comparison" in result.notices[0]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("rank10.json", "rank2.json"), (2, 10)),
        (("t_3_of_8.json", "t_1_of_8.json"), (1, 3)),
        (("b.json", "a.json"), (0, 1)),
    ],
)
def test_ranks_from_file_names_else_order(
    tmp_path: Path, names: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    paths = [rank_trace(None).write(tmp_path, name) for name in names]
    assert tuple(t.rank for t in read_traces(paths, processes=1)) == expected


def test_what_the_trace_says_goes_before_its_name(tmp_path: Path) -> None:
    paths = [rank_trace(r).write(tmp_path, f"rank{1 - r}.json") for r in range(2)]
    found = read_traces(paths, processes=1)
    assert [(t.rank, t.source) for t in found] == [(0, "rank1.json"), (1, "rank0.json")]


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    paths = [rank_trace(0).write(tmp_path, name) for name in ("a.json", "b.json")]
    with pytest.raises(InputError, match="both are of rank 0"):
        read_traces(paths, processes=1)


def refused(tmp_path: Path, *traces: WrittenTrace) -> str:
    paths = [trace.write(tmp_path, f"rank{i}.json") for i, trace in enumerate(traces)]
    with pytest.raises(InputError) as error:
        read_traces(paths, processes=1)
    return str(error.value)


def test_traces_of_different_runs_are_refused(tmp_path: Path) -> None:
    said = refused(tmp_path, rank_trace(0, world=2), rank_trace(1, world=4))
    assert "a run with 2 ranks" in said and "one with 4" in said
    later = rank_trace(1)
    later.top["baseTimeNanoseconds"] = 3600 * 10**9
    early = rank_trace(0)
    early.top["baseTimeNanoseconds"] = 0
    assert "recorded 60 minutes apart" in refused(tmp_path, early, later)


def test_traces_of_different_steps_are_refused(tmp_path: Path) -> None:
    other = rank_trace(1)
    for event in other.events:
        event["name"] = event["name"].replace("Step#", "Step#7")
    said = refused(tmp_path, rank_trace(0), other)
    assert (
        "ProfilerStep#0 to ProfilerStep#1" in said and "ProfilerStep#70 to ProfilerStep#71" in said
    )


def test_a_rank_beyond_the_run_is_refused(tmp_path: Path) -> None:
    nameless = WrittenTrace(distributedInfo={"world_size": 2})
    nameless.events = rank_trace(0).events
    paths = [nameless.write(tmp_path, name) for name in ("rank1.json", "rank2.json")]
    with pytest.raises(InputError, match="rank 2 by its name, but its run has 2 ranks"):
        read_traces(paths, processes=1)


def test_in_parallel_processes_the_same_and_errors_come_through(tmp_path: Path) -> None:
    paths = [rank_trace(r, 30.0 * r).write(tmp_path, f"rank{r}.json") for r in range(2)]
    alone, together = read_traces(paths, processes=1), read_traces(paths, processes=2)
    for a, b in zip(alone, together):
        assert a.kernels.start_ns.tolist() == b.kernels.start_ns.tolist()
        assert a.calls == b.calls
    with pytest.raises(InputError, match="no such file"):
        read_traces([*paths, tmp_path / "none.json"], processes=2)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared traces are not beside the repository")
def test_two_sampled_ranks_of_128() -> None:
    paths = [SHARED / f"sampled_training_rank{r}.json.gz" for r in (0, 1)]
    timelines = read_traces(paths, processes=1)
    found = [attribute_device(timeline, None, lambda call: None) for timeline in timelines]
    result = compare_ranks(timelines, found, missing_ranks(timelines))
    assert len(result.missing) == 126
    assert [r.rank for r in result.ranks] == [0, 1]
    for rank, before in zip(result.ranks, found):
        assert rank.attribution.leaves_ns == before.attribution.leaves_ns


def test_an_all_to_all_matches_though_ranks_send_different_amounts(tmp_path: Path) -> None:
    traces = [rank_trace(r, late_us=60 * r) for r in range(2)]
    for rank, trace in enumerate(traces):
        for event in trace.events:
            if event["name"] == "record_param_comms":
                event["args"] |= {"Collective name": "all_to_allv"}
                for side in ("In", "Out"):
                    event["args"][f"{side} msg nelems"] = 1_000_000 * (1 + rank)
    (exchange,) = compared(tmp_path, *traces).collectives
    assert exchange.matched
    assert exchange.bytes_moved == 6_000_000  # the mean of 4 and 8 MB
    assert (exchange.skew_ns, exchange.last_rank) == (60_000, 1)


def test_numbered_calls_match_by_number_where_a_rank_lacks_some(tmp_path: Path) -> None:
    traces = []
    for rank in range(2):
        trace = rank_trace(rank, late_us=60 * rank)
        for event in trace.events:
            if event["name"] == "record_param_comms":
                event["args"]["Seq"] = 40 + event["ts"] // 1000
        traces.append(trace)
    # Rank 0 has one more call in its second step, before the one that both have.
    traces[0].op("record_param_comms", 1080, 9, **COMMS, Seq=39)
    traces[0].launch("ncclDevKernel_AllReduce(x)", 1081, 1090, 9, 700)
    result = compared(tmp_path, *traces)
    (reduce,) = result.collectives
    assert reduce.matched
    assert reduce.skew_ns == 60_000
    # Of its five kernels the first and the last all-reduce; the one in between is its alone.
    assert result.matched[0].last.tolist() == [-1, 1, -1, -1, 1]
    assert result.slowest == 1
