from __future__ import annotations

import pytest

from gobrrr.devices import host_costs

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("step_s", "calls"), [(1e-6, 100), (4e-3, 2000), (1.0, 10_000)])
def test_a_dispatch_is_the_median_over_blocks_as_long_as_the_step(monkeypatch, step_s, calls):
    taken_s = iter([3e-2, 1e-2, 2e-2])
    monkeypatch.setattr(host_costs, "call_seconds", lambda run: next(taken_s))
    assert host_costs.dispatch_now_s(torch, step_s, blocks=3) == pytest.approx(2e-2 / calls)
