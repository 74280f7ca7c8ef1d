"""A transformer over patches of time series; normalised per window."""

import torch
from own_clock import mark
from torch import nn


class PatchTST(nn.Module):
    def __init__(self, patch=16, stride=8, window=192, horizon=48, width=64):
        super().__init__()
        self.patch, self.stride = patch, stride
        places = (window - patch) // stride + 1
        self.value = nn.Linear(patch, width)
        self.place = nn.Parameter(torch.zeros(1, places, width))
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(places * width, horizon)

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        patches = ((x - mean) / std).transpose(1, 2).unfold(2, self.patch, self.stride)
        b, channels, places, _ = patches.shape
        hidden = self.value(patches.reshape(b * channels, places, -1)) + self.place
        out = self.head(self.encoder(hidden).flatten(1)).view(b, channels, -1)
        return out.transpose(1, 2) * std + mean


torch.manual_seed(0)
series = torch.randn(6000, 5).cumsum(0)
model = PatchTST()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
criterion = nn.MSELoss()
mark("setup")
for step in range(90):
    starts = torch.randint(0, 5700, (8,)).tolist()
    x = torch.stack([series[s : s + 192] for s in starts])
    y = torch.stack([series[s + 192 : s + 240] for s in starts])
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    mark()
    if step % 20 == 0:
        print(step, loss.item())
