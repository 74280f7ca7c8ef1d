from __future__ import annotations

import gzip
import json
import re
import tracemalloc
from pathlib import Path

import pytest

from gobrrr.recordings import stream as trace_stream
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.errors import InputError
from trace_writing import WrittenTrace


def some_trace() -> WrittenTrace:
    trace = WrittenTrace()
    for i in range(50):
        trace.launch("k", 10 * i, 10 * i + 3, 2, correlation=i)
    return trace


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


def test_a_missing_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.json")


def test_a_directory(tmp_path: Path) -> None:
    assert "directory" in refusal(tmp_path)


def test_an_empty_file_plain_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_bytes(b"")
    assert refusal(path).endswith("is empty")
    packed = tmp_path / "empty.json.gz"
    packed.write_bytes(gzip.compress(b""))
    assert refusal(packed).endswith("is empty")


def test_no_events(tmp_path: Path) -> None:
    assert "holds no events" in refusal(WrittenTrace().write(tmp_path))


@pytest.mark.parametrize("text", [b"hello", b"\x00\x01", b"   \n ", b"<html>", b"12"])
def test_what_is_no_json(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    assert re.search(r"at byte \d+", refusal(path))


def test_an_object_without_events(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text('{"nodes": [1, 2], "schema": "1"}')
    assert "no traceEvents" in refusal(path)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_truncated_json_names_where_it_ends(tmp_path: Path, keep: float) -> None:
    text = some_trace().text()
    path = tmp_path / "trace.json"
    path.write_text(text[: int(len(text) * keep)])
    message = refusal(path)
    found = re.search(r"at byte (\d+)", message)
    assert found is not None
    # The parser may stop where the last token began.
    assert int(len(text) * keep) - 120 <= int(found[1]) <= int(len(text) * keep)


@pytest.mark.parametrize("keep", [0.2, 0.7, 0.99])
def test_truncated_gzip_names_where_it_ends(tmp_path: Path, keep: float) -> None:
    packed = gzip.compress(some_trace().text().encode())
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed[: int(len(packed) * keep)])
    assert f"at byte {int(len(packed) * keep)}" in refusal(path)


def test_damaged_gzip(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(some_trace().text().encode()))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed)
    assert "gzip" in refusal(path)


def test_damaged_json_names_the_byte(tmp_path: Path) -> None:
    text = some_trace().text()
    at = text.index('"cat": "kernel"', 3000)
    path = tmp_path / "trace.json"
    path.write_text(text[:at] + "@@@" + text[at:])
    assert f"damaged JSON at byte {at}" in refusal(path)


def test_the_byte_is_right_behind_many_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_stream, "CHUNK_BYTES", 512)
    text = some_trace().text()
    at = text.index('"cat": "kernel"', 7000)
    path = tmp_path / "trace.json"
    path.write_text(text[:at] + "@@@" + text[at:])
    assert f"damaged JSON at byte {at}" in refusal(path)


def test_a_bomb_of_white_space_is_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_stream, "EXPANSION_MATTERS_FROM_BYTES", 1 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (64 << 20)))
    assert "expands more than" in refusal(path)


def test_no_event_in_sight_is_refused_before_the_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_stream, "LONGEST_EVENT_BYTES", 1 << 16)
    monkeypatch.setattr(trace_stream, "CHUNK_BYTES", 1 << 14)
    path = tmp_path / "odd.json"
    path.write_bytes(b'{"traceEvents": [' + b"[" * (1 << 20))
    assert "no list of events" in refusal(path)


LISTS = b"[" + b"[]," * (6 << 20) + b"[]]"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (b'{"a":%b,"traceEvents":[%b]}', "that are no events"),
        (b'{"deviceProperties":%b,"traceEvents":[%b]}', "that are no events"),
        (b'{"a":NaN,"b":%b,"traceEvents":[%b]}', "that are no events"),
        (b'{"traceEvents":[%b],"a":%b}', ""),
        (b'{"traceEvents":[%b],"deviceProperties":%b}', ""),
        (b'{"traceEvents":[%b],"b":NaN,"a":%b}', "that are no events"),
        (b'{"a":%b}', "has no traceEvents"),
    ],
)
def test_what_stands_beside_the_events_takes_little_memory(
    tmp_path: Path, text: bytes, refused: str
) -> None:
    events = json.dumps(some_trace().events).encode()[1:-1]
    first = LISTS if text.index(b"%b") < text.find(b"traceEvents") else events
    parts = (first, events if first is LISTS else LISTS)[: text.count(b"%b")]
    path = tmp_path / "long.json.gz"
    path.write_bytes(gzip.compress(text % (parts if len(parts) > 1 else (LISTS,)), 1))
    tracemalloc.start()
    try:
        if refused:
            assert refused in refusal(path)
        else:
            assert len(read_trace(path).kernels) == 50
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # As Python objects the lists would take half a gigabyte.
    assert peak < 6 * len(LISTS)


def test_long_names_are_cut_and_long_arguments_left_out(tmp_path: Path) -> None:
    trace = some_trace()
    name = "f<" + "a" * (1 << 20) + ">(int)"
    trace.op(name, 900, 2, **{"Input Dims": [[1] * (1 << 20)], "Input type": ["float"]})
    trace.op("aten::mm", 910, 2, **{"Input Dims": [[4, 4], [4, 4]], "Input type": ["float"] * 2})
    timeline = read_trace(trace.write(tmp_path))
    cut, short = [timeline.names[i] for i in timeline.host.name[-2:].tolist()]
    assert len(cut) < 10_000 and cut.startswith("f<aaa") and cut.endswith("a>(int)")
    assert short == "aten::mm"
    assert any("arguments are too long" in notice for notice in timeline.notices)


@pytest.mark.parametrize("wrong", [3 * 10**7, -1, 10**30, "8", True, 1.5])
def test_a_number_of_ranks_that_no_job_has_is_left_out(tmp_path: Path, wrong: object) -> None:
    trace = some_trace()
    trace.top["distributedInfo"] = {"rank": 0, "world_size": wrong}
    timeline = read_trace(trace.write(tmp_path))
    assert (timeline.rank, timeline.world_size) == (0, None)
    assert any("world_size is no number" in notice for notice in timeline.notices)


def test_more_events_than_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_stream, "free_memory_bytes", lambda: 10_000)
    path = some_trace().write(tmp_path)
    # 10000 bytes / 600 per event = 16 events
    assert "more than 16 events" in refusal(path)


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text('{"a": ' + "[" * 200_000 + "]" * 200_000 + ', "traceEvents": []}')
    refusal(path)


def test_a_diagnosis_is_no_trace_and_is_told_from_one(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    path.write_text('{"schema_version":1,"environment":{}}')
    assert refusal(path).endswith("if gobrrr wrote it, gobrrr report shows it")
