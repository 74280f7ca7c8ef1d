"""A small residual network, with meters of data and batch time and top-5 accuracy."""

import time

import torch
from own_clock import mark
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + x)


class FakeData(Dataset):
    def __len__(self):
        return 1280

    def __getitem__(self, index):
        source = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=source), index % 100


class AverageMeter:
    def __init__(self, name):
        self.name, self.sum, self.count = name, 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    def __str__(self):
        return f"{self.name} {self.sum / max(1, self.count):6.3f}"


def accuracy(output, target, topk=(1, 5)):
    with torch.no_grad():
        _, pred = output.topk(max(topk), 1)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0).mul_(100.0 / len(target)) for k in topk]


def train(loader, model, criterion, optimizer, epoch):
    batch_time, data_time = AverageMeter("Time"), AverageMeter("Data")
    losses, top5 = AverageMeter("Loss"), AverageMeter("Acc@5")
    model.train()
    end = time.time()
    for i, (images, target) in enumerate(loader):
        data_time.update(time.time() - end)
        output = model(images)
        loss = criterion(output, target)
        _, acc5 = accuracy(output, target)
        losses.update(loss.item(), len(images))
        top5.update(acc5[0].item() if acc5.dim() else acc5.item(), len(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mark()
        batch_time.update(time.time() - end)
        end = time.time()
        if i % 10 == 0:
            print(epoch, i, batch_time, data_time, losses, top5)


torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, 2, 1),
    *[Block(32) for _ in range(3)],
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 100),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
loader = DataLoader(FakeData(), batch_size=32, shuffle=True)
for epoch in range(3):
    train(loader, model, criterion, optimizer, epoch)
