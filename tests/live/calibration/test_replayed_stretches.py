"""Of steps of very many ops stretches are called on one element, and one op of every name."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from gobrrr.live.calibration.fixed_cost import STRETCH, STRETCHES, calibrate_fixed_costs  # noqa: E402
from gobrrr.live.profiles.profile import ProfilerCost  # noqa: E402
from gobrrr.timeline.graph import StepOp  # noqa: E402
from gobrrr.timeline.ops import OpCall, TensorSpec  # noqa: E402

pytestmark = pytest.mark.torch


def _op(name: str, count: int) -> StepOp:
    one = TensorSpec((4,), "float32", (1,), device="cpu")
    return StepOp(OpCall(f"aten::{name}", (one,) * count, (one,)))


def test_ops_late_in_a_long_step_have_a_fixed_cost_of_their_own() -> None:
    most = STRETCHES * STRETCH
    # One name in the first half alone, one in the second alone, and one that is there once.
    ops = [_op("relu", 1)] * most + [_op("tanh", 1)] * most
    ops.insert(most + 7, _op("sigmoid", 1))
    costs = calibrate_fixed_costs(ops, np.ones(len(ops), bool), ProfilerCost(0.0, 0.0))
    assert costs.estimated == 0
    assert costs.not_replayed == {}
    assert not np.isnan(costs.time_ns).any()
