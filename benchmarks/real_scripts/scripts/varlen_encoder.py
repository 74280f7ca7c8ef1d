"""A language model on sentences of 8 to 160 tokens, each batch padded to its own length."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import random

import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
random.seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(128, 1000)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)))


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(300):
    x = torch.randint(0, 1000, (8, random.randint(8, 160)))
    with clock.part("step"):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
