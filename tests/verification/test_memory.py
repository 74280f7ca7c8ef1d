"""The memory limit of this process, and the memory that a step takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gobrrr.fixes.compilation.memory_budget import BUDGETS, MEMORY_BUDGET_FIXES
from gobrrr.fixes.fix import MEMORY, Fix, RuledOut
from gobrrr.measure.summary import Interval
from gobrrr.pipeline.diagnosed_with import diagnose_with
from gobrrr.search.workload_bench import WorkloadBench
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.workload import Workload
from gobrrr.verification.memory import memory_limited, step_peak_bytes
from gobrrr.verification.timing import Null

pytestmark = pytest.mark.torch
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
MB = 1_000_000
NULL = Null(Interval(1.0, 0.99, 1.01), True, 1e-3)


def fix(apply: Callable[[Workload], Iterator[Workload]]) -> Fix:
    return Fix(
        name=apply.__name__, title="", leaves=(), may_change=(),
        consider=lambda facts: RuledOut("a test"), apply=contextmanager(apply),
    )  # fmt: skip


def hoard(work: Workload) -> Iterator[Workload]:
    import torch

    kept = torch.empty(16 << 30, dtype=torch.uint8)
    yield work
    del kept


def nothing(work: Workload) -> Iterator[Workload]:
    yield work


@on_linux
def test_a_trial_over_the_limit_has_failed_and_the_process_lives() -> None:
    import resource

    import torch

    before = resource.getrlimit(resource.RLIMIT_DATA)
    work = Workload(torch.nn.Linear(4, 4), torch.ones(2, 4))
    bench = WorkloadBench(work, diagnose_with, 1e-3, memory_limit=8 << 30)
    trial = bench.verify([fix(hoard)], NULL, None, 0.2, 60.0)
    assert trial.verdict == "failed" and "ran out of memory" in trial.reason
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    # Within the limit all is as without one.
    assert bench.verify([fix(nothing)], NULL, None, 0.2, 60.0).verdict != "failed"
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@on_linux
def test_an_allocation_beyond_the_limit_fails_only_within_it() -> None:
    with memory_limited(64 * MB):
        assert len(bytearray(32 * MB)) == 32 * MB
        with pytest.raises(MemoryError):
            bytearray(128 * MB)
    assert len(bytearray(128 * MB)) == 128 * MB


def test_a_limit_that_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InputError, match="Linux only"), memory_limited(1 << 30):
        pass
    with memory_limited(None):
        pass


def peak_of(step: Callable[[], Any]) -> int:
    step()
    found = step_peak_bytes(step)
    assert found is not None
    return found


def test_the_peak_of_a_step_is_what_is_alive_at_once() -> None:
    import torch

    x = torch.ones(MB)

    def chain() -> Any:
        y = x * 2.0  # 4 MB
        y = y + 1.0  # 8 MB until the first is dropped
        return y * y  # again two at once

    # 2 * 4 MB, though three tensors of 4 MB are made; the numbers 2.0 and 1.0 are tensors too.
    assert peak_of(chain) == pytest.approx(8 * MB, abs=64)
    assert peak_of(lambda: x.add_(1.0)) < 64


def test_what_is_kept_for_the_backward_pass_counts() -> None:
    import torch

    x = torch.ones(MB, requires_grad=True)

    def steps_of(depth: int) -> Callable[[], Any]:
        def step() -> None:
            x.grad = None
            y = x
            for _ in range(depth):
                # exp keeps its result.
                y = y.exp()
            y.sum().backward()

        return step

    # 3 more results of 4 MB are alive when the backward pass begins.
    more = peak_of(steps_of(6)) - peak_of(steps_of(3))
    assert more == pytest.approx(12 * MB, abs=64)


def test_a_trial_of_what_may_change_memory_measures_it() -> None:
    import torch

    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4)))
    work = Workload(
        model, torch.ones(1000, 256), lambda y: y.square().mean(),
        torch.optim.SGD(model.parameters(), lr=0.1),
    )  # fmt: skip

    bench = WorkloadBench(work, diagnose_with, 1e-3)
    blind = bench.verify([fix(nothing)], NULL, None, 0.2, 60.0)
    assert blind.step_memory_bytes is None
    same = bench.verify([replace(fix(nothing), may_change=(MEMORY,))], NULL, None, 0.2, 60.0)
    assert same.step_memory_bytes == same.step_memory_before_bytes
    # Kept for the backward pass: 4 inputs of 1 MB, but that of the first, which is there.
    assert same.step_memory_bytes is not None and same.step_memory_bytes > 3 * 1.024 * MB


def test_the_memory_budget_holds_while_it_is_applied() -> None:
    import torch
    from torch._functorch import config

    from gobrrr.fixes.programs import as_program

    class Reads(torch.nn.Linear):
        def __init__(self, seen: list[float]) -> None:
            super().__init__(4, 4)
            self.seen = seen

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.append(config.activation_memory_budget)
            return super().forward(x)

    usual = config.activation_memory_budget
    work = Workload(
        torch.nn.Linear(4, 4), torch.ones(2, 4), lambda y: y.sum(),
        torch.optim.SGD(torch.nn.Linear(4, 4).parameters(), lr=0.1),
    )  # fmt: skip
    for budget, change in zip(BUDGETS, MEMORY_BUDGET_FIXES):
        assert change.apply is not None and change.in_script is not None
        with change.apply(work) as changed:
            assert config.activation_memory_budget == usual
            seen: list[float] = []
            # What is compiled reads it where the model is first called, in a step or before one.
            model = replace(as_program(changed), model=Reads(seen))
            model.forward()
            model.step()
            assert seen == [budget, budget]
        with change.in_script():
            assert config.activation_memory_budget == budget
        assert config.activation_memory_budget == usual


def test_measuring_leaves_no_variable_behind() -> None:
    before = dict(os.environ)
    assert step_peak_bytes(lambda: bytearray(8)) is None
    assert dict(os.environ) == before
