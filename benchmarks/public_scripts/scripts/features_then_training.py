"""Features of a frozen network are computed once, then a head is trained on them."""

import torch
from own_clock import mark
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, 2, 1),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, 2, 1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
).eval()
features, labels = [], []
with torch.no_grad():
    for _ in range(500):
        images = torch.rand(8, 3, 32, 32)
        features.append(backbone(images))
        labels.append((images.mean((1, 2, 3)) > 0.5).long())
features, labels = torch.cat(features), torch.cat(labels)
mark("features")
head = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 2))
optimizer = torch.optim.SGD(head.parameters(), lr=0.01, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
for step in range(500):
    chosen = torch.randint(0, len(labels), (128,))
    loss = nn.functional.cross_entropy(head(features[chosen]), labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    mark()
    if step % 100 == 0:
        print(step, loss.item())
