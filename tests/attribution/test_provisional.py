"""What counts and processor time tell of a step whose time says nothing; ns by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.attribution.test_cpu import CPU, FREE, ceilings, matmul, op, step, stream

from gobrrr.attribution.cpu.attribute import attribute_cpu
from gobrrr.attribution.cpu.provisional import provisional_of
from gobrrr.live.profiles.cpu_timeline import build_cpu_capture


def regime(kernel, between, work, ran, *, faults=0.0, threads=1):  # type: ignore[no-untyped-def]
    """Of steps with one kernel each and as much else; times of each profiled step."""
    steps = [step(k + b, ("aten::mm", 0, k)) for k, b in zip(kernel, between)]
    capture = build_cpu_capture(steps, [op("aten::mm")], CPU)
    result = attribute_cpu(
        capture, [work], ceilings(), 1000.0, fixed_ns=np.zeros(1), fault_ns=np.zeros(1), cost=FREE
    )
    found = provisional_of(result, ran, faults, threads)
    return None if found is None else found.regime


def test_most_of_the_processor_time_is_no_kernels() -> None:
    # Interrupted in one step within the kernel, in the other outside: at least 10 and 90.
    assert regime([10, 5000], [9000, 90], matmul(8), [100] * 8) == "overhead"


def test_most_of_the_processor_time_is_kernels_of_one_kind() -> None:
    kernel, between = [90, 5000], [9000, 10]
    assert regime(kernel, between, matmul(60), [100] * 8) == "compute"
    assert regime(kernel, between, stream(60), [100] * 8) == "memory"
    # 60 ns of FLOPs beside 40 ns of page faults: kernels of either kind may be as far below.
    assert regime(kernel, between, matmul(60), [100] * 8, faults=40.0) is None
    assert regime(kernel, between, matmul(20), [100] * 8, faults=80.0) == "memory"
    # 5 of 100 ns say nothing of what takes the others.
    assert regime(kernel, between, matmul(5), [100] * 8) is None


def test_a_step_of_both_is_not_told() -> None:
    assert regime([50, 50], [50, 50], matmul(40), [100] * 8) is None


def test_threads_that_spin_do_not_count_where_some_steps_do_without() -> None:
    # Most steps spin: nine times the work. One of three has none of it.
    ran = [100, 900, 900] * 4
    assert regime([50], [50], matmul(40), ran, threads=2) is None
    assert regime([90], [10], matmul(60), ran, threads=2) == "compute"


@pytest.mark.parametrize("ran", [[], [0, 0]])
def test_without_processor_time_nothing_is_told(ran: list[int]) -> None:
    assert regime([10], [90], matmul(8), ran) is None
