"""Ten programs of ``torch.nn``'s own modules, ten with a forward of their own, three of scripts.

``OWN_MODULES``: the model's forward is torch's (``nn.Sequential``, ``nn.Linear``,
``nn.TransformerEncoderLayer``, ...). ``OWN_FORWARDS``: the author wrote it. ``IN_SCRIPTS``: what a
script without an optimizer calls, so that the fix has to come upon it from outside, and its calls
have to be seen as steps. Every function gives ``(model, inputs, training)``, built anew from seed
0.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

Made = tuple[nn.Module, Tensor, bool]


def _chain(width: int, depth: int, activation: type[nn.Module]) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(width, width), activation()) for _ in range(depth))
    )


def sequential_small() -> Made:
    return _chain(24, 18, nn.ReLU).eval(), torch.randn(4, 24), False


def sequential_training() -> Made:
    return _chain(48, 10, nn.Tanh), torch.randn(64, 48), True


def linear_alone() -> Made:
    return nn.Linear(96, 80).eval(), torch.randn(20, 96), False


def activations() -> Made:
    parts = (nn.Sigmoid(), nn.Hardtanh(-0.5, 0.9), nn.SiLU(), nn.Softplus(), nn.ELU(), nn.Tanh())
    return nn.Sequential(*parts).eval(), torch.randn(700, 512), False


def convolutions() -> Made:
    blocks: list[nn.Module] = []
    for _ in range(5):
        blocks += [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.SiLU()]
    return nn.Sequential(*blocks).eval(), torch.randn(2, 16, 28, 28), False


def encoder_layer() -> Made:
    layer = nn.TransformerEncoderLayer(64, 4, 160, dropout=0.0, batch_first=True)
    return layer, torch.randn(3, 40, 64), True


def encoder() -> Made:
    layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3), torch.randn(2, 24, 48), True


def norms() -> Made:
    parts = [part for _ in range(6) for part in (nn.LayerNorm(320), nn.GELU())]
    return nn.Sequential(*parts).eval(), torch.randn(500, 320), False


def bags() -> Made:
    model = nn.Sequential(nn.Embedding(800, 32), nn.Flatten(), nn.Linear(32 * 12, 40), nn.ReLU())
    return model.eval(), torch.randint(800, (16, 12)), False


def groups() -> Made:
    parts = [part for _ in range(4) for part in (nn.GroupNorm(4, 24), nn.Mish())]
    return nn.Sequential(*parts).eval(), torch.randn(8, 24, 20, 20), False


class _Gated(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.up:
            value, gate = layer(self.norm(x)).chunk(2, dim=-1)
            x = x + value * torch.sigmoid(gate)
        return x


class _Pointwise(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.sin(x) * 0.3 + x.clamp(-2, 2)
        return (y * y + 0.1).rsqrt() * torch.tanh(y) + x


class _Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(30, 20)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(len(x), 20)
        for t in range(6):
            h = torch.tanh(self.mix(torch.cat([x[:, t], h], dim=-1)))
        return h


class _RmsNorms(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(width)) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            x = x + scale * x * (x.square().mean(dim=-1, keepdim=True) + 1e-6).rsqrt()
        return x


class _Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return functional.softmax(q @ k.transpose(-2, -1) / 7.0, dim=-1) @ v


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(x + self.second(functional.relu(self.first(x))))


class _Statistics(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=0)
        scaled = centred / (centred.square().mean(dim=0) + 1e-5).sqrt()
        return torch.stack([scaled.amax(dim=1), scaled.amin(dim=1), scaled.abs().mean(dim=1)])


class _Distances(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        gaps = x[:, None, :] - x[None, :, :]
        return torch.exp(-gaps.square().sum(dim=-1) / 3.0)


def gated() -> Made:
    return _Gated(40, 8).eval(), torch.randn(12, 40), False


def gated_training() -> Made:
    return _Gated(56, 5), torch.randn(48, 56), True


def pointwise() -> Made:
    return _Pointwise().eval(), torch.randn(600, 600), False


def cell() -> Made:
    return _Cell().eval(), torch.randn(2, 6, 10), False


def rms_norms() -> Made:
    return _RmsNorms(256).eval(), torch.randn(400, 256), False


def rms_norms_training() -> Made:
    return _RmsNorms(128), torch.randn(200, 128), True


def attention() -> Made:
    return _Attention(48).eval(), torch.randn(4, 64, 48), False


def residual() -> Made:
    return _Residual(12).eval(), torch.randn(2, 12, 32, 32), False


def statistics() -> Made:
    return _Statistics().eval(), torch.randn(300, 700), False


def distances() -> Made:
    return _Distances().eval(), torch.randn(220, 16), False


def pointwise_convolutions() -> Made:
    parts = [
        part
        for _ in range(6)
        for part in (nn.Conv2d(16, 16, 1), nn.Hardswish(), nn.BatchNorm2d(16))
    ]
    return nn.Sequential(*parts).eval(), torch.randn(8, 16, 64, 64), False


def layers_in_a_row() -> Made:
    return _chain(96, 8, nn.GELU).eval(), torch.randn(128, 96), False


def encoder_at_inference() -> Made:
    layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.1, batch_first=True)
    return nn.TransformerEncoder(layer, 2).eval(), torch.randn(4, 32, 48), False


OWN_MODULES = (sequential_small, sequential_training, linear_alone, activations, convolutions,
               encoder_layer, encoder, norms, bags, groups)  # fmt: skip
OWN_FORWARDS = (gated, gated_training, pointwise, cell, rms_norms, rms_norms_training, attention,
                residual, statistics, distances)  # fmt: skip
IN_SCRIPTS = (pointwise_convolutions, layers_in_a_row, encoder_at_inference)
