"""A convolutional network on digits, with a test after each epoch."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn, optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, 1), nn.Conv2d(16, 32, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(4608, 64), nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(self.dropout1(x), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, loader, optimizer, epoch):
    model.train()
    for index, (data, target) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        mark()
        if index % 20 == 0:
            print(f"Train Epoch: {epoch} [{index * len(data)}]\tLoss: {loss.item():.6f}")


def test(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for data, target in loader:
            right += model(data).argmax(1).eq(target).sum().item()
    print(f"Accuracy: {right}/{len(loader.dataset)}")
    mark("evaluation")


def digits(count):
    return TensorDataset(torch.rand(count, 1, 28, 28), torch.randint(0, 10, (count,)))


torch.manual_seed(1)
train_loader = DataLoader(digits(2560), batch_size=64, shuffle=True)
test_loader = DataLoader(digits(1000), batch_size=250)
model = Net()
optimizer = optim.Adadelta(model.parameters(), lr=1.0)
scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
for epoch in range(1, 5):
    train(model, train_loader, optimizer, epoch)
    test(model, test_loader)
    scheduler.step()
