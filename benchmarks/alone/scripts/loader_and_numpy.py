"""Samples made by NumPy in a data loader without workers."""

import numpy as np
import torch
from step_clock import tick
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __len__(self):
        return 64 * 150

    def __getitem__(self, index):
        noise = np.random.default_rng(index).normal(size=1024).astype(np.float32)
        return torch.from_numpy(np.abs(np.fft.rfft(noise))[:512].astype(np.float32)), index % 5


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 5))
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for signals, labels in DataLoader(Signals(), batch_size=64):
    opt.zero_grad()
    nn.functional.cross_entropy(net(signals), labels).backward()
    opt.step()
    tick()
