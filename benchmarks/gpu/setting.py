"""Where the parts run, and the networks that several of them share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gobrrr


@dataclass(frozen=True)
class Setting:
    """The device by PyTorch's name; ``small`` for little work; ``out`` is the folder of results."""

    device: str
    small: bool
    out: Path
    predict_as: str | None = None

    @property
    def steps(self) -> int:
        """Steps to time."""
        return 6 if self.small else 60

    def scaled(self, size: int) -> int:
        """A size, or a 32nd of it where little work is wanted."""
        return max(size // 32, 8) if self.small else size

    def transformer(self, *, trains: bool = True) -> gobrrr.Workload:
        """A layer of a transformer, with what trains it."""
        import torch

        width, tokens = self.scaled(1024), self.scaled(1024)
        model = torch.nn.TransformerEncoderLayer(
            width, 8, 4 * width, dropout=0.0, batch_first=True
        ).to(self.device)
        x = torch.randn(8, tokens, width, device=self.device)
        if not trains:
            return gobrrr.Workload(model.eval(), x)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        return gobrrr.Workload(model, x, loss=lambda y: y.square().mean(), optimizer=optimizer)

    def convolutions(self) -> gobrrr.Workload:
        """Images in NCHW through a few convolutions with normalisation."""
        import torch

        nn = torch.nn
        channels, size = self.scaled(256), self.scaled(112)
        layers: list[torch.nn.Module] = []
        for _ in range(4):
            layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)]
            layers += [nn.ReLU()]
        model = nn.Sequential(*layers).to(self.device).eval()
        return gobrrr.Workload(model, torch.randn(16, channels, size, size, device=self.device))

    def attention(self) -> gobrrr.Workload:
        """Attention written as product, softmax and product."""
        import torch

        class ByHand(torch.nn.Module):
            def forward(self, q: Any, k: Any, v: Any) -> Any:
                return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.125, -1), v)

        tokens = self.scaled(2048)
        shape = (32, tokens, 64)
        inputs = tuple(torch.randn(shape, device=self.device) for _ in range(3))
        return gobrrr.Workload(ByHand().eval(), inputs)

    def many_small_ops(self) -> gobrrr.Workload:
        """Layers so small that the host is slower than the device."""
        import torch

        layers = [torch.nn.Linear(64, 64) for _ in range(8 if self.small else 100)]
        model = torch.nn.Sequential(*layers).to(self.device).eval()
        return gobrrr.Workload(model, torch.randn(32, 64, device=self.device))

    def diagnose(self, work: Any, **options: Any) -> gobrrr.Diagnosis:
        """Gobrrr's diagnosis of a step."""
        options = {"steps": self.steps, "progress": False, "batch_test": False, **options}
        return gobrrr.diagnose(work, **options)
