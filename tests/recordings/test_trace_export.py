from __future__ import annotations

import gzip
import json
import os
import stat
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.attribution.device_tracks import tracks_of
from gobrrr.recordings import stream as trace_stream
from gobrrr.recordings.export import TRACK_PROCESS, write_scrubbed, write_with_tracks
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import Timeline
from gobrrr.timeline.errors import InputError
from trace_writing import OURS, WrittenTrace


def private_trace() -> WrittenTrace:
    trace = WrittenTrace(
        metadata={"token": "s3cret"},
        hostname="s3cret.example",
        environ={"KEY": "s3cret"},
        traceName="/home/s3cret/trace.json",
        deviceProperties=[{"id": 0, "name": "NVIDIA A100", "numSms": 108, "uuid": "s3cret"}],
        distributedInfo={"rank": 2, "world_size": 4, "master": "s3cret"},
        baseTimeNanoseconds=10**18,
    )
    trace.python("/home/user/project/net.py(3): forward", 0, 100)
    trace.python("/env/lib/python3.11/site-packages/torch/nn/linear.py(9): forward", 1, 90)
    trace.op(
        "aten::linear", 2, 40,
        **{
            "Input Dims": [[2, 3], []], "Input type": ["float", "Scalar"],
            "Concrete Inputs": ["", "/home/user/s3cret", "[1, 2]", "True", "0.5"],
            "kernel_file": "/home/s3cret/k.py",
            "Call stack": "/home/user/net.py(3): f;torch/x.py(1): g",
        },
    )  # fmt: skip
    trace.launch("gemm", 1_661_203_462_598_738.0, 1_661_203_462_598_800.0, 30, correlation=1)
    trace.events.append(
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0, "args": {"name": "s3cret"}}
    )
    trace.events.append(
        {
            "ph": "M",
            "name": "process_labels",
            "pid": 7,
            "tid": 0,
            "ts": 0,
            "args": {"labels": "CPU"},
        }
    )
    return trace


def read_json(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def same(a: Timeline, b: Timeline) -> None:
    for column in ("start_ns", "end_ns", "kind", "op", "launch", "bytes_moved"):
        assert np.array_equal(getattr(a.kernels, column), getattr(b.kernels, column)), column
    for column in ("start_ns", "end_ns", "kind", "phase", "sequence"):
        assert np.array_equal(getattr(a.host, column), getattr(b.host, column)), column
    assert a.calls == b.calls
    assert a.device == b.device
    assert (a.steps == b.steps).all()


def test_a_scrubbed_copy_holds_nothing_private(tmp_path: Path) -> None:
    source, target = private_trace().write(tmp_path), tmp_path / "clean.json"
    write_scrubbed(source, target)
    text = target.read_text()
    assert "s3cret" not in text
    assert "/home/user/project/net.py" in text  # paths only on request
    copy = read_json(target)
    assert copy["deviceProperties"] == [{"id": 0, "name": "NVIDIA A100", "numSms": 108}]
    assert copy["distributedInfo"] == {"rank": 2, "world_size": 4}
    assert copy["baseTimeNanoseconds"] == 10**18
    linear = next(e for e in copy["traceEvents"] if e["name"] == "aten::linear")
    assert linear["args"]["Concrete Inputs"] == ["", "", "[1, 2]", "True", "0.5"]


def test_paths_on_request(tmp_path: Path) -> None:
    source, target = private_trace().write(tmp_path), tmp_path / "clean.json"
    write_scrubbed(source, target, paths=True)
    text = target.read_text()
    assert "/home/" not in text
    names = [event["name"] for event in read_json(target)["traceEvents"]]
    assert "net.py(3): forward" in names
    assert "torch/nn/linear.py(9): forward" in names
    assert "net.py(3): f;torch/x.py(1): g" in text


@pytest.mark.parametrize("name", sorted(p.name for p in OURS.glob("*.json.gz")))
def test_a_scrubbed_copy_reads_the_same(tmp_path: Path, name: str) -> None:
    target = tmp_path / "clean.json.gz"
    write_scrubbed(OURS / name, target)
    same(read_trace(OURS / name), read_trace(target))


@pytest.mark.parametrize("chunk_bytes", [2 << 20, 4000])
@pytest.mark.parametrize("name", ["mi250_toy_training", "h100_bert_small_inference"])
def test_a_copy_with_tracks_reads_the_same_and_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, chunk_bytes: int
) -> None:
    monkeypatch.setattr(trace_stream, "CHUNK_BYTES", chunk_bytes)
    source, target = OURS / f"{name}.json.gz", tmp_path / "out.json.gz"
    timeline = read_trace(source)
    found = attribute_device(timeline, None, lambda call: None)
    write_with_tracks(source, target, tracks_of(timeline, found))
    same(timeline, read_trace(target))
    events = read_json(target)["traceEvents"]
    added = [e for e in events if e["pid"] == TRACK_PROCESS]
    assert len(events) - len(added) == timeline.events
    spans = [e for e in added if e["ph"] == "X"]
    assert len(spans) == len(timeline.steps) + len(found.owned.row) + len(found.idle)
    lanes = {e["args"]["name"] for e in added if e["name"] == "thread_name"}
    assert lanes == {"steps", "bound by", "idle because of"}
    # The last two tracks tile the windows.
    tiled = sum(e["dur"] for e in spans if e["tid"] in (1, 2))
    assert tiled == pytest.approx(float((timeline.steps[-1, 1] - timeline.steps[0, 0]) / 1000))


