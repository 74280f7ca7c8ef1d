from __future__ import annotations

from pathlib import Path

import pytest

from gobrrr.fleet.sources import Naming, find_sources, host_of
from gobrrr.timeline.errors import InputError


def files(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("run/host=a.b.c/rank0.json", "a.b.c"),
        ("run/node03/rank24.json.gz", "node03"),
        ("run/host-7/rank24.json.gz", "host-7"),
        ("run/gpu-box-1_4711.1700000000000000000.pt.trace.json.gz", "gpu-box-1"),
        ("run/gpu-box-1_4711.pt.trace.json", "gpu-box-1"),
        ("hosting/rank24.json.gz", None),
        ("rank3.json", None),
    ],
)
def test_hosts_come_from_paths(path: str, host: str | None) -> None:
    assert host_of(path) == host


def test_a_pattern_a_folder_and_a_list_name_the_same_run(tmp_path: Path) -> None:
    files(tmp_path, "2026-11-21/node0/rank0.json.gz", "2026-11-21/node1/rank1.json.gz")
    top = tmp_path / "2026-11-21"
    listed = [str(path) for path in sorted(top.rglob("*.gz"))]
    for patterns in ([str(top)], [f"{top}/**/*.json.gz"], [f"{top}/*/*.gz"], listed):
        found = find_sources(patterns, Naming())
        assert [(s.run, s.host, s.rank) for s in found] == [
            ("2026-11-21", "node0", 0),
            ("2026-11-21", "node1", 1),
        ]


def test_runs_are_told_apart_by_folder_by_name_and_by_key(tmp_path: Path) -> None:
    files(tmp_path, "t/a/rank0.json", "t/b/rank0.json")
    top = str(tmp_path / "t")
    assert [s.run for s in find_sources([top], Naming(run_per_folder=True))] == ["a", "b"]
    assert [s.run for s in find_sources([top], Naming(run="the first"))] == ["the_first"] * 2
    files(tmp_path, "k/run=one/rank=7/trace.json")
    (source,) = find_sources([str(tmp_path / "k")], Naming(run="two"))
    assert (source.run, source.rank) == ("one", 7)


def test_another_file_beside_them_does_not_hide_the_ranks_of_traces(tmp_path: Path) -> None:
    files(tmp_path, "t/rank0.json.gz", "t/rank1.json.gz", "t/config.json")
    ranks = [s.rank for s in find_sources([str(tmp_path / "t")], Naming())]
    assert ranks == [None, 0, 1]


def test_only_what_is_called_like_a_trace_is_taken_from_a_folder(tmp_path: Path) -> None:
    files(tmp_path, "t/rank0.json", "t/notes.txt", "t/out/verdict.json")
    (source,) = find_sources([str(tmp_path / "t")], Naming(), outside=tmp_path / "t" / "out")
    assert Path(source.path).name == "rank0.json"
    (named,) = find_sources([str(tmp_path / "t" / "*.txt")], Naming())
    assert Path(named.path).name == "notes.txt"


@pytest.mark.parametrize("name", ["*.json", "nothing.json", "empty"])
def test_a_pattern_without_a_file_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"matches no file|holds no trace"):
        find_sources([str(tmp_path / name)], Naming())


def test_a_changed_file_is_another_one(tmp_path: Path) -> None:
    files(tmp_path, "rank0.json")
    (before,) = find_sources([str(tmp_path)], Naming())
    (tmp_path / "rank0.json").write_text("{} ")
    (after,) = find_sources([str(tmp_path)], Naming())
    assert (before.size_bytes, after.size_bytes) == (2, 3)
    assert before.version != after.version


def test_stores_are_read_by_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for rank in range(2):
        store.pipe(f"/bucket/run/rank{rank}.json", b"{}")
    store.pipe("/bucket/run/readme.txt", b"")
    for pattern in ("memory://bucket/run", "memory://bucket/run/*.json"):
        found = find_sources([pattern], Naming())
        assert [(s.path, s.run, s.rank) for s in found] == [
            ("memory://bucket/run/rank0.json", "run", 0),
            ("memory://bucket/run/rank1.json", "run", 1),
        ]
        assert all(source.version for source in found)
    with pytest.raises(InputError, match="cannot be listed"):
        find_sources(["nostore://bucket/run"], Naming())
