"""Ranges of the program that are open when a profiler ends, which torch ends in freed memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gobrrr
from gobrrr.live.profiles.profile import HostProfiler, RawEvents

pytestmark = pytest.mark.torch

ACROSS = """
import torch
from gobrrr.live.profiles.profile import HostProfiler
one = torch.ones(8)
for _ in range(60):
    first = HostProfiler()
    first.start()
    outer = torch.profiler.record_function("outer")
    outer.__enter__()
    for _ in range(100):
        one + 1
    first.mark()
    first.stop()
    second = HostProfiler()
    second.start()
    outer.__exit__(None, None, None)
    for _ in range(100):
        one + 1
    second.mark()
    second.stop()
print("alive")
"""


def test_a_range_that_ends_under_the_next_profiler_kills_nobody() -> None:
    pytest.importorskip("torch")
    environment = {**os.environ, "PYTHONPATH": str(Path(gobrrr.__file__).resolve().parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", ACROSS], capture_output=True, text=True, timeout=240, env=environment
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-2000:]


def _lengths(step: RawEvents, name: str) -> list[int]:
    if name not in step.names:
        return []
    rows = step.name == step.names.index(name)
    return [int(length) for length in step.end_ns[rows] - step.start_ns[rows]]


def _steps(*open_in_first: Any) -> list[RawEvents]:
    profiler = HostProfiler()
    profiler.start()
    for each in open_in_first:
        each.__enter__()
    profiler.mark()
    profiler.mark()
    return profiler.stop()


def test_ranges_are_recorded_as_far_as_the_profiler_went() -> None:
    torch = pytest.importorskip("torch")
    enters = torch.profiler.record_function.__enter__
    before = torch.profiler.record_function("before")
    with before, torch.profiler.record_function("outer") as outer:
        steps = _steps(torch.profiler.record_function("inner"))
        assert torch.profiler.record_function.__enter__ is enters
    assert [len(_lengths(step, "inner")) for step in steps] == [1, 0]
    # It began before and was not seen.
    assert [_lengths(step, "outer") for step in steps] == [[], []]
    assert outer.record is not None


def test_what_a_program_wraps_around_ranges_meanwhile_stays() -> None:
    torch = pytest.importorskip("torch")
    kind = torch.profiler.record_function
    leaves = kind.__exit__
    seen = []

    def mine(begun: Any, *why: Any) -> Any:
        seen.append(begun.name)
        return wrapped(begun, *why)

    profiler = HostProfiler()
    profiler.start()
    wrapped = kind.__exit__
    kind.__exit__ = mine
    try:
        profiler.mark()
        profiler.stop()
        assert kind.__exit__ is mine
        with kind("after"):
            pass
    finally:
        kind.__exit__ = leaves
    assert seen == ["after"]


def test_a_program_that_puts_back_what_it_found_leaves_nothing_written_down() -> None:
    torch = pytest.importorskip("torch")
    kind = torch.profiler.record_function
    enters = kind.__enter__
    profiler = HostProfiler()
    profiler.start()
    found = kind.__enter__
    kind.__enter__ = lambda begun: found(begun)
    profiler.mark()
    profiler.stop()
    kind.__enter__ = found
    try:
        begun = kind("after")
        references = sys.getrefcount(begun)
        with begun:
            pass
        assert sys.getrefcount(begun) == references
    finally:
        kind.__enter__ = enters
