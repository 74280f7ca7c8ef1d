"""Spectrograms through convolutions and a GRU, trained with CTC."""

import torch
from own_clock import mark
from torch import nn


class Recogniser(nn.Module):
    def __init__(self, letters=29):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(40, 64, 5, 2, 2), nn.ReLU(), nn.Conv1d(64, 64, 5, 1, 2), nn.ReLU()
        )
        self.rnn = nn.GRU(64, 64, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, letters)

    def forward(self, spectrum):
        hidden, _ = self.rnn(self.conv(spectrum).transpose(1, 2))
        return self.head(hidden).log_softmax(-1).transpose(0, 1)


torch.manual_seed(0)
model = Recogniser()
window = torch.hann_window(160)
mel = torch.rand(40, 81)
criterion = nn.CTCLoss(blank=0, zero_infinity=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
mark("setup")
for step in range(90):
    audio = torch.randn(8, 16_000)
    spectrum = torch.stft(audio, 160, 100, window=window, return_complex=True).abs()
    logs = model(torch.log1p(mel @ spectrum))
    targets = torch.randint(1, 29, (8, 20))
    lengths = torch.full((8,), logs.shape[0]), torch.randint(10, 21, (8,))
    loss = criterion(logs, targets, *lengths)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    mark()
    if step % 20 == 0:
        print(step, loss.item())
