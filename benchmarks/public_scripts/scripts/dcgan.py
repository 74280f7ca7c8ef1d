"""A convolutional GAN: discriminator and generator take a step each per batch."""

import torch
from own_clock import mark
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

nz, ngf, ndf = 32, 16, 16

generator = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 4, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf * 4),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ngf * 2),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ngf),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False),
    nn.Tanh(),
)
discriminator = nn.Sequential(
    nn.Conv2d(3, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
    nn.BatchNorm2d(ndf * 2),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf * 2, 1, 8, 1, 0),
    nn.Flatten(0),
)
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.rand(2048, 3, 32, 32) * 2 - 1), 32, shuffle=True)
criterion = nn.BCEWithLogitsLoss()
optimizer_d = optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_g = optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
for epoch in range(2):
    for i, (real,) in enumerate(loader):
        discriminator.zero_grad()
        label = torch.ones(len(real))
        error_real = criterion(discriminator(real), label)
        error_real.backward()
        fake = generator(torch.randn(len(real), nz, 1, 1))
        error_fake = criterion(discriminator(fake.detach()), 1 - label)
        error_fake.backward()
        optimizer_d.step()
        generator.zero_grad()
        error_g = criterion(discriminator(fake), label)
        error_g.backward()
        optimizer_g.step()
        mark()
        if i % 20 == 0:
            print(epoch, i, (error_real + error_fake).item(), error_g.item())
