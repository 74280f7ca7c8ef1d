"""In inference mode and without gradients a step is told as PyTorch runs it there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from gobrrr.capture.leaf_ops import leaf_op_mode, name_of  # noqa: E402

from .test_op_graph import CPU, GPU, capture  # noqa: E402

pytestmark = pytest.mark.torch

# What tells a product of matrices from one of batches, and whether a copy comes before.
PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "clone"}


def products(found: list[str]) -> list[str]:
    names = [name.removeprefix("aten::") for name in found]
    return [name for name in names if name in PRODUCTS]


def really_run(step: Callable[[], Any]) -> list[str]:
    """The operators that PyTorch's own profiler sees of real tensors."""
    with torch.profiler.profile() as profile:
        step()
    return products([event.name for event in profile.events()])


def recorded(step: Callable[[], Any]) -> list[str]:
    """The operators that a recorder sees of real tensors."""
    seen = []

    def visit(func: Any, args: Any, kwargs: Any) -> Any:
        seen.append(name_of(func))
        return func(*args, **kwargs)

    with leaf_op_mode(visit):
        step()
    return products(seen)


INPUTS = {
    "contiguous": lambda: torch.empty(4, 8, 16),
    "batch second": lambda: torch.empty(8, 4, 16).transpose(0, 1),
    "channels first": lambda: torch.empty(4, 16, 8).transpose(1, 2),
    "heads": lambda: torch.empty(2, 8, 4, 16).transpose(1, 2),
}


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("layout", list(INPUTS))
def test_a_linear_layer_is_the_products_that_pytorch_runs(
    layout: str, trains: bool, mode: Any
) -> None:
    x, weight = INPUTS[layout](), torch.empty(32, 16, requires_grad=trains)
    bias = torch.empty(32, requires_grad=trains)

    def step() -> object:
        with mode():
            return functional.linear(x, weight, bias), functional.linear(x, weight)

    expected = really_run(step)
    assert recorded(step) == expected
    for target in (GPU, CPU):
        assert products([op.call.name for op in capture(step, target).ops]) == expected


def test_views_in_inference_mode_require_what_their_bases_do() -> None:
    weight = torch.empty(8, 8, requires_grad=True)
    found = []

    def step() -> object:
        with torch.inference_mode():
            # Composites, one with views of its own; ``detach`` requires nothing.
            views = (weight.chunk(2)[0], weight.reshape(4, 16), weight.mT, weight.detach())
            found[:] = [view.requires_grad for view in views]
            return [view.sin() for view in views]

    step()
    real = list(found)
    capture(step)
    assert found == real == [True, True, True, False]
