"""A detector of anchors: boxes are matched by overlap, their number varies."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn


class Detector(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1),
            nn.ReLU(),
        )
        self.cls_logits, self.bbox_pred = nn.Conv2d(width, 3, 1), nn.Conv2d(width, 12, 1)
        places = (torch.arange(12) + 0.5) * 8
        y, x = torch.meshgrid(places, places, indexing="ij")
        sizes = torch.tensor([8.0, 16.0, 32.0])
        centre = torch.stack([x, y], -1)[:, :, None].expand(12, 12, 3, 2)
        half = sizes[:, None].expand(12, 12, 3, 1)
        self.register_buffer("anchors", torch.cat([centre - half, centre + half], -1).view(-1, 4))

    def forward(self, images, targets):
        features = self.backbone(images)
        scores = self.cls_logits(features).permute(0, 2, 3, 1).flatten(1)
        offsets = self.bbox_pred(features).permute(0, 2, 3, 1).reshape(len(images), -1, 4)
        losses = {"classification": 0.0, "bbox_regression": 0.0}
        for score, offset, target in zip(scores, offsets, targets):
            overlap = iou(target["boxes"], self.anchors)
            best, index = overlap.max(0)
            found = best > 0.3
            losses["classification"] += F.binary_cross_entropy_with_logits(score, found.float())
            wanted = (target["boxes"][index[found]] - self.anchors[found]) / 16
            losses["bbox_regression"] += F.smooth_l1_loss(offset[found], wanted, reduction="sum")
        return {name: loss / len(images) for name, loss in losses.items()}


def iou(a, b):
    low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    inter = (high - low).clamp(min=0).prod(2)
    area = [(x[:, 2:] - x[:, :2]).prod(1) for x in (a, b)]
    return inter / (area[0][:, None] + area[1] - inter)


def batch(count=8):
    targets = []
    for _ in range(count):
        corner = torch.rand(int(torch.randint(2, 30, ())), 2) * 60
        targets.append({"boxes": torch.cat([corner, corner + 8 + torch.rand_like(corner) * 24], 1)})
    return torch.rand(count, 3, 96, 96), targets


torch.manual_seed(0)
model = Detector()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
mark("setup")
for step in range(140):
    images, targets = batch()
    losses = model(images, targets)
    loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mark()
    if step % 30 == 0:
        print(step, {name: value.item() for name, value in losses.items()})
