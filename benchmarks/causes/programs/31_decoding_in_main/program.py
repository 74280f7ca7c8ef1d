"""Photographs as JPEG bytes, decoded and resized in the main process."""

import io

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

EPOCHS, IMAGES = 6, 320


class Photographs(Dataset):
    def __init__(self):
        source = np.random.default_rng(0)
        self.files = []
        for _ in range(IMAGES):
            pixels = source.integers(0, 255, (40, 54, 3), dtype=np.uint8)
            picture = Image.fromarray(pixels).resize((640, 480), Image.Resampling.BICUBIC)
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=92)
            self.files.append(file.getvalue())

    def __len__(self):
        return len(self.files)

    def picture(self, index):
        picture = Image.open(io.BytesIO(self.files[index])).convert("RGB").resize((64, 64))
        return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1).float() / 255

    def __getitem__(self, index):
        return self.picture(index), index % 10


def main():
    torch.manual_seed(0)
    loader = DataLoader(Photographs(), batch_size=16, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
