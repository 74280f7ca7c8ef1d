"""Pictures that are decoded for each batch, or once."""

import io
import sys

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

SOUND = "--sound" in sys.argv
torch.set_num_threads(1)
torch.manual_seed(0)


class Pictures(Dataset):
    def __init__(self):
        rng = np.random.default_rng(0)
        self.files = [self.encoded(rng) for _ in range(16)]
        self.decoded = [self.decode(i) for i in range(16)]

    def encoded(self, rng):
        file = io.BytesIO()
        pixels = rng.integers(0, 255, (200, 200, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file, "JPEG")
        return file.getvalue()

    def decode(self, i):
        image = Image.open(io.BytesIO(self.files[i])).convert("L").resize((8, 8))  # here
        return torch.from_numpy(np.array(image)).flatten().float() / 255

    def __len__(self):
        return 480

    def __getitem__(self, i):
        return self.decoded[i % 16] if SOUND else self.decode(i % 16)


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Pictures(), batch_size=8):
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
