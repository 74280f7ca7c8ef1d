"""Can computing something twice save both memory and time?

Recomputation is known as a trade: less memory for more time. With a compiler that fuses, what is
recomputed inside a fused kernel costs no traffic, while what is saved must be written in the
forward pass and read in the backward pass. AOTAutograd's partitioner looks for the cut of the
joint graph that moves the fewest bytes (a minimum cut), and may be given a budget below that.

Expected: on a chain of pointwise operators the minimum cut saves one tensor instead of several and
takes less of both where memory is the bound. A transformer block has matrix products, which nobody
recomputes for free: less memory, about the same time; with half the budget, less memory and more
time.

Peak memory is the most that tensors made within a forward and backward pass take at once: by the
blocks that PyTorch's profiler reports on a CPU, by the caching allocator's count on a GPU.

Sources: https://horace.io/brrr_intro.html, "Bandwidth" (its last part);
https://dev-discuss.pytorch.org/t/min-cut-optimal-recomputation-i-e-activation-checkpointing-with-aotautograd/467
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gobrrr.lab.compiled import compiler_problem
from gobrrr.lab.drawing import COLOURS, GREY, title
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
from gobrrr.lab.networks import build, encoder_layer
from gobrrr.lab.setting import Setting, ratio_of, torch_generator
from gobrrr.measure import Series
from gobrrr.timeline.quantities import si, time_text
from gobrrr.verification.memory import MemoryRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIN_CUT_POST = (
    "https://dev-discuss.pytorch.org/t/"
    "min-cut-optimal-recomputation-i-e-activation-checkpointing-with-aotautograd/467"
)
CHAIN, BLOCK = "pointwise chain", "transformer block"
CPU_ELEMENTS, GPU_ELEMENTS = 8 * 2**20, 64 * 2**20
LINKS = 4
CPU_BLOCK, GPU_BLOCK = (256, 4, 8, 256), (1024, 16, 8, 1024)  # width, heads, batch, tokens
NONE, MIN_CUT, HALF = "no recomputation", "minimum cut", "half the memory budget"
# In this order while there is time: the claims need the first four.
VARIANTS = ((CHAIN, NONE), (CHAIN, MIN_CUT), (BLOCK, NONE), (BLOCK, MIN_CUT), (BLOCK, HALF))

CLAIMS = (
    Claim(
        "chain-memory",
        "Recomputing in fused kernels takes less memory",
        "less memory",
        "peak memory with the minimum cut over without recomputation, pointwise chain",
        unit="x",
        most=0.9,
        source=MIN_CUT_POST,
        timed=False,
    ),
    Claim(
        "chain-time",
        "Recomputing in fused kernels takes less time",
        "less runtime",
        "time with the minimum cut over without recomputation, pointwise chain",
        unit="x",
        most=0.97,
        source=MIN_CUT_POST,
    ),
    Claim(
        "block-memory",
        "A transformer block takes less memory with the minimum cut",
        "less memory",
        "peak memory with the minimum cut over without recomputation, transformer block",
        unit="x",
        most=0.97,
        source=MIN_CUT_POST,
        timed=False,
    ),
    Claim(
        "block-time",
        "A transformer block takes no more time with the minimum cut",
        "less runtime",
        "time with the minimum cut over without recomputation, transformer block",
        unit="x",
        most=1.05,
        source=MIN_CUT_POST,
    ),
)


@dataclass(frozen=True)
class Pass:
    """A forward and backward pass; ``clear`` drops the gradients that one leaves behind."""

    step: Callable[[], object]
    clear: Callable[[], object]


def _run(setting: Setting) -> Findings:
    problem = compiler_problem(setting)
    if problem:
        raise SkipExperimentError(problem)
    steps: dict[tuple[str, str], Pass] = {}
    left_out: list[str] = []
    for program, variant in VARIANTS:
        least_left = 0.4 if variant == HALF else 0.1
        if setting.left_s < least_left * setting.budget_s:
            left_out.append(f"{program}, {variant}")
            continue
        setting.progress(f"remat: compiling the {program}, {variant}")
        steps[program, variant] = _step(setting, program, variant)
    for program in (CHAIN, BLOCK):
        if (program, NONE) in steps:
            steps[program, "eager"] = _step(setting, program, "eager")
    peaks = {key: [peak_bytes(found) for _ in range(3)] for key, found in steps.items()}
    setting.progress("remat: timing")
    timed = setting.time_in_turns(
        {f"{program}|{variant}": found.step for (program, variant), found in steps.items()},
        seconds=min(6.0, max(2.0, setting.left_s)),
    )
    series = {key: timed[f"{key[0]}|{key[1]}"] for key in steps}
    rows: list[Row] = [
        {
            "program": program, "variant": variant, "peak_bytes": sorted(peaks[key])[1],
            "seconds": series[key].summary().median, "low_s": series[key].summary().low,
            "high_s": series[key].summary().high,
        }
        for key in steps for program, variant in (key,)
    ]  # fmt: skip
    notes = (f"Not measured within the time budget: {'; '.join(left_out)}.",) if left_out else ()
    return Findings(_answers(series, peaks), rows, {}, notes)


def _step(setting: Setting, program: str, variant: str) -> Pass:
    """Forward and backward, compiled and run once, its gradient checked against eager."""
    import torch

    generator = torch_generator(setting)
    function: Any
    if program == CHAIN:
        elements = GPU_ELEMENTS if setting.is_gpu else CPU_ELEMENTS
        shape: tuple[int, ...] = (elements,)
        function = _chain
    else:
        width, heads, batch, tokens = GPU_BLOCK if setting.is_gpu else CPU_BLOCK
        shape = (batch, tokens, width)
        function = build(setting, lambda: encoder_layer(width, heads, 4 * width))
    x = torch.randn(shape, generator=generator, device=setting.device).requires_grad_()
    gradient = torch.full(shape, 1.0 / x.numel(), device=setting.device)
    compiled = function if variant == "eager" else _compile(setting, function, variant)

    def clear() -> None:
        x.grad = None
        if program == BLOCK:
            function.zero_grad(set_to_none=True)

    def step() -> None:
        clear()
        compiled(x).backward(gradient)

    with ExitStack() as stack:
        if variant == HALF:
            stack.enter_context(_budget(0.5))
        # The backward graph is compiled here too, so the budget must still stand.
        step()
    if variant != "eager":
        found = x.grad.detach().clone()
        clear()
        function(x).backward(gradient)
        if not torch.allclose(found, x.grad, rtol=2e-2, atol=1e-6):
            raise ArithmeticError(f"the gradient of the {program} with {variant} is wrong")
    return Pass(step, clear)


def _chain(x: Any) -> Any:
    for _ in range(LINKS):
        # Its gradient needs x and the clamped x of every link.
        x = x * x.clamp(-1.0, 1.0) + 0.5
    return x


def _compile(setting: Setting, function: Any, variant: str) -> Any:
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import (
        default_partition,
        min_cut_rematerialization_partition,
    )
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.decomposition import select_decomp_table

    def backward(graph: Any, examples: Any) -> Any:
        return compile_fx_inner(graph, examples, is_backward=True)

    backend = aot_autograd(
        fw_compiler=compile_fx_inner,
        bw_compiler=backward,
        decompositions=select_decomp_table(),
        partition_fn=default_partition if variant == NONE else min_cut_rematerialization_partition,
    )
    # Each variant must be compiled for itself: Dynamo keeps one result per code object and backend.
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, fullgraph=True, dynamic=False)


def _budget(share: float) -> Any:
    import torch._functorch.config as config

    return config.patch(activation_memory_budget=share)


def peak_bytes(run: Pass) -> int:
    """The most memory that what the pass makes takes at once.

    Gradients of an earlier pass are dropped first: on a GPU freeing them would count below zero.
    """
    run.clear()
    with MemoryRecord() as record:
        run.step()
    if record.peak_bytes is None:
        raise SkipExperimentError("PyTorch reports no memory here")
    return record.peak_bytes


def _answers(
    series: dict[tuple[str, str], Series], peaks: dict[tuple[str, str], list[int]]
) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for program, prefix in ((CHAIN, "chain"), (BLOCK, "block")):
        without, with_cut = (program, NONE), (program, MIN_CUT)
        if without not in series or with_cut not in series:
            late = Answer(None, "not compiled within the time budget (--budget gives more)")
            answers |= {f"{prefix}-memory": late, f"{prefix}-time": late}
            continue
        ratios = sorted(a / b for a, b in zip(peaks[with_cut], peaks[without]))
        answers[f"{prefix}-memory"] = Answer(
            Measured(ratios[len(ratios) // 2], ratios[0], ratios[-1]),
            f"{si(sorted(peaks[without])[1], 'B')} without recomputation, "
            f"{si(sorted(peaks[with_cut])[1], 'B')} with the minimum cut",
        )
        before, after = series[without].summary(), series[with_cut].summary()
        answers[f"{prefix}-time"] = Answer(
            Measured(*ratio_of(series[with_cut], series[without])),
            f"{time_text(before.median)} without recomputation, {time_text(after.median)} with "
            "the minimum cut",
        )
    return answers


def _draw(outcome: Outcome, figure: Figure) -> None:
    figure.set_size_inches(10.5, 4.4)
    panels: Any = figure.subplots(1, 2)
    for axes, program in zip(panels, (CHAIN, BLOCK)):
        _draw_program(axes, [row for row in outcome.rows if row["program"] == program])
        axes.set_title(program)
    title(figure, "Recomputation: peak memory against time", outcome.device)


def _draw_program(axes: Axes, rows: list[Row]) -> None:
    colours = {"eager": GREY, NONE: COLOURS[1], MIN_CUT: COLOURS[0], HALF: COLOURS[2]}
    for row in rows:
        x, y = row["seconds"] * 1e3, row["peak_bytes"] / 2**20
        axes.errorbar(
            [x], [y], xerr=[[x - row["low_s"] * 1e3], [row["high_s"] * 1e3 - x]], fmt="o",
            markersize=9, color=colours[row["variant"]], capsize=3,
        )  # fmt: skip
        # The minimum cut may lie on another point: its label is below.
        place = (0, -18 if row["variant"] == MIN_CUT else 10)
        axes.annotate(row["variant"], (x, y), xytext=place, textcoords="offset points", ha="center",
                      fontsize=9, color=colours[row["variant"]])  # fmt: skip
    if rows:
        axes.set_xlim(0, 1.3 * max(row["high_s"] for row in rows) * 1e3)
        axes.set_ylim(0, 1.2 * max(row["peak_bytes"] for row in rows) / 2**20)
    else:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=GREY)
        axes.set_xticks([])
        axes.set_yticks([])
    axes.set_xlabel("ms for forward and backward (lower is better)")
    axes.set_ylabel("peak MiB (lower is better)")


EXPERIMENT = Experiment(
    name="remat",
    title="Recomputation",
    question="Can recomputation save both memory and time?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=46,
)
