"""A convolutional autoencoder takes noise out of images."""

import torch
from own_clock import mark
from torch import nn


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 16, 3, stride=2, padding=1),
            nn.ReLU(True),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(True),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 2, stride=2),
            nn.ReLU(True),
            nn.ConvTranspose2d(16, 1, 2, stride=2),
            nn.Tanh(),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


torch.manual_seed(0)
model = Autoencoder()
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
images = torch.rand(2048, 1, 28, 28) * 2 - 1
mark("setup")
for epoch in range(4):
    for batch in images.split(64):
        noisy = batch + 0.2 * torch.randn_like(batch)
        loss = criterion(model(noisy), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mark()
    print(epoch, loss.item())
