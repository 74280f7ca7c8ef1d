"""Predicted against measured steps on this processor, and what a prediction itself takes.

Each network of the zoo, forward and training, on one thread: its step measured, and predicted from
this machine's measured ceilings. On a shared machine a step's wall time holds the time of others:
the figure compared is the CPU time of the process, which for one thread is the step's own. Then a
7 B-parameter decoder's forward pass and a ResNet-50 training step are predicted, each in a process
of its own, for their time and memory.

    PYTHONPATH=. python benchmarks/prediction_cpu/run.py --out FILE
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.command import Record, parser
from benchmarks.zoo import MODELS, Network, build

import gobrrr

LEAST_SAMPLES = 5
SECONDS = 2.0
QUICK, QUICK_S = ("bert",), 0.1
# What the issue asks of a prediction: seconds and bytes.
LIMITS = {"decoder_7b_forward": (5.0, 1e9), "resnet50_training": (3.0, None)}


@dataclass(frozen=True)
class Row:
    """One step; times in seconds, ``ratio`` is predicted over measured."""

    network: str
    kind: str
    measured_cpu_s: float
    measured_wall_s: float
    predicted_s: float
    ratio: float
    predicted_split: dict[str, float]


@dataclass(frozen=True)
class Taken:
    """What a prediction itself takes, seconds and bytes; ``imports_s`` beforehand."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    imports_s: float
    predicted_step_s: float


def step_of(network: Network, kind: str) -> tuple[Callable[[], Any], Any]:
    """A step to measure, and the same as something to predict."""
    if kind == "forward":
        network.model.eval()
        work = gobrrr.Workload(network.model, network.inputs)
    else:
        network.model.train()
        optimizer = torch.optim.AdamW(network.model.parameters(), lr=1e-5)
        work = gobrrr.Workload(network.model, network.inputs, network.loss, optimizer)
    return work.step, work


def measure(step: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Median CPU seconds and median wall seconds of a warm step."""
    for _ in range(2):
        step()
    cpu: list[float] = []
    wall: list[float] = []
    while len(cpu) < LEAST_SAMPLES or sum(cpu) < seconds:
        begin, began = time.perf_counter(), time.process_time()
        step()
        cpu.append(time.process_time() - began)
        wall.append(time.perf_counter() - begin)
    return median(cpu), median(wall)


def compare(name: str, kind: str, *, quick: bool) -> Row:
    torch.manual_seed(0)
    step, work = step_of(build(name, tiny=quick), kind)
    cpu_s, wall_s = measure(step, QUICK_S if quick else SECONDS)
    found = gobrrr.predict(work, "cpu")
    levels = ("compute", "memory", "overhead", "unmodelled")
    return Row(
        name, kind, cpu_s, wall_s, found.step_s, found.step_s / cpu_s,
        {level: getattr(found.split, f"{level}_s") for level in levels},
    )  # fmt: skip


def predict_decoder() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    # Llama 2 7B: https://arxiv.org/abs/2307.09288, table 1 and the published configuration.
    config = LlamaConfig(
        vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32,
    )  # fmt: skip
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
        ids = torch.empty(1, 2048, dtype=torch.long)
    return lambda: gobrrr.predict((model, (ids,)), "H100-SXM")


def predict_resnet() -> Any:
    from transformers import ResNetConfig, ResNetForImageClassification

    with torch.device("meta"):
        model = ResNetForImageClassification(ResNetConfig(num_labels=1000))
        images, labels = torch.empty(64, 3, 224, 224), torch.empty(64, dtype=torch.long)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    work = gobrrr.Workload(
        lambda x: model(x).logits, images, torch.nn.functional.cross_entropy, optimizer, labels
    )
    return lambda: gobrrr.predict(work, "H100-SXM")


PREDICTIONS = {"decoder_7b_forward": predict_decoder, "resnet50_training": predict_resnet}


def peak_bytes() -> int:
    """Largest resident memory of this process (``ru_maxrss`` starts at its parent's)."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def take(name: str) -> Taken:
    """Runs one prediction in this process, which has done nothing else."""
    begin = time.perf_counter()
    run = PREDICTIONS[name]()
    imported, began = time.perf_counter(), time.process_time()
    found = run()
    return Taken(
        seconds=time.perf_counter() - imported,
        cpu_seconds=time.process_time() - began,
        peak_bytes=peak_bytes(),
        imports_s=imported - begin,
        predicted_step_s=found.step_s,
    )


def take_apart(name: str) -> Taken:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--take", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Taken(**json.loads(done.stdout.splitlines()[-1]))


def summary(rows: Sequence[Row], taken: Mapping[str, Taken]) -> dict[str, Any]:
    """Errors of all steps and of every second network, on which nothing was fitted."""
    networks = list(dict.fromkeys(row.network for row in rows))
    errors = sorted(abs(row.ratio - 1) for row in rows)
    reported = sorted(abs(row.ratio - 1) for row in rows if networks.index(row.network) % 2 == 1)
    return {
        "steps": len(rows),
        "median_error": median(errors),
        "within_20_percent": sum(error <= 0.2 for error in errors) / len(errors),
        "worst_error": errors[-1],
        "not_fitted_on": {
            "networks": networks[1::2],
            "median_error": median(reported) if reported else None,
            "within_20_percent": sum(error <= 0.2 for error in reported) / max(1, len(reported)),
        },
        "limits": {
            name: {
                "seconds": limit[0],
                "bytes": limit[1],
                "held": taken[name].cpu_seconds <= limit[0]
                and (limit[1] is None or taken[name].peak_bytes <= limit[1]),
            }
            for name, limit in LIMITS.items()
            if name in taken
        },
    }


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--take", choices=tuple(PREDICTIONS), help="one prediction, in this process"
    )
    options.add_argument("--networks", nargs="*", default=list(MODELS))
    arguments = options.parse_args()
    if arguments.quick:
        arguments.networks = list(QUICK)
    torch.set_num_threads(1)
    if arguments.take:
        print(json.dumps(asdict(take(arguments.take))))
        return
    record = Record("prediction_cpu", arguments, "transformers", "diffusers")
    rows = []
    for name in arguments.networks:
        for kind in ("forward", "training"):
            row = compare(name, kind, quick=arguments.quick)
            rows.append(row)
            print(
                f"{name:10} {kind:9} {row.measured_cpu_s * 1e3:8.1f} ms measured "
                f"{row.predicted_s * 1e3:8.1f} predicted, {row.ratio:.2f}",
                flush=True,
            )
    predictions = ("resnet50_training",) if arguments.quick else tuple(PREDICTIONS)
    taken = {name: take_apart(name) for name in predictions}
    result = {
        "summary": summary(rows, taken),
        "predictions_take": {name: asdict(item) for name, item in taken.items()},
        "rows": [asdict(row) for row in rows],
    }
    record.write(result)
    print(json.dumps(result["summary"], indent=1))


if __name__ == "__main__":
    main()
