"""The same contractions as ``torch.utils.flop_counter`` counts, one operator at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.torch


def counts(step: Callable[[], Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Matrix FLOPs by operator: ours, theirs."""
    from torch.utils.flop_counter import FlopCounterMode

    from gobrrr.observe.op_recorder import OpRecorder
    from gobrrr.work import work_of

    with FlopCounterMode(display=False) as theirs:
        step()
    recorder = OpRecorder()
    with recorder:
        step()
    ours: dict[str, float] = {}
    for op in recorder.stop():
        work = work_of(op.call)
        assert work is not None, op.call.name
        if work.matrix_flops:
            ours[op.call.name] = ours.get(op.call.name, 0) + work.matrix_flops
    total = {
        f"aten::{str(op).removeprefix('aten.')}": float(flops)
        for op, flops in theirs.get_flop_counts().get("Global", {}).items()
        if flops
    }
    return ours, total


def matrix_products() -> None:
    import torch

    a, b, c = torch.randn(5, 7), torch.randn(7, 3), torch.randn(5, 3)
    x, y = torch.randn(4, 5, 7), torch.randn(4, 7, 3)
    torch.mm(a, b)
    torch.addmm(c, a, b)
    torch.bmm(x, y)
    torch.baddbmm(torch.randn(4, 5, 3), x, y)


def linear_training() -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.Linear(5, 2))
    model(torch.randn(3, 4, 6, requires_grad=True)).sum().backward()


def convolutions() -> None:
    import torch
    from torch.nn import functional

    x = torch.randn(2, 4, 9, 9, requires_grad=True)
    functional.conv2d(x, torch.randn(6, 4, 3, 3, requires_grad=True), stride=2).sum().backward()
    functional.conv2d(x, torch.randn(4, 1, 3, 3), padding=1, groups=4)
    functional.conv2d(x, torch.randn(6, 4, 3, 3), dilation=2)
    w = torch.randn(4, 6, 3, 3, requires_grad=True)
    functional.conv_transpose2d(x, w, stride=2).sum().backward()
    functional.conv1d(torch.randn(2, 3, 12), torch.randn(5, 3, 4))
    functional.conv3d(torch.randn(1, 2, 5, 6, 7), torch.randn(3, 2, 2, 3, 2))


@pytest.mark.parametrize("step", [matrix_products, linear_training, convolutions])
def test_the_same_flops(step: Callable[[], None]) -> None:
    ours, theirs = counts(step)
    assert theirs
    assert ours == theirs


def test_cpu_attention_which_it_counts_as_zero_in_some_versions() -> None:
    import torch
    from torch.nn import functional

    q = torch.randn(2, 4, 16, 8, requires_grad=True)
    k = torch.randn(2, 4, 12, 8, requires_grad=True)

    ours, _ = counts(lambda: functional.scaled_dot_product_attention(q, k, k).sum().backward())
    # forward 4 B H T S D, backward 10 B H T S D
    pairs = 2 * 4 * 16 * 12
    assert ours == {
        "aten::_scaled_dot_product_flash_attention_for_cpu": 4 * pairs * 8,
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward": 10 * pairs * 8,
    }


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("_scaled_dot_product_flash_attention", (0.0, False, False)),
        ("_scaled_dot_product_efficient_attention", (None, True, 0.0, False)),
        ("_scaled_dot_product_cudnn_attention", (None, True, 0.0, False, False)),
    ],
)
def test_device_attention_by_the_registered_formula(name: str, extra: tuple[Any, ...]) -> None:
    import torch
    from torch.utils.flop_counter import flop_registry

    from .calls import tensor, work

    q, kv = (2, 4, 16, 8), (2, 2, 12, 8)
    theirs = flop_registry[getattr(torch.ops.aten, name)]
    # As many heads of keys as of queries do the same: PyTorch 2.11 counts no fewer.
    full = (2, 4, 12, 8)
    meta = [torch.empty(shape, device="meta") for shape in (q, full, full)]
    expected = theirs(*meta, *extra, out_val=(torch.empty(q, device="meta"),))
    assert work(name, tensor(*q), tensor(*kv), tensor(*kv), *extra).matrix_flops == expected


def test_an_lstm_which_it_counts_as_zero() -> None:
    import torch

    model = torch.nn.LSTM(6, 5, num_layers=2, bidirectional=True)
    x = torch.randn(7, 3, 6)
    # 21 steps; each direction has 20 rows by 6 + 5 inputs below, 10 + 5 above
    forward = 2 * 21 * 20 * 2 * (11 + 15)

    def infer() -> None:
        with torch.no_grad():
            model(x)

    ours, _ = counts(infer)
    assert sum(ours.values()) == forward
    ours, _ = counts(lambda: model(x)[0].sum().backward())
    # Gradients of the states and the weights: twice as much again.
    assert sum(ours.values()) == 3 * forward


def test_traces_without_results_get_the_same_work() -> None:
    """What a formula derives from its inputs is what the operator really returned."""
    from dataclasses import replace

    from gobrrr.observe.op_recorder import OpRecorder
    from gobrrr.work import work_of

    recorder = OpRecorder()
    with recorder:
        matrix_products()
        linear_training()
        convolutions()
    for op in recorder.stop():
        traced = work_of(replace(op.call, outputs=None, overload=""))
        if traced is not None:
            assert traced == work_of(op.call), op.call
