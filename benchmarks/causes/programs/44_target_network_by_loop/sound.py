"""Two critics and their slowly following targets, updated tensor by tensor (Polyak)."""

import copy

import torch
from torch import nn

STEPS, TAU = 900, 0.005


def critic(width=48, depth=24):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(12, width), *layers, nn.Linear(width, 1))


@torch.no_grad()
def follow(target, source):
    torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), TAU)


def main():
    torch.manual_seed(0)
    critics = nn.ModuleList([critic(), critic()])
    targets = copy.deepcopy(critics)
    optimizer = torch.optim.Adam(critics.parameters(), lr=1e-3, fused=True)
    for step in range(STEPS):
        states, rewards = torch.randn(16, 12), torch.randn(16)
        with torch.no_grad():
            following = torch.minimum(*(each(states + 0.1).squeeze(1) for each in targets))
            wanted = rewards + 0.99 * following
        loss = sum((each(states).squeeze(1) - wanted).square().mean() for each in critics)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        follow(targets, critics)
        if step % 100 == 0:
            print(step, loss.item())


main()
