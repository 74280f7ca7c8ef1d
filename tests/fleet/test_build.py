from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from fleet_making import write_ranks
from gobrrr.fleet.build import FleetOptions, build_fleet
from gobrrr.fleet.engines import map_here
from gobrrr.fleet.folder import FleetFolder
from gobrrr.fleet.mapping import MappedFile, MapTask, map_file
from gobrrr.fleet.schema import LEAF_COLUMNS, MAPPED
from gobrrr.fleet.sources import Naming, SourceFile
from gobrrr.pipeline.trace import diagnose_trace
from gobrrr.timeline.errors import InputError
from trace_writing import OURS, WrittenTrace, rank_trace

ONE = FleetOptions(workers=1)


def task_of(path: Path, rank: int | None = 0, memory_bytes: int = 1 << 30) -> MapTask:
    return MapTask(SourceFile(str(path), path.stat().st_size, "1", "run", None, rank), memory_bytes)


def read(mapped: MappedFile, table: str) -> list[dict[str, object]]:
    return pq.read_table(pa.BufferReader(mapped.tables[table])).to_pylist()


def test_the_tables_of_a_rank_are_those_of_its_diagnosis(tmp_path: Path) -> None:
    path = OURS / "mi250_toy_training.json.gz"
    mapped, diagnosis = map_file(task_of(path)), diagnose_trace(path)
    assert mapped.error is None
    assert set(mapped.tables) == set(MAPPED)
    (means,) = read(mapped, "means")
    for leaf, seconds in diagnosis.leaves.items():
        assert means[leaf.replace(".", "_") + "_s"] == pytest.approx(seconds, abs=1e-12)
    steps = read(mapped, "steps")
    assert len(steps) == diagnosis.step.profiled_steps
    for step in steps:
        assert step["s"] == pytest.approx(sum(step[name] for name in LEAF_COLUMNS))
    assert sum(row["s"] for row in read(mapped, "ops")) == pytest.approx(
        sum(row.time_s for row in diagnosis.ops)
    )
    assert sum(row["s"] for row in read(mapped, "lines")) == pytest.approx(
        sum(row.time_s for row in diagnosis.idle)
    )
    idle = sum(row["s"] for row in read(mapped, "idle")) / len(steps)
    assert idle == pytest.approx(sum(row.time_s for row in diagnosis.idle), rel=1e-6)


