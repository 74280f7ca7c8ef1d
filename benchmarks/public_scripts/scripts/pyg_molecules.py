"""Batches of small graphs as one large graph; messages are summed by index."""

from dataclasses import dataclass

import torch
from own_clock import mark
from torch import nn


@dataclass
class Data:
    x: torch.Tensor
    edge_index: torch.Tensor
    batch: torch.Tensor
    y: torch.Tensor


class GINConv(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width)
        )

    def forward(self, x, edge_index):
        source, target = edge_index
        received = torch.zeros_like(x).index_add(0, target, x[source])
        return self.mlp(x + received).relu()


class GIN(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.convs = nn.ModuleList(
            [GINConv(7, width), GINConv(width, width), GINConv(width, width)]
        )
        self.head = nn.Linear(width, 2)

    def forward(self, data):
        x = data.x
        for conv in self.convs:
            x = conv(x, data.edge_index)
        pooled = torch.zeros(len(data.y), x.shape[1]).index_add(0, data.batch, x)
        return self.head(pooled)


def collate(graphs):
    sizes = [int(torch.randint(20, 31, ())) for _ in range(graphs)]
    edges, start = [], 0
    for size in sizes:
        edges.append(torch.randint(0, size, (2, 4 * size)) + start)
        start += size
    batch = torch.repeat_interleave(torch.arange(graphs), torch.tensor(sizes))
    return Data(torch.rand(start, 7), torch.cat(edges, 1), batch, torch.randint(0, 2, (graphs,)))


torch.manual_seed(0)
model = GIN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
mark("setup")
for step in range(220):
    data = collate(64)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(data), data.y)
    loss.backward()
    optimizer.step()
    mark()
    if step % 50 == 0:
        print(step, loss.item())
