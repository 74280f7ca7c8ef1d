"""Sentences are encoded in batches of similar length, pooled and normalised."""

import random

import torch
from own_clock import mark
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(3000, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, features):
        hidden = self.embed(features["input_ids"])
        hidden = self.body(hidden, src_key_padding_mask=features["attention_mask"] == 0)
        kept = features["attention_mask"].unsqueeze(-1).float()
        return {"sentence_embedding": (hidden * kept).sum(1) / kept.sum(1).clamp(min=1e-9)}


def tokenize(batch):
    longest = max(len(sentence.split()) for sentence in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    for row, sentence in enumerate(batch):
        words = [int(word[1:]) for word in sentence.split()]
        ids[row, : len(words)] = torch.tensor(words)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def encode(model, sentences, batch_size=16):
    order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    found = []
    mark("sorted")
    for start in range(0, len(sentences), batch_size):
        batch = [sentences[i] for i in order[start : start + batch_size]]
        features = tokenize(batch)
        with torch.no_grad():
            out = model(features)["sentence_embedding"]
        found.extend(nn.functional.normalize(out, dim=1).cpu())
        mark()
    places = {i: place for place, i in enumerate(order)}
    return torch.stack([found[places[i]] for i in range(len(sentences))])


random.seed(0)
torch.manual_seed(0)
texts = [
    " ".join(f"w{random.randrange(1, 3000)}" for _ in range(random.randint(40, 80)))
    for _ in range(2400)
]
model = Encoder().eval()
print(encode(model, texts).mean().item())
