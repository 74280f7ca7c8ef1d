from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fleet_making import write_ranks
from gobrrr.cli import main


def test_from_traces_to_the_verdict_and_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    write_ranks(tmp_path / "run", {1: 60}, per_host=2)
    out = str(tmp_path / "fleet")
    command = ["fleet", str(tmp_path / "run"), "--out", out, "--workers", "1"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "The other ranks wait for rank 1 on host node00" in shown
    assert f"Saved: {out}" in shown
    assert (tmp_path / "fleet" / "fleet.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "fleet" / "verdict.json").read_text())["files"] == 4
    assert main(["fleet", "--out", out]) == 0
    assert "nothing was new" in capsys.readouterr().out
    query = "select host, count(*) as n from steps group by 1 order by 1"
    assert main(["fleet", "--query", query, out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"host": "node00", "n": 4},
        {"host": "node01", "n": 4},
    ]
    assert main(["fleet", "--query", query, out, "--csv"]) == 0
    assert capsys.readouterr().out == "host,n\nnode00,4\nnode01,4\n"
    assert main(["fleet", "--query", query, out]) == 0
    assert capsys.readouterr().out == "host    n\nnode00  4\nnode01  4\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing/*.json"], "nothing/*.json matches no file"),
        ([], "give traces, or --out"),
        (["a", "--json"], "--json and --csv go with --query"),
        (["--query", "select 1", "a", "b"], "--query takes one fleet folder"),
        (["a", "--address", "auto"], "--address goes with --engine ray"),
        (["a", "--out", "s3://bucket/fleet"], "has to be on this machine"),
        (["a", "--run", "x", "--run-per-folder"], "exclude each other"),
        (["a", "--workers", "0"], "not a positive whole number"),
        (["--query", "select 1", "nowhere"], "nowhere does not exist"),
    ],
)
def test_bad_usage_is_one_sentence(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    assert main(["fleet", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("missing", "arguments", "said"),
    [
        ("pyarrow", ["t.json"], "needs pyarrow: pip install 'gobrrr[fleet]'"),
        ("duckdb", ["--query", "select 1", "x"], "needs duckdb: pip install 'gobrrr[fleet]'"),
        ("fsspec", ["s3://bucket/run"], "needs fsspec: pip install 'gobrrr[fleet]'"),
    ],
)
def test_a_missing_extra_is_named(
    missing: str,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if missing != "pyarrow":
        pytest.importorskip("pyarrow")
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["fleet", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_without_ray_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    write_ranks(tmp_path / "run", {})
    monkeypatch.setitem(sys.modules, "ray", None)
    out = str(tmp_path / "fleet")
    assert main(["fleet", str(tmp_path / "run"), "--out", out, "--engine", "ray"]) == 2
    assert "--engine ray needs ray: pip install 'gobrrr[ray]'" in capsys.readouterr().err
