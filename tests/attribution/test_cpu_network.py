"""Collectives of a CPU program: who slept for which, and what is left of Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gobrrr.attribution.attributed import recorded_step_times
from gobrrr.attribution.cpu.attribute import attribute_cpu
from gobrrr.attribution.cpu.attributed import attributed_lane
from gobrrr.attribution.cpu.network import exposure_of, slept_for
from gobrrr.attribution.recorded_work import works_of
from gobrrr.diagnosis.assemble import COMMUNICATION, assemble
from gobrrr.live.profiles.collective_waits import BACKWARD_RANGE, WAIT_RANGE
from gobrrr.live.profiles.cpu_timeline import CpuCapture, build_cpu_capture
from gobrrr.live.profiles.profile import RawEvents
from gobrrr.ranks.rank_record import record_of_lane
from gobrrr.ranks.rank_spans import spans_of_lane
from gobrrr.timeline.data import Device, Phase
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec

Event = tuple[str, int, int, int]
GROUPS = {"world": (0, 1), "pair": (0, 1)}
US = 1000


def _step(length: int, *events: Event) -> RawEvents:
    """Events as (name, start, end, thread) in microseconds, sorted by start."""
    names = tuple(dict.fromkeys(event[0] for event in events))
    return RawEvents(
        names=names,
        start_ns=np.array([event[1] * US for event in events], np.int64),
        end_ns=np.array([event[2] * US for event in events], np.int64),
        name=np.array([names.index(event[0]) for event in events], np.int32),
        thread=np.array([event[3] for event in events], np.int32),
        annotation=np.array([event[0].startswith("gloo") for event in events], bool),
        length_ns=length * US,
    )


def _sum(elements: int, group: str, module: str) -> StepOp:
    tensors = (TensorSpec((elements,), "float32"),)
    call = OpCall("c10d::allreduce_", (tensors, group, None, None, True, -1), tensors)
    return StepOp(call, module, "train.py:9", Phase.BACKWARD, 1)


def _waited(capture: CpuCapture) -> dict[str, float]:
    result = attribute_cpu(capture, works_of(capture.recorded), None)
    leaves = result.attribution.leaves_ns
    return {name: ns / US for name, ns in leaves.items() if ns > 0}


def test_what_a_call_waits_for_is_the_network_and_not_python() -> None:
    # 10 of Python, 5 of dispatch, 60 in the wait, 25 of Python.
    step = _step(
        100,
        ("c10d::allreduce_", 10, 15, 0),
        ("gloo:all_reduce", 16, 74, 3),
        (WAIT_RANGE, 15, 75, 0),
    )
    capture = build_cpu_capture([step], [_sum(250, "world", "a")], Device("", "cpu"), GROUPS)
    assert _waited(capture) == {
        "memory.network": 60.0, "overhead.python": 35.0, "overhead.dispatch": 5.0,
    }  # fmt: skip
    (found,) = capture.timeline.collectives
    assert (found.name, found.bytes_in, found.dtype) == ("all_reduce", 1000, "float32")
    assert (found.group, found.group_size) == ("world", 2)
    # It starts when this rank asks for it, not when a thread of the backend comes to it.
    assert capture.timeline.kernels.start_ns.tolist() == [10 * US]


def test_a_backward_sleeps_at_its_end_for_the_buckets_that_are_still_on_their_way() -> None:
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    step = _step(
        200,
        (BACKWARD_RANGE, 10, 150, 0),
        (node, 20, 40, 0),
        ("c10d::allreduce_", 30, 32, 0),
        ("gloo:all_reduce", 33, 100, 3),
        # Nothing covers 40 to 50, but it is not the end of the backward: a hook's Python.
        (node, 50, 70, 0),
        ("c10d::allreduce_", 60, 62, 0),
        ("gloo:all_reduce", 63, 130, 4),
        # 70 to 130 is slept for the two; 130 to 150 is no wait: nothing is on its way.
        ("reducer::copy", 135, 140, 0),
    )
    recorded = [_sum(1000, "world", "late"), _sum(10, "pair", "early")]
    capture = build_cpu_capture([step], recorded, Device("", "cpu"), GROUPS)
    leaves = _waited(capture)
    assert leaves["memory.network"] == 60.0
    # 0 to 20, 40 to 50, 130 to 135, 140 to 200.
    assert leaves["overhead.python"] == 20 + 10 + 5 + 60
    result = attribute_cpu(capture, works_of(recorded), None)
    # The first asked for is waited for first: 70 to 100; then the other, 100 to 130.
    exposed = exposure_of(capture, result, slept_for(capture, result))
    assert exposed.owned_ns.tolist() == [30 * US, 30 * US]
    assert exposed.duration_ns.tolist() == [70 * US, 70 * US]


def test_a_sum_that_the_program_runs_beside_costs_nothing() -> None:
    step = _step(
        100,
        ("c10d::allreduce_", 10, 12, 0),
        ("gloo:all_reduce", 13, 60, 3),
        (WAIT_RANGE, 70, 71, 0),
    )
    capture = build_cpu_capture([step], [_sum(250, "world", "a")], Device("", "cpu"), GROUPS)
    assert _waited(capture)["memory.network"] == 1.0
    result = attribute_cpu(capture, works_of(capture.recorded), None)
    assert exposure_of(capture, result, slept_for(capture, result)).owned_ns.tolist() == [0.0]


def test_the_diagnosis_names_the_collectives_and_keeps_waiting_out_of_the_ops() -> None:
    events: list[Event] = [
        ("c10d::allreduce_", 10, 15, 0),
        ("gloo:all_reduce", 16, 74, 3),
        (WAIT_RANGE, 15, 75, 0),
        ("aten::view", 76, 80, 0),
    ]
    recorded = [
        _sum(250, "world", "a"),
        StepOp(OpCall("aten::view", (TensorSpec((4,), "float32"),)), "b", "", Phase.FORWARD, 1),
    ]
    capture = build_cpu_capture([_step(100, *events)] * 2, recorded, Device("", "cpu"), GROUPS)
    works = works_of(recorded)
    result = attribute_cpu(capture, works, None)
    step = attributed_lane(
        capture, works, result, None, recorded_step_times(capture.timeline), idle=()
    )
    diagnosis = assemble(step, source={}, environment={})
    (row,) = diagnosis.collectives
    assert (row.name, row.bytes, row.group_size, row.calls) == ("all_reduce", 1000, 2, 1.0)
    # 15 to 74 of the 60 in which the thread waited.
    assert row.exposed_s == pytest.approx(59e-6)
    assert row.overlapped_s == pytest.approx(5e-6)  # 10 to 15
    by_module = {group.name: group for group in diagnosis.modules}
    assert by_module[COMMUNICATION].memory_s == pytest.approx(60e-6)
    assert by_module["b"].time_s == pytest.approx((80 - 75) * 1e-6)
    assert sum(group.time_s for group in diagnosis.modules) == pytest.approx(100e-6)


def test_what_a_rank_tells_of_its_steps_is_on_the_clock_of_its_host() -> None:
    step = replace(
        _step(
            100,
            ("c10d::allreduce_", 10, 15, 0),
            ("gloo:all_reduce", 16, 74, 3),
            (WAIT_RANGE, 15, 75, 0),
        ),
        begin_ns=5_000_000,
        queued_ns=10 * US,
    )
    capture = build_cpu_capture([step], [_sum(250, "world", "a")], Device("", "cpu"), GROUPS)
    result = attribute_cpu(capture, works_of(capture.recorded), None)
    record = record_of_lane(capture, result, 1, "host")
    assert record.steps == [(5_000_000, 5_100_000)]
    (call,) = record.calls
    assert (call.start_ns, call.end_ns) == (5_010_000, 5_074_000)
    assert (call.phase, call.module) == ("backward", "a")
    assert call.waits == [(5_015_000, 5_074_000)]
    # 100 but for 60 in the wait, and for 10 in which something else had the processor.
    assert record.own_ns == [30 * US]
    assert record.parts["overhead.python"] == [35 * US]
    assert record.parts["kernels|backward"] == [0.0]
    assert record.collectives[0] == ("all_reduce", 1000, "float32", 2, "world")
    assert spans_of_lane(capture)[0] == ("c10d::allreduce_", 5_010_000, 5_015_000, 0)
