"""Steps whose kernels are counted by Nsight Compute: ``counted_steps.py NAME``.

One step of a program stands between ``torch.cuda.profiler.start`` and ``stop``, after some that
warm up.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Step = Callable[[], Any]


def transformer(dtype: torch.dtype) -> Callable[[str, bool], Step]:
    """Training of one layer, in one dtype."""

    def make(device: str, small: bool) -> Step:
        width, tokens = (64, 16) if small else (1024, 1024)
        model = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        model = model.to(device, dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        x = torch.randn(8, tokens, width, device=device, dtype=dtype)

        def step() -> None:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        return step

    return make


def convolutions(device: str, small: bool) -> Step:
    """Training of convolutions with normalisation, in channels-last."""
    width, size, batch = (8, 16, 2) if small else (256, 56, 64)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(3):
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 100)]
    model = nn.Sequential(*layers).to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 100, (batch,), device=device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()

    return step


def chain(device: str, small: bool) -> Step:
    """What moves bytes and computes little, on 256 MB a tensor."""
    side = 64 if small else 8192
    x = torch.randn(side, side, device=device)
    weight, row = torch.ones(side, device=device), torch.randn(side, device=device)

    def step() -> None:
        with torch.no_grad():
            y = nn.functional.gelu(x + row)
            y = torch.softmax(y * 0.5, -1)
            y = nn.functional.layer_norm(y, (side,), weight)
            y = torch.where(y > 0, y, x).transpose(0, 1).contiguous()
            torch.cat([y, x]).to(torch.bfloat16).float().sum(-1)

    return step


PROGRAMS: dict[str, Callable[[str, bool], Step]] = {
    "transformer_bfloat16": transformer(torch.bfloat16),
    "chain": chain,
    "convolutions": convolutions,
    "transformer_float32": transformer(torch.float32),
}


def main() -> None:
    from step_clock import ready

    ready()
    device, small = os.environ.get("DEVICE", "cuda"), bool(os.environ.get("SMALL"))
    step = PROGRAMS[sys.argv[1]](device, small)
    for _ in range(3):
        step()
    if device == "cpu":
        step()
        return
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    step()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main()
