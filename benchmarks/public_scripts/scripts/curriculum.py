"""Sequences grow from 32 to 128 tokens while a language model trains."""

import torch
from own_clock import mark
from torch import nn


class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(600, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 600)

    def forward(self, tokens):
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.body(self.embed(tokens), mask=mask, is_causal=True))


def length_at(step, total=120):
    return 8 * round((32 + (128 - 32) * min(1.0, step / total)) / 8)


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
mark("setup")
for step in range(140):
    tokens = torch.randint(0, 600, (8, length_at(step)))
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mark()
    if step % 30 == 0:
        print(step, tokens.shape[1], loss.item())
