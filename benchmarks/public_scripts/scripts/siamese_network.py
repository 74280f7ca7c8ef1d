"""Twins of one network tell whether two pictures show the same class."""

import torch
from own_clock import mark
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, 2, 2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 49, 64),
        )
        self.fc = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1), nn.Sigmoid())

    def forward_once(self, x):
        return self.body(x)

    def forward(self, one, two):
        return self.fc(torch.cat((self.forward_once(one), self.forward_once(two)), 1))


class Matcher(Dataset):
    def __init__(self):
        self.images, self.labels = torch.rand(1000, 1, 28, 28), torch.arange(1000) % 10

    def __len__(self):
        return 4800

    def __getitem__(self, index):
        first = index % 1000
        second = (first + 10 * (index % 7)) % 1000 if index % 2 else (first + 3) % 1000
        same = float(self.labels[first] == self.labels[second])
        return self.images[first], self.images[second], torch.tensor(same)


torch.manual_seed(1)
loader = DataLoader(Matcher(), batch_size=64, shuffle=True)
model = SiameseNetwork()
criterion = nn.BCELoss()
optimizer = optim.Adadelta(model.parameters(), lr=1.0)
for epoch in range(2):
    for i, (one, two, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(one, two).squeeze(), target)
        loss.backward()
        optimizer.step()
        mark()
        if i % 20 == 0:
            print(epoch, i, loss.item())
