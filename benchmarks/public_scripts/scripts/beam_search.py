"""Beam search with a recurrent decoder: a call of it per place of the answer."""

import torch
from own_clock import mark
from torch import nn


class Decoder(nn.Module):
    def __init__(self, words=8000, width=192):
        super().__init__()
        self.embed, self.cell = nn.Embedding(words, width), nn.GRUCell(width, width)
        self.head = nn.Linear(width, words)

    def forward(self, word, state):
        state = self.cell(self.embed(word), state)
        return torch.log_softmax(self.head(state), -1), state


torch.manual_seed(0)
model = Decoder().eval()
beams, length = 8, 40
mark("setup")
with torch.no_grad():
    for sentence in range(20):
        scores = torch.tensor([0.0] + [-1e9] * (beams - 1))
        state, words = torch.randn(1, 192).expand(beams, -1), torch.zeros(beams, 1).long()
        for _ in range(length):
            logs, state = model(words[:, -1], state)
            total = (scores[:, None] + logs).flatten()
            scores, chosen = total.topk(beams)
            came_from = torch.div(chosen, logs.shape[1], rounding_mode="floor")
            words = torch.cat([words[came_from], (chosen % logs.shape[1])[:, None]], 1)
            state = state[came_from]
            mark()
        print(sentence, scores[0].item(), words[0, :6].tolist())
        mark("sentence")
