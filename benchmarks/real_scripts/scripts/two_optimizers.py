"""A sparse embedding with an optimizer of its own beside the dense one."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
embedding = nn.EmbeddingBag(20000, 128, sparse=True)
tower = nn.Sequential(
    nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1)
)
sparse = torch.optim.SparseAdam(embedding.parameters(), lr=1e-3)
dense = torch.optim.AdamW(tower.parameters(), lr=1e-3)
for _ in range(250):
    with clock.part("step"):
        tokens = torch.randint(0, 20000, (256, 10))
        target = torch.rand(256, 1)
        loss = nn.functional.binary_cross_entropy_with_logits(tower(embedding(tokens)), target)
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
