"""Two views of each image, a contrastive loss over all pairs of the batch."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(
    nn.Conv2d(3, 24, 3, 2, 1),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.Conv2d(24, 48, 3, 2, 1),
    nn.BatchNorm2d(48),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(192, 128),
    nn.ReLU(),
    nn.Linear(128, 64),
)


def view(images):
    shift = torch.randint(-3, 4, (2,)).tolist()
    images = torch.roll(images, shift, (2, 3))
    images = images.flip(3) if torch.rand(()) < 0.5 else images
    return images * (0.7 + 0.6 * torch.rand(len(images), 3, 1, 1))


def info_nce(features, temperature=0.07):
    labels = torch.cat([torch.arange(len(features) // 2)] * 2)
    labels = (labels[None] == labels[:, None]).float()
    features = F.normalize(features, dim=1)
    similarity = features @ features.T
    mask = torch.eye(len(labels), dtype=torch.bool)
    labels, similarity = labels[~mask].view(len(mask), -1), similarity[~mask].view(len(mask), -1)
    positives = similarity[labels.bool()].view(len(mask), -1)
    negatives = similarity[~labels.bool()].view(len(mask), -1)
    logits = torch.cat([positives, negatives], 1) / temperature
    return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))


optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-4, weight_decay=1e-4)
mark("setup")
for step in range(110):
    images = torch.rand(64, 3, 32, 32)
    loss = info_nce(encoder(torch.cat([view(images), view(images)])))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mark()
    if step % 25 == 0:
        print(step, loss.item())
