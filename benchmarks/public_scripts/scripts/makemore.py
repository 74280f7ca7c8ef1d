"""Names character by character with a bag-of-words block, samples printed now and then."""

import torch
from own_clock import mark
from torch import nn
from torch.nn import functional as F


class CausalBoW(nn.Module):
    def forward(self, x):
        b, t, c = x.size()
        weight = torch.zeros(b, t, t)
        weight = weight.masked_fill(torch.tril(torch.ones(t, t)) == 0, float("-inf"))
        return F.softmax(weight, dim=-1) @ x


class BoW(nn.Module):
    def __init__(self, vocab=27, width=64, block=16):
        super().__init__()
        self.block = block
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block, width)
        self.cbow = CausalBoW()
        self.mlp = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, width))
        self.lm_head = nn.Linear(width, vocab)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        x = x + self.cbow(x)
        x = x + self.mlp(x)
        logits = self.lm_head(x)
        if targets is None:
            return logits, None
        loss = F.cross_entropy(logits.view(-1, 27), targets.reshape(-1), ignore_index=-1)
        return logits, loss


@torch.no_grad()
def generate(model, idx, count):
    for _ in range(count):
        logits, _ = model(idx[:, -model.block :])
        probs = F.softmax(logits[:, -1, :], dim=-1)
        idx = torch.cat((idx, torch.multinomial(probs, num_samples=1)), dim=1)
    return idx


torch.manual_seed(3407)
words = torch.randint(1, 27, (5000, 17))
model = BoW()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.01)
mark("setup")
for step in range(900):
    batch = words[torch.randint(0, 5000, (64,))]
    _, loss = model(batch[:, :-1], batch[:, 1:])
    model.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    mark()
    if step % 100 == 0:
        print(step, loss.item())
    if step > 0 and step % 300 == 0:
        rows = generate(model, torch.zeros(5, 1, dtype=torch.long), 15)
        print(["".join(chr(96 + int(c)) for c in row[1:]) for row in rows])
        mark("samples")
