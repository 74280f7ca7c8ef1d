"""A network whose author looked for a NaN last week."""

import torch
from torch import nn

STEPS = 900


class Net(nn.Module):
    def __init__(self, width=64, layers=20):
        super().__init__()
        self.into = nn.Linear(16, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.out = nn.Linear(width, 4)

    def forward(self, x):
        x = self.into(x)
        for layer in self.layers:
            x = x + torch.tanh(layer(x)) / 4
        return self.out(x)


def main():
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        values = torch.randn(64, 16)
        labels = values[:, :4].argmax(1)
        loss = nn.functional.cross_entropy(model(values), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


main()
