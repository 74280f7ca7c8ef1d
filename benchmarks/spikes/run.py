"""Spike recovery: add work of known kind and size to a real step; does the right leaf grow by it?

Three steps x three kinds of spike x two sizes. Each spike is timed alone, outside any profiler,
and once more in its place after a base step, where the same loop may take longer (threads of the
last op still spin, caches are cold). Base and spiked step are diagnosed in turn, several rounds,
and the growth of every top level is the median over rounds. A round in which the whole step did not
grow by the spike's length is repeated (twice the rounds at most) and listed: the machine drifted,
and no attribution could tell. Errors are shares of the spiked step;
``error`` is against the spike timed alone, ``error_in_place`` against the spike in its place.
The summary has the errors as shares of the spike itself as well, which are larger.

    PYTHONPATH=. python benchmarks/spikes/run.py --out FILE
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from benchmarks.command import Record, parser

import gobrrr
from gobrrr.attribution.leaves import top_levels
from gobrrr.devices import ceilings_for_this_machine

Step = Callable[[], Any]
# Share of the step by which its growth may miss the spike before a round counts as drift.
MOST_DRIFT = 0.03
MOST_DROPPED, QUICK_DROPPED = 2, 0
# Seconds that a base step is timed for, and a spike before and after; with --quick a tenth of it.
BASE_S, SPIKE_S, QUICK_SHARE = 1.0, 0.5, 0.1
RIGHT_LEVEL = {"matmul": "compute", "stream": "memory", "python": "overhead"}
RIGHT_LEAVES = {
    "matmul": ("compute.matrix.roof", "compute.matrix.below"),
    "stream": ("memory.device.roof", "memory.device.below"),
    "python": ("overhead.python",),
}


def gpt_training() -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=2048, n_positions=128, n_embd=256, n_layer=4, n_head=4)
    model = GPT2LMHeadModel(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(0, 2048, (4, 128))

    def step() -> Any:
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss

    return step


def resnet_inference() -> Step:
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    model = ResNetForImageClassification(ResNetConfig()).eval()
    images = torch.randn(2, 3, 160, 160)

    def step() -> Any:
        with torch.no_grad():
            return model(images).logits

    return step


def dit_inference() -> Step:
    from diffusers import DiTTransformer2DModel

    torch.manual_seed(0)
    model = DiTTransformer2DModel(
        num_attention_heads=8, attention_head_dim=64, in_channels=4, num_layers=2, sample_size=32,
        num_embeds_ada_norm=1000,
    ).eval()  # fmt: skip
    latents, when = torch.randn(2, 4, 32, 32), torch.tensor([10, 10])
    labels = torch.tensor([1, 2])

    def step() -> Any:
        with torch.no_grad():
            return model(latents, timestep=when, class_labels=labels).sample

    return step


STEPS: dict[str, Callable[[], Step]] = {
    "gpt_training": gpt_training,
    "resnet_inference": resnet_inference,
    "dit_inference": dit_inference,
}


def small_layers() -> Step:
    """For ``--quick``: a few milliseconds."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))
    rows = torch.randn(128, 256)

    def step() -> Any:
        with torch.no_grad():
            return layers(rows)

    return step


SIZES = (0.1, 0.5)
QUICK: dict[str, Callable[[], Step]] = {"small_layers": small_layers}


def matmul_chain(seconds: float) -> Step:
    weight = torch.randn(512, 512) / 512**0.5
    start = torch.randn(512, 512)

    def chain(repeats: int) -> Any:
        value = start
        for _ in range(repeats):
            value = value @ weight
        return value

    return sized(chain, seconds)


def streaming_pass(seconds: float) -> Step:
    # 192 MiB: six times the last cache, in place, so that no page is fresh.
    buffer = torch.ones(48 * 2**20)

    def stream(parts: int) -> Any:
        # Sixteenths of the buffer, round and round.
        length = buffer.numel() // 16
        for part in range(parts):
            buffer[(part % 16) * length : (part % 16 + 1) * length].mul_(1.0)
        return buffer

    return sized(stream, seconds)


def python_loop(seconds: float) -> Step:
    def loop(repeats: int) -> int:
        total = 0
        for i in range(repeats * 1000):
            total += i & 3
        return total

    return sized(loop, seconds)


def sized(work: Callable[[int], Any], seconds: float) -> Step:
    """The work repeated so often that it takes about ``seconds``."""
    work(2)
    begin = time.perf_counter()
    work(8)
    each = (time.perf_counter() - begin) / 8
    repeats = max(1, round(seconds / each))
    return lambda: work(repeats)


SPIKES: dict[str, Callable[[float], Step]] = {
    "matmul": matmul_chain,
    "stream": streaming_pass,
    "python": python_loop,
}


def median_time(step: Step, seconds: float) -> float:
    samples: list[float] = []
    step()
    while len(samples) < 5 or sum(samples) < seconds:
        begin = time.perf_counter()
        step()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples)


def median_time_after(base: Step, spike: Step, repeats: int = 5) -> float:
    samples = []
    for _ in range(repeats):
        base()
        begin = time.perf_counter()
        spike()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples)


