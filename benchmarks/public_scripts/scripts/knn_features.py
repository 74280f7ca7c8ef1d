"""Neighbours in the space of a frozen network's features vote on a class."""

import torch
from own_clock import mark
from torch import nn


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 96, 8, 8)
        layer = nn.TransformerEncoderLayer(96, 4, 192, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, images):
        return self.body(self.patch(images).flatten(2).transpose(1, 2)).mean(1)


torch.manual_seed(0)
model = Backbone().eval()
bank = nn.functional.normalize(torch.randn(20_000, 96), dim=1)
classes = torch.randint(0, 10, (20_000,))
right = 0
mark("setup")
with torch.no_grad():
    for batch in range(140):
        images, target = torch.rand(16, 3, 64, 64), torch.randint(0, 10, (16,))
        features = nn.functional.normalize(model(images), dim=1)
        similarity, nearest = (features @ bank.T).topk(20, dim=1)
        votes = torch.zeros(16, 10).scatter_add_(1, classes[nearest], (similarity / 0.07).exp())
        right += (votes.argmax(1) == target).sum().item()
        mark()
print(right / 2240)
