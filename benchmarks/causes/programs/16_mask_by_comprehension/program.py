"""A transformer whose attention mask is written as two nested comprehensions."""

import torch
from torch import nn

STEPS, LENGTH, WINDOW = 100, 256, 64


class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Embedding(500, width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 500)

    def forward(self, tokens, mask):
        return self.head(self.body(self.embed(tokens), mask=mask))


def local_mask(length):
    return torch.tensor([[not (0 <= i - j < WINDOW) for j in range(length)] for i in range(length)])


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        tokens = torch.randint(0, 500, (2, LENGTH))
        scores = model(tokens, local_mask(LENGTH))
        loss = nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


main()
