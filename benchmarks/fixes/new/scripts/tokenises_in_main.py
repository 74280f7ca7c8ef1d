"""A data set that takes texts apart in the training process."""

import re
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
WORD = re.compile(r"[a-z]+|[0-9]|[^\sa-z0-9]")
TEXT = "The quick brown fox, 42 of them, jumps over: the lazy dog (again) & barks at 7 cats. "


class Texts(Dataset):
    """Texts as a file has them, taken apart into numbers of words when they are asked for."""

    def __len__(self):
        return 8 * STEPS

    def __getitem__(self, index):
        words = WORD.findall((TEXT * 6)[index % 40 :].lower())
        numbers = [sum(map(ord, word)) % 5000 for word in words]
        return torch.tensor(numbers[:96]), index % 3


torch.manual_seed(0)
model = nn.Sequential(
    nn.EmbeddingBag(5000, 64, sparse=True), nn.Linear(64, 448), nn.ReLU(), nn.Linear(448, 3)
)
optimizer = torch.optim.SGD(model.parameters(), 1e-2)
for x, y in DataLoader(Texts(), batch_size=8):  # flaw
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
