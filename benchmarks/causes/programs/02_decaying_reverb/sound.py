"""An adaptive reverb: a leaky state runs over frames of audio that fall silent early."""

import torch
from torch import nn

STEPS, FRAMES, SILENT_FROM = 40, 500, 20


class Reverb(nn.Module):
    def __init__(self, channels=256):
        super().__init__()
        self.into = nn.Linear(32, channels)
        self.out = nn.Linear(channels, 32)
        self.leak = 0.6

    def forward(self, frames):
        state = torch.zeros(frames.shape[1], self.out.in_features)
        drive = self.into(frames) * frames.abs().amax(2, keepdim=True)
        heard = 0.0
        for frame in drive:
            state = self.leak * state + frame
            heard = heard + (state * state).mean(1)
        return self.out(state), heard / len(drive)


def clip():
    audio = torch.randn(FRAMES, 64, 32)
    audio[SILENT_FROM:] = 0.0
    return audio


def main():
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    model = Reverb()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        tail, loudness = model(clip())
        loss = tail.square().mean() + (loudness - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


main()
