"""A language model that writes a sample every 20 steps, token by token."""

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
        self.embed = nn.Embedding(500, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(128, 500)

    def forward(self, x):
        return self.head(self.body(self.embed(x)))


net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for i in range(240):
    with clock.part("step"):
        x = torch.randint(0, 500, (8, 64))
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), x.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if i % 20 == 19:
        with clock.part("sampling"), torch.no_grad():
            net.eval()
            text = torch.zeros(1, 1, dtype=torch.int64)
            for _ in range(24):
                text = torch.cat([text, net(text)[:, -1:].argmax(-1)], 1)
            net.train()
