"""How much of real networks' kernel time has a work formula, and are the FLOPs right.

Each network of the zoo, forward and training with each AdamW, under torch's profiler (CPU). The
self time of every operator counts for the recorded op it belongs to. What belongs to none is
overhead if it is a composite, an autograd node or a range, otherwise unmodelled kernel time.
Matrix FLOPs stand beside those of ``torch.utils.flop_counter``.

    PYTHONPATH=. python benchmarks/coverage/run.py --out FILE
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from benchmarks.command import Record, parser
from benchmarks.zoo import MODELS, Network, build
from torch.utils.flop_counter import FlopCounterMode

from gobrrr.live.profiles.candidates import candidate_rows
from gobrrr.live.profiles.profile import HostProfiler, RawEvents
from gobrrr.observe.op_recorder import OpRecorder
from gobrrr.timeline.align import match
from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.nesting import nearest, parents
from gobrrr.work import has_formula, is_composite, work_of
from gobrrr.work.formulas.views import NO_WORK

Step = Callable[[], Any]
PROFILED_STEPS = 5
QUICK = ("resnet50",)


def forward(network: Network) -> Step:
    network.model.eval()

    def step() -> Any:
        with torch.no_grad():
            return network.model(*network.inputs)

    return step


def training(network: Network, **options: Any) -> Step:
    network.model.train()
    optimizer = torch.optim.AdamW(network.model.parameters(), lr=1e-5, **options)

    def step() -> Any:
        optimizer.zero_grad()
        loss = network.loss(network.model(*network.inputs))
        loss.backward()
        optimizer.step()
        return loss

    return step


KINDS: dict[str, Callable[[Network], Step]] = {
    "forward": forward,
    "training": lambda network: training(network, foreach=False),
    "training, foreach": lambda network: training(network, foreach=True),
    "training, fused": lambda network: training(network, fused=True),
}


@dataclass(frozen=True)
class Coverage:
    """One network's step; times are of the median profiled step, in seconds."""

    network: str
    kind: str
    modelled_fraction: float
    kernel_s: float
    overhead_s: float
    ops: int
    ops_without_formula: dict[str, int]
    unmodelled_s: dict[str, float]
    matrix_flops: float
    flop_counter_flops: float
    vector_flops: float
    bytes_moved: float


def cover(name: str, kind: str, *, tiny: bool) -> Coverage:
    """Record a step, profile some, and count what has a formula."""
    step = KINDS[kind](build(name, tiny=tiny))
    step()
    step()
    with FlopCounterMode(display=False) as counter:
        step()
    with OpRecorder() as recorder:
        step()
    profiler = HostProfiler()
    profiler.start()
    for _ in range(PROFILED_STEPS + 1):
        step()
        profiler.mark()
    # The first step under a profiler pays its start-up.
    profiled = profiler.stop()[1:]
    shares = [_times(raw, recorder.ops) for raw in profiled]
    median = sorted(shares, key=lambda s: s[0] / (s[0] + sum(s[1].values())))[len(shares) // 2]
    modelled_ns, unmodelled_ns, overhead_ns = median
    kernel_ns = modelled_ns + sum(unmodelled_ns.values())
    works = [(op.call.name, work_of(op.call)) for op in recorder.ops]
    known = [work for _, work in works if work is not None]
    return Coverage(
        network=name,
        kind=kind,
        modelled_fraction=modelled_ns / kernel_ns,
        kernel_s=kernel_ns * 1e-9,
        overhead_s=overhead_ns * 1e-9,
        ops=len(works),
        ops_without_formula=dict(Counter(op for op, work in works if work is None)),
        unmodelled_s={op: ns * 1e-9 for op, ns in unmodelled_ns.most_common(10)},
        matrix_flops=sum(work.matrix_flops or 0.0 for work in known),
        flop_counter_flops=float(counter.get_total_flops()),
        vector_flops=sum(work.vector_flops or 0.0 for work in known),
        bytes_moved=float(sum(work.bytes_moved or 0 for work in known)),
    )


def _times(raw: RawEvents, recorded: list[StepOp]) -> tuple[float, Counter[str], float]:
    """Self time of one profiled step: with a formula, without (by name), and overhead; in ns."""
    names = [op.call.name for op in recorded]
    parent = parents(raw.start_ns, raw.end_ns, raw.thread)
    rows = candidate_rows(raw, set(names))
    found = match([raw.names[i] for i in raw.name[rows]], names)
    op_of_row = np.full(len(raw), -1)
    op_of_row[rows] = found
    self_ns = (raw.end_ns - raw.start_ns).astype(float)
    inner = parent >= 0
    np.subtract.at(self_ns, parent[inner], (raw.end_ns - raw.start_ns)[inner])
    owner = nearest(parent, op_of_row >= 0)
    modelled, overhead = 0.0, 0.0
    unmodelled: Counter[str] = Counter()
    for row in range(len(raw)):
        own = max(0.0, float(self_ns[row]))
        name = raw.names[raw.name[row]]
        if owner[row] >= 0:
            op = recorded[op_of_row[owner[row]]]
            work = work_of(op.call)
            # Bytes alone (a custom op) do not make a model of the time.
            if work is not None and work.flops is not None and work.bytes_moved is not None:
                modelled += own
            else:
                unmodelled[op.call.name] += own
        elif (
            raw.annotation[row]
            or "::" not in name
            or "autograd::" in name
            or is_composite(name)
            or name in NO_WORK
        ):
            overhead += own
        elif has_formula(name):
            # Known, but not part of the recorded step: the step of this pass differs from it.
            unmodelled[f"{name} (not matched)"] += own
        else:
            unmodelled[name] += own
    return modelled, unmodelled, overhead


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--only", choices=sorted(MODELS))
    made.add_argument("--threads", type=int, default=1)
    options = made.parse_args()
    # On a busy machine several threads wait for each other inside ops, and nothing else counts.
    torch.set_num_threads(options.threads)
    record = Record("coverage", options, "transformers", "diffusers")
    rows = []
    names = [options.only] if options.only else QUICK if options.quick else MODELS
    for name in names:
        for kind in KINDS:
            row = cover(name, kind, tiny=options.quick)
            rows.append(row)
            print(
                f"{name:10} {kind:18} {row.modelled_fraction:8.3%} of {row.kernel_s * 1e3:8.1f} ms"
                f"  {row.ops:5} ops  {row.matrix_flops / 1e9:8.3f} GFLOP (flop_counter "
                f"{row.flop_counter_flops / 1e9:.3f})  {list(row.unmodelled_s)[:3]}",
                flush=True,
            )
    print(json.dumps(summary(rows)))
    record.write({"summary": summary(rows), "rows": [asdict(row) for row in rows]})


def summary(rows: Sequence[Coverage]) -> dict[str, Any]:
    """The least share of kernel time with a formula, and of which network and step."""
    worst = min(rows, key=lambda row: row.modelled_fraction)
    return {
        "worst": worst.modelled_fraction,
        "worst_of": f"{worst.network}, {worst.kind}",
        "at_least_99_percent": all(row.modelled_fraction >= 0.99 for row in rows),
    }


if __name__ == "__main__":
    main()
