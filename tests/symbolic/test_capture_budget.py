"""A capture that takes too long ends in a sentence."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from gobrrr.symbolic.capture_budget import CaptureBudget
from gobrrr.timeline.errors import CaptureError


def test_it_stops_with_the_line() -> None:
    clock = itertools.count(0, 300)
    budget = CaptureBudget(600, lambda: float(next(clock)))
    with pytest.raises(CaptureError, match=r"10 minutes: 512 operators .*\(train.py:7"):
        for _ in range(10_000):
            budget.spend(lambda: "train.py:7 in step")


def test_time_before_the_capture_is_not_counted() -> None:
    budget = CaptureBudget(600, lambda: 1e6)
    for _ in range(10_000):
        budget.spend(lambda: "")


@pytest.mark.torch
def test_a_program_without_end_is_captured_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    from gobrrr.symbolic import graph_recorder
    from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph
    from gobrrr.symbolic.target.kernels import Abilities

    monkeypatch.setattr(graph_recorder, "CaptureBudget", lambda: CaptureBudget(0.5))
    x = torch.randn(4)

    def step() -> Any:
        while True:
            x.add_(1)

    target = CaptureTarget(None, Abilities(frozenset(), frozenset()))
    with pytest.raises(CaptureError, match=r"operators so far, and no end \(.*test_capture_budget"):
        capture_op_graph(lambda: step, target)
