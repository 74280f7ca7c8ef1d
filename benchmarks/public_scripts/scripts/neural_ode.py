"""A differential equation's right-hand side is learned through a Runge-Kutta solver."""

import torch
from own_clock import mark
from torch import nn


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))

    def forward(self, t, y):
        return self.net(y**3)


def odeint(func, y, times):
    found = [y]
    for t, following in zip(times[:-1], times[1:]):
        h = following - t
        k1 = func(t, y)
        k2 = func(t + h / 2, y + h / 2 * k1)
        k3 = func(t + h / 2, y + h / 2 * k2)
        k4 = func(following, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        found.append(y)
    return torch.stack(found)


class Spiral(nn.Module):
    def forward(self, t, y):
        return (y**3) @ torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


torch.manual_seed(0)
times = torch.linspace(0.0, 25.0, 500)
with torch.no_grad():
    true_y = odeint(Spiral(), torch.tensor([[2.0, 0.0]]), times)
func = ODEFunc()
optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-3)
mark("setup")
for step in range(150):
    optimizer.zero_grad()
    start = torch.randint(0, 490, (20,))
    wanted = torch.stack([true_y[start + i] for i in range(10)])
    predicted = odeint(func, true_y[start], times[:10])
    loss = (predicted - wanted).abs().mean()
    loss.backward()
    optimizer.step()
    mark()
    if step % 50 == 49:
        with torch.no_grad():
            print(step, (odeint(func, true_y[0], times[:100]) - true_y[:100]).abs().mean().item())
        mark("evaluation")
