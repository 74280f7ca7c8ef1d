"""Three ways to hand gobrrr a step: a callable, a module with its inputs, a workload.

gobrrr run examples/bench.py:make_step
gobrrr run examples/bench.py:make_inference
gobrrr run examples/bench.py:make_training
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import gobrrr


def make_step() -> Callable[[], Tensor]:
    """Any callable without arguments: what it does is one step."""
    weights = [torch.randn(1024, 1024) for _ in range(4)]
    x = torch.randn(256, 1024)

    def step() -> Tensor:
        y = x
        for weight in weights:
            y = torch.relu(y @ weight) * 0.05
        return y

    return step


def make_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512))


def make_inference() -> tuple[nn.Module, Tensor]:
    """A module and its inputs: a step is one forward, without autograd."""
    return make_mlp().eval(), torch.randn(256, 512)


def make_training() -> gobrrr.Workload:
    """With a loss and an optimizer a step is forward, backward and update."""
    torch.manual_seed(0)
    model = make_mlp()
    return gobrrr.Workload(
        model,
        torch.randn(256, 512),
        loss=lambda output: output.square().mean(),
        optimizer=torch.optim.AdamW(model.parameters()),
    )