def test_a_copy_with_tracks_drops_what_is_private_too(tmp_path: Path) -> None:
    source, target = private_trace().write(tmp_path), tmp_path / "out.json"
    write_with_tracks(source, target, ())
    assert "s3cret" not in target.read_text()


@pytest.mark.parametrize("write", [write_scrubbed, partial(write_with_tracks, tracks=())])
def test_names_of_processes_and_threads_stay_if_they_are_usual_ones(
    tmp_path: Path, write: Callable[[Path, Path], None]
) -> None:
    trace = WrittenTrace()
    trace.launch("k", 0, 3, 2, correlation=1)
    harmless = ["python3", "stream 7 ", "thread 8 (pt_autograd_0)", "PyTorch Profiler (0)"]
    private = ["train.py --token=s3cret", "gpu-host-17", "thread 8 (s3cret)", "python3 -m s3cret"]
    for name in harmless + private:
        trace.events.append(
            {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0, "args": {"name": name}}
        )
    target = tmp_path / "out.json"
    write(trace.write(tmp_path), target)
    named = [e for e in read_json(target)["traceEvents"] if e["name"] == "process_name"]
    assert [e["args"]["name"] for e in named if e["args"]["name"] != "gobrrr"] == harmless


def test_times_beyond_a_double_survive(tmp_path: Path) -> None:
    source, target = tmp_path / "a.json", tmp_path / "b.json"
    source.write_text(
        '[{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, '
        '"ts": 1661203462598738.123, "dur": 5}]'
    )
    write_scrubbed(source, target)
    assert read_trace(target).kernels.start_ns.tolist() == [1_661_203_462_598_738_123]


def test_the_source_is_never_overwritten(tmp_path: Path) -> None:
    source = private_trace().write(tmp_path)
    before = source.read_bytes()
    with pytest.raises(InputError, match="is the trace itself"):
        write_scrubbed(source, source)
    assert source.read_bytes() == before


@pytest.mark.parametrize("name", ["copy.json", "copy.json.gz"])
@pytest.mark.parametrize("write", [write_scrubbed, lambda s, t: write_with_tracks(s, t, [])])
def test_a_link_and_a_pipe_stay_what_they_are(
    tmp_path: Path, name: str, write: Callable[[Path, Path], None]
) -> None:
    source, plain = private_trace().write(tmp_path), tmp_path / f"plain.{name}"
    write(source, plain)
    link, pipe, real = tmp_path / f"link.{name}", tmp_path / f"pipe.{name}", tmp_path / f"to.{name}"
    link.symlink_to(real)
    write(source, link)
    assert link.is_symlink() and read_json(real) == read_json(plain)
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(source, pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join(10)
    assert received == [plain.read_bytes()]


def test_a_failure_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    source = private_trace().write(tmp_path)
    source.write_bytes(source.read_bytes()[:-40])
    with pytest.raises(InputError):
        write_scrubbed(source, tmp_path / "clean.json")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_a_target_that_cannot_be_written(tmp_path: Path) -> None:
    source = private_trace().write(tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        write_scrubbed(source, tmp_path / "none" / "clean.json")
