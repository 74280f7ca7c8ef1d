"""Gradient accumulation over many micro-batches, copied from a script for a small card."""

import torch
from torch import nn

STEPS, BATCH, MICRO = 70, 128, 2


class Encoder(nn.Module):
    def __init__(self, width=64, layers=3):
        super().__init__()
        self.embed = nn.Embedding(1_000, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens)).mean(1))


def main():
    torch.manual_seed(0)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    parts = BATCH // MICRO
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        tokens = torch.randint(0, 1_000, (BATCH, 16))
        labels = tokens[:, 0] % 2
        for i in range(parts):
            part = slice(i * MICRO, (i + 1) * MICRO)
            loss = nn.functional.cross_entropy(model(tokens[part]), labels[part]) / parts
            loss.backward()
            total += loss.detach()
        optimizer.step()
        if step % 20 == 0:
            print(step, float(total))


main()
