"""A module with training_step and configure_optimizers, driven by a trainer of hooks."""

import torch
from own_clock import mark
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitAutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 16))
        self.decoder = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784))
        self.logged = {}

    def training_step(self, batch, index):
        (x,) = batch
        x = x.view(len(x), -1)
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        (x,) = batch
        x = x.view(len(x), -1)
        self.log("valid_loss", nn.functional.mse_loss(self.decoder(self.encoder(x)), x))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def log(self, name, value):
        self.logged[name] = value.detach()


class Trainer:
    def __init__(self, max_epochs, check_every=50):
        self.max_epochs, self.check_every, self.global_step = max_epochs, check_every, 0

    def optimizer_step(self, module, optimizer, batch, index):
        def closure():
            loss = module.training_step(batch, index)
            optimizer.zero_grad()
            loss.backward()
            return loss

        optimizer.step(closure)
        self.global_step += 1

    def validate(self, module, loader):
        module.eval()
        with torch.no_grad():
            for index, batch in enumerate(loader):
                module.validation_step(batch, index)
        module.train()

    def fit(self, module, train, valid):
        optimizer = module.configure_optimizers()
        for epoch in range(self.max_epochs):
            for index, batch in enumerate(train):
                self.optimizer_step(module, optimizer, batch, index)
                mark()
                if self.global_step % self.check_every == 0:
                    self.validate(module, valid)
                    mark("evaluation")
            print(epoch, {name: value.item() for name, value in module.logged.items()})


torch.manual_seed(0)
images = TensorDataset(torch.rand(8000, 1, 28, 28))
train, valid = torch.utils.data.random_split(images, [7200, 800])
Trainer(4).fit(LitAutoEncoder(), DataLoader(train, 64, shuffle=True), DataLoader(valid, 64))
