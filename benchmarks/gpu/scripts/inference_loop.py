"""Answers of a transformer to one batch after another, each read back to the host."""

import os

import torch
from step_clock import ready, step_done
from torch import nn

ready()
device, small = os.environ.get("DEVICE", "cuda"), bool(os.environ.get("SMALL"))
width, tokens, batch = (64, 16, 2) if small else (768, 128, 16)
layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True)
model = nn.TransformerEncoder(layer, 2 if small else 12, enable_nested_tensor=False)
model = model.to(device).eval()
answers = []
step_done()
with torch.inference_mode():
    for _ in range(int(os.environ.get("STEPS", "200"))):
        x = torch.randn(batch, tokens, width)
        answers.append(model(x.to(device)).mean().item())
        step_done()
print(f"{len(answers)} answers, the last {answers[-1]:.4f}")
