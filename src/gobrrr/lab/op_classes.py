"""Where do the FLOPs of a transformer go, and where does its time?

Ivanov et al. counted BERT: matrix products are 99.80 % of the FLOPs, normalisation 0.17 % and
element-wise operators 0.03 %, but they take 61.0, 25.5 and 13.5 % of the time. The article adds
what that means: normalisation and pointwise operators reach 250 and 700 times fewer FLOP/s.

Expected: the shares of FLOPs hold anywhere, they are counted. The shares of time depend on how
far the device's matrix rate is from its bandwidth: a CPU's matrix products are slow enough that
the rest takes less.

The counts differ in convention: gobrrr counts an exponential as eight FLOPs and softmax as
normalisation; they counted one operation each. The layer is BERT-large's (width 1024, 16 heads,
inner 4096), forward and backward, with as many layers, sequences and tokens as fit the time.

Sources: https://horace.io/brrr_intro.html, "Compute"; https://arxiv.org/abs/2007.00072, table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gobrrr.lab.drawing import ARTICLE_COLOUR, BLUE, GREY, ORANGE, title, with_units
from gobrrr.lab.experiment import Answer, Claim, Experiment, Findings, Measured, Outcome, Row
from gobrrr.lab.networks import build, encoder_layer, training_step
from gobrrr.lab.setting import Setting, spread, torch_generator
from gobrrr.measure import summarise
from gobrrr.timeline.quantities import si

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gobrrr.diagnosis.schema import Diagnosis

IVANOV = "https://arxiv.org/abs/2007.00072"
WIDTH, HEADS, INNER = 1024, 16, 4096
CPU_SHAPE, GPU_SHAPE = (1, 256), (8, 512)
CPU_LAYERS, GPU_LAYERS = 1, 4
# Diagnoses, of which each gives one sample of the shares.
SAMPLES = 3
CLASSES = ("contraction", "normalisation", "elementwise")
LABELS = {
    "contraction": "matrix\nproducts",
    "normalisation": "normal-\nisation",
    "elementwise": "element-\nwise",
}
# The paper's table 1: share of FLOPs and of time, in percent.
PAPER = {"contraction": (99.80, 61.0), "normalisation": (0.17, 25.5), "elementwise": (0.03, 13.5)}

CLAIMS = (
    Claim(
        "flops",
        "Nearly all FLOPs of BERT are in matrix products",
        "99.80 %",
        "share of the step's FLOPs in matrix products",
        unit="%",
        least=98.0,
        source=IVANOV,
        timed=False,
    ),
    Claim(
        "time",
        "About 40 % of the time is spent outside matrix products",
        "39.0 % (V100)",
        "share of the step's time outside matrix products",
        unit="%",
        least=25.0,
        most=55.0,
        source=IVANOV,
    ),
    Claim(
        "normalisation",
        "Normalisation achieves 250 times fewer FLOP/s than matrix products",
        "250x",
        "FLOP/s of matrix products over FLOP/s of normalisation",
        unit="x",
        least=125,
        most=500,
    ),
    Claim(
        "pointwise",
        "Pointwise operators achieve 700 times fewer FLOP/s than matrix products",
        "700x",
        "FLOP/s of matrix products over FLOP/s of element-wise operators",
        unit="x",
        least=350,
        most=1400,
    ),
)


def _run(setting: Setting) -> Findings:
    import torch

    layers = GPU_LAYERS if setting.is_gpu else CPU_LAYERS
    batch, tokens = GPU_SHAPE if setting.is_gpu else CPU_SHAPE
    network = build(
        setting,
        lambda: torch.nn.Sequential(*(encoder_layer(WIDTH, HEADS, INNER) for _ in range(layers))),
    )
    x = torch.randn(batch, tokens, WIDTH, generator=torch_generator(setting), device=setting.device)
    step = training_step(network, x)
    found: list[Diagnosis] = []
    for sample in range(SAMPLES):
        if found and setting.left_s < 0:
            break
        setting.progress(f"op-classes: diagnosing, {sample + 1} of {SAMPLES}")
        found.append(setting.diagnose(step, steps=4, warmup=2))
    rows = _rows(found)
    context = {
        "layers": layers, "batch": batch, "tokens": tokens,
        "step_s": summarise([d.step_s for d in found]).median,
    }  # fmt: skip
    notes = (
        f"{layers} of BERT-large's 24 layers, batch {batch}, {tokens} tokens, forward and "
        f"backward; intervals are over {len(found)} diagnoses.",
        "gobrrr counts an exponential as 8 FLOPs; the paper counts 1.",
    )
    return Findings(_answers(found), rows, context, notes)


def _classes(diagnosis: Diagnosis) -> dict[str, Any]:
    return {row.name: row for row in diagnosis.classes}


def _rows(found: Sequence[Diagnosis]) -> list[Row]:
    names = list(dict.fromkeys(row.name for d in found for row in d.classes))
    rows: list[Row] = []
    for name in names:
        groups = [_classes(d)[name] for d in found if name in _classes(d)]
        times = [100 * g.time_share for g in groups if g.time_share is not None]
        flops = groups[0].flops_share
        rates = [g.flops_per_s for g in groups if g.flops_per_s]
        rows.append(
            {
                "class": name,
                "flops_percent": None if flops is None else 100 * flops,
                "time_percent": summarise(times).median if times else None,
                "flops_per_s": summarise(rates).median if rates else None,
            }
        )
    return rows


def _answers(found: Sequence[Diagnosis]) -> dict[str, Answer]:
    shares = [_classes(d)["contraction"].flops_share for d in found]
    times = [_classes(d)["contraction"].time_share for d in found]
    rates = {
        name: [_classes(d)[name].flops_per_s for d in found if name in _classes(d)]
        for name in CLASSES
    }
    answers: dict[str, Answer] = {}
    if None in shares:
        answers["flops"] = Answer(None, "an operator of the step has no formula")
    else:
        share = Measured(*(100 * value for value in spread(shares)))
        answers["flops"] = Answer(share, "counted by gobrrr's formulas, forward and backward")
    rest = Measured(*(100 * value for value in spread([1 - t for t in times])))
    answers["time"] = Answer(
        rest, "normalisation, element-wise operators, data movement and time between operators"
    )
    for key, name in (("normalisation", "normalisation"), ("pointwise", "elementwise")):
        pairs = [(a, b) for a, b in zip(rates["contraction"], rates[name]) if a and b]
        if not pairs:
            answers[key] = Answer(None, f"no FLOP/s of {name} are known")
            continue
        ratio = Measured(*spread([a / b for a, b in pairs]))
        answers[key] = Answer(
            ratio,
            f"matrix products {si(pairs[0][0], 'FLOP/s')}, {name} {si(pairs[0][1], 'FLOP/s')}"
            + (
                ""
                if ratio.high >= 100
                else ": here bandwidth lets the other operators come near matrix products"
            ),
        )
    return answers


def _draw(outcome: Outcome, figure: Figure) -> None:
    figure.set_size_inches(10.5, 4.4)
    left, middle, right = figure.subplots(1, 3, width_ratios=(2, 2, 2))
    rows = [r for r in outcome.rows if r["class"] in CLASSES]
    rows.sort(key=_order)
    names = [LABELS[r["class"]] for r in rows]
    for axes, key, position, heading in (
        (left, "flops_percent", 0, "share of FLOPs (log)"),
        (middle, "time_percent", 1, "share of time"),
    ):
        here = [r[key] or 0 for r in rows]
        paper = [PAPER[r["class"]][position] for r in rows]
        places = range(len(rows))
        bars = axes.bar([i - 0.2 for i in places], here, 0.38, color=BLUE, label="here")
        axes.bar_label(bars, [f"{v:.3g}" for v in here], padding=2, fontsize=8)
        bars = axes.bar([i + 0.2 for i in places], paper, 0.38, color=ARTICLE_COLOUR, alpha=0.5,
                        label="article (V100)")  # fmt: skip
        axes.bar_label(bars, [f"{v:g}" for v in paper], padding=2, fontsize=8)
        axes.set_xticks(list(places), names)
        axes.set_title(heading)
        axes.set_ylabel("%")
        axes.margins(y=0.15)
    left.set_yscale("log")
    middle.legend(loc="upper right")
    rates = [r["flops_per_s"] for r in rows]
    bars = right.bar(range(len(rows)), [v or 0 for v in rates], 0.6, color=(BLUE, ORANGE, GREY))
    right.bar_label(bars, [si(v, "FLOP/s") for v in rates], padding=2, fontsize=8)
    right.set_xticks(range(len(rows)), names)
    right.set_yscale("log")
    right.margins(y=0.15)
    right.set_title("achieved FLOP/s (log)")
    with_units(right.yaxis, "FLOP/s")
    if rates[0]:
        for position, factor in ((1, 250), (2, 700)):
            right.plot([position - 0.35, position + 0.35], [rates[0] / factor] * 2, ":",
                       color=ARTICLE_COLOUR)  # fmt: skip
            right.annotate(f"1/{factor} of the first", (position, rates[0] / factor), ha="center",
                           xytext=(0, 4), textcoords="offset points", fontsize=7.5,
                           color=ARTICLE_COLOUR,
                           bbox={"facecolor": "white", "linewidth": 0, "pad": 1})  # fmt: skip
    title(figure, "BERT-large's encoder, training: FLOPs and time by class", outcome.device)


def _order(row: Row) -> int:
    return CLASSES.index(row["class"])


EXPERIMENT = Experiment(
    name="op-classes",
    title="Classes of operators",
    question="Where are BERT's FLOPs, and where is its time?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=25,
)
