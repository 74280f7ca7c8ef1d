"""What ranks on devices tell each other: parts of a step without communication, which step is."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.ranks.job import compare_records
from gobrrr.ranks.job_clocks import clocks_of
from gobrrr.ranks.job_trace import trace_of_job
from gobrrr.ranks.rank_record import RankRecord, record_of_device
from gobrrr.recordings.traces import read_trace
from trace_writing import COMMS, WrittenTrace

STEP_US = 1000


def _record(
    folder: Path, rank: int, compute_us: float, *, first: int = 0, comms: bool = True
) -> RankRecord:
    """Six steps: 20 us of copying, compute, and an all-reduce that ends at 200 us on every rank."""
    trace = WrittenTrace(distributedInfo={"rank": rank, "world_size": 2})
    for step in range(first, first + 6):
        base = STEP_US * step
        trace.note(f"ProfilerStep#{step}", base, 900)
        trace.op("aten::copy_", base + 1, 4)
        trace.kernel("Memcpy HtoD", base + 5, 20, 30 * step, cat="gpu_memcpy")
        trace.call("cudaMemcpyAsync", base + 2, 1, 30 * step)
        trace.op("aten::mm", base + 6, 4)
        trace.launch("gemm", base + 7, base + 25, compute_us, correlation=30 * step + 1)
        told = {**COMMS, "Group size": 2, "Process Group Name": "dp"} if comms else {}
        trace.op("record_param_comms", base + 11, 4, **told)
        arrives = base + 25 + compute_us
        trace.launch(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", base + 12, arrives,
            base + 200 - arrives, correlation=30 * step + 2, stream=20,
        )  # fmt: skip
    timeline = read_trace(trace.write(folder, f"rank{rank}.json"))
    found = attribute_device(timeline, None, lambda call: None)
    record = record_of_device(timeline, found, rank, f"rank {rank}")
    record.step_names = list(timeline.step_names)
    return record


def test_a_rank_whose_kernels_take_longer_is_told_by_them_and_not_by_who_waits(
    tmp_path: Path,
) -> None:
    fast, slow = _record(tmp_path, 0, 50), _record(tmp_path, 1, 60)
    # Kernels and the all-reduce together take as long on both.
    assert fast.parts["kernels|forward"][1:5] == [50_000] * 4
    assert slow.parts["kernels|forward"][1:5] == [60_000] * 4
    assert slow.parts["memory.copies"][1:5] == [20_000] * 4
    assert "memory.network" not in slow.parts
    compared = compare_records([replace(fast, host="one"), replace(slow, host="one")], 2)
    assert compared.slowest is None or compared.ranks[compared.slowest] == 1
    longer = compare_records(
        [replace(fast, own_ns=[70e3] * 6), replace(slow, own_ns=[110e3] * 6)], 2
    )
    assert longer.slowest == 1
    assert longer.longer[0] == ("kernels|forward", 10_000.0)


def test_what_the_rows_of_a_diagnosis_hold_of_communication_is_told(tmp_path: Path) -> None:
    record = _record(tmp_path, 0, 50)
    # From 75 to 200 us, in each of six steps.
    assert record.communication == {"forward|": pytest.approx(125_000)}


def test_steps_are_the_same_by_name_where_a_rank_recorded_others(tmp_path: Path) -> None:
    here, there = _record(tmp_path, 0, 50), _record(tmp_path, 1, 50, first=1)
    # Their clocks run together: step 1 of the one is not step 2 of the other.
    assert [clock.ahead_ns for clock in clocks_of([here, there])] == [0, 0]
    events = trace_of_job([here, there])["traceEvents"]
    drawn = {(e["pid"], e["name"]): e["ts"] for e in events if e["ph"] == "X"}
    assert drawn[0, "ProfilerStep#3"] == drawn[1, "ProfilerStep#3"]


def test_no_arrow_joins_collectives_of_which_nothing_but_a_kernel_is_known(tmp_path: Path) -> None:
    records = [_record(tmp_path, rank, 50 + 60 * rank, comms=False) for rank in (0, 1)]
    for record in records:
        record.collectives = [("", None, "", None, None) for _ in record.collectives]
    events = trace_of_job(records)["traceEvents"]
    assert not [event for event in events if event["ph"] in "sf"]