def test_a_recording_of_a_processor_has_means_alone(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for step in range(2):
        trace.note(f"ProfilerStep#{step}", 1000 * step, 900)
        sizes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
        trace.op("aten::mm", 1000 * step + 10, 500, **sizes)
    mapped = map_file(task_of(trace.write(tmp_path)))
    assert mapped.error is None
    (means,) = read(mapped, "means")
    assert means["on_device"] is False
    steps = read(mapped, "steps")
    assert len(steps) == 2
    assert {step["compute_s"] for step in steps} == {None}
    assert sum(step["s"] for step in steps) / 2 == pytest.approx(means["s"])
    assert read(mapped, "collectives") == []


def test_nothing_but_the_columns_is_kept_of_a_trace(tmp_path: Path) -> None:
    trace = rank_trace(0)
    secret = "hunter2-secret"
    trace.top["env"] = {"AWS_SECRET_ACCESS_KEY": secret}
    trace.top["hostname"] = secret
    for event in trace.events:
        event["args"]["Concrete Inputs"] = [secret]
        event["args"]["password"] = secret
    mapped = map_file(task_of(trace.write(tmp_path)))
    assert mapped.error is None
    for name in mapped.tables:
        assert secret not in str(read(mapped, name))
    assert secret not in str(mapped.notices)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"hello", "is not JSON"),
        (b'{"traceEvents": []}', "holds no events"),
        (gzip.compress(b'{"traceEvents": [' + b"x" * 9999, mtime=0)[:-20], "ends early"),
        (b'{"other": 1}', "not a PyTorch profiler trace"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    mapped = map_file(task_of(path))
    assert mapped.error is not None
    assert said in mapped.error
    assert str(path) in mapped.error
    assert not mapped.tables


def test_a_trace_that_does_not_say_its_rank_needs_a_name_that_does(tmp_path: Path) -> None:
    path = rank_trace(None).write(tmp_path)
    assert map_file(task_of(path, rank=3)).rank == 3
    assert "which rank recorded it" in (map_file(task_of(path, rank=None)).error or "")


def test_what_the_trace_says_goes_before_the_name(tmp_path: Path) -> None:
    path = rank_trace(1).write(tmp_path, "rank7.json")
    assert map_file(task_of(path, rank=7)).rank == 1
    beyond = rank_trace(2, world=2).write(tmp_path, "beyond.json")
    assert "is rank 2, but its run has 2 ranks" in (map_file(task_of(beyond)).error or "")


def test_a_trace_beyond_the_memory_of_a_worker_is_a_sentence(tmp_path: Path) -> None:
    mapped = map_file(task_of(rank_trace(0).write(tmp_path), memory_bytes=4096))
    assert "4 KiB" in (mapped.error or "")
    assert "--worker-memory" in (mapped.error or "")
    # The limit is gone again.
    assert map_file(task_of(tmp_path / "trace.json")).error is None


def test_only_new_and_changed_files_are_read_again(tmp_path: Path) -> None:
    paths = write_ranks(tmp_path / "run", {1: 60})
    out = tmp_path / "fleet"
    assert build_fleet([str(tmp_path / "run")], out, ONE).read == 4
    first = sorted(path.read_bytes() for path in (out / "steps").rglob("*.parquet"))
    assert build_fleet([str(tmp_path / "run")], out, ONE).read == 0
    rank_trace(2, 30, world=4, group_size=4).write(tmp_path / "run", paths[2].name)
    os.utime(paths[2], ns=(1, 1))
    assert build_fleet([str(tmp_path / "run")], out, ONE).read == 1
    after = sorted(path.read_bytes() for path in (out / "steps").rglob("*.parquet"))
    assert len(after) == len(first) == 4
    assert after != first
    assert build_fleet([str(tmp_path / "run")], out, FleetOptions(workers=1, again=True)).read == 4


def test_bad_files_are_rows_beside_the_good_ones(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {1: 60})
    (tmp_path / "run" / "rank9.json").write_text("{")
    verdict = build_fleet([str(tmp_path / "run")], tmp_path / "fleet", ONE)
    assert (verdict.files, verdict.read, len(verdict.errors)) == (5, 5, 1)
    assert "rank9.json" in verdict.errors[0]
    assert verdict.runs[0].ranks == 4
    # It is not read again either.
    assert build_fleet([str(tmp_path / "run")], tmp_path / "fleet", ONE).read == 0


def test_files_too_large_for_a_worker_are_read_again_with_more_memory(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for rank in range(4):
        trace = rank_trace(rank, 60 if rank == 1 else 0, world=4, group_size=4)
        trace.top["padding"] = "x" * (5 << 20)
        trace.write(tmp_path / "run", f"rank{rank}.json")
    (tmp_path / "run" / "rank9.json").write_text("{")
    patterns, out = [str(tmp_path / "run")], tmp_path / "fleet"
    # A new process: the limit is on what is taken beyond what a process has, and one that has run
    # other tests has much free already.
    command = [sys.executable, "-m", "gobrrr", "fleet", *patterns, "--out", str(out)]
    limited = subprocess.run(
        [*command, "--workers", "1", "--worker-memory", "8"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert limited.returncode == 2
    assert "none of the 5 files could be read" in " ".join(limited.stderr.split())
    verdict = build_fleet(patterns, out, ONE)
    assert (verdict.read, len(verdict.errors), verdict.runs[0].ranks) == (4, 1, 4)
    assert build_fleet(patterns, out, ONE).read == 0


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (MemoryError(), "raise it with --worker-memory"),
        (OSError(13, "Permission denied"), "cannot be read: permission denied"),
    ],
)
def test_files_that_could_not_be_had_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: Exception, said: str
) -> None:
    from gobrrr.fleet import mapping

    paths = write_ranks(tmp_path / "run", {})
    patterns, out = [str(tmp_path / "run")], tmp_path / "fleet"
    owner, name = (mapping, "read_trace") if isinstance(cause, MemoryError) else (Path, "open")
    real = getattr(owner, name)

    def refused(path: Path, *args: object, **named: object) -> object:
        if path == paths[1]:
            raise cause
        return real(path, *args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, refused)
        (error,) = build_fleet(patterns, out, ONE).errors
    assert said in error
    verdict = build_fleet(patterns, out, ONE)
    assert (verdict.read, verdict.errors) == (1, [])


def test_errors_listed_by_an_earlier_version_are_looked_at_once_more(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {})
    (tmp_path / "run" / "rank9.json").write_text("{")
    patterns, out = [str(tmp_path / "run")], tmp_path / "fleet"
    build_fleet(patterns, out, ONE)
    listed = pq.read_table(out / "files.parquet").drop_columns("retry")
    pq.write_table(listed, out / "files.parquet")
    assert [build_fleet(patterns, out, ONE).read for _ in range(2)] == [1, 0]


def test_of_two_files_of_a_rank_one_is_a_row_with_an_error(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {})
    rank_trace(1, world=4, group_size=4).write(tmp_path / "run", "another1.json")
    for reverse in (False, True):
        out = tmp_path / f"fleet{reverse}"

        def engine(tasks: Sequence[MapTask], reverse: bool = reverse) -> Iterator[MappedFile]:
            return map(map_file, sorted(tasks, key=lambda t: t.source.path, reverse=reverse))

        verdict = build_fleet([str(tmp_path / "run")], out, engine=engine)
        assert [e for e in verdict.errors if "rank1.json" in e.split(":")[0]]
        assert "a second trace of rank 1 of run run" in verdict.errors[0]
        assert len(list((out / "steps").rglob("*.parquet"))) == 4


def test_traces_recorded_again_take_the_place_of_those_that_are_gone(tmp_path: Path) -> None:
    out, run = tmp_path / "fleet", tmp_path / "run"
    first = write_ranks(run, {})
    (run / "broken.json").write_text("{")
    assert len(build_fleet([str(run)], out, ONE).errors) == 1
    for path in (*first, run / "broken.json"):
        path.unlink()
    # Once by a name that sorts behind the first, once before it.
    for name in ("z", "a"):
        for rank in range(4):
            rank_trace(rank, 60 if rank == 2 else 0, world=4, group_size=4).write(
                run, f"{name}-rank{rank}.json"
            )
        verdict = build_fleet([str(run)], out, ONE)
        assert (verdict.read, verdict.files, verdict.errors) == (4, 4, [])
        assert verdict.runs[0].culprits[0].ranks == [2]
        for rank in range(4):
            (run / f"{name}-rank{rank}.json").unlink()


def test_a_file_is_the_same_however_its_path_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ranks(tmp_path / "run", {})
    monkeypatch.chdir(tmp_path)
    assert build_fleet(["run"], Path("fleet"), ONE).read == 4
    verdict = build_fleet([str(tmp_path / "run")], Path("fleet"), ONE)
    assert (verdict.read, verdict.files, verdict.errors) == (0, 4, [])


def test_the_second_trace_of_a_rank_is_read_once_the_first_is_another(tmp_path: Path) -> None:
    out, run = tmp_path / "fleet", tmp_path / "run"
    write_ranks(run, {})
    rank_trace(1, world=4, group_size=4).write(run, "another1.json")
    assert "rank1.json" in build_fleet([str(run)], out, ONE).errors[0]
    # The one that stayed has become unreadable.
    (run / "another1.json").write_text("{")
    build_fleet([str(run)], out, ONE)
    verdict = build_fleet([str(run)], out, ONE)
    assert verdict.read == 1
    (error,) = verdict.errors
    assert "another1.json" in error.split(":")[0]


def test_an_interrupted_folder_is_usable_and_goes_on(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {1: 60})
    out = tmp_path / "fleet"

    def stopped(tasks: Sequence[MapTask]) -> Iterator[MappedFile]:
        yield map_file(tasks[0])
        yield map_file(tasks[1])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_fleet([str(tmp_path / "run")], out, engine=stopped)
    assert [row.rank for row in FleetFolder.open(out).rows] == [0, 1]
    # What nobody lists was being written when the process was killed, or is the user's.
    stray = out / "steps" / "run=run" / "rank=9"
    stray.mkdir(parents=True)
    (stray / "0.parquet").write_bytes(b"half")
    verdict = build_fleet([str(tmp_path / "run")], out, ONE)
    assert verdict.read == 2
    assert verdict.runs[0].ranks == 4
    assert [path.read_bytes() for path in stray.iterdir()] == [b"half"]
    assert stray / "0.parquet" not in FleetFolder.open(out).tables("steps")


def test_nothing_is_written_or_removed_through_a_link(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {1: 60})
    out, elsewhere = tmp_path / "fleet", tmp_path / "elsewhere"
    build_fleet([str(tmp_path / "run")], out, ONE)
    # All levels, from a table's folder to a file.
    table = next(iter((out / "collectives").glob("run=*/rank=1/*.parquet")))
    for link in (out / "collectives", table.parent.parent, table.parent, table):
        link.rename(elsewhere)
        kept = {p: p.read_bytes() for p in (elsewhere, *elsewhere.rglob("*")) if p.is_file()}
        link.symlink_to(elsewhere)
        with pytest.raises(InputError, match="is a link"):
            build_fleet([str(tmp_path / "run")], out, replace(ONE, again=True))
        assert kept == {p: p.read_bytes() for p in kept}
        link.unlink()
        elsewhere.rename(link)


@pytest.mark.parametrize("wrong", [{"run": "../../other"}, {"stem": "../keep"}, {"run": ""}])
def test_a_list_that_names_files_outside_is_refused(tmp_path: Path, wrong: dict[str, str]) -> None:
    write_ranks(tmp_path / "run", {1: 60})
    out = tmp_path / "fleet"
    build_fleet([str(tmp_path / "run")], out, ONE)
    listed = pq.read_table(out / "files.parquet", partitioning=None)
    rows = [{**row, **wrong} for row in listed.to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, schema=listed.schema), out / "files.parquet")
    with pytest.raises(InputError, match="outside of it"):
        build_fleet([], out)


