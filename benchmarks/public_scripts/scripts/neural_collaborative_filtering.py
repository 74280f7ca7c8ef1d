"""Users and items by matrix factorisation and a small network; hit rate each epoch."""

import torch
from own_clock import mark
from torch import nn


class NCF(nn.Module):
    def __init__(self, users=4000, items=2500, width=32):
        super().__init__()
        self.user_gmf, self.item_gmf = nn.Embedding(users, width), nn.Embedding(items, width)
        self.user_mlp, self.item_mlp = nn.Embedding(users, width), nn.Embedding(items, width)
        self.mlp = nn.Sequential(nn.Linear(2 * width, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.predict = nn.Linear(width + 32, 1)

    def forward(self, user, item):
        gmf = self.user_gmf(user) * self.item_gmf(item)
        mlp = self.mlp(torch.cat([self.user_mlp(user), self.item_mlp(item)], 1))
        return self.predict(torch.cat([gmf, mlp], 1)).view(-1)


torch.manual_seed(0)
model = NCF()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
mark("setup")
for epoch in range(3):
    model.train()
    for _ in range(110):
        user, item = torch.randint(0, 4000, (256,)), torch.randint(0, 2500, (256,))
        label = ((user + item) % 5 == 0).float()
        model.zero_grad()
        loss = criterion(model(user, item), label)
        loss.backward()
        optimizer.step()
        mark()
    model.eval()
    hits = 0
    with torch.no_grad():
        for user in range(60):
            items = torch.randint(0, 2500, (100,))
            hits += int(0 in model(torch.full((100,), user), items).topk(10)[1])
    print(epoch, loss.item(), hits / 60)
    mark("evaluation")
