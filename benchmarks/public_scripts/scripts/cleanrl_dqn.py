"""DQN: replay buffer, epsilon-greedy moves, a target network."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn, optim


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(8, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 4)
        )

    def forward(self, x):
        return self.network(x)


class ReplayBuffer:
    def __init__(self, size=10_000):
        self.obs = np.zeros((size, 8), np.float32)
        self.next_obs = np.zeros((size, 8), np.float32)
        self.actions, self.rewards = np.zeros((size, 1), np.int64), np.zeros(size, np.float32)
        self.size, self.pos, self.full = size, 0, False

    def add(self, obs, next_obs, action, reward):
        i = self.pos
        self.obs[i], self.next_obs[i] = obs, next_obs
        self.actions[i], self.rewards[i] = action, reward
        self.pos = (self.pos + 1) % self.size

    def sample(self, count):
        i = np.random.randint(0, self.pos, count)
        rows = (self.obs[i], self.next_obs[i], self.actions[i], self.rewards[i])
        return [torch.from_numpy(row) for row in rows]


random.seed(1)
np.random.seed(1)
torch.manual_seed(1)
q_network, target_network = QNetwork(), QNetwork()
target_network.load_state_dict(q_network.state_dict())
optimizer = optim.Adam(q_network.parameters(), lr=2.5e-4)
buffer = ReplayBuffer()
obs = np.zeros(8, np.float32)
mark("setup")
for global_step in range(8_000):
    if random.random() < max(0.05, 1 - global_step / 2_000):
        action = random.randrange(4)
    else:
        action = torch.argmax(q_network(torch.from_numpy(obs)[None]), dim=1).item()
    next_obs = (0.95 * obs + 0.1 * np.random.standard_normal(8)).astype(np.float32)
    buffer.add(obs, next_obs, action, float(next_obs[action]))
    obs = next_obs
    if global_step == 1_000:
        mark("exploration")
    if global_step > 1_000 and global_step % 10 == 0:
        states, following, actions, rewards = buffer.sample(128)
        with torch.no_grad():
            target_max, _ = target_network(following).max(dim=1)
            td_target = rewards + 0.99 * target_max
        old_val = q_network(states).gather(1, actions).squeeze()
        loss = F.mse_loss(td_target, old_val)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mark()
        if global_step % 500 == 0:
            print(global_step, loss.item())
            target_network.load_state_dict(q_network.state_dict())
