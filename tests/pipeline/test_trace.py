"""Traces to diagnoses: several ranks, CPU work, copies with tracks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import gobrrr
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.recordings.traces import read_trace
from gobrrr.reports.html import report_html
from gobrrr.reports.markdown import report_markdown
from gobrrr.reports.terminal import Options, report_text
from gobrrr.timeline.errors import InputError
from trace_writing import OURS, SHARED, WrittenTrace, rank_trace

needs_shared = pytest.mark.skipif(
    not SHARED.exists(), reason="the shared traces are not beside the repository"
)


@pytest.fixture
def two_ranks(tmp_path: Path) -> Diagnosis:
    """Rank 1 loads data for 60 us longer in each step."""
    paths = [rank_trace(r, late_us=60 * r).write(tmp_path, f"rank{r}.json") for r in (1, 0)]
    return gobrrr.diagnose_trace(paths)


def test_the_diagnosis_is_of_the_rank_that_the_others_wait_for(two_ranks: Diagnosis) -> None:
    two_ranks.check()
    assert two_ranks.source["rank"] == 1
    assert two_ranks.source["names"] == ["rank0.json", "rank1.json"]
    assert two_ranks.ranks is not None
    early, late = two_ranks.ranks
    assert (early.rank, late.rank) == (0, 1)
    assert (early.wait_s, late.wait_s) == (pytest.approx(60e-6), 0)
    assert early.leaves["memory.network_wait"] == pytest.approx(60e-6)
    assert two_ranks.leaves == late.leaves
    for rank in two_ranks.ranks:
        assert sum(rank.leaves.values()) == pytest.approx(rank.step_s)
    (reduce,) = two_ranks.collectives
    assert (reduce.name, reduce.bytes, reduce.ranks) == ("allreduce", 4_000_000, [0, 1])
    # Means over the ranks: 100 us waiting included and 40 us.
    assert reduce.time_s == pytest.approx(70e-6)
    assert reduce.exposed_s == pytest.approx(70e-6)
    assert reduce.duration_s == pytest.approx([100e-6, 40e-6])
    assert (reduce.transfer_s, reduce.skew_s) == (pytest.approx(40e-6), pytest.approx(60e-6))
    assert "The other ranks wait for rank 1" in two_ranks.verdict


def test_ranks_are_in_every_report_and_survive_json(two_ranks: Diagnosis, tmp_path: Path) -> None:
    again = gobrrr.load(two_ranks.save(tmp_path / "d.json"))
    assert again.ranks == two_ranks.ranks
    assert again.collectives == two_ranks.collectives
    for text in (report_text(again), report_markdown(again), report_html(again)):
        assert "60.0 µs per step, all of it for rank 1" in text.replace("\\", "")
        assert "allreduce" in text
        assert "100 GB/s" in text


def test_no_line_of_ranks_is_wider_than_the_terminal(two_ranks: Diagnosis) -> None:
    assert max(map(len, report_text(two_ranks, Options(width=80)).splitlines())) <= 80


def test_without_a_world_size_the_ranks_given_are_all(tmp_path: Path) -> None:
    traces = [rank_trace(None, late_us=60 * r) for r in range(2)]
    paths = [trace.write(tmp_path, f"rank{r}.json") for r, trace in enumerate(traces)]
    found = gobrrr.diagnose_trace(paths)
    assert "do not say how many ranks their run has: the 2 given" in " ".join(found.notices)
    assert found.source["rank"] == 1


def test_a_rank_without_gpu_work_is_named(tmp_path: Path) -> None:
    idle = WrittenTrace(distributedInfo={"rank": 1, "world_size": 2})
    idle.note("ProfilerStep#0", 0, 900)
    paths = [rank_trace(0).write(tmp_path, "a.json"), idle.write(tmp_path, "b.json")]
    with pytest.raises(InputError, match=r"b\.json holds no"):
        gobrrr.diagnose_trace(paths)


def test_the_ranks_of_traces_are_lanes_of_one_step(two_ranks: Diagnosis) -> None:
    lanes = two_ranks.lanes
    assert lanes is not None
    early, late = lanes.lanes
    assert (lanes.step, lanes.one_clock, lanes.clock_residual_s) == ("ProfilerStep#1", False, 0.0)
    assert (early.work_start_ns, early.work_duration_ns) == ([10_000], [100_000])
    assert (late.work_start_ns, late.work_duration_ns) == ([70_000], [100_000])
    assert (early.call_start_ns, early.call_wait_ns) == ([110_000], [60_000])
    assert (late.call_start_ns, late.call_wait_ns) == ([170_000], [0])
    assert (early.call_waits_for, late.call_waits_for) == ([1], [None])


def test_traces_of_ranks_are_written_as_one_with_arrows(tmp_path: Path) -> None:
    paths = [rank_trace(r, late_us=60 * r).write(tmp_path, f"rank{r}.json") for r in range(2)]
    gobrrr.diagnose_trace(paths, perfetto=tmp_path / "out.json.gz")
    written = gzip.decompress((tmp_path / "out.json.gz").read_bytes())
    events = json.loads(written)["traceEvents"]
    gemms = [(e["pid"], e["ts"], e["dur"]) for e in events if e["name"] == "gemm"]
    assert gemms == [(0, 10, 100), (0, 1010, 100), (1, 70, 100), (1, 1070, 100)]
    assert {e["pid"] for e in events if e["name"] == "aten::mm"} == {0, 1}
    arrows = [(e["ph"], e["pid"], e["ts"]) for e in events if e["ph"] in "sf"]
    assert arrows[:2] == [("s", 0, 110), ("f", 1, 170)]
    assert {"loop" in e["args"]["name"] for e in events if e["name"] == "thread_name"} == {
        True, False,
    }  # fmt: skip


def test_ranks_whose_clocks_nothing_ties_together_are_no_lanes(tmp_path: Path) -> None:
    paths = [rank_trace(0).write(tmp_path, "rank0.json")]
    paths.append(rank_trace(1, group="another").write(tmp_path, "rank1.json"))
    assert gobrrr.diagnose_trace(paths, perfetto=tmp_path / "out.json").lanes is None
    assert "its clock against that of rank 0 is unknown" in (tmp_path / "out.json").read_text()


@pytest.mark.parametrize(
    ("ranks", "titles"),
    [
        (("[0, 1]", "[2, 3]"), {"group tp (ranks 0-1)", "group tp (ranks 2-3)"}),
        (("[0, 1, ..., 63]", "[64, 65, ..., 127]"),
         {"tp (ranks 0, 1, ..., 63)", "tp (ranks 64, 65, ..., 127)"}),
        (("[]", "[]"), {"tp"}),
    ],
)  # fmt: skip
def test_groups_of_one_name_are_told_apart_by_their_ranks(
    tmp_path: Path, ranks: tuple[str, str], titles: set[str]
) -> None:
    paths = [
        rank_trace(rank, world=128, group="tp", group_ranks=members).write(
            tmp_path, f"rank{rank}.json"
        )
        for rank, members in zip((0, 2), ranks)
    ]
    said = {one.group for path in paths for one in read_trace(path).collectives}
    assert said == titles
    found = gobrrr.diagnose_trace(paths).collectives
    assert len(found) == len(titles)
    assert {row.skew_s is None for row in found} == {len(titles) == 2}


def test_a_single_trace_lists_its_collectives(tmp_path: Path) -> None:
    found = gobrrr.diagnose_trace(rank_trace(0).write(tmp_path))
    assert found.ranks is None
    (reduce,) = found.collectives
    assert (reduce.bytes, reduce.calls, reduce.group_size) == (4_000_000, 1, 2)
    assert reduce.time_s == pytest.approx(100e-6)
    assert (reduce.transfer_s, reduce.skew_s, reduce.bus_bytes_per_s) == (None, None, None)


def test_a_trace_without_a_gpu_is_diagnosed_as_cpu_work(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 200)
    shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    trace.op("aten::matmul", 10, 50, **shapes)
    trace.op("aten::mm", 15, 40, **shapes)
    found = gobrrr.diagnose_trace(trace.write(tmp_path))
    assert found.device.kind == "cpu"
    assert found.device_time is None
    assert found.leaves["compute.unmodelled"] == pytest.approx(40e-6)
    assert found.leaves["overhead.dispatch"] == pytest.approx(10e-6)
    assert found.step_s == pytest.approx(200e-6)
    assert [(row.name, row.flops) for row in found.ops] == [("aten::mm", 2 * 64**3)]


def test_a_copy_with_tracks(tmp_path: Path) -> None:
    path = OURS / "mi250_toy_training.json.gz"
    out = tmp_path / "out.json.gz"
    found = gobrrr.diagnose_trace(path, perfetto=out)
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    own = [event for event in events if event.get("cat") == "gobrrr"]
    busy_us = sum(event["dur"] for event in own if event["tid"] == 1)
    idle_us = sum(event["dur"] for event in own if event["tid"] == 2)
    total_s = found.step_s * found.step.profiled_steps
    assert (busy_us + idle_us) * 1e-6 == pytest.approx(total_s, rel=1e-6)


def test_a_copy_with_tracks_of_cpu_work(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 200)
    trace.python("train.py(3): step", 0, 200)
    shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    trace.op("aten::matmul", 10, 50, **shapes)
    trace.op("aten::mm", 15, 40, **shapes)
    out = tmp_path / "out.json"
    gobrrr.diagnose_trace(trace.write(tmp_path), perfetto=out)
    events = json.loads(out.read_text())["traceEvents"]
    own = [event for event in events if event.get("cat") == "gobrrr"]
    tracks = {tid: [e for e in own if e["tid"] == tid] for tid in (1, 2)}
    assert [(e["name"], e["dur"], e["args"]["kernel"]) for e in tracks[1]] == [
        ("compute.unmodelled", 40, "aten::mm")
    ]
    assert [(e["name"], e["dur"]) for e in tracks[2]] == [
        ("overhead.python", 10), ("overhead.dispatch", 5), ("overhead.dispatch", 5),
        ("overhead.python", 140),
    ]  # fmt: skip


@needs_shared
def test_two_of_128_ranks() -> None:
    paths = [SHARED / f"sampled_training_rank{r}.json.gz" for r in (0, 1)]
    found = gobrrr.diagnose_trace(paths)
    assert found.ranks is not None
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert any("126 ranks are missing (2, 3" in notice for notice in found.notices)
    assert all(rank.leaves["memory.network_wait"] == 0 for rank in found.ranks)
    assert all(row.transfer_s is None for row in found.collectives)
