"""New programs without a flaw: one library call at its best, or what has been mended already."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from gobrrr import Workload


def spectrum() -> Callable[[], Tensor]:
    torch.manual_seed(0)
    x = torch.randn(12, 384, 384)

    @torch.inference_mode()
    def step() -> Tensor:
        return torch.fft.rfft2(x)

    return step


def eigenvalues() -> Callable[[], Tensor]:
    torch.manual_seed(0)
    x = torch.randn(150, 150)
    x = x + x.T

    @torch.inference_mode()
    def step() -> Tensor:
        return torch.linalg.eigvalsh(x)

    return step


def sorted_keys() -> Callable[[], Tensor]:
    torch.manual_seed(0)
    keys = torch.randn(300_000)

    @torch.inference_mode()
    def step() -> Tensor:
        values, places = torch.sort(keys)
        return torch.stack([values, places.to(values.dtype)])

    return step


def fused_recurrence() -> Workload:
    torch.manual_seed(0)
    model = nn.LSTM(64, 128, batch_first=True).eval()
    return Workload(model, torch.randn(8, 50, 64))


def one_convolution() -> Workload:
    torch.manual_seed(0)
    model = nn.Conv2d(48, 80, 3, padding=1).to(memory_format=torch.channels_last)
    x = torch.randn(6, 48, 64, 64).to(memory_format=torch.channels_last)
    return Workload(model.eval(), x)


def compiled_training() -> Workload:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(640, 640), nn.ReLU(), nn.Linear(640, 640))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, fused=True)
    return Workload(
        torch.compile(model), torch.randn(640, 640), loss=functional.mse_loss,
        optimizer=optimizer, targets=torch.randn(640, 640),
    )  # fmt: skip
