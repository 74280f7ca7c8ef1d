"""If doubling the data does not double the time, is that overhead?

The article's test: increase the data; if time grows less than in proportion, the rest is overhead.
Its footnote: a larger batch also raises the arithmetic intensity, so a network whose batch is small
beside its width may not take longer for other reasons.

Expected: a small transformer at batch 1 is mostly overhead, and doubling costs little; at a large
batch it doubles. The part of the time that a straight line through all batches leaves at batch 0 is
the fixed part; at batch 1 it should be the overhead that gobrrr's split reports. A wide MLP at
batch 1 reads all its weights for one row: doubling is nearly free and hardly any of it is overhead.

Source: https://horace.io/brrr_intro.html, "Overhead" and its footnotes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gobrrr.lab.drawing import ARTICLE_COLOUR, BLUE, GREY, ORANGE, plain_ticks, time_ticks, title
from gobrrr.lab.experiment import Answer, Claim, Experiment, Findings, Measured, Outcome, Row
from gobrrr.lab.networks import build, encoder_layer, perceptron
from gobrrr.lab.setting import Setting, ratio_of, spread, torch_generator
from gobrrr.measure import Series
from gobrrr.timeline.quantities import percent, time_text
from gobrrr.timeline.workload import Workload

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES = (1, 2, 4, 8, 16, 32, 64)
GPU_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LAYERS, WIDTH, HEADS, TOKENS = 4, 64, 4, 16
MLP_LAYERS, MLP_WIDTH, GPU_MLP_WIDTH = 3, 2048, 8192
MLP_BATCHES = (1, 2)

CLAIMS = (
    Claim(
        "small",
        "When a step is overhead-bound, doubling the batch does not double the time",
        "not double: overhead-bound",
        "time at batch 2 over time at batch 1, a small transformer",
        unit="x",
        most=1.5,
    ),
    Claim(
        "large",
        "When a step is not overhead-bound, doubling the batch doubles the time",
        "double",
        "time at the largest batch over time at half of it",
        unit="x",
        least=1.8,
    ),
    Claim(
        "split",
        "What does not grow with the batch is overhead",
        "the rest is overhead",
        "fixed part of the time at batch 1 minus the overhead in gobrrr's split, in points",
        unit="points",
        least=-15,
        most=15,
    ),
    Claim(
        "width",
        "A batch smaller than the layer width can be free without any overhead",
        "a footnote",
        "time at batch 2 over time at batch 1, a wide MLP",
        unit="x",
        most=1.5,
    ),
    Claim(
        "width-overhead",
        "The wide MLP that takes a second sample for free is not overhead-bound",
        "a footnote",
        "overhead of the wide MLP at batch 1 in gobrrr's split",
        unit="%",
        most=20,
    ),
)


def _run(setting: Setting) -> Findings:
    import torch

    batches = GPU_BATCHES if setting.is_gpu else BATCHES
    network = build(
        setting,
        lambda: torch.nn.Sequential(
            *(encoder_layer(WIDTH, HEADS, 4 * WIDTH) for _ in range(LAYERS))
        ),
    )
    width = GPU_MLP_WIDTH if setting.is_gpu else MLP_WIDTH
    wide = build(setting, lambda: perceptron(width, MLP_LAYERS))
    generator = torch_generator(setting)
    work: dict[tuple[str, int], Workload] = {}
    for size in batches:
        x = torch.randn(size, TOKENS, WIDTH, generator=generator, device=setting.device)
        work["transformer", size] = Workload(network, x)
    for size in MLP_BATCHES:
        x = torch.randn(size, width, generator=generator, device=setting.device)
        work["mlp", size] = Workload(wide, x)
    setting.progress("batch: timing")
    timed = setting.time_in_turns(
        {f"{name}|{size}": item.step for (name, size), item in work.items()},
        seconds=min(6.0, setting.left_s / 3),
        block_s=5e-3,
    )
    series = {key: timed[f"{key[0]}|{key[1]}"] for key in work}
    shares: dict[tuple[str, int], list[float]] = {}
    for key in (("transformer", 1), ("transformer", batches[-1]), ("mlp", 1)):
        setting.progress(f"batch: splitting {key[0]}, batch {key[1]}")
        shares[key] = _overhead_shares(setting, work[key])
    rows: list[Row] = [_row(key, found, shares.get(key)) for key, found in series.items()]
    fixed = fixed_parts({size: series["transformer", size] for size in batches})
    context = {"fixed_s": spread(fixed)[0], "width": width}
    return Findings(_answers(series, shares, fixed, batches), rows, context)


def _overhead_shares(setting: Setting, item: Workload) -> list[float]:
    """Overhead over step time, once for each of several diagnoses."""
    shares = []
    for _ in range(3):
        found = setting.diagnose(item.step, steps=10, warmup=3)
        shares.append(found.split.overhead_s / found.accounted_s)
        if setting.left_s < 0:
            break
    return shares


def fixed_parts(found: Mapping[int, Series]) -> list[float]:
    """Per round: the time at batch 0 of the straight line through all batches, in seconds.

    Least squares of relative errors: a batch of 64 would outweigh all others otherwise.
    """
    batches = np.asarray(sorted(found), float)
    rounds = min(len(series.seconds) for series in found.values())
    parts = []
    for i in range(rounds):
        times = np.asarray([found[int(size)].seconds[i] for size in batches])
        design = np.stack([1 / times, batches / times], axis=1)
        solution, *_ = np.linalg.lstsq(design, np.ones_like(times), rcond=None)
        parts.append(float(solution[0]))
    return parts


def _row(key: tuple[str, int], found: Series, shares: list[float] | None) -> Row:
    took = found.summary()
    return {
        "network": key[0], "batch": key[1], "seconds": took.median, "low_s": took.low,
        "high_s": took.high, "overhead": spread(shares)[0] if shares else None,
    }  # fmt: skip


def _answers(
    series: Mapping[tuple[str, int], Series],
    shares: Mapping[tuple[str, int], list[float]],
    fixed: Sequence[float],
    batches: Sequence[int],
) -> dict[str, Answer]:
    name, top = "transformer", batches[-1]
    one, two = series[name, 1], series[name, 2]
    overhead, overhead_top = spread(shares[name, 1]), spread(shares[name, top])
    fixed_shares = spread([part / took for part, took in zip(fixed, one.seconds)])
    points = Measured(
        100 * (fixed_shares[0] - overhead[0]),
        100 * (fixed_shares[1] - overhead[2]),
        100 * (fixed_shares[2] - overhead[1]),
    )
    wide = spread(shares["mlp", 1])
    return {
        "small": Answer(
            Measured(*ratio_of(two, one)),
            f"{time_text(one.summary().median)} and {time_text(two.summary().median)}; gobrrr's "
            f"split says {percent(overhead[0])} of batch 1 is overhead",
        ),
        "large": Answer(
            Measured(*ratio_of(series[name, top], series[name, top // 2])),
            f"batch {top // 2} to {top}; gobrrr's split says {percent(overhead_top[0])} of batch "
            f"{top} is overhead",
        ),
        "split": Answer(
            points,
            f"a line through batches 1 to {top} leaves {time_text(spread(fixed)[0])} at batch 0, "
            f"{percent(fixed_shares[0])} of batch 1; the split says {percent(overhead[0])}",
        ),
        "width": Answer(
            Measured(*ratio_of(series["mlp", 2], series["mlp", 1])),
            "every weight is read once, for one row as for two"
            if series["mlp", 2].best_s < 1.5 * series["mlp", 1].best_s
            else "the weights are the same, but two rows use another kernel than one row (GEMM "
            "instead of GEMV)",
        ),
        "width-overhead": Answer(
            Measured(*(100 * value for value in wide)),
            "interval over three diagnoses; most of the time is spent reading the weights",
        ),
    }


def _draw(outcome: Outcome, figure: Figure) -> None:
    figure.set_size_inches(10.5, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    rows = sorted((r for r in outcome.rows if r["network"] == "transformer"), key=_size)
    batches = [r["batch"] for r in rows]
    times = [r["seconds"] for r in rows]
    left.errorbar(
        batches, times,
        yerr=[[r["seconds"] - r["low_s"] for r in rows],
              [r["high_s"] - r["seconds"] for r in rows]],
        fmt="o-", color=BLUE, markersize=4, label="small transformer, measured",
    )  # fmt: skip
    left.plot(batches, [times[0] * b / batches[0] for b in batches], ":", color=ARTICLE_COLOUR,
              label="if time doubled with the batch")  # fmt: skip
    fixed = outcome.context["fixed_s"]
    if fixed > 0:
        left.axhline(fixed, color=GREY, linestyle="--", linewidth=1.1)
        left.annotate(
            f"fixed part {time_text(fixed)}", (batches[-1], fixed), ha="right", color=GREY,
            xytext=(0, -11), textcoords="offset points", fontsize=8.5,
        )  # fmt: skip
    overhead = rows[0]["overhead"]
    if overhead:
        left.plot([1], [overhead * times[0]], "D", color=ORANGE, markersize=7,
                  label="overhead in gobrrr's split, batch 1")  # fmt: skip
    left.set_xscale("log", base=2)
    left.set_yscale("log")
    plain_ticks(left.xaxis, batches)
    time_ticks(left.yaxis)
    left.set_xlabel("batch")
    left.set_ylabel("time of a forward pass")
    left.legend(loc="upper left")
    left.set_title("what does not grow is overhead")
    wide = sorted((r for r in outcome.rows if r["network"] == "mlp"), key=_size)
    bars = right.bar([f"batch {r['batch']}" for r in wide], [r["seconds"] for r in wide], 0.5,
                     color=BLUE)  # fmt: skip
    right.bar_label(bars, [time_text(r["seconds"]) for r in wide], padding=3)
    share = wide[0]["overhead"]
    if share is not None:
        right.bar(["batch 1"], [share * wide[0]["seconds"]], 0.5, color=ORANGE,
                  label=f"overhead in gobrrr's split: {percent(share)}")  # fmt: skip
        right.legend(loc="upper left")
    time_ticks(right.yaxis)
    right.margins(y=0.3)
    right.set_title(f"the exception: MLP of width {outcome.context['width']}")
    title(figure, "Doubling the batch", outcome.device)


def _size(row: Row) -> int:
    size: int = row["batch"]
    return size


EXPERIMENT = Experiment(
    name="batch",
    title="Doubling the batch",
    question="If doubling the data does not double the time, is that overhead?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=25,
)
