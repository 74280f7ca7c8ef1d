"""Sampling with a compiled denoiser whose noise level arrives as a Python number."""

import torch
from torch import nn

IMAGES, LEVELS = 12, 100


class Denoiser(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x, settings):
        sigma = settings["sigma"]
        scale = 1.0 / (sigma * sigma + 0.25)
        for layer in self.layers:
            x = x + torch.tanh(torch.sin(x * scale) + torch.cos(layer(x) * sigma)) / (1.0 + sigma)
        return x * scale


def main():
    torch.manual_seed(0)
    model = Denoiser().eval()
    denoise = torch.compile(model, dynamic=False)
    with torch.no_grad():
        for image in range(IMAGES):
            x = torch.randn(256, 128)
            for level in range(LEVELS):
                sigma = (LEVELS - level) / LEVELS
                clean = denoise(x, {"sigma": sigma})
                x = clean + 0.9 * sigma * (x - clean)
            print(image, x.square().mean().item())


main()
