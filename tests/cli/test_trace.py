"""``gobrrr trace``: reports, copies, and one sentence for each wrong input."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from gobrrr.cli import main
from trace_writing import OURS, WrittenTrace, rank_trace

BERT = OURS / "h100_bert_small_inference.json.gz"
TOKEN = "hf_" + "x" * 20


def test_a_copy_with_tracks_beside_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json.gz"
    assert main(["trace", str(BERT), "--perfetto", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "-bound." in shown
    assert f"Saved: {out} (open it in https://ui.perfetto.dev)" in shown.splitlines()[-3:]
    assert "gobrrr trace" in shown.splitlines()[-1]
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    tracks = {e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    assert {"steps", "bound by", "idle because of"} <= tracks


def secret_trace(tmp_path: Path) -> Path:
    trace = WrittenTrace(metadata={"token": TOKEN}, hostName=TOKEN)
    trace.launch("gemm", 10, 20, 30, 1)
    trace.python(f"/home/{TOKEN}/net.py(3): forward", 5, 40)
    return trace.write(tmp_path)


def test_a_scrubbed_copy_alone_needs_no_diagnosis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "clean.json"
    arguments = ["trace", str(secret_trace(tmp_path)), "--scrub", str(out)]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"Saved: {out}\n"
    assert "metadata" not in out.read_text()
    assert out.read_text().count(TOKEN) == 1  # the path of the program
    assert main([*arguments, "--scrub-paths"]) == 0
    assert TOKEN not in out.read_text()
    assert "net.py(3): forward" in out.read_text()


def test_a_scrubbed_copy_beside_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, report = tmp_path / "clean.json", tmp_path / "d.json"
    path = secret_trace(tmp_path)
    assert main(["trace", str(path), "--scrub", str(out), "--json", str(report)]) == 0
    assert "-bound." in capsys.readouterr().out
    assert out.is_file() and report.is_file()


def test_a_file_per_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [rank_trace(r, 60.0 * r).write(tmp_path, f"rank{r}.json") for r in range(2)]
    assert main(["trace", *map(str, paths)]) == 0
    shown = capsys.readouterr().out
    assert "Ranks, " in shown and "Collectives" in shown
    assert "rank 1 of 2" in shown.splitlines()[0]
    assert "waits 60.0 µs per step, all of it for rank 1" in shown


def test_several_traces_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [rank_trace(r, 60.0 * r).write(tmp_path, f"rank{r}.json") for r in range(2)]
    out = tmp_path / "all.json.gz"
    assert main(["trace", *map(str, paths), "--perfetto", str(out)]) == 0
    assert out.is_file()
    assert f"Saved: {out} (open it in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--scrub", "o.json"], "takes one trace"),
        (["--scrub-paths"], "goes with --scrub"),
    ],
)
def test_options_that_do_not_go_together(
    options: list[str], says: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for rank in range(2):
        rank_trace(rank).write(tmp_path, f"rank{rank}.json")
    assert main(["trace", "rank0.json", "rank1.json", *options]) == 2
    assert says in capsys.readouterr().err


def wrong_inputs(folder: Path) -> dict[str, tuple[Path, str]]:
    """A path for each way to be no trace, and what the sentence must say."""

    def written(name: str, content: bytes) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    whole = BERT.read_bytes()
    text = gzip.decompress(whole)
    same = rank_trace(0).write(folder, "same.json")
    return {
        "text": (written("notes.txt", b"step 1 took 3 ms\n"), "is not JSON: no object .* byte 0"),
        "cut gzip": (written("cut.json.gz", whole[:20_000]), "cut short, copy it again"),
        "cut JSON": (written("cut.json", text[: len(text) // 2]), "ends early, at byte [0-9]+"),
        "empty": (written("empty.json", b""), "is empty"),
        "other JSON": (written("config.json", b'{"lr": 0.1}'), "has no traceEvents"),
        "other list": (written("list.json", b"[1, 2]"), "holds no events|no list of events"),
        "folder": (folder, "is a directory; give the trace file inside it"),
        "missing": (folder / "none.json", "no such file"),
        "nothing ran": (WrittenTrace().write(folder, "idle.json"), "holds no events"),
        "one rank twice": (same, "both are of rank 0; give each rank once"),
    }


@pytest.mark.parametrize(
    "kind",
    ["text", "cut gzip", "cut JSON", "empty", "other JSON", "other list", "folder", "missing",
     "nothing ran", "one rank twice"],
)  # fmt: skip
def test_what_is_no_trace_gets_one_sentence_with_its_name(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, says = wrong_inputs(tmp_path)[kind]
    arguments = [str(path)] * (2 if kind == "one rank twice" else 1)
    assert main(["trace", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert str(path) in said.err
    assert re.search(says, said.err)
