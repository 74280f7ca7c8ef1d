"""A trainer class with callbacks and an endless loader trains a small GPT to sort."""

import time
from collections import defaultdict

import torch
from own_clock import mark
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler


class SortDataset(Dataset):
    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        inputs = torch.randint(0, 3, (12,))
        both = torch.cat((inputs, inputs.sort()[0]))
        x, y = both[:-1].clone(), both[1:].clone()
        y[:11] = -1
        return x, y


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.heads = heads

    def attention(self, x):
        b, t, c = x.size()
        q, k, v = (
            y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for y in self.c_attn(x).split(c, 2)
        )
        score = (q @ k.transpose(-2, -1)) / k.size(-1) ** 0.5
        score = score.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        return self.c_proj((F.softmax(score, -1) @ v).transpose(1, 2).reshape(b, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(3, width), nn.Embedding(24, width)
        self.h = nn.ModuleList([Block(width, 3) for _ in range(3)])
        self.lm_head = nn.Linear(width, 3)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(x)
        return logits, F.cross_entropy(logits.view(-1, 3), targets.view(-1), ignore_index=-1)


class Trainer:
    def __init__(self, model, data, max_iters):
        self.model, self.data, self.max_iters = model, data, max_iters
        self.callbacks = defaultdict(list)

    def add_callback(self, event, callback):
        self.callbacks[event].append(callback)

    def run(self):
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-4, betas=(0.9, 0.95))
        sampler = RandomSampler(self.data, replacement=True, num_samples=int(1e10))
        iterator = iter(DataLoader(self.data, sampler=sampler, batch_size=64))
        self.iter_num, self.iter_time = 0, time.time()
        while self.iter_num < self.max_iters:
            x, y = next(iterator)
            _, self.loss = self.model(x, y)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            mark()
            for callback in self.callbacks["on_batch_end"]:
                callback(self)
            self.iter_num += 1
            self.iter_dt, self.iter_time = time.time() - self.iter_time, time.time()


def batch_end_callback(trainer):
    if trainer.iter_num % 50 == 0:
        print(f"iter {trainer.iter_num}: train loss {trainer.loss.item():.5f}")


torch.manual_seed(3407)
trainer = Trainer(GPT(), SortDataset(), 200)
trainer.add_callback("on_batch_end", batch_end_callback)
mark("setup")
trainer.run()
