"""A list that grows is a guard of what is compiled, or is kept out of it."""

import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.Linear(64, 64)
        self.seen = []

    def step(self, state):
        if not SOUND and len(self.seen) > 0:  # here
            state = state + self.seen[-1]
        state = self.cell(state).tanh()
        if not SOUND:
            self.seen.append(state)
        return state


decoder = Decoder().eval()
step = torch.compile(decoder.step, backend="eager")
with torch.no_grad():
    for _ in range(40):
        decoder.seen.clear()
        state = torch.randn(8, 64)
        for _ in range(14):
            state = step(state)
