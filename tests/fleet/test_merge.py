from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from fleet_making import write_ranks
from gobrrr.fleet.build import FleetOptions, build_fleet
from gobrrr.fleet.folder import FleetFolder
from gobrrr.fleet.merge import RunFigures, merge_run
from gobrrr.fleet.sources import Naming
from gobrrr.fleet.verdict import RunVerdict
from gobrrr.pipeline.trace import diagnose_trace
from trace_writing import SHARED, WrittenTrace, rank_trace

ONE = FleetOptions(workers=1)


def verdict_of(tmp_path: Path, options: FleetOptions = ONE) -> RunVerdict:
    (run,) = build_fleet([str(tmp_path / "run")], tmp_path / "fleet", options).runs
    return run


def figures_of(tmp_path: Path) -> RunFigures:
    folder = FleetFolder.open(tmp_path / "fleet")
    ((run, rows),) = folder.runs().items()
    return merge_run(folder, run, rows)


def test_waiting_is_what_a_diagnosis_of_the_ranks_says(tmp_path: Path) -> None:
    paths = write_ranks(tmp_path / "run", {1: 60, 2: 30})
    diagnosis = diagnose_trace(paths)
    verdict_of(tmp_path)
    found = figures_of(tmp_path)
    assert diagnosis.ranks is not None
    for row, leaves in zip(diagnosis.ranks, found.leaves_s.tolist()):
        assert leaves == pytest.approx(list(row.leaves.values()), abs=1e-12)
    assert found.waits_s is not None
    assert found.waits_s.sum(axis=1).tolist() == pytest.approx(
        [row.wait_s for row in diagnosis.ranks]
    )


def test_the_late_rank_is_named_with_its_leaf(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {5: 60}, world=8)
    run = verdict_of(tmp_path)
    assert run.named is not None
    assert (run.named.ranks, run.named.whole_host, run.named.host) == ([5], False, None)
    assert (run.named.part, run.named.leaf) == ("overhead.data_loading",) * 2
    # 60 us in each of two steps; 59 of loading and 1 of the first op is what the others have.
    assert run.named.caused_s == pytest.approx(60e-6)
    assert run.named.share == pytest.approx(1.0)
    assert run.named.excess_s == pytest.approx(59.5e-6, abs=1e-6)
    assert run.wait_s == pytest.approx(60e-6 * 7 / 8)
    assert run.transfer_s == pytest.approx(40e-6)


def test_the_slow_host_is_named_and_not_one_of_its_ranks(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {6: 60, 7: 58}, world=12, per_host=2)
    run = verdict_of(tmp_path)
    # All wait for rank 6, but 7 is as slow: 6 made faster alone would win next to nothing.
    assert run.named is not None
    assert (run.named.host, run.named.ranks, run.named.whole_host) == ("node03", [6, 7], True)
    assert run.culprits[0].ranks == [6]
    write_alternating(tmp_path / "alternating")
    (run,) = build_fleet([str(tmp_path / "alternating")], tmp_path / "second", ONE).runs
    assert run.named is not None
    assert (run.named.whole_host, run.named.host) == (True, "node01")
    assert run.named.ranks == [2, 3]


def test_a_slow_rank_is_named_and_not_its_host(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {6: 60}, world=12, per_host=2)
    run = verdict_of(tmp_path)
    assert run.named is not None
    assert (run.named.host, run.named.ranks, run.named.whole_host) == ("node03", [6], False)


def write_alternating(folder: Path) -> None:
    """Six ranks on three hosts; of those of the second now one and now the other is last."""
    for rank in range(6):
        trace = WrittenTrace(distributedInfo={"rank": rank, "world_size": 6})
        for step in range(6):
            slow = {2: (60, 50), 3: (50, 60)}.get(rank, (0, 0))[step % 2]
            one = rank_trace(rank, slow, world=6, group_size=6)
            for event in one.events:
                # Of its two steps the first, at the place of this one.
                if event["ts"] < 1000:
                    moved = {**event, "ts": event["ts"] + 1000 * step, "args": {**event["args"]}}
                    if "correlation" in moved["args"]:
                        moved["args"]["correlation"] += 100 * step
                    moved["name"] = moved["name"].replace("Step#0", f"Step#{step}")
                    trace.events.append(moved)
        into = folder / f"node{rank // 2:02}"
        into.mkdir(parents=True, exist_ok=True)
        trace.write(into, f"rank{rank}.json")