def test_without_traces_the_folder_is_compared_again(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {1: 60})
    out = tmp_path / "fleet"
    first = build_fleet([str(tmp_path / "run")], out, ONE)
    again = build_fleet([], out)
    assert again.runs == first.runs
    assert again.read == 0


def test_folders_that_are_no_fleet_are_refused(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("")
    with pytest.raises(InputError, match="has other files in it"):
        build_fleet([str(tmp_path / "run")], tmp_path / "full", ONE)
    with pytest.raises(InputError, match="is not a fleet folder"):
        build_fleet([], tmp_path / "run")
    with pytest.raises(InputError, match="does not exist"):
        build_fleet([], tmp_path / "nowhere")
    out = tmp_path / "fleet"
    build_fleet([str(tmp_path / "run")], out, ONE)
    (out / "fleet.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="has format 99"):
        build_fleet([], out)
    (out / "fleet.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        build_fleet([], out)


def test_a_fleet_of_bad_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text("{")
    with pytest.raises(InputError, match=r"^/.*rank0\.json: the JSON ends early"):
        build_fleet([str(tmp_path / "rank0.json")], tmp_path / "fleet", ONE)
    (tmp_path / "rank1.json").write_text("{")
    both = [str(tmp_path / f"rank{rank}.json") for rank in (0, 1)]
    with pytest.raises(InputError, match="none of the 2 files could be read; the first"):
        build_fleet(both, tmp_path / "fleet_of_two", ONE)


def test_two_do_not_write_one_folder(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {})
    build_fleet([str(tmp_path / "run")], tmp_path / "fleet", ONE)
    with (
        FleetFolder.open(tmp_path / "fleet").written_alone(),
        pytest.raises(InputError, match="another gobrrr fleet"),
    ):
        build_fleet([], tmp_path / "fleet")


def test_processes_find_what_one_finds(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {1: 60})
    one = build_fleet([str(tmp_path / "run")], tmp_path / "one", ONE)
    two = build_fleet([str(tmp_path / "run")], tmp_path / "two", FleetOptions(workers=2))
    assert one.runs == two.runs
    assert two.worker_bytes is not None
    assert two.worker_bytes > 1 << 20


@pytest.fixture
def deadly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Traces of four ranks; the process that reads that of rank 1 dies."""
    from gobrrr.fleet import mapping

    paths = write_ranks(tmp_path / "run", {})
    real = mapping.read_trace

    def read_trace(path: Path) -> object:
        if Path(path).name == "rank1.json.gz":
            os._exit(9)
        return real(path)

    monkeypatch.setattr(mapping, "read_trace", read_trace)
    return paths


def test_a_reader_that_dies_takes_no_other_file_along(deadly: list[Path]) -> None:
    tasks = [task_of(path, rank) for rank, path in enumerate(deadly)]
    found = {mapped.source.path: mapped for mapped in map_here(tasks, 2)}
    assert len(found) == 4
    assert [str(p) for p in deadly if found[str(p)].error is not None] == [str(deadly[1])]
    assert "ended by the system" in (found[str(deadly[1])].error or "")
    assert [str(p) for p in deadly if found[str(p)].retry] == [str(deadly[1])]


def test_a_reader_that_dies_while_results_are_taken_ends_no_other_file(deadly: list[Path]) -> None:
    order = [0, 1, 2, 3, 0, 2, 3, 0]
    found = []
    for mapped in map_here([task_of(deadly[rank], rank) for rank in order], 2):
        time.sleep(0.2)
        found.append((mapped.source.rank, mapped.error is None))
    assert sorted(found) == sorted((rank, rank != 1) for rank in order)


def test_remote_traces_are_fetched(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for rank, path in enumerate(write_ranks(tmp_path / "run", {1: 60})):
        store.pipe(f"/fetched/rank{rank}.json.gz", path.read_bytes())
    verdict = build_fleet(["memory://fetched/"], tmp_path / "fleet", ONE)
    assert (verdict.runs[0].run, verdict.runs[0].ranks) == ("fetched", 4)


def test_traces_that_cannot_be_fetched_are_tried_again(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    (path,) = (p for p in write_ranks(tmp_path / "run", {}) if "rank1" in p.name)
    source = SourceFile("memory://gone/rank1.json.gz", 1, "1", "run", None, 1)
    failed = map_file(MapTask(source, 1 << 30))
    assert "cannot be fetched" in (failed.error or "")
    assert failed.retry
    fsspec.filesystem("memory").pipe("/gone/rank1.json.gz", path.read_bytes())
    assert map_file(MapTask(source, 1 << 30)).error is None


def test_hosts_by_rank_where_paths_do_not_name_them(tmp_path: Path) -> None:
    write_ranks(tmp_path / "run", {})
    options = FleetOptions(Naming(ranks_per_host=2), workers=1)
    verdict = build_fleet([str(tmp_path / "run")], tmp_path / "fleet", options)
    assert verdict.runs[0].hosts == 2
    rows = FleetFolder.open(tmp_path / "fleet").rows
    assert [row.host for row in rows] == ["host0", "host0", "host1", "host1"]
