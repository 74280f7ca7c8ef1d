"""A compiled network; the set's size is no multiple of the batch size."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 30


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(3))
        self.head = nn.Linear(64, 4)

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms):
            x = x + torch.nn.functional.gelu(layer(norm(x)))
        return self.head(x)


def main():
    torch.manual_seed(0)
    values = torch.randn(1_290, 64)
    data = TensorDataset(values, (values[:, 0] > 0).long())
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
    model = Net()
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = nn.functional.cross_entropy(compiled(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


main()
