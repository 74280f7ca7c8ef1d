"""An encoder on batches of lengths that differ from step to step."""

import random

import torch
from step_clock import tick
from torch import nn

torch.manual_seed(0)
random.seed(0)
embed = nn.Embedding(1000, 128)
encoder = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, dropout=0.0),
    2,
    enable_nested_tensor=False,
)
head = nn.Linear(128, 2)
model = nn.Sequential(embed, encoder)
opt = torch.optim.AdamW([*model.parameters(), *head.parameters()])
for _ in range(320):
    length = random.choice((24, 32, 48, 64, 96))
    words = torch.randint(0, 1000, (8, length))
    loss = nn.functional.cross_entropy(head(model(words).mean(1)), torch.randint(0, 2, (8,)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    tick()