def test_ranks_that_arrive_together_have_no_culprit(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {}, world=4)
    assert verdict_of(tmp_path).named is None


def test_clocks_that_differ_by_seconds_change_nothing(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {1: 60})
    run = verdict_of(tmp_path)
    write_ranks(tmp_path / "apart" / "run", {1: 60}, clock_s=7.0)
    assert verdict_of(tmp_path / "apart") == run


def test_missing_ranks_are_said(tmp_path: Path) -> None:
    paths = write_ranks(tmp_path / "run", {1: 60})
    paths[3].unlink()
    run = verdict_of(tmp_path)
    assert (run.ranks, run.world_size, run.wait_s) == (3, 4, None)
    assert any("missing (3)" in notice for notice in run.notices)


def test_traces_of_another_world_size_are_left_out(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {1: 60})
    rank_trace(5, world=16, group_size=16).write(tmp_path / "run", "rank5.json")
    run = verdict_of(tmp_path)
    assert (run.ranks, run.world_size) == (4, 4)
    assert any("rank5.json (16 ranks)" in notice for notice in run.notices)


def test_ranks_beyond_the_world_are_left_out(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {1: 60})
    rank_trace(None).write(tmp_path / "run", "rank6.json")
    run = verdict_of(tmp_path)
    assert run.ranks == 4
    assert any("The traces say that the run has" in notice for notice in run.notices)


def test_without_collectives_ranks_are_compared_by_their_steps(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for rank in range(4):
        trace = WrittenTrace(distributedInfo={"rank": rank, "world_size": 4})
        length = 800 if rank == 2 else 400
        for step in range(4):
            base = 1000 * step
            trace.note(f"ProfilerStep#{step}", base, 900)
            trace.launch("gemm", base + 1, base + 10, length, 10 * step)
        # The last step ends with its last kernel: so the first three alone are as long.
        trace.write(tmp_path / "run", f"rank{rank}.json")
    run = verdict_of(tmp_path)
    assert run.wait_s is None
    assert any("no collectives" in notice for notice in run.notices)
    assert run.culprits[0].ranks == [2] if run.culprits else run.named is None


def test_runs_are_compared_apart(tmp_path: Path) -> None:
    write_ranks(tmp_path / "t" / "a", {1: 60})
    write_ranks(tmp_path / "t" / "b", {2: 60})
    options = FleetOptions(Naming(run_per_folder=True), workers=1)
    runs = build_fleet([str(tmp_path / "t")], tmp_path / "fleet", options).runs
    assert [(run.run, run.named.ranks if run.named else None) for run in runs] == [
        ("a", [1]),
        ("b", [2]),
    ]


def test_one_rank_is_compared_with_nobody(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {}, world=1)
    run = verdict_of(tmp_path)
    assert (run.ranks, run.named, run.culprits) == (1, None, [])


def test_the_merged_tables_say_who_waited_for_whom(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write_ranks(tmp_path / "run", {1: 60})
    verdict_of(tmp_path)
    base = tmp_path / "fleet"
    waits = pq.read_table(base / "waits/run=run/merged.parquet", partitioning=None).to_pylist()
    assert {(row["rank"], row["call"]): row["last_rank"] for row in waits} == {
        (rank, call): 1 for rank in range(4) for call in range(2)
    }
    assert sum(row["wait_s"] for row in waits) == pytest.approx(2 * 3 * 60e-6)
    paces = pq.read_table(base / "paces/run=run/merged.parquet", partitioning=None).to_pylist()
    assert [row["caused_s"] for row in paces] == pytest.approx([0, 60e-6, 0, 0])


@pytest.mark.skipif(not SHARED.exists(), reason="the shared traces are not beside the repository")
def test_a_recorded_job_is_compared_as_its_diagnosis_compares_it(tmp_path: Path) -> None:
    paths = sorted((SHARED / "v100_dlrm_8ranks").glob("rank*.json.gz"))
    diagnosis = diagnose_trace(paths)
    (run,) = build_fleet([str(paths[0].parent)], tmp_path / "fleet", FleetOptions(workers=2)).runs
    assert run.ranks == 8
    assert diagnosis.ranks is not None
    found = figures_of(tmp_path)
    for row, leaves in zip(diagnosis.ranks, found.leaves_s.tolist()):
        assert leaves == pytest.approx(list(row.leaves.values()), rel=1e-6, abs=2e-9)
    caused = found.caused_s
    assert caused is not None
    assert diagnosis.source["rank"] == int(caused.argmax())
