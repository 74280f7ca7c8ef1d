"""Skip-gram with negative sampling."""

import torch
from own_clock import mark
from torch import nn


class SGNS(nn.Module):
    def __init__(self, words=10_000, width=64):
        super().__init__()
        self.ivectors = nn.Embedding(words, width, padding_idx=0)
        self.ovectors = nn.Embedding(words, width, padding_idx=0)

    def forward(self, iword, owords, nwords):
        ivector = self.ivectors(iword).unsqueeze(2)
        near = torch.bmm(self.ovectors(owords), ivector).squeeze(2).sigmoid().log()
        away = torch.bmm(self.ovectors(nwords).neg(), ivector).squeeze(2).sigmoid().log()
        return -(near.mean(1) + away.view(-1, 4, 10).sum(2).mean(1)).mean()


torch.manual_seed(0)
frequencies = 1 / torch.arange(1, 10_001).float()
model = SGNS()
optimizer = torch.optim.Adam(model.parameters())
mark("setup")
for step in range(180):
    iword = torch.multinomial(frequencies, 256, replacement=True)
    owords = (iword[:, None] + torch.randint(1, 6, (256, 4))) % 10_000
    nwords = torch.multinomial(frequencies, 256 * 40, replacement=True).view(256, 40)
    loss = model(iword, owords, nwords)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mark()
    if step % 40 == 0:
        print(step, loss.item())
