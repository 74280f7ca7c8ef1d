"""An encoder and a decoder of recurrent cells with teacher forcing by coin."""

import random

import torch
from own_clock import mark
from torch import nn


class Encoder(nn.Module):
    def __init__(self, words=800, width=96):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(words, width), nn.GRU(width, width)

    def forward(self, src):
        return self.rnn(self.embedding(src))[1]


class Decoder(nn.Module):
    def __init__(self, words=800, width=96):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(words, width), nn.GRU(width, width)
        self.fc_out = nn.Linear(width, words)

    def forward(self, word, hidden):
        output, hidden = self.rnn(self.embedding(word[None]), hidden)
        return self.fc_out(output[0]), hidden


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, src, trg, ratio=0.5):
        hidden, word, outputs = self.encoder(src), trg[0], []
        for t in range(1, len(trg)):
            output, hidden = self.decoder(word, hidden)
            outputs.append(output)
            word = trg[t] if random.random() < ratio else output.argmax(1)
        return torch.stack(outputs)


random.seed(0)
torch.manual_seed(0)
model = Seq2Seq()
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.CrossEntropyLoss()
mark("setup")
for step in range(130):
    src, trg = torch.randint(0, 800, (20, 48)), torch.randint(0, 800, (18, 48))
    optimizer.zero_grad()
    output = model(src, trg)
    loss = criterion(output.flatten(0, 1), trg[1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
    optimizer.step()
    mark()
    if step % 30 == 0:
        print(step, loss.item())
