"""A small data-parallel training in which one rank is slower, by a known amount in a known place.

What the place costs is known by the program's own clock: each rank writes the median seconds per
step that it spent there (``--truth FOLDER``), profiled or not. Kernels are added as a fixed number
of operations, so that every step runs the same ones.

    torchrun --nproc-per-node 2 program.py --fault forward --rank 1 --delay-ms 6 --truth /tmp/truth
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FAULTS = ("none", "input", "forward", "backward", "optimizer", "python", "sleep", "gc", "late")
# Steps between two pauses of the collector.
PAUSE_EVERY = 3


class Fault:
    """What one rank does besides, and how long it took in each step."""

    def __init__(self, kind: str, delay_s: float, mine: bool) -> None:
        self.kind = kind if mine else "none"
        self.delay_s = delay_s
        self.spent_s: list[float] = []
        self._small = torch.randn(128, 128)
        self._out = torch.empty(128, 128)
        self._vector = torch.ones(64 * 1024)
        self._products = self._count(self._product)
        self._passes = self._count(self._pass)
        self._heap: list[dict[str, int]] = []
        self._steps = 0

    def _count(self, once) -> int:  # type: ignore[no-untyped-def]
        for _ in range(20):
            once()
        times = []
        for _ in range(50):
            begin = time.perf_counter()
            once()
            times.append(time.perf_counter() - begin)
        return max(1, round(self.delay_s / statistics.median(times)))

    def _product(self) -> None:
        torch.mm(self._small, self._small, out=self._out)

    def _pass(self) -> None:
        self._vector.mul_(1.0)

    def at(self, place: str) -> None:
        if place != self.kind:
            return
        begin = time.perf_counter()
        if place in ("forward", "backward"):
            with torch.no_grad():
                for _ in range(self._products):
                    self._product()
        elif place == "optimizer":
            with torch.no_grad():
                for _ in range(self._passes):
                    self._pass()
        elif place in ("python", "input"):
            while time.perf_counter() - begin < self.delay_s:
                pass
        elif place == "sleep":
            time.sleep(self.delay_s)
        elif place == "gc":
            self._pause()
        self.spent_s.append(time.perf_counter() - begin)

    def _pause(self) -> None:
        self._steps += 1
        if not self._heap:
            # About 60 ns an object: what one collection is to take.
            wanted = int(self.delay_s * PAUSE_EVERY / 60e-9)
            # What the imports left takes far longer to look through: it is not to be looked at.
            gc.collect()
            gc.freeze()
            self._heap = [{"a": i} for i in range(wanted)]
        if self._steps % PAUSE_EVERY == 0:
            gc.collect()


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


class Net(nn.Module):
    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.first = nn.Linear(256, 512)
        self.middle = nn.Linear(512, 512)
        self.last = nn.Linear(512, 10)
        self.fault = fault

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        self.fault.at("forward")
        x = Slow.apply(torch.relu(self.middle(x)), self.fault)
        return self.last(x)


class Data(Dataset[tuple[torch.Tensor, int]]):
    def __init__(self, fault: Fault, length: int) -> None:
        self.items = torch.randn(64, 256)
        self.fault = fault
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % BATCH == 0:
            self.fault.at("input")
        return self.items[index % 64], index % 10


BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--truth", type=Path, default=None)
    given = parser.parse_args()
    torch.manual_seed(0)
    rank = int(os.environ["RANK"])
    delay_s = given.delay_ms * 1e-3
    if given.fault == "late" and rank == given.rank:
        time.sleep(delay_s)
    dist.init_process_group("gloo")
    late = given.fault == "late"
    fault = Fault(given.fault, 0.0 if late else delay_s, rank == given.rank and not late)
    model = DistributedDataParallel(Net(fault))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # Inside the optimizer's step, as what it does for each parameter is.
    optimizer.register_step_post_hook(lambda *_: fault.at("optimizer"))
    loader = DataLoader(Data(fault, BATCH * given.steps), batch_size=BATCH)
    begin = time.perf_counter()
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        for place in ("python", "sleep", "gc"):
            fault.at(place)
        if given.truth is not None and rank == given.rank and len(fault.spent_s) % 10 == 0:
            write(given.truth, rank, fault, time.perf_counter() - begin)
    dist.destroy_process_group()


def write(folder: Path, rank: int, fault: Fault, seconds: float) -> None:
    # A pause is in one step of several: the mean is what a step loses to it.
    average = statistics.fmean if fault.kind == "gc" else statistics.median
    spent = average(fault.spent_s) if fault.spent_s else 0.0
    text = json.dumps({"spent_s": spent, "steps": len(fault.spent_s), "seconds": seconds})
    (folder / f"rank{rank}.json").write_text(text)


if __name__ == "__main__":
    main()
