"""A policy acts for 5 to 40 moves without gradients, then learns from them: that is a step."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import random

import torch
from own_clock import clock
from torch import nn

torch.manual_seed(0)
random.seed(0)
policy = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 8))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
for _ in range(220):
    with clock.part("step"):
        states, actions = [], []
        state = torch.randn(32, 64)
        for _ in range(random.randint(5, 40)):
            with torch.no_grad():
                action = torch.distributions.Categorical(logits=policy(state)).sample()
            states.append(state)
            actions.append(action)
            state = state.roll(1, 1) + 0.1
        logits = policy(torch.cat(states))
        loss = nn.functional.cross_entropy(logits, torch.cat(actions))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
