"""What a step's calls are, and what steps have in common."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gobrrr.timeline.data import Device, OtherDevice
from gobrrr.timeline.names import MOSTLY_GRAPHS, share_of_graphs
from gobrrr.timeline.step_kinds import (
    PLAIN,
    PROFILED,
    RECORDED,
    WARM,
    Call,
    CallKey,
    StepWindow,
)

KEY = CallKey("Net", 0, True, True, ((4, 3), (2, 2, 2)))


def test_size_and_likeness_of_a_call() -> None:
    assert KEY.size == 12 + 8
    assert replace(KEY, shapes=()).size == 0
    other = replace(KEY, shapes=((8, 3),), module="Other", tokens=True)
    assert other != KEY and other.alike == KEY.alike
    for change in ({"instance": 1}, {"training": False}, {"gradients": False}):
        assert replace(KEY, **change).alike != KEY.alike
    # Where it was called from is no part of what it is.
    assert replace(KEY, source="train.py:3") == KEY


def test_a_window_is_as_long_and_large_as_what_is_in_it() -> None:
    small = replace(KEY, shapes=((5,),))
    window = StepWindow(100, 350, (Call(KEY, 110, 200), Call(small, 210, 300)))
    assert (window.length_ns, window.size, window.keys) == (250, 25, (KEY, small))
    attached = {phase: replace(window, phase=phase).attached
                for phase in (PLAIN, WARM, RECORDED, PROFILED)}  # fmt: skip
    assert attached == {PLAIN: False, WARM: False, RECORDED: True, PROFILED: True}


def test_the_share_of_kernels_that_graphs_ran() -> None:
    assert share_of_graphs({"kernels": 200.0, "graph_kernels": 150.0}) == 0.75
    assert share_of_graphs({"kernels": 4.0, "graph_kernels": 5.0}) == 1.0
    assert share_of_graphs({"kernels": 0.5, "graph_kernels": 0.25}) == 0.5
    assert share_of_graphs({"kernels": 4.0}) == share_of_graphs({"kernels": 0.0}) == 0.0
    assert 0.75 < MOSTLY_GRAPHS < 1.0


def test_another_device_is_as_busy_as_all_its_work() -> None:
    device = Device("NVIDIA H100", "cuda", 1)
    start, end, name = (np.array(times) for times in ((0, 5, 30), (10, 9, 31), (0, 0, 0)))
    found = OtherDevice(device, start, end, name.astype(np.int32))
    assert found.busy_ns == 10 + 4 + 1
    assert (device.label, Device("", "cuda").label) == ("NVIDIA H100 1", "device 0")
