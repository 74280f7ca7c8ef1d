"""Layers learn by goodness of positive and negative data, without a backward pass through all."""

import torch
from own_clock import mark
from torch import nn
from torch.optim import Adam


class Layer(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.relu = nn.ReLU()
        self.opt = Adam(self.parameters(), lr=0.03)

    def forward(self, x):
        direction = x / (x.norm(2, 1, keepdim=True) + 1e-4)
        return self.relu(torch.mm(direction, self.weight.T) + self.bias.unsqueeze(0))

    def train_layer(self, positive, negative, epochs=110):
        for i in range(epochs):
            good = self.forward(positive).pow(2).mean(1)
            bad = self.forward(negative).pow(2).mean(1)
            loss = torch.log(1 + torch.exp(torch.cat([2.0 - good, bad - 2.0]))).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            mark()
            if i % 40 == 0:
                print("Loss:", loss.item())
        return self.forward(positive).detach(), self.forward(negative).detach()


torch.manual_seed(1234)
layers = [Layer(512, 512), Layer(512, 512)]
positive = torch.rand(800, 512)
negative = positive[torch.randperm(800)] * 0.9
mark("setup")
for layer in layers:
    positive, negative = layer.train_layer(positive, negative)
    mark("layer")
