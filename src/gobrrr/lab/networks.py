"""The networks that several experiments run. torch is imported when one is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gobrrr.lab.setting import Setting


def encoder_layer(width: int, heads: int, inner: int) -> Any:
    """One layer of BERT's encoder, post-norm, attention in single operators.

    The operators are those that Ivanov et al. count (arXiv 2007.00072, figure 2): projections,
    scaled softmax of the scores, bias, GELU, residuals and layer normalisations. Input and output:
    (batch, tokens, width).
    """
    import torch
    from torch import nn
    from torch.nn import functional

    class EncoderLayer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(width, 3 * width)
            self.out = nn.Linear(width, width)
            self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

        def forward(self, x: Any) -> Any:
            batch, tokens, _ = x.shape
            shape = (batch, tokens, 3, heads, width // heads)
            q, k, v = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4)
            scores = torch.matmul(q, k.transpose(-1, -2)) * (width // heads) ** -0.5
            mixed = torch.matmul(torch.softmax(scores, dim=-1), v)
            mixed = mixed.transpose(1, 2).reshape(batch, tokens, width)
            x = self.norm_1(x + self.out(mixed))
            return self.norm_2(x + self.down(functional.gelu(self.up(x))))

    return EncoderLayer()


def perceptron(width: int, layers: int) -> Any:
    """``layers`` square linear layers of ``width`` with relu between them."""
    from torch import nn

    parts: list[Any] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts)


def build(setting: Setting, make: Callable[[], Any]) -> Any:
    """The module on the setting's device, its weights from the setting's seed.

    The global generator is put back as it was.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(setting.seed)
        module = make()
    return module.to(setting.device)


def training_step(module: Any, x: Any) -> Callable[[], None]:
    """Forward and backward; gradients of the weights are set anew each time."""

    def step() -> None:
        module.zero_grad(set_to_none=True)
        module(x).sum().backward()

    return step
