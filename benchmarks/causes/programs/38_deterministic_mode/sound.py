"""Clips of very different lengths, with the switch for a paper's exact numbers left on."""

import torch
from torch import nn

STEPS, LONGEST, WIDTH, BATCH = 250, 6_000, 128, 16


def packed(lengths):
    """A buffer for the longest clip there can be; what lies behind a clip's end is never read."""
    buffer = torch.empty(len(lengths), LONGEST, WIDTH)
    for row, length in enumerate(lengths):
        buffer[row, :length].normal_()
    return buffer


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 8)

    def forward(self, buffer, lengths):
        clips = [self.body(clip[:length]).mean(0) for clip, length in zip(buffer, lengths)]
        return self.head(torch.stack(clips))


def main():
    torch.manual_seed(0)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        lengths = torch.randint(100, 400, (BATCH,)).tolist()
        scores = model(packed(lengths), lengths)
        loss = nn.functional.cross_entropy(scores, torch.tensor(lengths) % 8)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, loss.item())


main()
