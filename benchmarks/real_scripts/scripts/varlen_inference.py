"""Requests of different lengths through an encoder, one at a time, without gradients."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import random

import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
random.seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5000, 256)
        layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 3)

    def forward(self, x):
        return self.body(self.embed(x)).mean(1)


model = Encoder().eval()
with torch.inference_mode():
    for _ in range(350):
        with clock.part("step"):
            model(torch.randint(0, 5000, (2, random.randint(10, 120))))
