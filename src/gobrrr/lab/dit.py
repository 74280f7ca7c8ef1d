"""Where does a diffusion transformer's block spend its time?

Expected, from first principles:

- attention in single operators writes and reads a matrix of scores, tokens by tokens, and is
  bandwidth-bound; fused (flash) it is not, and the longer the sequence the more that wins;
- the feed-forward is two large matrix products and compute-bound;
- AdaLN's chain (normalise, scale, shift, then gate and add) is a row of small pointwise kernels,
  memory-bound, and fuses;
- two clips instead of one tell whether overhead rules: what does not double is overhead;
- activation checkpointing runs the forward pass twice; a compiler that recomputes inside fused
  kernels saves memory without that.

The block is ``BasicTransformerBlock`` of diffusers with AdaLN-Zero, as its DiT uses it, at the
tokens of a 256 and a 512 pixel image (patches of 2 on latents of an eighth) and of a short video.

Sources: https://horace.io/brrr_intro.html; https://arxiv.org/abs/2212.09748 (DiT);
https://arxiv.org/abs/2205.14135 (flash attention).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gobrrr.attribution.leaves import TOP_LEVELS
from gobrrr.lab.compiled import compiler_problem, fuse
from gobrrr.lab.dit_parts import AdaLn, Block, attend, make_block
from gobrrr.lab.drawing import REGIME_COLOURS, title
from gobrrr.lab.experiment import (
    Answer,
    Claim,
    Experiment,
    Findings,
    Measured,
    Outcome,
    Row,
    SkipExperimentError,
)
from gobrrr.lab.remat import Pass, peak_bytes
from gobrrr.lab.setting import Setting, ratio_of, spread
from gobrrr.measure import Series
from gobrrr.timeline.quantities import multiple, percent, si, time_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gobrrr.diagnosis.schema import Diagnosis

DIT, FLASH = "https://arxiv.org/abs/2212.09748", "https://arxiv.org/abs/2205.14135"
# (name, tokens): 256 and 512 pixels, and nine latent frames of 256 pixels.
SEQUENCES = (("256 px image", 256), ("512 px image", 1024), ("video, 9 frames", 2304))
SHORT, LONG = SEQUENCES[0][0], SEQUENCES[-1][0]
PARTS = ("attention, unfused", "attention, flash", "feed-forward", "AdaLN chain")

CLAIMS = (
    Claim(
        "attention",
        "Unfused attention is bandwidth-bound",
        "bandwidth-bound unless fused",
        "memory-bound share of its time, longest sequence",
        unit="%",
        least=50,
        source=FLASH,
    ),
    Claim(
        "flash",
        "Fused attention is faster, and more so on a long sequence",
        "2 to 4x (A100)",
        "time of unfused attention over time of flash attention, longest sequence",
        unit="x",
        least=1.3,
        source=FLASH,
    ),
    Claim(
        "feed-forward",
        "The feed-forward is compute-bound",
        "compute-bound",
        "compute-bound share of its time, longest sequence",
        unit="%",
        least=50,
        source=DIT,
    ),
    Claim(
        "adaln",
        "AdaLN's chain is bandwidth-bound",
        "many small memory-bound kernels",
        "memory-bound share of its time, longest sequence",
        unit="%",
        least=50,
        source=DIT,
    ),
    Claim(
        "adaln-fused",
        "AdaLN's chain is faster when fused",
        "fusion",
        "time of the chain over its time fused, longest sequence",
        unit="x",
        least=1.5,
    ),
    Claim(
        "two-clips",
        "Two clips instead of one show whether the block is overhead-bound",
        "double the data, see what does not double",
        "time of two clips over one, minus the ratio that gobrrr's overhead predicts",
        unit="x",
        least=-0.2,
        most=0.2,
    ),
    Claim(
        "checkpointing",
        "Recomputing in fused kernels is faster than activation checkpointing",
        "less memory and less runtime",
        "time of a training step compiled with half the memory, over its time checkpointed",
        unit="x",
        most=0.97,
    ),
)


def _run(setting: Setting) -> Findings:
    if importlib.util.find_spec("diffusers") is None:
        raise SkipExperimentError("it needs diffusers: pip install diffusers")
    rows: list[Row] = []
    notes: list[str] = []
    answers: dict[str, Answer] = {}
    shares: dict[tuple[str, str], list[dict[str, float]]] = {}
    series: dict[tuple[str, str], Series] = {}
    problem = compiler_problem(setting)
    for name, tokens in SEQUENCES:
        if setting.left_s < 0.3 * setting.budget_s and name != LONG:
            notes.append(f"Not measured within the time budget: {name}.")
            continue
        setting.progress(f"dit: {name}, {tokens} tokens")
        block = make_block(setting, tokens)
        calls = _part_calls(setting, block)
        if name == LONG and not problem:
            calls["AdaLN chain, fused"] = _fused_chain(setting, block.ada_ln)
        timed = setting.time_in_turns(calls, seconds=min(3.0, max(1.0, setting.left_s / 8)))
        for part, found in timed.items():
            series[name, part] = found
        for part in PARTS:
            # Claims are about the longest sequence; elsewhere one sample is enough to draw.
            samples = 3 if name == LONG and part != "attention, flash" else 1
            shares[name, part] = [
                _shares(setting.diagnose(calls[part], steps=3, warmup=1)) for _ in range(samples)
            ]
            rows.append(_part_row(name, tokens, part, series[name, part], shares[name, part]))
    answers |= _part_answers(series, shares, problem)
    answers["two-clips"], clip_rows = _two_clips(setting)
    setting.progress("dit: a training step, checkpointed and compiled")
    answers["checkpointing"], training_rows = _training(setting, problem)
    rows += clip_rows + training_rows
    return Findings(answers, rows, {}, tuple(notes))


def _part_calls(setting: Setting, block: Block) -> dict[str, Callable[[], object]]:
    import torch

    q, k, v = block.heads
    x, feed_forward, chain = block.x, block.module.ff, block.ada_ln

    def without_gradients(call: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            with torch.no_grad():
                return call()

        return run

    return {
        "attention, unfused": without_gradients(lambda: attend(q, k, v, flash=False)),
        "attention, flash": without_gradients(lambda: attend(q, k, v, flash=True)),
        "feed-forward": without_gradients(lambda: feed_forward(x)),
        "AdaLN chain": without_gradients(chain.run),
    }


def _fused_chain(setting: Setting, chain: AdaLn) -> Callable[[], object]:
    import torch

    modulate, gate = fuse(setting, chain.modulate), fuse(setting, chain.gate)

    def run() -> object:
        with torch.no_grad():
            return modulate(*chain.modulate_inputs), gate(*chain.gate_inputs)

    for found, wanted in zip(run(), chain.run()):  # type: ignore[call-overload]
        if not torch.allclose(found, wanted, rtol=1e-3, atol=1e-4):
            raise ArithmeticError("the fused AdaLN chain gave wrong results")
    return run


def _shares(found: Diagnosis) -> dict[str, float]:
    return {name: getattr(found.split, f"{name}_s") / found.accounted_s for name in TOP_LEVELS}


def _part_row(
    name: str, tokens: int, part: str, found: Series, shares: Sequence[Mapping[str, float]]
) -> Row:
    return {
        "kind": "part", "sequence": name, "tokens": tokens, "part": part,
        "seconds": found.summary().median,
        **{key: spread([share[key] for share in shares])[0] for key in TOP_LEVELS},
    }  # fmt: skip


def _part_answers(
    series: Mapping[tuple[str, str], Series],
    shares: Mapping[tuple[str, str], Sequence[Mapping[str, float]]],
    problem: str,
) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for key, part, regime in (
        ("attention", "attention, unfused", "memory"),
        ("feed-forward", "feed-forward", "compute"),
        ("adaln", "AdaLN chain", "memory"),
    ):
        found = shares[LONG, part]
        values = [100 * share[regime] for share in found]
        text = ", ".join(
            f"{percent(spread([s[name] for s in found])[0])} {name}" for name in TOP_LEVELS[:3]
        )
        took = series[LONG, part].summary().median
        answers[key] = Answer(Measured(*spread(values)), f"{time_text(took)}: {text}")
    slow, fast = series[LONG, "attention, unfused"], series[LONG, "attention, flash"]
    short = ratio_of(series[SHORT, "attention, unfused"], series[SHORT, "attention, flash"])
    answers["flash"] = Answer(
        Measured(*ratio_of(slow, fast)),
        f"{time_text(slow.summary().median)} against {time_text(fast.summary().median)}; "
        f"{multiple(short[0])} on the short sequence",
    )
    chain = series[LONG, "AdaLN chain"]
    fused = series.get((LONG, "AdaLN chain, fused"))
    answers["adaln-fused"] = (
        Answer(None, problem)
        if fused is None
        else Answer(
            Measured(*ratio_of(chain, fused)),
            f"{time_text(chain.summary().median)} as seven operators, "
            f"{time_text(fused.summary().median)} as two fused kernels",
        )
    )
    return answers


def _two_clips(setting: Setting) -> tuple[Answer, list[Row]]:
    import torch

    setting.progress("dit: two clips instead of one")
    blocks = {clips: make_block(setting, SEQUENCES[0][1], clips) for clips in (1, 2)}

    def forward(block: Block) -> Callable[[], object]:
        def run() -> object:
            with torch.no_grad():
                return block.forward(block.x)

        return run

    calls = {str(clips): forward(block) for clips, block in blocks.items()}
    timed = setting.time_in_turns(calls, seconds=1.5)
    found = setting.diagnose(calls["1"], steps=5, warmup=2)
    overhead = found.split.overhead_s / found.accounted_s
    predicted = 2 - overhead
    ratio = ratio_of(timed["2"], timed["1"])
    row: Row = {"kind": "clips", "ratio": ratio[0], "low": ratio[1], "high": ratio[2],
                "predicted": predicted, "overhead": overhead}  # fmt: skip
    because = (
        f"two clips take {multiple(ratio[0])} the time of one; with {percent(overhead)} overhead "
        f"in gobrrr's split {multiple(predicted)} is expected ({SHORT}): "
        + ("overhead-bound" if ratio[0] < 1.5 else "not overhead-bound")
    )
    return Answer(Measured(*(value - predicted for value in ratio)), because), [row]


def _training(setting: Setting, problem: str) -> tuple[Answer, list[Row]]:
    import torch
    import torch._functorch.config as functorch_config
    from torch.utils.checkpoint import checkpoint

    block = make_block(setting, SEQUENCES[1][1])
    x = block.x.detach().clone().requires_grad_()

    def clear() -> None:
        block.module.zero_grad(set_to_none=True)
        x.grad = None

    def step(forward: Callable[[Any], Any]) -> Callable[[], None]:
        def run() -> None:
            clear()
            forward(x).sum().backward()

        return run

    steps: dict[str, Callable[[], None]] = {
        "eager": step(block.forward),
        "checkpointing": step(lambda x: checkpoint(block.forward, x, use_reentrant=False)),
    }
    if not problem and setting.left_s > 0.1 * setting.budget_s:
        compiled = torch.compile(block.forward, dynamic=False)
        steps["compiled, half the memory"] = step(compiled)
        # The graphs are cut when they are compiled, in the first call.
        with functorch_config.patch(activation_memory_budget=0.5):
            steps["compiled, half the memory"]()
    timed = setting.time_in_turns(steps, seconds=2.0)
    rows: list[Row] = [
        {"kind": "training", "name": name, "seconds": timed[name].summary().median,
         "peak_bytes": peak_bytes(Pass(run, clear))} for name, run in steps.items()
    ]  # fmt: skip
    if len(rows) < 3:
        return Answer(None, problem or "not compiled within the time budget"), rows
    ratio = Measured(*ratio_of(timed["compiled, half the memory"], timed["checkpointing"]))
    listing = "; ".join(
        f"{row['name']} {time_text(row['seconds'])}, peak {si(row['peak_bytes'], 'B')}"
        for row in rows
    )
    return Answer(ratio, f"{listing} ({SEQUENCES[1][0]})"), rows


def _draw(outcome: Outcome, figure: Figure) -> None:
    figure.set_size_inches(11, 4.8)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    parts = [row for row in outcome.rows if row["kind"] == "part"]
    parts.sort(key=_place)
    labels = [f"{row['part']} · {row['sequence']}" for row in parts]
    start = [0.0] * len(parts)
    for regime in TOP_LEVELS:
        widths = [100 * row[regime] for row in parts]
        if any(width > 0.05 for width in widths):
            left.barh(labels, widths, left=start, color=REGIME_COLOURS[regime], label=regime)
        start = [a + b for a, b in zip(start, widths)]
    for position, row in enumerate(parts):
        left.annotate(f" {time_text(row['seconds'])}", (100, position), va="center", fontsize=8)
    left.set_xlim(0, 116)
    left.set_xticks([0, 25, 50, 75, 100])
    left.invert_yaxis()
    left.set_xlabel("% of the part's time")
    left.grid(visible=False, axis="y")
    left.set_title("regime of each part")
    left.legend(loc="upper center", bbox_to_anchor=(0.4, -0.12), ncols=4)
    training = [row for row in outcome.rows if row["kind"] == "training"]
    slowest = max(row["seconds"] for row in training)
    for row in training:
        x, y = row["seconds"] * 1e3, row["peak_bytes"] / 2**20
        right.plot([x], [y], "o", markersize=9)
        right.set_xlim(0, 1.35 * 1e3 * slowest)
        right.annotate(row["name"], (x, y), xytext=(0, 9), textcoords="offset points",
                       ha="center", fontsize=8.5)  # fmt: skip
    right.set_ylim(0, 1.2 * max(row["peak_bytes"] for row in training) / 2**20)
    right.set_xlabel("ms per training step (lower is better)")
    right.set_ylabel("peak MiB (lower is better)")
    right.set_title(f"recomputation, {SEQUENCES[1][0]}")
    title(figure, "A DiT block", outcome.device)


def _place(row: Row) -> tuple[int, int]:
    return PARTS.index(row["part"]), row["tokens"]


EXPERIMENT = Experiment(
    name="dit",
    title="A DiT block",
    question="Which parts of a diffusion transformer are bound by compute, memory and overhead?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=46,
)
