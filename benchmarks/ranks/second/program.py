"""Trainings on several ranks, one of which is slower by a known amount in a known place.

Every rank does the same besides its training: it reads its clocks around each place where a delay
can be, keeps them in memory, and writes them once, when the process ends (``--truth FOLDER``; also
where ``gobrrr run --stop`` ends it). A delay that computes is a fixed number of operations, chosen
at the start by the processor time that one takes; a sleep is a fixed time.

    torchrun --nproc-per-node 2 program.py --parallel fsdp --fault forward --rank 1 --delay-ms 6 \
        --truth /tmp/truth
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FAULTS = ("none", "input", "forward", "backward", "optimizer", "python", "sleep", "gc", "late")
PARALLEL = ("ddp", "fsdp", "hand")
# Steps from one pause of the collector to the next.
PAUSE_EVERY = 2
# Of all ranks together, so that a step of four ranks takes as long on two cores as one of two.
IMAGES, SEQUENCES = 64, 8
LENGTH, WIDTH, CLASSES = 48, 192, 16


class Fault:
    """What one rank does besides, and the clocks around it in each step."""

    def __init__(self, kind: str, delay_s: float, mine: bool) -> None:
        self.kind = kind
        self.delay_s = delay_s if mine else 0.0
        # When each began (``perf_counter``), its wall time, and the thread's processor time.
        self.spent: list[tuple[float, float, float]] = []
        self.ended: list[float] = []
        self._left = torch.randn(160, 160)
        self._product = torch.empty(160, 160)
        self._state = torch.ones(96 * 1024)
        self._do: Callable[[], object] | None = {
            "input": self._decode,
            "forward": self._multiply,
            "backward": self._multiply,
            "optimizer": self._average,
            "python": self._format,
        }.get(kind)
        self._times = self._counted() if self._do and self.delay_s else 0
        self._heap: list[dict[str, int]] = []
        if kind == "gc":
            gc.disable()

    def _counted(self) -> int:
        assert self._do is not None
        for _ in range(20):
            self._do()
        times = []
        for _ in range(60):
            begin = time.thread_time()
            self._do()
            times.append(time.thread_time() - begin)
        return max(1, round(self.delay_s / statistics.median(times)))

    def _fill_heap(self) -> None:
        """As many objects as make one collection take the delay of all steps that share it."""
        count = 20_000
        for _ in range(4):
            self._heap = [{"a": i} for i in range(count)]
            gc.collect()
            begin = time.thread_time()
            gc.collect()
            count = int(count * self.delay_s * PAUSE_EVERY / (time.thread_time() - begin))
        self._heap = [{"a": i} for i in range(count)]

    def _multiply(self) -> None:
        torch.mm(self._left, self._left, out=self._product)

    def _average(self) -> None:
        self._state.mul_(0.999)

    @staticmethod
    def _decode() -> int:
        return sum(byte * 3 & 255 for byte in bytes(400))

    @staticmethod
    def _format() -> int:
        return len(", ".join(f"{i}: {i / 7:.3f}" for i in range(60)))

    def at(self, place: str) -> None:
        """The place is reached, on any rank."""
        if place != self.kind:
            return
        begin, began_ran = time.perf_counter(), time.thread_time()
        if place == "sleep":
            time.sleep(self.delay_s)
        elif place == "gc":
            if self._heap and len(self.ended) % PAUSE_EVERY == 0:
                gc.collect()
        elif self._do is not None:
            with torch.no_grad():
                for _ in range(self._times):
                    self._do()
        ran = time.thread_time() - began_ran
        self.spent.append((begin, time.perf_counter() - begin, ran))

    def step_ended(self) -> None:
        """The loop's body has come to its end, on any rank."""
        if self.kind == "gc" and not self.ended:
            # What the imports of the first step left takes far longer to look through than a heap.
            gc.collect()
            gc.freeze()
            if self.delay_s:
                self._fill_heap()
        self.ended.append(time.perf_counter())

    def write(self, folder: Path, rank: int) -> None:
        text = json.dumps({"spent": self.spent, "ended_s": self.ended})
        (folder / f"rank{rank}.json").write_text(text)


class Slow(torch.autograd.Function):
    """Nothing forward; the fault's work backward."""

    @staticmethod
    def forward(ctx, x, fault):  # type: ignore[no-untyped-def]
        ctx.fault = fault
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        ctx.fault.at("backward")
        return gradient, None


class Images(nn.Module):
    """A small convolutional network on 32 x 32 images."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU())
        self.second = nn.Sequential(
            nn.Conv2d(24, 48, 3, stride=2, padding=1), nn.BatchNorm2d(48), nn.ReLU()
        )
        self.third = nn.Sequential(
            nn.Conv2d(48, 96, 3, stride=2, padding=1), nn.BatchNorm2d(96), nn.ReLU()
        )
        self.last = nn.Linear(96, CLASSES)
        self.fault = fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first(x))
        self.fault.at("forward")
        x = Slow.apply(x, self.fault)
        return self.last(self.third(x).mean((2, 3)))


class Sequences(nn.Module):
    """A small transformer encoder."""

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.embed = nn.Embedding(512, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.last = nn.Linear(WIDTH, CLASSES)
        self.fault = fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](self.embed(x))
        self.fault.at("forward")
        x = Slow.apply(x, self.fault)
        return self.last(self.blocks[1](x).mean(1))


class Data(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, fault: Fault, items: torch.Tensor, batch: int, steps: int) -> None:
        self.fault, self.items, self.batch, self.length = fault, items, batch, batch * steps

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % self.batch == 0:
            self.fault.at("input")
        return self.items[index % len(self.items)], index % CLASSES


def wrapped(model: nn.Module, parallel: str) -> nn.Module:
    if parallel == "ddp":
        return DistributedDataParallel(model)
    if parallel == "fsdp":
        assert isinstance(model, Sequences)
        for block in model.blocks:
            fully_shard(block)
        return fully_shard(model)
    return model


def average_gradients(model: nn.Module) -> None:
    """By hand: one all-reduce of all gradients, as people write it without a wrapper."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts):
        gradient.copy_(part.view_as(gradient))


def train(fault: Fault, parallel: str, steps: int) -> None:
    world = dist.get_world_size()
    if parallel == "fsdp":
        model, batch = wrapped(Sequences(fault), parallel), SEQUENCES // world
        items = torch.randint(512, (64, LENGTH))
    else:
        model, batch = wrapped(Images(fault), parallel), IMAGES // world
        items = torch.randn(64, 3, 32, 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # Inside the optimizer's step, as what it does for each parameter is.
    optimizer.register_step_post_hook(lambda *_: fault.at("optimizer"))
    for x, y in DataLoader(Data(fault, items, batch, steps), batch_size=batch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if parallel == "hand":
            average_gradients(model)
        optimizer.step()
        for place in ("python", "sleep", "gc"):
            fault.at(place)
        fault.step_ended()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=PARALLEL, default="ddp")
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--truth", type=Path, default=None)
    given = parser.parse_args()
    torch.manual_seed(0)
    rank = int(os.environ["RANK"])
    mine = rank == given.rank
    if given.fault == "late" and mine:
        time.sleep(given.delay_ms * 1e-3)
    dist.init_process_group("gloo")
    fault = Fault(given.fault, given.delay_ms * 1e-3, mine)
    try:
        train(fault, given.parallel, given.steps)
    finally:
        if given.truth is not None:
            fault.write(given.truth, rank)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
