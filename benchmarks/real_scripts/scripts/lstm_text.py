"""An LSTM over text in pieces of 32, its state carried on, validated after each 30 steps."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, 128)
        self.lstm = nn.LSTM(128, 256, batch_first=True)
        self.head = nn.Linear(256, 256)

    def forward(self, x, state=None):
        out, state = self.lstm(self.embed(x), state)
        return self.head(out), state


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
state = None
for i in range(180):
    with clock.part("step"):
        x = torch.randint(0, 256, (8, 32))
        if state is not None:
            state = tuple(part.detach() for part in state)
        out, state = net(x, state)
        loss = nn.functional.cross_entropy(out.flatten(0, 1), x.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if i % 30 == 29:
        with clock.part("evaluation"), torch.no_grad():
            for _ in range(20):
                net(torch.randint(0, 256, (8, 64)))[0].argmax(-1).sum().item()
