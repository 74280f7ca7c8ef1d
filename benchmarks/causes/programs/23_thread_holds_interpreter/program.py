"""Training beside a thread that keeps statistics of the past losses for a dashboard."""

import threading
import time

import torch
from torch import nn

STEPS = 1_500


class Dashboard(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.losses, self.shown = [], 0.0

    def run(self):
        while True:
            recent = self.losses[-500:]
            totals = [sum(x * 0.99**age for age, x in enumerate(recent)) for _ in range(40)]
            self.shown = max(totals)
            time.sleep(0)


def main():
    torch.manual_seed(0)
    dashboard = Dashboard()
    layers = [layer for _ in range(10) for layer in (nn.Linear(32, 32), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    dashboard.losses = [1.0] * 500
    dashboard.start()
    for step in range(STEPS):
        values = torch.randn(32, 32)
        loss = (model(values).squeeze(1) - values.mean(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dashboard.losses.append(loss.item())
        if step % 200 == 0:
            print(step, loss.item(), dashboard.shown)


main()
