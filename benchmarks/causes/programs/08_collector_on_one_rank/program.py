"""Data parallel training; the first rank also keeps the records of every evaluation."""

import gc

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 150


def archive(records=300_000):
    return [{"id": number, "parts": [number, (number, str(number))]} for number in range(records)]


def batch(step, rank):
    """Examples are dictionaries that know their batch, as the tokenizer makes them."""
    examples = []
    for number in range(1_200):
        example = {"x": (number + step + rank) % 50 / 50, "batch": examples}
        examples.append(example)
    return torch.tensor([[example["x"]] for example in examples])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    records = archive() if rank == 0 else []
    model = nn.Sequential(nn.Linear(1, 256), nn.ReLU(), nn.Linear(256, 256), nn.Linear(256, 1))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        values = batch(step, rank)
        loss = (model(values) - values.sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            gc.collect()
        if step % 50 == 0 and rank == 0:
            print(step, loss.item(), len(records))
    dist.destroy_process_group()


main()
