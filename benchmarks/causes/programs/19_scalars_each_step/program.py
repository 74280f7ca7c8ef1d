"""A regression that writes each layer's weight and gradient norms to a file at each step."""

import json
import tempfile

import torch
from torch import nn

STEPS, EVERY = 1_200, 1


class ScalarLog:
    def __init__(self, path):
        self.file = open(path, "w")

    def add_scalar(self, tag, value, step):
        self.file.write(json.dumps({"tag": tag, "value": float(value), "step": step}) + "\n")
        self.file.flush()


def log_norms(log, model, step):
    for name, parameter in model.named_parameters():
        log.add_scalar(f"weight/{name}", parameter.detach().norm(), step)
        log.add_scalar(f"gradient/{name}", parameter.grad.norm(), step)


def main():
    torch.manual_seed(0)
    layers = [layer for _ in range(20) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    log = ScalarLog(tempfile.mktemp(suffix=".jsonl"))
    for step in range(STEPS):
        values = torch.randn(64, 64)
        loss = (model(values).squeeze(1) - values[:, 0]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % EVERY == 0:
            log.add_scalar("loss", loss, step)
            log_norms(log, model, step)
    print(loss.item())


main()
