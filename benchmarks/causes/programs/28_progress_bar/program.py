"""A tiny network with a progress bar that is redrawn, with its metrics, at each step."""

import sys

import torch
from torch import nn

STEPS, EVERY = 10_000, 1


class ProgressBar:
    def __init__(self, total, width=240):
        self.total, self.width, self.done, self.metrics = total, width, 0, {}

    def update(self, **metrics):
        self.done += 1
        self.metrics.update(metrics)
        if self.done % EVERY == 0:
            self.draw()

    def draw(self):
        cells = []
        for cell in range(self.width):
            cells.append("█" if cell < self.width * self.done / self.total else "░")
        shown = {name: f"{float(value):.4f}" for name, value in sorted(self.metrics.items())}
        for name, value in shown.items():
            cells.append(f" {name}={value}".ljust(14))
        sys.stderr.write("\r" + "".join(cells) + f" {self.done}/{self.total}")
        sys.stderr.flush()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bar = ProgressBar(STEPS)
    for step in range(STEPS):
        values = torch.randn(32, 8)
        error = model(values).squeeze(1) - values[:, 0]
        loss = error.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bar.update(loss=loss.detach(), mae=error.abs().mean().detach(), step=step)
    print(loss.item())


main()
