"""The curve of peak memory against step time that the partitioner's memory budget makes.

    PYTHONPATH=. python benchmarks/memory_budget/run.py --out FILE

Two programs that train: two transformer blocks, whose products nobody computes again for nothing,
and a chain of pointwise operations, of which every one is cheap to compute again. Both run through
``gobrrr fix --only memory_budget``; five compilations each take a minute or several.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
import torch
from benchmarks.command import Record, parser
from torch import Tensor, nn

from gobrrr import Workload
from gobrrr.fixes.compilation.memory_budget import FAMILY
from gobrrr.pipeline.fix import fix_on, program_bench
from gobrrr.search.options import Options
from gobrrr.verification.messages import Target

HERE = Path(__file__).resolve()
TOLERANCE = 1e-2
PROGRAMS = ("transformer_blocks", "pointwise_chain")
# With --quick: one compilation.
QUICK_S, QUICK_FIX = 5.0, "memory_budget_50"


class Block(nn.Module):
    """A transformer block before its normalisations."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        n, t, c = x.shape
        q, k, v = (
            part.view(n, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.qkv(self.before(x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


def transformer_blocks() -> Workload:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(Block(128, 4), Block(128, 4))
    return _training(model, torch.randn(8, 128, 128))


class Chain(nn.Module):
    """Its gradient needs x and the clamped x of every link."""

    def __init__(self, width: int, links: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.links = links

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.links):
            x = x * (self.scale * x).clamp(-1.0, 1.0) + 0.5
        return x


def pointwise_chain() -> Workload:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return _training(Chain(256, 6), torch.randn(4096, 256))


def pointwise_chain_tiny() -> Workload:
    """For ``--quick``."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return _training(Chain(64, 2), torch.randn(256, 64))


def _training(model: nn.Module, x: Tensor) -> Workload:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    return Workload(model, x, loss=lambda y: y.square().mean(), optimizer=optimizer)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--budget", type=float, default=600.0, help="seconds for each program")
    options.add_argument("--only", default=",".join(PROGRAMS))
    options.add_argument("--note", default="", help="what else ran on the machine, for the file")
    arguments = options.parse_args()
    if arguments.quick:
        arguments.budget, arguments.only = QUICK_S, "pointwise_chain_tiny"
    torch.set_num_threads(1)
    record = Record("memory_budget", arguments)
    found: dict[str, Any] = {}
    for name in arguments.only.split(","):
        found[name] = examine(name, arguments.budget, arguments.quick)
        settings = {"threads": 1, "budget_s": arguments.budget, "tolerance": TOLERANCE}
        record.write({"settings": settings, "note": arguments.note, "programs": found})
        print(name, json.dumps(found[name]["curve"]), flush=True)


def examine(name: str, budget_s: float, quick: bool) -> dict[str, Any]:
    """The curve of one program, with what the program measures against itself."""
    begun = time.monotonic()
    bench = program_bench(Target("function", f"{HERE}:{name}"), TOLERANCE)
    if quick:
        # The winner is told as its trial was: fresh processes would each compile it again.
        bench.measure_again = lambda fixes, trial, *_: trial
    options = Options(only=(QUICK_FIX if quick else FAMILY,), budget_s=budget_s)
    result = fix_on(bench, options, None, lambda *_: None)
    summary = result.diagnosis.fixes
    assert summary is not None
    return {
        "step_s": result.diagnosis.step_s,
        "null": msgspec.to_builtins(summary.null),
        "curve": msgspec.to_builtins(summary.memory_curve),
        "trials": [
            {"fix": tried.fix.name, "expected_s": tried.prospect.expected_s,
             "verdict": tried.trial and tried.trial.verdict,
             "speedup": tried.trial and msgspec.to_builtins(tried.trial.speedup),
             "reason": tried.trial.reason if tried.trial else tried.reason}
            for tried in result.found.tried
        ],
        "took_s": round(time.monotonic() - begun, 1),
        "load_average": os.getloadavg()[0],
    }  # fmt: skip


if __name__ == "__main__":
    main()
