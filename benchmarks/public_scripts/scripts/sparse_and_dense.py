"""Embeddings with sparse gradients and dense layers, an optimizer for each."""

import torch
from own_clock import mark
from torch import nn

torch.manual_seed(0)
bag = nn.EmbeddingBag(20_000, 64, mode="sum", sparse=True)
dense = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.Linear(256, 8))
sparse_optimizer = torch.optim.SparseAdam(bag.parameters(), lr=1e-3)
dense_optimizer = torch.optim.AdamW(dense.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
mark("setup")
for step in range(350):
    indices = torch.randint(0, 20_000, (64, 20))
    target = indices[:, 0] % 8
    loss = criterion(dense(bag(indices)), target)
    sparse_optimizer.zero_grad()
    dense_optimizer.zero_grad()
    loss.backward()
    sparse_optimizer.step()
    dense_optimizer.step()
    mark()
    if step % 50 == 0:
        print(step, loss.item())
