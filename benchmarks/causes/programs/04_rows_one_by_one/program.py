"""A tabular classifier: the table is in memory, the loader asks for it row by row."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS = 14


class Table(Dataset):
    def __init__(self, rows=60_000, columns=40):
        self.values = torch.randn(rows, columns)
        self.mean, self.std = self.values.mean(0), self.values.std(0)
        self.labels = (self.values[:, 0] > 0).long()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return (self.values[index] - self.mean) / self.std, self.labels[index]


def main():
    torch.manual_seed(0)
    data = Table()
    loader = DataLoader(data, batch_size=512, shuffle=True)
    model = nn.Sequential(nn.Linear(40, 128), nn.ReLU(), nn.Linear(128, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for values, labels in loader:
            loss = nn.functional.cross_entropy(model(values), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()
