from __future__ import annotations

import numpy as np

from gobrrr.live.profiles.cpu_timeline import build_cpu_capture
from gobrrr.live.profiles.profile import RawEvents
from gobrrr.timeline.data import Device, Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import work_of


def _events(*names: str) -> RawEvents:
    """Operators of 10 ns, one after the other."""
    count = len(names)
    start = np.arange(count, dtype=np.int64) * 10
    return RawEvents(
        names=names,
        start_ns=start,
        end_ns=start + 10,
        name=np.arange(count, dtype=np.int32),
        thread=np.zeros(count, np.int32),
        annotation=np.zeros(count, bool),
        length_ns=count * 10,
    )


def _op(name: str, faults: int) -> StepOp:
    x, out = TensorSpec((8,), "float32", (1,), 1), TensorSpec((8,), "float32", (1,), 2)
    call = OpCall(f"aten::{name}", (x, TensorSpec((8,), "float32", (1,), 3), 1), (out,), "Tensor")
    return StepOp(call, "layer", "train.py:1 in f", Phase.BACKWARD, 1, faults)


def test_what_ran_in_place_is_counted_in_place() -> None:
    capture = build_cpu_capture(
        [_events("aten::add", "aten::add_")], [_op("add", 3), _op("add", 5)], Device("", "cpu")
    )
    assert capture.matched_fraction == 1.0
    first, second = capture.recorded
    assert (first.call.name, first.page_faults) == ("aten::add", 3)
    assert (second.call.name, second.page_faults) == ("aten::add_", 0)
    assert (second.call.overload, second.module) == ("Tensor", "layer")
    calls = [capture.timeline.calls[i] for i in capture.timeline.host.call]
    works = [work_of(call) for call in calls]
    # Two vectors of 32 bytes read, one written: into new memory, and into the first.
    assert [(w.bytes_read, w.bytes_written, w.fresh_bytes) for w in works if w] == [
        (64, 32, 32),
        (64, 32, 0),
    ]
