"""Policy gradient over whole episodes whose lengths vary."""

import random

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn, optim
from torch.distributions import Categorical

policy = nn.Sequential(nn.Linear(4, 128), nn.Dropout(0.6), nn.ReLU(), nn.Linear(128, 2))


def episode(length):
    """Rewards for the move that follows the state's sign."""
    log_probs, rewards = [], []
    for _ in range(length):
        state = torch.randn(1, 4)
        chosen = Categorical(logits=policy(state))
        action = chosen.sample()
        log_probs.append(chosen.log_prob(action))
        rewards.append(float(action.item() == (state[0, 0] > 0)))
    return log_probs, rewards


random.seed(1)
torch.manual_seed(1)
optimizer = optim.Adam(policy.parameters(), lr=1e-2)
running = 10.0
mark("setup")
for number in range(240):
    log_probs, rewards = episode(random.randint(60, 100))
    running = 0.05 * sum(rewards) / len(rewards) + 0.95 * running
    total, returns = 0.0, []
    for reward in reversed(rewards):
        total = reward + 0.99 * total
        returns.append(total)
    returns = torch.tensor(returns[::-1])
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    optimizer.zero_grad()
    loss = torch.cat([-p * r for p, r in zip(log_probs, returns)]).sum()
    F.relu(loss) if number < 0 else loss.backward()
    optimizer.step()
    mark()
    if number % 40 == 0:
        print(number, running)
