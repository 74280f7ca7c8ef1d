"""SAC: two critics, a squashed normal actor, a learned temperature."""

import copy

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn, optim


def mlp(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, outputs)
    )


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(17, 12)

    def forward(self, x):
        mean, log_std = self.body(x).chunk(2, -1)
        normal = torch.distributions.Normal(mean, torch.exp(-5 + 3.5 * (torch.tanh(log_std) + 1)))
        drawn = normal.rsample()
        action = torch.tanh(drawn)
        log_prob = normal.log_prob(drawn) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_prob.sum(1, keepdim=True)


torch.manual_seed(1)
actor, qf1, qf2 = Actor(), mlp(23, 1), mlp(23, 1)
qf1_target, qf2_target = copy.deepcopy(qf1), copy.deepcopy(qf2)
q_optimizer = optim.Adam([*qf1.parameters(), *qf2.parameters()], lr=1e-3)
actor_optimizer = optim.Adam(actor.parameters(), lr=3e-4)
log_alpha = torch.zeros(1, requires_grad=True)
a_optimizer = optim.Adam([log_alpha], lr=1e-3)
states, rewards = torch.randn(10_000, 17), torch.randn(10_000, 1)
mark("setup")
for step in range(500):
    i = torch.randint(0, 9_999, (128,))
    x, following, alpha = states[i], states[i + 1], log_alpha.exp().item()
    with torch.no_grad():
        next_action, next_log_pi = actor(following)
        both = torch.cat([following, next_action], 1)
        least = torch.min(qf1_target(both), qf2_target(both)) - alpha * next_log_pi
        wanted = rewards[i] + 0.99 * least
    both = torch.cat([x, torch.tanh(x[:, :6])], 1)
    qf_loss = F.mse_loss(qf1(both), wanted) + F.mse_loss(qf2(both), wanted)
    q_optimizer.zero_grad()
    qf_loss.backward()
    q_optimizer.step()
    if step % 2 == 1:
        for _ in range(2):
            pi, log_pi = actor(x)
            both = torch.cat([x, pi], 1)
            actor_loss = (alpha * log_pi - torch.min(qf1(both), qf2(both))).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
            with torch.no_grad():
                _, log_pi = actor(x)
            alpha_loss = (-log_alpha.exp() * (log_pi - 6)).mean()
            a_optimizer.zero_grad()
            alpha_loss.backward()
            a_optimizer.step()
    for target, source in ((qf1_target, qf1), (qf2_target, qf2)):
        for kept, new in zip(target.parameters(), source.parameters()):
            kept.data.copy_(0.005 * new.data + 0.995 * kept.data)
    mark()
    if step % 100 == 1:
        print(step, qf_loss.item(), actor_loss.item())
