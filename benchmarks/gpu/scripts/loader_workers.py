"""Images augmented by eight loader workers, pinned, for a residual network in channels-last."""

import os

import torch
from step_clock import ready, step_done
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, count, size):
        self.count, self.size = count, size
        self.stored = torch.randint(0, 256, (64, 3, size + 32, size + 32), dtype=torch.uint8)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        image = self.stored[index % len(self.stored)]
        top, left = torch.randint(0, 32, (2,)).tolist()
        image = image[:, top : top + self.size, left : left + self.size].float() / 255
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        image = (image * (0.8 + 0.4 * torch.rand(3, 1, 1))).clamp(0, 1)
        return (image - 0.45) / 0.22, index % 100


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


def main():
    ready()
    device, small = os.environ.get("DEVICE", "cuda"), bool(os.environ.get("SMALL"))
    size, batch, width = (32, 4, 8) if small else (176, 64, 64)
    steps = int(os.environ.get("STEPS", "90"))
    loader = DataLoader(
        Images(batch * steps, size), batch, shuffle=True, num_workers=2 if small else 8,
        pin_memory=device != "cpu", persistent_workers=True,
    )  # fmt: skip
    model = nn.Sequential(
        nn.Conv2d(3, width, 7, stride=4, padding=3), Block(width), Block(width), Block(width),
        nn.Conv2d(width, 4 * width, 3, stride=2), Block(4 * width), Block(4 * width),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 100),
    ).to(device, memory_format=torch.channels_last)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step_done()
    for i, (images, labels) in enumerate(loader):
        images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(device, non_blocking=True)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step_done()
        if i % 30 == 29:
            print(f"step {i + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
