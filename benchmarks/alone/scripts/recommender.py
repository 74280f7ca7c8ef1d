"""Two tables of embeddings and a small network on pairs, with dense gradients."""

import torch
from step_clock import tick
from torch import nn

torch.manual_seed(0)
users, items = nn.Embedding(20_000, 32), nn.Embedding(8_000, 32)
mlp = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adagrad([*users.parameters(), *items.parameters(), *mlp.parameters()], lr=0.05)
for _ in range(300):
    user, item = torch.randint(0, 20_000, (1024,)), torch.randint(0, 8_000, (1024,))
    score = mlp(torch.cat((users(user), items(item)), 1)).squeeze(1)
    loss = nn.functional.binary_cross_entropy_with_logits(score, (user % 2).float())
    opt.zero_grad()
    loss.backward()
    opt.step()
    tick()
