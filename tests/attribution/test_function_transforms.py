"""Derivatives by ``torch.func``: the products of a step are those that a hand counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gobrrr.attribution.recorded_work import works_of
from gobrrr.live.profiles.cpu_timeline import build_cpu_capture
from gobrrr.live.profiles.profile import HostProfiler
from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.timeline.data import Device

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

BATCH, WIDTH, HIDDEN, OUT = 8, 32, 64, 4
PRODUCTS = {"aten::mm", "aten::bmm"}


def products(rows: int) -> int:
    """FLOPs of both layers on so many rows."""
    return 2 * rows * HIDDEN * (WIDTH + OUT)


def flops_of_step(step: Callable[[], Any]) -> float:
    """FLOPs of the matrix products that a profiled step is found to run."""
    step()
    with OpRecorder() as recorder:
        step()
    profiler = HostProfiler()
    profiler.start()
    for _ in range(2):
        step()
        profiler.mark()
    capture = build_cpu_capture(profiler.stop()[1:], recorder.ops, Device("", "cpu"))
    works = works_of(capture.recorded)
    ran = set(capture.position.tolist())
    return sum(
        work.flops or 0.0
        for i, (op, work) in enumerate(zip(capture.recorded, works))
        if i in ran and op.call.name in PRODUCTS and work is not None
    )


@pytest.fixture
def function() -> Callable[[Any], Any]:
    first, second = torch.randn(HIDDEN, WIDTH), torch.randn(OUT, HIDDEN)
    return lambda value: torch.relu(value @ first.T) @ second.T


def test_gradients_of_each_sample() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, OUT)
    )
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(parameters: Any, x: Any, y: Any) -> Any:
        out = torch.func.functional_call(model, parameters, (x[None],))
        return torch.nn.functional.cross_entropy(out, y[None])

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    x, y = torch.randn(BATCH, WIDTH), torch.randint(0, OUT, (BATCH,))
    # Forward; gradients of both weights; of the hidden values.
    assert flops_of_step(lambda: each(parameters, x, y)) == 2 * products(BATCH) + (
        2 * BATCH * HIDDEN * OUT
    )


def test_the_jacobian_of_each_sample(function: Callable[[Any], Any]) -> None:
    x = torch.randn(BATCH, WIDTH)
    each = torch.func.vmap(torch.func.jacrev(function))
    assert flops_of_step(lambda: each(x)) == products(BATCH) + products(BATCH * OUT)


def test_a_product_with_the_jacobian(function: Callable[[Any], Any]) -> None:
    x = torch.randn(BATCH, WIDTH)
    # The values, their derivatives, and the products with the weights' derivatives, which are
    # zeros that PyTorch multiplies by all the same.
    assert flops_of_step(lambda: torch.func.jvp(function, (x,), (x,))) == 3 * products(BATCH)


def test_the_hessian(function: Callable[[Any], Any]) -> None:
    x = torch.randn(WIDTH)
    found = flops_of_step(lambda: torch.func.hessian(lambda v: function(v).square().sum())(x))
    # Forward and backward: the values, zeros of the weights, and one row for each input.
    assert found == 2 * (2 * products(1) + products(WIDTH))
