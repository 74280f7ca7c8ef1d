"""A training loop in which something goes wrong, or that does what few do: ``KIND`` and a step."""

import os
import signal
import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

kind = sys.argv[1]
at = int(sys.argv[2]) if len(sys.argv) > 2 else 0
device, small = os.environ.get("DEVICE", "cuda"), bool(os.environ.get("SMALL"))
width, steps = (32, 60) if small else (512, 300)
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(width, width), nn.Linear(width, width), nn.GELU()).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=kind == "capture")
tokens = torch.randint(0, width, (48, 64), device=device)


def step(i):
    optimizer.zero_grad(set_to_none=kind != "capture")
    loss = model(tokens).square().mean()
    if i == at and kind == "out_of_memory":
        more = torch.cuda.mem_get_info()[1] if device != "cpu" else 2**60
        loss = loss + torch.ones(2 * more, dtype=torch.uint8, device=device).sum()
    if i == at and kind == "caught_out_of_memory":
        try:
            torch.ones(2**60, dtype=torch.uint8, device=device)
        except RuntimeError as error:
            print(f"caught {type(error).__name__}")
    if i == at and kind == "assert":
        loss = loss + model(tokens + width).mean()
    loss.backward()
    if i == at and kind == "interrupt":
        signal.raise_signal(signal.SIGINT)
    optimizer.step()
    return loss


def captured():
    """The whole step in a CUDA graph, as PyTorch's notes on them have it."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for i in range(3):
            step(i)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=False)
    with torch.cuda.graph(graph):
        loss = step(3)
    for _ in range(steps):
        graph.replay()
    return loss


def under_profiler():
    """A profiler of the program's own, for a few steps at its beginning or in the midst of it."""
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if device != "cpu" else []
    with profile(
        activities=activities, schedule=schedule(wait=at, warmup=1, active=5, repeat=1)
    ) as p:
        for i in range(steps):
            loss = step(i)
            p.step()
    print(
        p.key_averages().table(sort_by="self_cpu_time_total", row_limit=3, max_name_column_width=20)
    )
    return loss


if kind == "capture":
    loss = captured()
elif kind == "own_profiler":
    loss = under_profiler()
else:
    for i in range(steps):
        loss = step(i)
print(f"finished, loss {loss.item():.6f}")
