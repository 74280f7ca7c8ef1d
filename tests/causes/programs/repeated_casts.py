"""A model in float32 under autocast, which casts its weights in each call, or cast once."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(6))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)  # here
        return x


model = Encoder().eval()
x = torch.randn(4, 512)
if SOUND:
    model, x = model.to(torch.bfloat16), x.to(torch.bfloat16)
with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=not SOUND):
    for _ in range(60):
        model(x)
