"""A small student follows the logits and hidden states of a frozen teacher."""

import torch
import torch.nn.functional as F
from own_clock import mark
from torch import nn


class Model(nn.Module):
    def __init__(self, layers, width=96, vocabulary=800):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x), x


torch.manual_seed(0)
teacher, student = Model(4).eval().requires_grad_(False), Model(1)
optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4)
temperature = 2.0
mark("setup")
for step in range(100):
    tokens = torch.randint(0, 800, (8, 48))
    with torch.no_grad():
        wanted, hidden = teacher(tokens)
    logits, own = student(tokens)
    soft = F.kl_div(
        F.log_softmax(logits / temperature, -1),
        F.softmax(wanted / temperature, -1),
        reduction="batchmean",
    )
    hard = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    close = 1 - F.cosine_similarity(own, hidden, dim=-1).mean()
    loss = temperature**2 * soft / 48 + hard + close
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mark()
    if step % 25 == 0:
        print(step, loss.item())
