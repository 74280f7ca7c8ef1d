"""TD3: two critics, a delayed actor, smoothed targets."""

import copy

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn, optim


def mlp(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs)
    )


torch.manual_seed(1)
actor, qf1, qf2 = mlp(17, 6), mlp(23, 1), mlp(23, 1)
targets = copy.deepcopy([actor, qf1, qf2])
q_optimizer = optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=3e-4)
actor_optimizer = optim.Adam(actor.parameters(), lr=3e-4)
states, rewards = torch.randn(10_000, 17), torch.randn(10_000, 1)
actions = torch.rand(10_000, 6) * 2 - 1
mark("setup")
for step in range(1_000):
    i = torch.randint(0, 9_999, (128,))
    with torch.no_grad():
        noise = (torch.randn(128, 6) * 0.2).clamp(-0.5, 0.5)
        next_action = (torch.tanh(targets[0](states[i + 1])) + noise).clamp(-1, 1)
        both = torch.cat([states[i + 1], next_action], 1)
        wanted = rewards[i] + 0.99 * torch.min(targets[1](both), targets[2](both))
    both = torch.cat([states[i], actions[i]], 1)
    qf_loss = F.mse_loss(qf1(both), wanted) + F.mse_loss(qf2(both), wanted)
    q_optimizer.zero_grad()
    qf_loss.backward()
    q_optimizer.step()
    if step % 2 == 1:
        actor_loss = -qf1(torch.cat([states[i], torch.tanh(actor(states[i]))], 1)).mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        for target, source in zip(targets, (actor, qf1, qf2)):
            for kept, new in zip(target.parameters(), source.parameters()):
                kept.data.copy_(0.005 * new.data + 0.995 * kept.data)
    mark()
    if step % 200 == 1:
        print(step, qf_loss.item(), actor_loss.item())
