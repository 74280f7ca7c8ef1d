"""Is x.cos().cos() twice as fast fused, and as fast as a single cos?

Two kernels read x, write a temporary, read it and write the result: four times N. One fused kernel
reads and writes N each. If time is memory traffic, fused is twice as fast, and doing it twice costs
what doing it once does.

Expected: exactly that where memory is the bound. A cosine on a CPU is some twenty instructions per
vector, so there arithmetic can be the bound and the second cosine is not free; a multiplication in
its place shows the claim with arithmetic that is cheap. Both run at a size that the caches hold and
at one that they do not. The unfused kernels come from the same compiler, so that fusion is the only
difference; eager PyTorch is shown beside them. All write into given tensors (fresh ones would cost
page faults on a CPU).

Source: https://horace.io/brrr_intro.html, "Bandwidth".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gobrrr.lab.compiled import fuse
from gobrrr.lab.counting import count
from gobrrr.lab.drawing import COLOURS, GREY, time_ticks, title
from gobrrr.lab.experiment import (
    Answer,
    Claim,
    Experiment,
    Findings,
    Measured,
    Outcome,
    Row,
)
from gobrrr.lab.setting import Setting, ratio_of, torch_generator
from gobrrr.measure import Series
from gobrrr.timeline.quantities import multiple, si, time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGE_CPU, LARGE_GPU = 8 * 2**20, 128 * 2**20
SCALE = 1.5
FUNCTIONS = ("cos", "multiply")
KINDS = ("eager", "unfused", "fused", "single")

Kernel = Callable[[Any, Any], object]

CLAIMS = (
    Claim(
        "bytes",
        "Unfused, x.cos().cos() reads or writes N elements four times; fused, twice",
        "4 reads and writes against 2",
        "bytes of the two operators over bytes of one, by gobrrr's formulas",
        unit="x",
        least=2.0,
        most=2.0,
        timed=False,
    ),
    Claim(
        "twice-as-fast",
        "Fused, x.cos().cos() is twice as fast",
        "2x",
        "time of two kernels over time of one fused kernel, cos, beyond the caches",
        unit="x",
        least=1.7,
        most=2.3,
    ),
    Claim(
        "same-as-once",
        "Fused, x.cos().cos() takes nearly the same time as x.cos()",
        "nearly the exact same time",
        "time of the fused pair over time of one cos, beyond the caches",
        unit="x",
        most=1.1,
    ),
    Claim(
        "cheap-twice-as-fast",
        "With a multiplication in place of the cosine, fused is twice as fast",
        "2x: the same argument",
        "time of two kernels over time of one fused kernel, beyond the caches",
        unit="x",
        least=1.7,
        most=2.3,
    ),
    Claim(
        "cheap-same-as-once",
        "With a multiplication in place of the cosine, the fused pair costs as much as one",
        "nearly the exact same time: the same argument",
        "time of the fused pair over time of one multiplication, beyond the caches",
        unit="x",
        most=1.1,
    ),
)


def _apply(function: str, x: Any) -> Any:
    return x.cos() if function == "cos" else x * SCALE


def _compiled(setting: Setting, function: str, times: int) -> Kernel:
    def body(x: Any, out: Any) -> None:
        for _ in range(times):
            x = _apply(function, x)
        out.copy_(x)

    body.__name__ = f"{function}_{times}"
    # One kernel for both sizes: the loop bound is an argument.
    return fuse(setting, body, dynamic=True)


def _eager(function: str, x: Any, temporary: Any, out: Any) -> None:
    import torch

    if function == "cos":
        torch.cos(x, out=temporary)
        torch.cos(temporary, out=out)
    else:
        torch.mul(x, SCALE, out=temporary)
        torch.mul(temporary, SCALE, out=out)


def _run(setting: Setting) -> Findings:
    import torch

    once = {name: _compiled(setting, name, 1) for name in FUNCTIONS}
    twice = {name: _compiled(setting, name, 2) for name in FUNCTIONS}
    large = LARGE_GPU if setting.is_gpu else LARGE_CPU
    sizes = {"beyond the caches": large}
    small = _cached_elements(setting)
    if small is not None and small < large // 4:
        sizes = {"in the caches": small, **sizes}
    rows: list[Row] = []
    series: dict[tuple[str, str], Series] = {}
    for size, elements in sizes.items():
        x = torch.rand(elements, generator=torch_generator(setting), device=setting.device)
        temporary, out = torch.empty_like(x), torch.empty_like(x)
        setting.progress(f"fusion: {size}, {elements} elements")
        calls: dict[str, Callable[[], object]] = {}
        for name in FUNCTIONS:
            calls |= _calls(name, once[name], twice[name], (x, temporary, out))
        timed = setting.time_in_turns(calls, seconds=min(4.0, max(1.5, setting.left_s / 3)))
        for key, found in timed.items():
            name, kind = key.split("|")
            moved = elements * 4 * (4 if kind in ("eager", "unfused") else 2)
            took = found.summary()
            rows.append(
                {
                    "size": size, "elements": elements, "function": name, "kind": kind,
                    "seconds": took.median, "low_s": took.low, "high_s": took.high,
                    "bytes": moved, "bytes_per_s": moved / took.median,
                }
            )  # fmt: skip
            if size == "beyond the caches":
                series[name, kind] = found
    return _findings(setting, rows, series, large)


def _calls(
    name: str, single: Kernel, pair: Kernel, tensors: tuple[Any, Any, Any]
) -> dict[str, Callable[[], object]]:
    """The four ways to compute it, run once and checked."""
    x, temporary, out = tensors
    calls: dict[str, Callable[[], object]] = {
        f"{name}|eager": lambda: _eager(name, x, temporary, out),
        f"{name}|unfused": lambda: (single(x, temporary), single(temporary, out)),
        f"{name}|fused": lambda: pair(x, out),
        f"{name}|single": lambda: single(x, out),
    }
    for kind in ("eager", "unfused", "fused"):
        calls[f"{name}|{kind}"]()
        _check(name, x, out)
    return calls


def _cached_elements(setting: Setting) -> int | None:
    """Elements of which three arrays fit the largest cache level twice over."""
    held = [level.capacity_bytes for level in setting.ceilings().levels if level.capacity_bytes]
    return max(held) // (2 * 3 * 4) // 1024 * 1024 if held else None


def _check(function: str, x: Any, out: Any) -> None:
    import torch

    some = slice(None, None, 4099)
    expected = _apply(function, _apply(function, x[some]))
    if not torch.allclose(out[some], expected, rtol=1e-4, atol=1e-5):
        raise ArithmeticError(f"the kernels of {function} gave wrong results")


def _findings(
    setting: Setting, rows: list[Row], series: dict[tuple[str, str], Series], elements: int
) -> Findings:
    import torch

    ceilings = setting.ceilings()
    moved = elements * 8
    level = ceilings.level_for(moved)
    copy_s = level.seconds(moved / 2, moved / 2, moved) if level is not None else None
    exp_rate = ceilings.value("vector.float32.exp")
    answers: dict[str, Answer] = {"bytes": _bytes_answer(torch.rand(4096, device=setting.device))}
    for name, prefix in (("cos", ""), ("multiply", "cheap-")):
        eager, unfused, fused, single = (series[name, kind] for kind in KINDS)
        gain = Measured(*ratio_of(unfused, fused))
        extra = Measured(*ratio_of(fused, single))
        eager_gain = ratio_of(eager, fused)[0]
        answers[f"{prefix}twice-as-fast"] = Answer(
            gain,
            f"two kernels {time_text(unfused.summary().median)}, fused "
            f"{time_text(fused.summary().median)}; eager over fused {multiple(eager_gain)}. "
            + _bound(name, fused.summary().median, copy_s, exp_rate, elements),
        )
        answers[f"{prefix}same-as-once"] = Answer(
            extra,
            f"fused pair {time_text(fused.summary().median)}, one {name} "
            f"{time_text(single.summary().median)}. "
            + _bound(name, fused.summary().median, copy_s, exp_rate, elements),
        )
    context = {"copy_s": copy_s, "elements": elements}
    return Findings(answers, rows, context)


def _bound(
    name: str, fused_s: float, copy_s: float | None, exp_rate: float | None, elements: int
) -> str:
    if copy_s is None:
        return "The bandwidth ceiling is unknown."
    if fused_s < 1.5 * copy_s:
        return f"Moving the bytes alone takes {time_text(copy_s)}: the kernel is memory-bound."
    text = f"Moving the bytes alone takes {time_text(copy_s)}: the kernel is compute-bound"
    if name == "cos" and exp_rate:
        text += f" ({si(2 * elements / fused_s, 'cos/s')}; exp alone reaches {si(exp_rate, '/s')})"
    return f"{text}."


def _bytes_answer(x: Any) -> Answer:
    pair, one = count(lambda: x.cos().cos()), count(lambda: x.cos())
    if pair.bytes_moved is None or not one.bytes_moved:
        return Answer(None, "cos has no formula")
    ratio = pair.bytes_moved / one.bytes_moved
    return Answer(
        Measured(ratio, ratio, ratio),
        f"{pair.bytes_moved / x.numel():.0f} bytes per element in two operators, "
        f"{one.bytes_moved / x.numel():.0f} in one that reads x and writes the result; float32",
    )


def _draw(outcome: Outcome, figure: Figure) -> None:
    sizes = list(dict.fromkeys(row["size"] for row in outcome.rows))
    figure.set_size_inches(10, 4.4)
    panels: Any = figure.subplots(1, len(sizes), squeeze=False)[0]
    for axes, size in zip(panels, sizes):
        _draw_size(axes, [row for row in outcome.rows if row["size"] == size])
        axes.set_title(f"{size}: {outcome_elements(outcome, size) / 2**20:.3g} Mi elements")
    copy_s = outcome.context["copy_s"]
    if copy_s is not None:
        panels[-1].axhline(copy_s, color="black", linestyle="--", linewidth=1.1)
        panels[-1].annotate(
            "moving 2 N bytes at the ceiling", (0.99, copy_s), xycoords=("axes fraction", "data"),
            xytext=(0, 3), textcoords="offset points", ha="right", fontsize=8,
            bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
        )  # fmt: skip
    panels[0].legend(loc="upper right")
    title(figure, "Fusing two operators into one kernel", outcome.device)


def outcome_elements(outcome: Outcome, size: str) -> int:
    """Elements of the arrays at that size."""
    found: int = next(row["elements"] for row in outcome.rows if row["size"] == size)
    return found


def _draw_size(axes: Axes, rows: list[Row]) -> None:
    names = {"eager": "eager, two operators", "unfused": "compiled, two kernels",
             "fused": "compiled, fused", "single": "compiled, once only"}  # fmt: skip
    for offset, (kind, colour) in enumerate(zip(KINDS, (GREY, *COLOURS))):
        found = [row for name in FUNCTIONS for row in rows
                 if row["function"] == name and row["kind"] == kind]  # fmt: skip
        heights = [row["seconds"] for row in found]
        errors = [
            [row["seconds"] - row["low_s"] for row in found],
            [row["high_s"] - row["seconds"] for row in found],
        ]
        places = [position + 0.2 * (offset - 1.5) for position in range(len(found))]
        bars = axes.bar(places, heights, 0.19, color=colour, yerr=errors, label=names[kind],
                        error_kw={"linewidth": 0.8})  # fmt: skip
        axes.bar_label(bars, [time_text(h) for h in heights], padding=3, fontsize=7)
    axes.set_xticks(range(len(FUNCTIONS)), ["x.cos().cos()", "x * 1.5 * 1.5"])
    axes.set_ylabel("time")
    axes.margins(y=0.18)
    time_ticks(axes.yaxis)


EXPERIMENT = Experiment(
    name="fusion",
    title="Operator fusion",
    question="Is x.cos().cos() twice as fast fused, and as fast as a single cos?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=20,
)
