"""A segmentation loop whose metrics are counted pixel by pixel with .item()."""

import torch
from torch import nn

STEPS, CLASSES = 100, 4


def confusion(scores, wanted):
    best = scores.argmax(1)
    counts = [[0] * CLASSES for _ in range(CLASSES)]
    for image in range(len(best)):
        for row in range(0, best.shape[1]):
            for column in range(0, best.shape[2]):
                true = wanted[image, row, column].item()
                told = best[image, row, column].item()
                counts[true][told] += 1
    return counts


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, CLASSES, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        images = torch.rand(8, 3, 48, 48)
        wanted = (images.mean(1) * CLASSES).long().clamp(max=CLASSES - 1)
        scores = model(images)
        loss = nn.functional.cross_entropy(scores, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counts = confusion(scores.detach(), wanted)
        if step % 20 == 0:
            print(step, loss.item(), counts[0][0])


main()
