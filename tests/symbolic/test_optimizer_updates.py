"""Steps of several optimizers within one step of the program."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gobrrr.symbolic.op_graph import capture_op_graph  # noqa: E402
from gobrrr.timeline.data import Phase  # noqa: E402

from .targets import GPU  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("compiled", [False, True])
def test_steps_of_optimizers_are_told_apart(compiled: bool) -> None:
    models = [torch.nn.Linear(4, 4) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    x = torch.randn(2, 4)

    def step() -> None:
        models[1](models[0](x)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    graph = capture_op_graph(lambda: torch.compile(step) if compiled else step, GPU)
    zeroed = [op.update for op in graph.ops if op.call.name == "aten::zero_"]
    updated = [op.update for op in graph.ops if op.call.name == "aten::_foreach_addcdiv_"]
    # A weight and a bias each.
    assert (zeroed, updated) == ([1, 1, 2, 2], [1, 2])
    assert not any(op.update for op in graph.ops if op.phase is not Phase.OPTIMIZER)


def test_an_optimizer_within_another_is_no_update_of_its_own() -> None:
    class Outer(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            super().__init__(inner.param_groups, {})
            self.inner = inner

        def step(self, closure: object = None) -> None:
            self.inner.step()

    layer = torch.nn.Linear(4, 4)
    outer = Outer(torch.optim.Adam(layer.parameters()))
    x = torch.randn(2, 4)

    def step() -> None:
        outer.zero_grad()
        layer(x).sum().backward()
        outer.step()

    graph = capture_op_graph(lambda: step, GPU)
    assert {op.update for op in graph.ops if op.phase is Phase.OPTIMIZER} == {1}
