"""The training process takes its batches from a process of its own that makes them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import torch
import torch.multiprocessing as mp
from own_clock import clock
from torch import nn


def produce(queue, n):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    for _ in range(n):
        queue.put((torch.randn(64, 512).numpy(), torch.randint(0, 10, (64,)).numpy()))


if __name__ == "__main__":
    torch.manual_seed(0)
    context = mp.get_context("spawn")
    queue = context.Queue(maxsize=16)
    producer = context.Process(target=produce, args=(queue, 220), daemon=True)
    producer.start()
    net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(220):
        with clock.part("step"):
            x, y = (torch.from_numpy(array) for array in queue.get())
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    producer.join()
