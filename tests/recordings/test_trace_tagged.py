"""Events read by their category are the events read without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gobrrr.recordings import stream as trace_stream
from gobrrr.recordings.columns import TraceColumns, read_columns
from trace_writing import OURS, SHARED, WrittenTrace

TRACES = {
    path.name: path
    for folder in (OURS, SHARED)
    if folder.exists()
    for path in sorted(folder.glob("*.json.gz"))
}


def same(one: TraceColumns, other: TraceColumns) -> None:
    assert list(one.names) == list(other.names)
    assert list(one.keys) == list(other.keys)
    assert list(one.stacks) == list(other.stacks)
    assert list(one.collectives) == list(other.collectives)
    assert (one.events, one.ignored) == (other.events, other.ignored)
    for table in ("host", "device", "flows"):
        first, second = getattr(one, table), getattr(other, table)
        for column in first._dtypes:
            assert np.array_equal(first.column(column), second.column(column)), column


@pytest.mark.parametrize("flows", [False, True])
@pytest.mark.parametrize("path", TRACES.values(), ids=TRACES)
def test_recorded_traces(path: Path, flows: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small enough that a small trace has several chunks, of which the last is not read so.
    monkeypatch.setattr(trace_stream, "CHUNK_BYTES", 1 << 16)
    tagged = read_columns(path, launch_flows=flows)
    monkeypatch.setattr(trace_stream, "TRIES_BY_CATEGORY", 0)
    same(tagged, read_columns(path, launch_flows=flows))


def long_trace(**last: object) -> WrittenTrace:
    trace = WrittenTrace()
    for i in range(400):
        trace.op("aten::mm", 10 * i, 5, **{"Input Dims": [[4, 4], [4, 4]], "External id": i})
        trace.launch("gemm", 10 * i + 1, 10 * i + 4, 2, i)
        trace.add("mtia_runtime", "other", 10 * i, 1)
    trace.events[100].update(last)
    return trace


@pytest.mark.parametrize(
    "odd",
    [{}, {"cat": "a_new_category"}, {"cat": None}, {"cat": 7}, {"ts": "12.5"}, {"pid": [1]},
     {"ts": 2.0**44 + 0.25}, {"args": None}, {"args": []}, {"name": None}],
    ids=repr,
)  # fmt: skip
def test_an_odd_event_leaves_the_others_as_they_are(
    odd: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_stream, "CHUNK_BYTES", 1 << 12)
    path = long_trace(**odd).write(tmp_path)
    tagged = read_columns(path)
    assert tagged.ignored["MTIA events are not supported"] == 400
    monkeypatch.setattr(trace_stream, "TRIES_BY_CATEGORY", 0)
    same(tagged, read_columns(path))


def test_most_chunks_are_read_by_category(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_stream, "CHUNK_BYTES", 1 << 12)
    path = long_trace(cat="a_new_category").write(tmp_path)
    chunks = [chunk.tagged for chunk in trace_stream.TraceReader(path).chunks()]
    # One holds the odd event, and the end of a file is an object.
    assert chunks.count(False) == 2
    assert len(chunks) > 20
