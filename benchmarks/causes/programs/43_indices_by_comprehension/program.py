"""Word2vec whose negative samples are drawn number by number into nested lists."""

import random

import torch
from torch import nn

STEPS, BATCH, NEGATIVES, WORDS = 250, 1_024, 16, 5_000


def negatives():
    return torch.tensor([[random.randrange(WORDS) for _ in range(NEGATIVES)] for _ in range(BATCH)])


def main():
    torch.manual_seed(0)
    random.seed(0)
    words, contexts = nn.Embedding(WORDS, 32), nn.Embedding(WORDS, 32)
    optimizer = torch.optim.SGD([*words.parameters(), *contexts.parameters()], lr=0.1)
    for step in range(STEPS):
        centre = torch.randint(0, WORDS, (BATCH,))
        near = (centre + torch.randint(1, 5, (BATCH,))) % WORDS
        away = negatives()
        v = words(centre)
        good = (v * contexts(near)).sum(1)
        bad = torch.bmm(contexts(away), v.unsqueeze(2)).squeeze(2)
        logsigmoid = nn.functional.logsigmoid
        loss = -(logsigmoid(good) + logsigmoid(-bad).sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


main()
