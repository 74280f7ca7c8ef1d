"""A small transformer that recomputes its activations though it fits many times over."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

STEPS = 80


class Model(nn.Module):
    def __init__(self, width=128, layers=4):
        super().__init__()
        self.embed = nn.Embedding(1_000, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 1_000)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return self.head(x)


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(STEPS):
        tokens = torch.randint(0, 1_000, (8, 128))
        scores = model(tokens)
        loss = nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


main()
