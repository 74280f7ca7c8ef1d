"""Sentences of very different lengths, in batches at random or of like lengths."""

import random
import sys

import torch
from torch import nn

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
lengths = [min(256, max(6, int(random.lognormvariate(3.4, 0.9)))) for _ in range(480)]
sentences = [torch.randint(1, 500, (length,)) for length in lengths]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 96, padding_idx=0)
        self.body = nn.Sequential(nn.Linear(96, 384), nn.GELU(), nn.Linear(384, 96))

    def forward(self, tokens):
        return self.body(self.embed(tokens)).mean(1)


model = Encoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
order = sorted(range(480), key=lambda i: lengths[i] if SOUND else i)
starts = list(range(0, 480, 8))
random.shuffle(starts)
for start in starts * 2:
    picked = [sentences[i] for i in order[start : start + 8]]
    batch = nn.utils.rnn.pad_sequence(picked, batch_first=True)
    loss = model(batch).square().mean()  # here
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
