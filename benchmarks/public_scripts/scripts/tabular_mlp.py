"""Numbers and categories of a table through a residual network."""

import torch
from own_clock import mark
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.one, self.two = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.2)

    def forward(self, x):
        return x + self.two(self.drop(torch.relu(self.one(self.norm(x)))))


class Table(nn.Module):
    def __init__(self, numbers=20, categories=(10, 50, 200), width=128):
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 16) for size in categories)
        self.first = nn.Linear(numbers + 16 * len(categories), width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(3)])
        self.head = nn.Linear(width, 1)

    def forward(self, numbers, categories):
        embedded = [embed(categories[:, i]) for i, embed in enumerate(self.embeddings)]
        return self.head(self.blocks(self.first(torch.cat([numbers, *embedded], 1)))).squeeze(1)


torch.manual_seed(0)
numbers = torch.randn(20_000, 20)
categories = torch.stack([torch.randint(0, size, (20_000,)) for size in (10, 50, 200)], 1)
wanted = numbers[:, 0] + 0.1 * categories[:, 1]
model = Table()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
mark("setup")
for epoch in range(3):
    model.train()
    for chosen in torch.randperm(18_000).split(256):
        loss = nn.functional.mse_loss(model(numbers[chosen], categories[chosen]), wanted[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mark()
    model.eval()
    with torch.no_grad():
        error = (model(numbers[18_000:], categories[18_000:]) - wanted[18_000:]).square().mean()
    scheduler.step(error)
    print(epoch, error.item())
    mark("evaluation")
