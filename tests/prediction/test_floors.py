"""No prediction is below what its bytes take, however a program names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gobrrr

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
BANDWIDTH = 3.35e12


def _on_meta(*shape: int, dtype: Any = torch.float32, grad: bool = False) -> Any:
    return torch.empty(*shape, dtype=dtype, device="meta", requires_grad=grad)


def _ops(step: Callable[[], object]) -> dict[str, float]:
    return {op.name: op.time_s for op in gobrrr.predict(step, device="H100-SXM").ops}


def test_parts_of_a_tensor_are_each_read_by_a_compiled_kernel() -> None:
    x = _on_meta(8192, 28672, dtype=torch.bfloat16)
    steps = _on_meta(64, 1024, 1024)

    def gated() -> None:
        gate, up = x.chunk(2, -1)
        torch.nn.functional.silu(gate) * up

    def scan() -> None:
        state = torch.zeros_like(steps[0])
        for step in steps:
            state = state * 0.5 + step

    for run, size in ((gated, 3 * x.numel()), (scan, 4 * steps.numel())):
        found = gobrrr.predict(run, device="H100-SXM", compile=True)
        assert found.speed_of_light_s is not None
        assert found.speed_of_light_s > 0.99 * size / BANDWIDTH


def test_windows_that_overlap_are_read_once_by_a_compiled_kernel() -> None:
    x = _on_meta(8192, 8192)
    found = gobrrr.predict(
        lambda: x[:, 1:].cos() - x[:, :-1].sin(), device="H100-SXM", compile=True
    )
    (kernel,) = found.ops
    assert kernel.bytes == pytest.approx(8 * x.numel(), rel=0.01)


def test_memory_that_nobody_wrote_has_no_values() -> None:
    tokens, weights = (_on_meta(*n, dtype=torch.bfloat16) for n in ((4096, 1024), (8, 1024, 1024)))
    if not hasattr(torch, "_grouped_mm"):
        pytest.skip("a torch without grouped products")
    products = 2 * 4096 * 1024 * 1024 / 989e12
    for _ in range(3):
        ends = _on_meta(8, dtype=torch.int32)
        found = _ops(lambda ends=ends: torch._grouped_mm(tokens, weights, ends))
        assert sum(found.values()) > products


def test_gradients_on_meta_are_those_of_the_stand_ins() -> None:
    layer = torch.nn.Linear(1024, 1024, device="meta")
    optimizer = torch.optim.AdamW(layer.parameters())
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    assert sum(_ops(optimizer.step).values()) > 0
    clip = _ops(lambda: torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0))
    assert any("norm" in name for name in clip)


def test_a_learned_bias_of_attention_keeps_cudnn_out() -> None:
    q = _on_meta(2, 8, 1024, 64, dtype=torch.bfloat16, grad=True)
    bias = _on_meta(1, 8, 1024, 1024, dtype=torch.bfloat16, grad=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    found = _ops(lambda: attend(q, q, q, attn_mask=bias).sum().backward())
    assert "aten::_scaled_dot_product_efficient_attention_backward" in found


def test_lengths_as_lists_are_those_as_tensors() -> None:
    x, targets = _on_meta(300, 8, 100, grad=True), torch.ones(8, 50, dtype=torch.long)
    lists = ([300] * 8, [50] * 8)
    tensors = tuple(map(torch.tensor, lists))
    as_lists, as_tensors = (
        _ops(lambda given=given: torch.nn.functional.ctc_loss(x, targets, *given).backward())
        for given in (lists, tensors)
    )
    assert as_lists == as_tensors
