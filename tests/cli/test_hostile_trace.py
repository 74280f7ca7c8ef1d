"""A trace is data: none of its texts steers what shows it, and its secrets stay behind."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest

from gobrrr.cli import main
from trace_writing import WrittenTrace

TOKEN = "hf_" + "Secret" * 6
STEERS = "\x1b[31m\x1b]8;;http://evil.example\x07\x9b31m\u202e\r\x00"
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"
LINKS = "[click](javascript:alert(3)) ![p](http://evil.example/p.png)"
# What a terminal obeys; line ends and tabs are the reports' own.
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
STEPS = 3


def planted(what: str) -> str:
    """A name that is a formula, a terminal's command, markup and a link."""
    return f"=cmd|'/C calc'!A0 {what} {STEERS}{MARKUP}{LINKS}`|*"


def hostile_trace(rank: int, late_us: float = 0.0) -> WrittenTrace:
    """Text in every place of a trace that has some; ``TOKEN`` where it is metadata."""
    trace = WrittenTrace(
        distributedInfo={
            "rank": rank, "world_size": 2, "backend": planted("backend"), "hostname": TOKEN,
            "nccl_version": planted("nccl"), "env": {"TOKEN": TOKEN}, "argv": ["--token", TOKEN],
            "pg_config": [{"pg_name": planted("group"), "pg_desc": TOKEN, "ranks": [0, 1]}],
        },
        deviceProperties=[{"id": 0, "name": planted("device"), "numSms": 132, "uuid": TOKEN}],
        hostName=TOKEN, env={"HF_TOKEN": TOKEN}, argv=["--token", TOKEN], trace_id=TOKEN,
        metadata={"token": TOKEN, planted("key"): TOKEN}, traceName=f"/tmp/{TOKEN}/trace.json",
        **{planted("top"): TOKEN},
    )  # fmt: skip
    for process in (7, 0):
        for name, said in (
            ("process_name", {"name": f"python train.py --token={TOKEN}"}),
            ("process_labels", {"labels": TOKEN}),
            ("thread_name", {"name": f"{TOKEN} {planted('thread')}"}),
        ):
            trace.events.append(
                {"ph": "M", "name": name, "pid": process, "tid": 7, "ts": 0, "args": said}
            )
    trace.events += [
        {"ph": "i", "s": "g", "name": planted("instant"), "pid": 7, "tid": 7, "ts": 3,
         "args": {"token": TOKEN}},
        {"ph": "X", "cat": planted("category"), "name": planted("other"), "pid": f"python {TOKEN}",
         "tid": planted(TOKEN), "ts": 3, "dur": 3,
         "args": {"Call stack": planted("stack"), "env": TOKEN}},
    ]  # fmt: skip
    shapes = {
        "Input Dims": [[64, 64], [64, 64]], "Input type": ["float", planted("dtype")],
        "Concrete Inputs": ["", TOKEN],
    }  # fmt: skip
    comms = {
        "Collective name": planted("allreduce"), "In msg nelems": 100_000,
        "Out msg nelems": 100_000, "dtype": "Float", "Group size": 2,
        "Process Group Name": planted("group"), "Process Group Description": planted("what for"),
        "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    for step in range(STEPS):
        at, call = 2000 * step, 10 * step
        trace.note(f"ProfilerStep#{step}", at, 1900)
        trace.note(planted("annotation"), at + 1, 1800)
        trace.python(f"/home/{planted('folder')}/net.py(3): {planted('forward')}", at + 1, 1800)
        trace.python(f"nn.Module: {planted('Module')}_0", at + 2, 1700)
        trace.op("aten::mm", at + 5, 20, **shapes)
        trace.launch(planted("kernel"), at + 6, at + 20, 100, call + 1)
        trace.op(planted("own::op"), at + 130, 20, **shapes, **{planted("argument"): TOKEN})
        trace.launch(f"void {planted('kernel')}::f<int>(int)", at + 131, at + 140, 100, call + 2)
        trace.op("aten::item", at + 300, 300)
        trace.call("cudaStreamSynchronize", at + 301, 290, 0)
        trace.call(planted("cudaCall"), at + 850, 10, 0)
        trace.call("cudaMemcpyAsync", at + 870, 10, call + 3)
        copy = f"Memcpy HtoD {planted('copy')}"
        trace.kernel(copy, at + 880, 50, call + 3, cat="gpu_memcpy", bytes=1_000_000)
        trace.op("record_param_comms", at + 1000, 9, **comms)
        trace.launch(
            f"ncclDevKernel_AllReduce_Sum_f32_RING_LL(x){planted('nccl')}", at + 1001,
            at + 1010 + late_us, 200 - late_us, call + 4, stream=20,
        )  # fmt: skip
    return trace


@pytest.fixture
def ranks(tmp_path: Path) -> list[str]:
    return [
        str(hostile_trace(rank, 60.0 * rank).write(tmp_path, f"rank{rank}.json"))
        for rank in range(2)
    ]


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What a command prints, which steers nothing and holds no secret."""
    main([*map(str, arguments)])
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert "Traceback" not in text
        assert_harmless(text)
    return said.out


def assert_harmless(text: str) -> None:
    assert TOKEN not in text
    assert STEERING.search(text) is None


def read(path: Path) -> str:
    """A written file, as it is on disk."""
    text = path.read_bytes().decode()
    assert_harmless(text)
    return text


def assert_plain_page(path: Path) -> None:
    text = read(path)
    assert MARKUP[:14] not in text and "<img src=x" not in text
    assert not re.search(r"""(?:href|src)\s*=\s*["']?(?:javascript|http://evil)""", text)


def assert_plain_markdown(text: str) -> None:
    assert_harmless(text)
    # A code span needs no escapes; elsewhere each sign has its own.
    outside = re.sub(r"(`+)[^`].*?\1", "", text)
    assert not re.search(r"(?<!\\)<(?:script|img)", outside)
    assert not re.search(r"(?<!\\)\]\((?:javascript|http://evil)", outside)


@pytest.mark.parametrize("number", [1, 2], ids=["one trace", "a file per rank"])
def test_reports_and_files(
    number: int, ranks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = ranks[:number]
    assert "own::op" in run(capsys, "trace", *traces, "--by", "op")
    out = {name: tmp_path / f"d.{name}" for name in ("json", "html", "md")}
    run(
        capsys, "trace", *traces, "--verbose", "--by", "all", "--json", out["json"], "--html",
        out["html"], "--markdown", out["md"],
    )  # fmt: skip
    assert planted("own::op") in {op["name"] for op in json.loads(read(out["json"]))["ops"]}
    assert_plain_page(out["html"])
    assert_plain_markdown(read(out["md"]))
    run(capsys, "report", out["json"], "--verbose", "--by", "all")


def test_copies(ranks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--perfetto", "--scrub"):
        copy = tmp_path / f"copy{option}.json"
        run(capsys, "trace", ranks[0], option, copy)
        kept = json.loads(read(copy))["traceEvents"]
        assert planted("own::op") in {event["name"] for event in kept}
        # What stood on a process of its own still does.
        (other,) = [event for event in kept if event["name"] == planted("other")]
        assert isinstance(other["pid"], int) and other["pid"] not in (0, 7)
    joined = tmp_path / "all.json"
    run(capsys, "trace", *ranks, "--perfetto", joined)
    assert json.loads(read(joined))["traceEvents"]


def test_comparisons_and_gates(
    ranks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = (tmp_path / f"{name}.json" for name in ("before", "after"))
    run(capsys, "trace", ranks[0], "--json", before)
    run(capsys, "trace", ranks[1], "--json", after)
    out = {name: tmp_path / f"c.{name}" for name in ("json", "html", "md")}
    run(
        capsys, "compare", before, after, "--json", out["json"], "--html", out["html"],
        "--markdown", out["md"],
    )  # fmt: skip
    assert json.loads(read(out["json"]))
    assert_plain_page(out["html"])
    assert_plain_markdown(read(out["md"]))
    assert_plain_markdown(run(capsys, "compare", *ranks, "--markdown", "-"))
    baseline = tmp_path / "baseline.json"
    run(capsys, "check", before, "--save-baseline", baseline)
    assert json.loads(read(baseline))
    run(capsys, "check", after, "--baseline", baseline, "--exact")
    run(capsys, "check", after, "--baseline", before, "--exact")


def test_tables_of_a_fleet(
    ranks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("duckdb")
    folder = tmp_path / "fleet"
    run(capsys, "fleet", *ranks, "--out", folder)
    for path in folder.rglob("*"):
        if path.suffix == ".parquet":
            assert_harmless(str(parquet.read_table(path).to_pydict()))
            cells = [*parquet.read_table(path).to_pydict().values()]
            assert_harmless(" ".join(str(cell) for column in cells for cell in column))
        elif path.suffix == ".html":
            assert_plain_page(path)
        elif path.is_file():
            read(path)
    formulas = 0
    for table in ("steps", "ops", "idle", "lines", "collectives", "ranks", "files"):
        asked = ("fleet", "--query", f"select * from {table}", folder)
        run(capsys, *asked)
        assert json.loads(run(capsys, *asked, "--json"))
        for row in csv.reader(io.StringIO(run(capsys, *asked, "--csv"), newline="")):
            formulas += sum(cell.startswith("'=cmd") for cell in row)
            assert not any(cell.lstrip()[:1] in {"=", "+", "@"} for cell in row)
    assert formulas
