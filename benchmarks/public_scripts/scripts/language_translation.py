"""A sequence-to-sequence transformer with source, target and padding masks."""

import torch
from own_clock import mark
from torch import nn


class Translator(nn.Module):
    def __init__(self, vocabulary=800, width=64):
        super().__init__()
        self.source, self.target = nn.Embedding(vocabulary, width), nn.Embedding(vocabulary, width)
        self.transformer = nn.Transformer(width, 4, 2, 2, 128, dropout=0.1, batch_first=True)
        self.ff = nn.Linear(width, vocabulary)

    def forward(self, src, trg, mask, src_pad, trg_pad):
        out = self.transformer(
            self.source(src),
            self.target(trg),
            tgt_mask=mask,
            src_key_padding_mask=src_pad,
            tgt_key_padding_mask=trg_pad,
            memory_key_padding_mask=src_pad,
        )
        return self.ff(out)


def batch():
    lengths = torch.randint(10, 25, (32, 1))
    tokens = torch.randint(1, 800, (32, 24))
    return torch.where(torch.arange(24) < lengths, tokens, 0)


torch.manual_seed(0)
model = Translator()
criterion = nn.CrossEntropyLoss(ignore_index=0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
mask = torch.triu(torch.ones(23, 23, dtype=torch.bool), 1)
mark("setup")
for epoch in range(3):
    model.train()
    for _ in range(40):
        src, trg = batch(), batch()
        given, wanted = trg[:, :-1], trg[:, 1:]
        logits = model(src, given, mask, src == 0, given == 0)
        optimizer.zero_grad()
        loss = criterion(logits.reshape(-1, 800), wanted.reshape(-1))
        loss.backward()
        optimizer.step()
        mark()
    model.eval()
    with torch.no_grad():
        src, trg = batch(), batch()
        model(src, trg[:, :-1], mask, src == 0, trg[:, :-1] == 0)
    mark("evaluation")
    print(epoch, loss.item())
