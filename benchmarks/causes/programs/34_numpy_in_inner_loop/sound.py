"""A sequence tagger whose tags are decoded token by token through numpy."""

import numpy as np
import torch
from torch import nn

STEPS, TAGS = 130, 8


def decoded(scores):
    return scores.argmax(-1).tolist()


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    embed = nn.Embedding(1_000, 32)
    body = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
    head = nn.Linear(64, TAGS)
    parameters = [*embed.parameters(), *body.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    right = 0
    for step in range(STEPS):
        tokens = torch.from_numpy(np.random.randint(0, 1_000, (64, 96)))
        tags = tokens % TAGS
        scores = head(body(embed(tokens))[0])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for told, true in zip(decoded(scores), tags.tolist()):
            right += told[0] == true[0]
        if step % 20 == 0:
            print(step, loss.item(), right)


main()
