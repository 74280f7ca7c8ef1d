"""Steps with gobrrr timing them, in turns with steps without, in one process. Prints JSON.

Processes differ from each other by more than gobrrr costs; blocks of a few steps in turns do not.
The watcher and the session are those of ``gobrrr run``, in the phase that times plain steps: the
program's modules are known by then, and only those called from outside have hooks.

    python benchmarks/own_cost/interleaved.py WIDTH BLOCKS
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn

from gobrrr.capture.call_watch import CallWatch
from gobrrr.capture.measurements import Plan
from gobrrr.capture.session import TIME, Session
from gobrrr.capture.steps import StepWatcher
from gobrrr.cli.progress import Progress
from gobrrr.measure import ratio_interval

STEPS_PER_BLOCK = 10


def main() -> None:
    size, blocks = int(sys.argv[1]), int(sys.argv[2])
    torch.manual_seed(0)
    layers = (layer for _ in range(6) for layer in (nn.Linear(size, size), nn.GELU()))
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.randn(64, size)

    def step() -> None:
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()

    def block() -> float:
        begin = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        return (time.perf_counter() - begin) / STEPS_PER_BLOCK

    def settle() -> None:
        # A new watcher finds out in three steps what ends one.
        for _ in range(4):
            step()

    with Path(os.devnull).open("w") as nowhere:
        calls = CallWatch()
        session = Session(Plan(warmup=3, steps=10**9), on_phase=Progress(nowhere), calls=calls)

        def boundary(source: str, restarted: bool) -> None:
            session.boundary(source)

        watcher = StepWatcher(boundary, calls)
        watcher.install()
        while not (session.phase == TIME and session.result.profiled):
            step()
        watcher.remove()
        watched, plain = [], []
        for turn in range(2 * blocks):
            # with, without, without, with, ...: a steady drift hits both alike.
            if turn % 4 in (0, 3):
                before = len(session.result.plain_ns[1])
                watcher = StepWatcher(boundary, calls)
                watcher.install()
                settle()
                # As the session does by the time it times steps: modules are known by now.
                watcher.settle()
                watched.append(block())
                watcher.remove()
                assert len(session.result.plain_ns[1]) > before, "gobrrr did not time the block"
            else:
                settle()
                plain.append(block())
    ratio, low, high = ratio_interval(watched, plain)
    row = {"width": size, "when": "while timing, in turns", "step_s": statistics.median(plain)}
    print(json.dumps({**row, "blocks": blocks, "ratio": ratio, "low": low, "high": high}))


if __name__ == "__main__":
    main()
