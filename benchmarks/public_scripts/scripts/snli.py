"""Premise and hypothesis through one LSTM, a classifier above; dev set every 60 batches."""

import torch
from own_clock import mark
from torch import nn, optim


class SNLIClassifier(nn.Module):
    def __init__(self, vocabulary=3000, width=64, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.projection = nn.Linear(width, width)
        self.encoder = nn.LSTM(width, hidden, bidirectional=True)
        self.out = nn.Sequential(
            nn.Linear(4 * hidden, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 3)
        )

    def encode(self, tokens):
        embedded = torch.relu(self.projection(self.embed(tokens).detach()))
        _, (h, _) = self.encoder(embedded)
        return h.transpose(0, 1).reshape(tokens.size(1), -1)

    def forward(self, premise, hypothesis):
        return self.out(torch.cat([self.encode(premise), self.encode(hypothesis)], 1))


torch.manual_seed(0)
model = SNLIClassifier()
criterion = nn.CrossEntropyLoss()
opt = optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
seen = 0
mark("setup")
for batch in range(180):
    premise = torch.randint(0, 3000, (24, 64))
    hypothesis = torch.randint(0, 3000, (16, 64))
    label = (premise[0] + hypothesis[0]) % 3
    model.train()
    opt.zero_grad()
    answer = model(premise, hypothesis)
    seen += (answer.argmax(1) == label).sum().item()
    loss = criterion(answer, label)
    loss.backward()
    opt.step()
    mark()
    if batch % 60 == 59:
        model.eval()
        with torch.no_grad():
            for _ in range(5):
                model(torch.randint(0, 3000, (24, 64)), torch.randint(0, 3000, (16, 64)))
        print(batch, loss.item(), seen)
        mark("evaluation")
