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

    def transformer(self) -> gobrrr.Workload:
        """A layer of a transformer, with what trains it."""
        import torch

        width, tokens = self.scaled(1024), self.scaled(1024)
        model = torch.nn.TransformerEncoderLayer(
            width, 8, 4 * width, dropout=0.0, batch_first=True
        ).to(self.device)
        x = torch.randn(8, tokens, width, device=self.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        return gobrrr.Workload(model, x, loss=lambda y: y.square().mean(), optimizer=optimizer)

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
