"""A convolutional autoencoder with targets made by NumPy in the step, and a loss that is read."""

import numpy as np
import torch
from step_clock import tick
from torch import nn

torch.manual_seed(0)
random = np.random.default_rng(0)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(16, 1, 3, padding=1),
)
opt, total = torch.optim.Adam(net.parameters(), 1e-3), 0.0
for _ in range(180):
    clean = random.random((16, 1, 48, 48), dtype=np.float32)
    noisy = clean + 0.1 * random.standard_normal(clean.shape, dtype=np.float32)
    loss = nn.functional.mse_loss(net(torch.from_numpy(noisy)), torch.from_numpy(clean))
    opt.zero_grad()
    loss.backward()
    opt.step()
    total += loss.item()
    tick()
