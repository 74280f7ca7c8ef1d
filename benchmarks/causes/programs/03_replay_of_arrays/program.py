"""Q-learning from a replay buffer that holds one numpy array per observation."""

import random

import numpy as np
import torch
from torch import nn

STEPS, BATCH, SIZE = 400, 128, 1_500


def filled_buffer():
    source = np.random.default_rng(0)
    buffer = []
    for _ in range(20_000 // 4):
        state = source.standard_normal(SIZE).astype(np.float32)
        buffer.append((state, int(source.integers(4)), float(source.random())))
    return buffer


def sample(buffer):
    chosen = random.sample(buffer, BATCH)
    states = torch.tensor([state for state, _, _ in chosen])
    actions = torch.tensor([action for _, action, _ in chosen])
    returns = torch.tensor([gain for _, _, gain in chosen])
    return states, actions, returns


def main():
    torch.manual_seed(0)
    random.seed(0)
    buffer = filled_buffer()
    model = nn.Sequential(nn.Linear(SIZE, 256), nn.ReLU(), nn.Linear(256, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        states, actions, returns = sample(buffer)
        values = model(states).gather(1, actions[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(values, returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


main()
