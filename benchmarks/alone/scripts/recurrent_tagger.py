"""An LSTM over sequences of one length, with gradient clipping."""

import torch
from step_clock import tick
from torch import nn

torch.manual_seed(0)
embed, rnn, head = nn.Embedding(2000, 64), nn.LSTM(64, 96, batch_first=True), nn.Linear(96, 12)
parameters = [*embed.parameters(), *rnn.parameters(), *head.parameters()]
opt = torch.optim.Adam(parameters)
for _ in range(150):
    words, tags = torch.randint(0, 2000, (16, 40)), torch.randint(0, 12, (16, 40))
    states, _ = rnn(embed(words))
    loss = nn.functional.cross_entropy(head(states).flatten(0, 1), tags.flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 1.0)
    opt.step()
    tick()
