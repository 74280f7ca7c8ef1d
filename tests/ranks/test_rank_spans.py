"""When a rank worked on what: few stretches to draw, and every span for a trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gobrrr.ranks.rank_spans import STREAMS, spans_of_device, stretches_of_device
from gobrrr.timeline.data import (
    Device,
    HostKind,
    HostSpans,
    KernelKind,
    Kernels,
    Phase,
    Timeline,
)

F, B, NONE = Phase.FORWARD, Phase.BACKWARD, Phase.OTHER


def _timeline(*kernels: tuple[int, int, Phase], steps: tuple[tuple[int, int], ...]) -> Timeline:
    """Kernels of ops in these phases, each launched by an op of its own; a Python frame around."""
    count = len(kernels)
    start = np.array([row[0] for row in kernels], np.int64)
    none = np.full(count + 1, -1, np.int32)
    host = HostSpans(
        start_ns=np.append(0, start),
        end_ns=np.append(10_000, start + 1),
        thread=np.full(count + 1, 3, np.int32),
        kind=np.append(HostKind.PYTHON, np.full(count, HostKind.OP)).astype(np.uint8),
        name=np.append(0, np.ones(count)).astype(np.int32),
        call=none,
        module=none,
        source=none,
        phase=np.append(0, [row[2] for row in kernels]).astype(np.uint8),
        sequence=none.astype(np.int64),
    )
    unknown = np.full(count, -1, np.int64)
    return Timeline(
        names=("train.py(3): step", "aten::mm"),
        calls=(),
        host=host,
        kernels=Kernels(
            start_ns=start,
            end_ns=np.array([row[1] for row in kernels], np.int64),
            stream=np.full(count, 7, np.int32),
            kind=np.full(count, KernelKind.KERNEL, np.uint8),
            name=np.ones(count, np.int32),
            op=np.arange(1, count + 1),
            launch=unknown,
            bytes_moved=unknown,
            collective=unknown,
            twin=unknown,
        ),
        steps=np.array(steps, np.int64),
        step_names=tuple(f"step {i + 1}" for i in range(len(steps))),
        device=Device("", "cuda"),
        step_thread=3,
        base_ns=50_000,
    )


def test_kernels_of_a_phase_are_one_stretch_up_to_a_rest_that_is_seen() -> None:
    # Of a step of 10 us a rest is seen from 200 ns on: from 100 to 250 is none, 1000 to 4000 is.
    timeline = _timeline(
        (0, 100, F), (250, 1000, F), (4000, 5000, F), (5000, 9000, B), (9000, 9005, F),
        steps=((0, 10_000),),
    )  # fmt: skip
    # The last forward kernel is shorter than a thousandth of the step.
    assert stretches_of_device(timeline) == [
        ("forward", 50_000, 51_000), ("forward", 54_000, 55_000), ("backward", 55_000, 59_000),
    ]  # fmt: skip


def test_what_is_of_no_phase_does_not_cut_the_phase_around_it() -> None:
    timeline = _timeline((0, 1000, F), (1000, 1100, NONE), (1100, 2000, F), steps=((0, 10_000),))
    assert stretches_of_device(timeline) == [
        ("forward", 50_000, 52_000), ("other", 51_000, 51_100),
    ]  # fmt: skip


def test_stretches_end_with_their_step() -> None:
    timeline = _timeline((0, 1500, F), (1500, 1900, F), steps=((0, 1000), (1000, 2000)))
    assert stretches_of_device(timeline) == [
        ("forward", 50_000, 51_000), ("forward", 51_500, 51_900),
    ]  # fmt: skip


def test_collectives_are_no_work_and_kernels_without_an_op_are_of_no_phase() -> None:
    timeline = _timeline((0, 400, F), (400, 800, F), steps=((0, 1000),))
    kernels = replace(
        timeline.kernels,
        kind=np.array([KernelKind.KERNEL, KernelKind.COLLECTIVE], np.uint8),
        op=np.array([-1, 2]),
    )
    assert stretches_of_device(replace(timeline, kernels=kernels)) == [("other", 50_000, 50_400)]


def test_spans_for_a_trace_are_of_the_host_without_python_and_of_the_streams() -> None:
    timeline = _timeline((0, 400, F), (400, 800, F), steps=((0, 1000),))
    kernels = replace(
        timeline.kernels, kind=np.array([KernelKind.KERNEL, KernelKind.COLLECTIVE], np.uint8)
    )
    assert spans_of_device(replace(timeline, kernels=kernels)) == [
        ("aten::mm", 50_000, 50_001, 0),
        ("aten::mm", 50_400, 50_401, 0),
        ("aten::mm", 50_000, 50_400, STREAMS + 7),
    ]
