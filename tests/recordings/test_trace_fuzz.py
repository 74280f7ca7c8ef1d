"""Whatever the bytes, reading ends in a timeline whose time adds up, or in one clear sentence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gobrrr.attribution.device.attribute import attribute_device
from gobrrr.recordings.export import write_scrubbed
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.errors import InputError
from trace_writing import OURS

QUICK = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
TOY = gzip.decompress((OURS / "mi250_toy_training.json.gz").read_bytes())
EVENTS: list[dict[str, Any]] = json.loads(TOY)["traceEvents"]


def read_anything(path: Path) -> None:
    try:
        timeline = read_trace(path)
    except InputError as refusal:
        assert str(refusal).startswith(str(path))
        assert "\n" not in str(refusal)
        return
    copy = path.with_name("copy.json")
    write_scrubbed(path, copy, paths=True)
    if len(timeline.kernels) == 0:
        return
    again = read_trace(copy)
    assert again.kernels.start_ns.tolist() == timeline.kernels.start_ns.tolist()
    assert again.kernels.end_ns.tolist() == timeline.kernels.end_ns.tolist()
    if len(timeline.kernels):
        result = attribute_device(timeline, None, lambda call: None)
        result.attribution.check()
        figures = result.device_time
        assert (
            figures.compute_kernels_ns + figures.exposed_collectives_ns + figures.exposed_copies_ns
            == figures.busy_ns
        )


@QUICK
@given(at=st.integers(0, len(TOY) - 1), junk=st.binary(max_size=12), cut=st.integers(0, 40))
def test_bytes_replaced_anywhere(tmp_path: Path, at: int, junk: bytes, cut: int) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(TOY[:at] + junk + TOY[at + cut :])
    read_anything(path)


@QUICK
@given(at=st.integers(0, 6000), junk=st.binary(min_size=1, max_size=6))
def test_bytes_of_the_archive_replaced(tmp_path: Path, at: int, junk: bytes) -> None:
    packed = (OURS / "mi250_toy_training.json.gz").read_bytes()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed[:at] + junk + packed[at + len(junk) :])
    read_anything(path)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.none(), max_size=1),
)  # fmt: skip
KEYS = st.sampled_from(["ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id"])
ARGUMENTS = st.sampled_from(
    ["correlation", "External id", "stream", "device", "bytes", "Input Dims", "Input type",
     "Input Strides", "Concrete Inputs", "Sequence number", "Fwd thread id", "Call stack",
     "Collective name", "In msg nelems", "dtype", "Group size"]
)  # fmt: skip


@QUICK
@given(
    changes=st.lists(
        st.tuples(st.integers(0, len(EVENTS) - 1), KEYS, VALUES), min_size=1, max_size=20
    ),
    arguments=st.lists(st.tuples(st.integers(0, len(EVENTS) - 1), ARGUMENTS, VALUES), max_size=20),
)
# A device that is infinity, which no integer is.
@example(changes=[], arguments=[(i, "device", float("inf")) for i in range(len(EVENTS))])
@example(changes=[(0, "ph", None)], arguments=[(123, "device", float("inf"))])
def test_fields_replaced_by_anything(
    tmp_path: Path,
    changes: list[tuple[int, str, Any]],
    arguments: list[tuple[int, str, Any]],
) -> None:
    events = [dict(event) for event in EVENTS]
    for index, key, value in changes:
        events[index][key] = value
    for index, key, value in arguments:
        if isinstance(events[index].get("args"), dict):
            events[index]["args"] = {**events[index]["args"], key: value}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    read_anything(path)


@QUICK
@given(order=st.randoms(use_true_random=False), keep=st.integers(1, len(EVENTS)))
def test_events_shuffled_dropped_and_doubled(tmp_path: Path, order: Any, keep: int) -> None:
    events = EVENTS + order.sample(EVENTS, 40)
    order.shuffle(events)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events[:keep]))
    read_anything(path)


@QUICK
@given(
    top=st.dictionaries(
        st.sampled_from(
            ["deviceProperties", "distributedInfo", "baseTimeNanoseconds", "with_stack"]
        ),
        VALUES,
    )
)
def test_what_stands_beside_the_events_replaced(tmp_path: Path, top: dict[str, Any]) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({**top, "traceEvents": EVENTS}))
    read_anything(path)


@pytest.mark.parametrize("text", ['{"traceEvents": 5}', '{"traceEvents": {}}', "[[]]", "[5]", "[]"])
def test_lists_of_anything_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(InputError):
        read_trace(path)
