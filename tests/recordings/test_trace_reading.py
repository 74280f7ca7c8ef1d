from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from gobrrr.recordings import stream as trace_stream
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import HostKind, KernelKind
from gobrrr.timeline.ops import TensorSpec
from trace_writing import WrittenTrace


def small_trace() -> WrittenTrace:
    trace = WrittenTrace(
        deviceProperties=[
            {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85, "numSms": 132}
        ],
        distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
        baseTimeNanoseconds=1_700_000_000_000_000_000,
    )
    trace.op("aten::mm", 10, 20)
    trace.launch("gemm", 15, 40, 5, correlation=1)
    return trace


def test_a_whole_small_trace(tmp_path: Path) -> None:
    timeline = read_trace(small_trace().write(tmp_path))
    assert timeline.names[:3] == ("aten::mm", "cudaLaunchKernel", "gemm")
    assert timeline.host.start_ns.tolist() == [10_000, 15_000]
    assert timeline.host.end_ns.tolist() == [30_000, 17_000]
    assert timeline.host.kind.tolist() == [HostKind.OP, HostKind.LAUNCH]
    assert timeline.kernels.start_ns.tolist() == [40_000]
    assert timeline.kernels.end_ns.tolist() == [45_000]
    assert timeline.kernels.kind.tolist() == [KernelKind.KERNEL]
    assert timeline.kernels.launch.tolist() == [1]
    assert timeline.kernels.op.tolist() == [0]
    assert timeline.device.name == "NVIDIA H100 80GB HBM3"
    assert (timeline.device.memory_bytes, timeline.device.multiprocessors) == (85, 132)
    assert (timeline.rank, timeline.world_size) == (3, 8)
    assert timeline.base_ns == 1_700_000_000_000_000_000


@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_plain_and_gzip_read_the_same(tmp_path: Path, ending: str) -> None:
    timeline = read_trace(small_trace().write(tmp_path, f"trace.{ending}"))
    assert timeline.kernels.end_ns.tolist() == [45_000]


def test_gzip_in_several_members_and_with_padding(tmp_path: Path) -> None:
    text = small_trace().text().encode()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text[:100]) + gzip.compress(text[100:]) + b"\0" * 64)
    assert len(read_trace(path).kernels) == 1


def test_a_bare_list_of_events(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(small_trace().events))
    assert read_trace(path).kernels.start_ns.tolist() == [40_000]


def test_a_bare_list_may_lack_its_last_bracket(tmp_path: Path) -> None:
    # The trace event format makes the bracket optional, so that a crash leaves a readable file.
    path = tmp_path / "list.json"
    path.write_text(json.dumps(small_trace().events)[:-1] + ",\n")
    assert read_trace(path).kernels.start_ns.tolist() == [40_000]


def test_a_byte_order_mark_and_white_space_before_the_object(tmp_path: Path) -> None:
    path = tmp_path / "bom.json"
    path.write_bytes(b"\xef\xbb\xbf \n\t" + small_trace().text().encode())
    assert len(read_trace(path).kernels) == 1


@pytest.mark.parametrize("keys_last", [True, False])
def test_what_stands_beside_the_events_is_found_on_either_side(
    tmp_path: Path, keys_last: bool
) -> None:
    trace = small_trace()
    beside = trace.top
    parts = [{"traceEvents": trace.events}, beside] if keys_last else [beside]
    whole: dict[str, object] = {}
    for part in parts:
        whole |= part
    whole.setdefault("traceEvents", trace.events)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(whole))
    timeline = read_trace(path)
    assert (timeline.rank, timeline.device.multiprocessors) == (3, 132)


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("1661203462598738", 1_661_203_462_598_738_000),  # an integer of microseconds
        ("1428625731896.179", 1_428_625_731_896_179),  # nanosecond resolution
        ("6869181218001.421", 6_869_181_218_001_421),
        # A clock so large that a double keeps no nanoseconds: 2**50 us has a spacing of 250 ns.
        ("1661203462598738.123", 1_661_203_462_598_738_123),
        ("1661203462598738.5", 1_661_203_462_598_738_500),
        ('"1661203462598738.007"', 1_661_203_462_598_738_007),
        ("12.5e3", 12_500_000),
        ("0.0004", 0),  # below half a nanosecond
        ("-5.25", -5250),
    ],
)
def test_times_are_exact_nanoseconds(tmp_path: Path, text: str, expected_ns: int) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, '
        f'"ts": {text}, "dur": 0.035, "args": {{"stream": 7}}}}]}}'
    )
    kernels = read_trace(path).kernels
    assert kernels.start_ns.tolist() == [expected_ns]
    assert kernels.end_ns.tolist() == [expected_ns + 35]


