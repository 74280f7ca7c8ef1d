"""Programs for the simulated device. A comment ``# line: WORD`` names the line it stands on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn


def line_of(word: str, file: str = __file__) -> int:
    """The number of the line of a file (this one) that is called so."""
    lines = Path(file).read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if line.endswith(f"# line: {word}"))


class Block(nn.Module):
    """Two products with a nonlinearity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Any) -> Any:
        """x + down(relu(up(x)))."""
        hidden = self.up(x)  # line: up
        hidden = torch.relu(hidden)  # line: relu
        out = self.down(hidden)  # line: down
        return x + out  # line: residual


class Net(nn.Module):
    """Blocks one after the other."""

    def __init__(self, width: int = 16, blocks: int = 2) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))

    def forward(self, x: Any) -> Any:
        """All blocks."""
        for block in self.blocks:
            x = block(x)
        return x


class Training:
    """A training step; ``after_step`` is called at its end."""

    def __init__(
        self,
        width: int = 16,
        blocks: int = 2,
        batch: int = 4,
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        self.after_step = after_step
        torch.manual_seed(0)
        self.model = Net(width, blocks)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.x = torch.randn(batch, width)

    def __call__(self) -> Any:
        """One step."""
        self.optimizer.zero_grad()
        out = self.model(self.x)
        loss = out.square().mean()  # line: loss
        loss.backward()  # line: backward
        self.optimizer.step()  # line: optimizer
        self.after_step()
        return loss
