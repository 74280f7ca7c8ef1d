"""C51: the value's distribution over 51 atoms, projected."""

import torch
from own_clock import mark
from torch import nn, optim


class QNetwork(nn.Module):
    def __init__(self, atoms=51, actions=4):
        super().__init__()
        self.register_buffer("atoms", torch.linspace(-10, 10, steps=atoms))
        self.n, self.n_atoms = actions, atoms
        self.network = nn.Sequential(
            nn.Linear(16, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, actions * atoms),
        )

    def get_action(self, x, action=None):
        pmfs = torch.softmax(self.network(x).view(len(x), self.n, self.n_atoms), dim=2)
        if action is None:
            action = torch.argmax((pmfs * self.atoms).sum(2), 1)
        return action, pmfs[torch.arange(len(x)), action]


torch.manual_seed(1)
q_network, target_network = QNetwork(), QNetwork()
optimizer = optim.Adam(q_network.parameters(), lr=2.5e-4, eps=0.01 / 128)
states, rewards = torch.randn(20_000, 16), torch.randn(20_000, 1)
chosen = torch.randint(0, 4, (20_000,))
mark("setup")
for step in range(1_200):
    i = torch.randint(0, 19_999, (128,))
    with torch.no_grad():
        _, next_pmfs = target_network.get_action(states[i + 1])
        atoms = (rewards[i] + 0.99 * target_network.atoms).clamp(-10, 10)
        b = (atoms + 10) / 0.4
        low, high = b.floor().clamp(0, 50), b.ceil().clamp(0, 50)
        d_low = (high + (low == high).float() - b) * next_pmfs
        d_high = (b - low) * next_pmfs
        target_pmfs = torch.zeros_like(next_pmfs)
        target_pmfs.scatter_add_(1, low.long(), d_low).scatter_add_(1, high.long(), d_high)
    _, old_pmfs = q_network.get_action(states[i], chosen[i])
    loss = (-(target_pmfs * old_pmfs.clamp(1e-5, 1 - 1e-5).log()).sum(-1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mark()
    if step % 200 == 0:
        print(step, loss.item())
        target_network.load_state_dict(q_network.state_dict())
