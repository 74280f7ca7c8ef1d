"""Do all activations cost the same once fused?

A fused pointwise operator reads and writes each number once, whatever it does in between, so relu
(one comparison) and gelu (an error function, some twenty operations) cost nearly the same if memory
is the bound.

Expected: so on a GPU. A CPU has few operations per byte to spare: there an error function takes
longer than the bytes. The copy that bounds them all is measured beside them, and eager PyTorch,
whose activations are single kernels too. Everything writes into a given tensor.

Source: https://horace.io/brrr_intro.html, "Bandwidth" ("gelu is going to cost nearly the same as
relu").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.lab.compiled import fuse
from gobrrr.lab.counting import count
from gobrrr.lab.drawing import BLUE, GREY, ORANGE, time_ticks, title
from gobrrr.lab.experiment import Answer, Claim, Experiment, Findings, Measured, Outcome, Row
from gobrrr.lab.setting import Setting, ratio_of, torch_generator
from gobrrr.measure import Series
from gobrrr.timeline.quantities import time_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("relu", "silu", "tanh", "softplus", "gelu", "mish")
CPU_ELEMENTS, GPU_ELEMENTS = 8 * 2**20, 128 * 2**20

CLAIMS = (
    Claim(
        "gelu-as-relu",
        "Fused, gelu costs nearly the same as relu",
        "nearly the same, though gelu has many more operations",
        "time of fused gelu over time of fused relu",
        unit="x",
        most=1.15,
    ),
    Claim(
        "slowest",
        "All fused activations cost about the same",
        "nearly the same",
        "time of the slowest fused activation over time of the fastest",
        unit="x",
        most=1.25,
    ),
    Claim(
        "copy",
        "The cost of a fused activation is its memory traffic",
        "time is spent on memory, not on arithmetic",
        "time of fused relu over time of a copy of the same size",
        unit="x",
        most=1.15,
    ),
)


def _run(setting: Setting) -> Findings:
    import torch

    elements = GPU_ELEMENTS if setting.is_gpu else CPU_ELEMENTS
    x = torch.randn(elements, generator=torch_generator(setting), device=setting.device)
    out = torch.empty_like(x)
    calls: dict[str, Callable[[], object]] = {"copy|eager": lambda: out.copy_(x)}
    rows_of: dict[str, Row] = {}
    sample = x[: 2**16].clone()
    for name in NAMES:
        setting.progress(f"activations: compiling {name}")
        activation: Any = getattr(torch.nn.functional, name)
        calls[f"{name}|eager"] = _eager(name, x, out)
        calls[f"{name}|fused"] = _fused(setting, activation, x, out)
        calls[f"{name}|fused"]()
        _check(name, activation, x, out)
        counted = count(partial(activation, sample))
        rows_of[name] = {"flops": None if counted.flops is None else counted.flops / 2**16}
    timed = setting.time_in_turns(calls, seconds=min(8.0, max(3.0, setting.left_s)))
    rows: list[Row] = []
    for key, found in timed.items():
        name, kind = key.split("|")
        took = found.summary()
        rows.append(
            {
                "name": name, "kind": kind, "seconds": took.median, "low_s": took.low,
                "high_s": took.high, "bytes_per_s": elements * 8 / took.median,
                "flops_per_element": rows_of.get(name, {}).get("flops"),
            }
        )  # fmt: skip
    return Findings(_answers(timed, rows), rows, {"elements": elements})


def _eager(name: str, x: Any, out: Any) -> Callable[[], object]:
    import torch

    operator = getattr(torch.ops.aten, name).out
    return lambda: operator(x, out=out)


def _fused(setting: Setting, activation: Any, x: Any, out: Any) -> Callable[[], object]:
    def body(given: Any, result: Any) -> None:
        result.copy_(activation(given))

    compiled = fuse(setting, body)
    return lambda: compiled(x, out)


def _check(name: str, activation: Any, x: Any, out: Any) -> None:
    import torch

    some = slice(None, None, 4099)
    if not torch.allclose(out[some], activation(x[some]), rtol=1e-3, atol=1e-4):
        raise ArithmeticError(f"fused {name} gave wrong results")


def _answers(timed: dict[str, Series], rows: list[Row]) -> dict[str, Answer]:
    fused = {name: timed[f"{name}|fused"] for name in NAMES}
    medians = {name: found.summary().median for name, found in fused.items()}
    copy = timed["copy|eager"]
    slowest, fastest = max(NAMES, key=medians.__getitem__), min(NAMES, key=medians.__getitem__)
    flops = {row["name"]: row["flops_per_element"] for row in rows}
    work = ""
    if flops.get("gelu") and flops.get("relu"):
        work = f", for {flops['gelu']:.0f} FLOPs per element against {flops['relu']:.0f}"
    gelu = ratio_of(fused["gelu"], fused["relu"])
    bound = (
        "a copy takes as long"
        if medians["gelu"] < 1.15 * copy.summary().median
        else f"a copy takes {time_text(copy.summary().median)}; the rest is arithmetic"
    )
    return {
        "gelu-as-relu": Answer(
            Measured(*gelu),
            f"gelu {time_text(medians['gelu'])}, relu {time_text(medians['relu'])}{work}; {bound}",
        ),
        "slowest": Answer(
            Measured(*ratio_of(fused[slowest], fused[fastest])),
            f"{slowest} {time_text(medians[slowest])}, {fastest} {time_text(medians[fastest])}",
        ),
        "copy": Answer(
            Measured(*ratio_of(fused["relu"], copy)),
            f"relu {time_text(medians['relu'])}, copy {time_text(copy.summary().median)}",
        ),
    }


def _draw(outcome: Outcome, figure: Figure) -> None:
    figure.set_size_inches(9, 4.6)
    axes = figure.subplots()
    by_key = {(row["name"], row["kind"]): row for row in outcome.rows}
    copy_s = by_key["copy", "eager"]["seconds"]
    for offset, (kind, colour) in enumerate((("eager", GREY), ("fused", BLUE))):
        found = [by_key[name, kind] for name in NAMES]
        errors = [[r["seconds"] - r["low_s"] for r in found],
                  [r["high_s"] - r["seconds"] for r in found]]  # fmt: skip
        bars = axes.bar(
            [i + 0.4 * (offset - 0.5) for i in range(len(NAMES))], [r["seconds"] for r in found],
            0.38, color=colour, label=kind, yerr=errors, error_kw={"linewidth": 0.8},
        )  # fmt: skip
        axes.bar_label(bars, [f"{r['seconds'] / copy_s:.2f}x" for r in found], padding=3,
                       fontsize=8)  # fmt: skip
    label = f"copy, {time_text(copy_s)}: in the article, every fused activation"
    axes.axhline(copy_s, color=ORANGE, linestyle="--", linewidth=1.4, label=label)
    labels = []
    for name in NAMES:
        flops = by_key[name, "fused"]["flops_per_element"]
        labels.append(name if flops is None else f"{name}\n{flops:.0f} FLOPs")
    axes.set_xticks(range(len(NAMES)), labels)
    time_ticks(axes.yaxis)
    axes.margins(y=0.15)
    axes.set_xlabel("FLOPs per element by gobrrr's formulas")
    axes.set_ylabel(f"time, {outcome.context['elements'] / 2**20:.0f} Mi float32")
    axes.legend(title="times the copy", loc="upper left")
    title(figure, "Fused activations against a copy of the same size", outcome.device)


EXPERIMENT = Experiment(
    name="activations",
    title="Activations",
    question="Does gelu cost as little as relu once it is one fused kernel?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=25,
)