def test_exact_times_do_not_depend_on_where_chunks_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = WrittenTrace()
    for i in range(60):
        trace.kernel("k", 1_661_203_462_598_738 + i, 1, stream=7)
    text = trace.text()
    for i in range(60):
        text = text.replace(f"{1_661_203_462_598_738 + i},", f"{1_661_203_462_598_738 + i}.25,")
    path = tmp_path / "trace.json"
    path.write_text(text)
    monkeypatch.setattr(trace_stream, "CHUNK_BYTES", 700)
    start = read_trace(path).kernels.start_ns
    assert start.tolist() == [(1_661_203_462_598_738 + i) * 1000 + 250 for i in range(60)]


@pytest.mark.parametrize("chunk_bytes", [1, 150, 1000, 5000])
def test_chunks_lose_and_repeat_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    trace = WrittenTrace()
    for i in range(40):
        # Names and arguments that look like the space between two events.
        trace.op('}, {"ph": "X"', 10 * i, 5, nested=[{"name": 1}, {"name": 2}, {"ph": "X"}])
        trace.launch("k }, {", 10 * i + 1, 10 * i + 2, 3, correlation=i)
    path = trace.write(tmp_path)
    monkeypatch.setattr(trace_stream, "CHUNK_BYTES", chunk_bytes)
    timeline = read_trace(path)
    assert timeline.events == 120
    assert timeline.kernels.start_ns.tolist() == [(10 * i + 2) * 1000 for i in range(40)]
    assert timeline.kernels.op.tolist() == [
        int(np.flatnonzero(timeline.host.start_ns == 10_000 * i)[0]) for i in range(40)
    ]


