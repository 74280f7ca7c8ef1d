"""The same with one thread of torch: the workers have the other processor."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 20000


class Images(Dataset):
    """Pictures that are made lighter and darker, sample by sample."""

    def __len__(self):
        return 16 * STEPS

    def __getitem__(self, index):
        picture = torch.full((3, 40, 40), (index % 11) / 11.0)
        for k in range(30):
            picture = (picture * (1.0 + 0.01 * k)).clamp_(0.0, 1.0)
        return picture.flatten(), index % 10


torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(4800, 200), *(nn.Sequential(nn.Linear(200, 200), nn.GELU()) for _ in range(10)),
    nn.Linear(200, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), 1e-3, foreach=True)
loader = DataLoader(Images(), batch_size=16, num_workers=2, persistent_workers=True)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
