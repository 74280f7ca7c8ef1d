"""A text classifier whose sentences differ much in length, padded to the longest of a batch."""

import random

import torch
from torch import nn

STEPS, BATCH, SENTENCES = 60, 16, 960


class Classifier(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.embed = nn.Embedding(2_000, width, padding_idx=0)
        layer = nn.TransformerEncoderLayer(width, 4, 3 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 2)

    def forward(self, input_ids, attention_mask):
        hidden = self.body(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        kept = attention_mask.unsqueeze(-1).float()
        return self.head((hidden * kept).sum(1) / kept.sum(1))


def collate(sentences):
    longest = max(map(len, sentences))
    input_ids = torch.zeros(len(sentences), longest, dtype=torch.long)
    attention_mask = torch.zeros(len(sentences), longest, dtype=torch.long)
    for row, sentence in enumerate(sentences):
        input_ids[row, : len(sentence)] = torch.tensor(sentence)
        attention_mask[row, : len(sentence)] = 1
    return input_ids, attention_mask


def batches():
    source = random.Random(0)
    lengths = [min(320, int(12 + source.expovariate(1 / 40))) for _ in range(SENTENCES)]
    sentences = [[source.randrange(1, 2_000) for _ in range(length)] for length in lengths]
    sentences.sort(key=len)
    made = [sentences[i : i + BATCH] for i in range(0, SENTENCES, BATCH)]
    source.shuffle(made)
    return made


def main():
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step, sentences in enumerate(batches()):
        input_ids, attention_mask = collate(sentences)
        labels = torch.tensor([sentence[0] % 2 for sentence in sentences])
        scores = model(input_ids=input_ids, attention_mask=attention_mask)
        loss = nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


main()