def test_categories_of_pytorch_1_9(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.add("Operator", "aten::add", 0, 10, tid="7")
    trace.add("Runtime", "cudaLaunchKernel", 2, 3, tid="7", correlation=5)
    trace.kernel("k", 8, 1, 5, cat="Kernel")
    trace.kernel("Memcpy HtoD (Pageable -> Device)", 20, 4, 6, cat="Memcpy", bytes=4096)
    trace.kernel("Memset (Device)", 30, 1, 7, cat="Memset", bytes=8)
    trace.events.append({"ph": "s", "cat": "async", "id": 5, "pid": 7, "tid": 7, "ts": 2})
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.kernels.kind.tolist() == [KernelKind.KERNEL, KernelKind.COPY, KernelKind.MEMSET]
    assert timeline.kernels.op.tolist() == [0, -1, -1]
    assert timeline.kernels.bytes_moved.tolist() == [-1, 4096, 8]


def test_an_operator_on_a_stream_is_no_device_work(tmp_path: Path) -> None:
    trace = small_trace()
    trace.op("triton_poi_fused_add_0", 60, 5, stream=7, device=0, correlation=9)
    assert len(read_trace(trace.write(tmp_path)).kernels) == 1


def test_another_vendors_events_are_left_out_with_a_notice(tmp_path: Path) -> None:
    trace = small_trace()
    trace.add("mtia_ccp_events", "x", 50, 5)
    trace.add("xpu_sync", "y", 50, 5)
    timeline = read_trace(trace.write(tmp_path))
    assert len(timeline.host) == 2
    assert any("MTIA" in notice for notice in timeline.notices)
    assert any("XPU" in notice for notice in timeline.notices)


def test_events_in_any_order_read_the_same(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for i in range(20):
        trace.op("aten::add", 100 * i, 50)
        trace.launch("k", 100 * i + 10, 100 * i + 60, 20, correlation=i)
    straight = read_trace(trace.write(tmp_path, "a.json"))
    trace.events.reverse()
    turned = read_trace(trace.write(tmp_path, "b.json"))
    assert straight.kernels.start_ns.tolist() == turned.kernels.start_ns.tolist()
    assert straight.kernels.op.tolist() == turned.kernels.op.tolist()
    assert straight.host.start_ns.tolist() == turned.host.start_ns.tolist()


def test_senseless_times_are_left_out_and_said(tmp_path: Path) -> None:
    trace = small_trace()
    trace.kernel("negative", 50, -3)
    trace.kernel("endless", 50, 10**30)
    trace.kernel("never", None, 5)
    trace.kernel("far", -(2**70), 5)
    timeline = read_trace(trace.write(tmp_path))
    assert len(timeline.kernels) == 1
    assert timeline.notices[0].startswith("4 events were left out: their time is missing")


def test_text_that_is_not_utf8_and_numbers_that_are_not_json(tmp_path: Path) -> None:
    text = small_trace().text().encode()
    text = text.replace(b'"gemm"', b'"ge\xff\xfemm\x01"').replace(b'"stream": 7', b'"stream": NaN')
    path = tmp_path / "trace.json"
    path.write_bytes(text)
    timeline = read_trace(path)
    assert timeline.kernels.start_ns.tolist() == [40_000]
    assert "ge\ufffd\ufffdmm\x01" in timeline.names


def test_fields_of_the_wrong_type_count_as_absent(tmp_path: Path) -> None:
    trace = small_trace()
    trace.kernel("odd", 50, 5, stream={"a": 1}, correlation=[1], bytes="many")
    trace.events[-1]["tid"] = ["x"]
    trace.events.append({"ph": 3, "cat": None, "args": "none", "ts": {}})
    trace.events.append([1, 2])  # type: ignore[arg-type]
    assert len(read_trace(trace.write(tmp_path)).kernels) == 2


def test_shapes_dtypes_strides_and_values(tmp_path: Path) -> None:
    trace = WrittenTrace()
    recorded = {
        "Input Dims": [[2, 3], [], [], [[4], [5]], []],
        "Input type": ["c10::BFloat16", "Scalar", "ScalarList", "TensorList", ""],
        "Input Strides": [[3, 1], [], [], [[1], [1]], []],
        "Concrete Inputs": ["", "0.5", "[1, 2]", "", ""],
    }
    trace.op("aten::thing", 0, 10, **recorded)
    trace.op("aten::thing", 20, 10, **recorded)
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.host.call.tolist() == [0, 0]
    (call,) = timeline.calls
    assert call.name == "aten::thing"
    assert call.args == (
        TensorSpec((2, 3), "bfloat16", (3, 1)),
        0.5,
        (1, 2),
        (TensorSpec((4,), "", (1,)), TensorSpec((5,), "", (1,))),
        None,
    )
    assert call.outputs is None


def test_without_shapes_a_notice_says_what_to_record(tmp_path: Path) -> None:
    timeline = read_trace(small_trace().write(tmp_path))
    assert any("record_shapes=True" in notice for notice in timeline.notices)


def test_the_busiest_device_is_the_timelines(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.kernel("a", 0, 5, device=0)
    trace.kernel("b", 0, 50, device=1)
    timeline = read_trace(trace.write(tmp_path))
    assert [timeline.names[n] for n in timeline.kernels.name] == ["b"]
    assert timeline.device.index == 1
    (other,) = timeline.others
    assert (other.device.label, other.busy_ns) == ("device 0", 5000)
    assert [timeline.names[n] for n in other.name] == ["a"]
    assert timeline.notices[0] == (
        "2 devices in one trace: this is the busiest; outside its steps' time are device 0 "
        "(5.00 µs of kernels)."
    )


def test_metadata_is_never_read(tmp_path: Path) -> None:
    trace = small_trace()
    trace.top |= {"metadata": {"token": "s3cret"}, "hostname": "s3cret", "env": {"A": "s3cret"}}
    timeline = read_trace(trace.write(tmp_path))
    assert "s3cret" not in repr(timeline)


def test_a_cpu_only_trace(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("aten::mm", 10, 50, **{"Input Dims": [[2, 2], [2, 2]], "Input type": ["float"] * 2})
    timeline = read_trace(trace.write(tmp_path))
    assert timeline.device.kind == "cpu"
    assert len(timeline.kernels) == 0
    assert timeline.steps.tolist() == [[0, 100_000]]
