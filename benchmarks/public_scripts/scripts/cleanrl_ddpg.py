"""DDPG: a critic's and an actor's update after each move of the agent."""

import copy

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn, optim


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(23, 128), nn.Linear(128, 128), nn.Linear(128, 1)

    def forward(self, x, a):
        x = F.relu(self.fc1(torch.cat([x, a], 1)))
        return self.fc3(F.relu(self.fc2(x)))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc_mu = nn.Linear(17, 128), nn.Linear(128, 6)

    def forward(self, x):
        return torch.tanh(self.fc_mu(F.relu(self.fc1(x))))


torch.manual_seed(1)
actor, qf1 = Actor(), QNetwork()
target_actor, qf1_target = copy.deepcopy(actor), copy.deepcopy(qf1)
q_optimizer = optim.Adam(qf1.parameters(), lr=3e-4)
actor_optimizer = optim.Adam(actor.parameters(), lr=3e-4)
states, actions = torch.zeros(5_000, 17), torch.zeros(5_000, 6)
rewards, state = torch.zeros(5_000, 1), torch.zeros(17)
mark("setup")
for step in range(1_400):
    with torch.no_grad():
        action = (actor(state[None])[0] + 0.1 * torch.randn(6)).clamp(-1, 1)
    states[step], actions[step], rewards[step] = state, action, -action.square().sum()
    state = 0.9 * state + 0.2 * torch.randn(17)
    if step < 200:
        mark("exploration")
        continue
    i = torch.randint(0, step, (128,))
    with torch.no_grad():
        following = states[i + 1]
        wanted = rewards[i] + 0.99 * qf1_target(following, target_actor(following))
    qf1_loss = F.mse_loss(qf1(states[i], actions[i]), wanted)
    q_optimizer.zero_grad()
    qf1_loss.backward()
    q_optimizer.step()
    actor_loss = -qf1(states[i], actor(states[i])).mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
    for target, source in ((target_actor, actor), (qf1_target, qf1)):
        for kept, new in zip(target.parameters(), source.parameters()):
            kept.data.copy_(0.005 * new.data + 0.995 * kept.data)
    mark()
    if step % 200 == 0:
        print(step, qf1_loss.item(), actor_loss.item())
