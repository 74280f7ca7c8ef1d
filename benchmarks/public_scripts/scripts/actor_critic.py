"""Actor and critic on a cart with a pole of its own; one update per episode."""

import math
import random

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn, optim
from torch.distributions import Categorical


class CartPole:
    def reset(self):
        self.state = [random.uniform(-0.05, 0.05) for _ in range(4)]
        self.left = 60
        return self.state

    def step(self, action):
        x, v, angle, turn = self.state
        force = 10.0 if action else -10.0
        pull = (9.8 * math.sin(angle) - math.cos(angle) * force / 1.1) / 0.72
        self.state = [x + 0.02 * v, v + 0.02 * force / 1.1, angle + 0.02 * turn, turn + 0.02 * pull]
        self.left -= 1
        return self.state, 1.0 - abs(angle), self.left == 0


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 128)
        self.action_head, self.value_head = nn.Linear(128, 2), nn.Linear(128, 1)
        self.saved_actions, self.rewards = [], []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


random.seed(0)
torch.manual_seed(0)
env, model = CartPole(), Policy()
optimizer = optim.Adam(model.parameters(), lr=3e-2)
mark("setup")
for episode in range(250):
    state = env.reset()
    done = False
    while not done:
        probs, value = model(torch.tensor(state))
        chosen = Categorical(probs)
        action = chosen.sample()
        model.saved_actions.append((chosen.log_prob(action), value))
        state, reward, done = env.step(action.item())
        model.rewards.append(reward)
    total, returns = 0.0, []
    for reward in model.rewards[::-1]:
        total = reward + 0.99 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)
    losses = []
    for (log_prob, value), wanted in zip(model.saved_actions, returns):
        losses.append(-log_prob * (wanted - value.item()))
        losses.append(F.smooth_l1_loss(value, wanted.view(1)))
    optimizer.zero_grad()
    loss = torch.stack([x.sum() for x in losses]).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:], model.saved_actions[:]
    mark()
    if episode % 50 == 0:
        print(episode, loss.item())