@dataclass
class Recovery:
    step: str
    spike: str
    size: float
    step_s: float
    spike_s: float
    spike_in_place_s: float
    recovered_s: float
    error: float
    error_in_place: float
    leaf_error: float
    others: dict[str, float]
    dropped_for_drift: list[float]


def recover(
    name: str, make: Callable[[], Step], kind: str, size: float, rounds: int, ceilings: Any,
    quick: bool,
) -> Recovery:  # fmt: skip
    base = make()
    share, most_dropped = (QUICK_SHARE, QUICK_DROPPED) if quick else (1.0, MOST_DROPPED)
    base_s = median_time(base, share * BASE_S)
    spike = SPIKES[kind](base_s * size)

    def spiked() -> Any:
        result = base()
        spike()
        return result

    growth: list[dict[str, float]] = []
    leaf_growth: list[float] = []
    spikes: list[float] = []
    in_place: list[float] = []
    lengths: list[float] = []
    dropped: list[float] = []
    while len(lengths) < rounds:
        alone = median_time(spike, share * SPIKE_S)
        before, after = (
            gobrrr.diagnose(step, batch_test=False, restore=False, ceilings=ceilings, steps=12)
            for step in (base, spiked)
        )
        alone = (alone + median_time(spike, share * SPIKE_S)) / 2
        placed = median_time_after(base, spike)
        # Leaves sum to the step, so a step that did not grow by the spike says that the machine
        # changed its speed between the two, whichever leaf that lands in: no attribution can pass.
        grew = after.step_s - before.step_s
        drift = min((grew - alone, grew - placed), key=abs) / after.step_s
        if abs(drift) > MOST_DRIFT and len(dropped) < most_dropped * rounds:
            dropped.append(drift)
            continue
        spikes.append(alone)
        in_place.append(placed)
        one, two = top_levels(before.leaves), top_levels(after.leaves)
        growth.append({level: two[level] - one[level] for level in one})
        leaf_growth.append(
            sum(after.leaves[leaf] - before.leaves[leaf] for leaf in RIGHT_LEAVES[kind])
        )
        lengths.append(after.step_s)
    spike_s, step_s = statistics.median(spikes), statistics.median(lengths)
    moved = {level: statistics.median(g[level] for g in growth) for level in growth[0]}
    right = RIGHT_LEVEL[kind]
    return Recovery(
        step=name, spike=kind, size=size, step_s=step_s, spike_s=spike_s,
        spike_in_place_s=statistics.median(in_place), recovered_s=moved[right],
        error=(moved[right] - spike_s) / step_s,
        error_in_place=(moved[right] - statistics.median(in_place)) / step_s,
        leaf_error=(statistics.median(leaf_growth) - spike_s) / step_s,
        others={level: value / step_s for level, value in moved.items() if level != right},
        dropped_for_drift=dropped,
    )  # fmt: skip


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--only", choices=sorted(STEPS))
    options = made.parse_args()
    steps = QUICK if options.quick else STEPS
    if options.only:
        steps = {options.only: STEPS[options.only]}
    sizes = SIZES[1:] if options.quick else SIZES
    rounds = 1 if options.quick else options.rounds
    record = Record("spikes", options, "transformers", "diffusers")
    ceilings = ceilings_for_this_machine(threads=torch.get_num_threads())
    rows = []
    for name, make in steps.items():
        for kind in SPIKES:
            for size in sizes:
                row = recover(name, make, kind, size, rounds, ceilings, options.quick)
                rows.append(row)
                others = ", ".join(f"{k} {v:+.1%}" for k, v in row.others.items())
                print(
                    f"{name:17} {kind:7} {size:4.0%}  step {row.step_s * 1e3:7.1f} ms  spike "
                    f"{row.spike_s * 1e3:6.1f}  recovered {row.recovered_s * 1e3:6.1f}  error "
                    f"{row.error:+.1%} (in place {row.error_in_place:+.1%}, "
                    f"leaf {row.leaf_error:+.1%})  others {others}",
                    flush=True,
                )
                record.write(result_of(rows, rounds))
    print(json.dumps(result_of(rows, rounds)["summary"], indent=2))


def result_of(rows: list[Recovery], rounds: int) -> dict[str, Any]:
    errors = [abs(row.error) for row in rows]
    in_place = [abs(row.error_in_place) for row in rows]
    of_spike = [abs(row.error) * row.step_s / row.spike_s for row in rows]
    moved = [abs(value) for row in rows for value in row.others.values()]
    return {
        "rounds": rounds,
        "unit": "errors are shares of the spiked step; those of the spike are named so",
        "summary": {
            "median_error": statistics.median(errors),
            "worst_error": max(errors),
            "median_error_of_spike": statistics.median(of_spike),
            "worst_error_of_spike": max(of_spike),
            "median_error_in_place": statistics.median(in_place),
            "worst_error_in_place": max(in_place),
            "worst_leaf_error": max(abs(row.leaf_error) for row in rows),
            "worst_other_level": max(moved),
            "rounds_dropped_for_drift": sum(len(row.dropped_for_drift) for row in rows),
        },
        "rows": [asdict(row) for row in rows],
    }


if __name__ == "__main__":
    main()
