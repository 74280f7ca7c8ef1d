"""WGAN-GP: the critic takes five steps for one of the generator."""

import torch
from own_clock import mark
from torch import autograd, nn

torch.manual_seed(0)
generator = nn.Sequential(
    nn.Linear(64, 128),
    nn.LeakyReLU(0.2),
    nn.Linear(128, 256),
    nn.BatchNorm1d(256),
    nn.LeakyReLU(0.2),
    nn.Linear(256, 784),
    nn.Tanh(),
)
critic = nn.Sequential(
    nn.Linear(784, 256),
    nn.LeakyReLU(0.2),
    nn.Linear(256, 128),
    nn.LeakyReLU(0.2),
    nn.Linear(128, 1),
)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))


def gradient_penalty(real, fake):
    alpha = torch.rand(len(real), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    gradients = autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


mark("setup")
for step in range(150):
    for _ in range(5):
        real = torch.rand(64, 784) * 2 - 1
        fake = generator(torch.randn(64, 64)).detach()
        d_loss = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(real, fake)
        optimizer_d.zero_grad()
        d_loss.backward()
        optimizer_d.step()
    g_loss = -critic(generator(torch.randn(64, 64))).mean()
    optimizer_g.zero_grad()
    g_loss.backward()
    optimizer_g.step()
    mark()
    if step % 30 == 0:
        print(step, d_loss.item(), g_loss.item())
