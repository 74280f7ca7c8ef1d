"""How many operations do Python, PyTorch and the device do in the same time?

The article: Python adds 32 million times a second; PyTorch dispatches 280 thousand operators a
second; in the time of one Python addition an A100 does 9.75 million FLOPs. Its flame graph of one
``a + b`` shows almost nothing of it doing the addition.

Expected: Python within a factor of two anywhere; PyTorch, which has become faster, above its
figure; the device's ratio as far from the article's as the device is from an A100.

The flame graph here is measured by taking layers away, since a sampling profiler that sees C++ is
rarely at hand. From ``a + b`` on one element: without autograd (inference mode), without a new
output (``out=``), without an operator at all (a method that only enters C++ and returns), without a
call (an empty loop). Each difference is what the layer costs.

Source: https://horace.io/brrr_intro.html, "Overhead".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gobrrr.lab.drawing import ARTICLE_COLOUR, BLUE, GOLD, GREEN, GREY, ORANGE, PURPLE, title
from gobrrr.lab.experiment import Answer, Claim, Experiment, Findings, Measured, Outcome, Row
from gobrrr.lab.setting import Setting, spread
from gobrrr.measure import Series
from gobrrr.timeline.quantities import si

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Repeats inside one call, so that the loop around it weighs little.
INNER = 2000

CLAIMS = (
    Claim(
        "python",
        "Python performs 32 million additions per second",
        "32 M/s",
        "integer additions per second in a Python loop",
        unit="op/s",
        least=16e6,
        most=64e6,
    ),
    Claim(
        "dispatch",
        "PyTorch dispatches 280 thousand operators per second",
        "280 k/s",
        "calls of a + b per second, on tensors of one element",
        unit="op/s",
        least=140e3,
        most=560e3,
    ),
    Claim(
        "device",
        "In the time of one Python addition the device does millions of FLOPs",
        "9.75 million (A100)",
        "FLOPs of the device's fastest unit in the time of one Python addition",
        unit="FLOP",
        least=1e6,
    ),
    Claim(
        "sliver",
        "Nearly all of the time of a + b is not spent on the addition",
        "a sliver of the flame graph",
        "share of the time of a + b on one element beyond its two loads, addition and store",
        unit="%",
        least=95.0,
    ),
)

# From the widest layer to the narrowest: what is left when the one before is taken away.
LAYERS = (
    ("a + b", "everything"),
    ("inference", "without autograd's layer"),
    ("out", "without allocating and wrapping an output"),
    ("enter", "without an operator: a method that enters C++ and returns"),
    ("loop", "without any call: the loop"),
)
COSTS = (
    ("autograd", "a + b", "inference"),
    ("output tensor", "inference", "out"),
    ("dispatch, iterator, kernel", "out", "enter"),
    ("Python to C++ and back", "enter", "loop"),
    ("Python loop", "loop", ""),
)


def _run(setting: Setting) -> Findings:
    import torch

    a, b = (torch.ones(1, device=setting.device) for _ in range(2))
    out = torch.empty_like(a)
    # A tensor made in inference mode needs no version counter: its operators skip autograd.
    with torch.inference_mode():
        plain_a, plain_b = (torch.ones(1, device=setting.device) for _ in range(2))
        plain_out = torch.empty_like(plain_a)
    calls: dict[str, Callable[[], object]] = {
        "python": _python_adds,
        "a + b": lambda: _adds(a, b),
        "inference": lambda: _inference_adds(plain_a, plain_b),
        "out": lambda: _adds_out(plain_a, plain_b, plain_out),
        "enter": lambda: _enters(a),
        "loop": _empty_loop,
        "kernel": lambda: torch.add(a, b, out=out),
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        timed = setting.time_in_turns(calls, seconds=min(4.0, setting.left_s), block_s=0.0)
    finally:
        torch.set_num_threads(threads)
    each = {name: [s / INNER for s in found.seconds] for name, found in timed.items()}
    ceilings = setting.ceilings()
    # The article's 9.75 million are 312 TFLOP/s over 32 million: the fastest unit counts.
    rates = [row.value for row in ceilings.rows.values() if row.unit == "FLOP/s"]
    fastest = max(rates) if rates else None
    rows, notes = _rows(timed)
    context = {"fastest": fastest, "adds_per_s": spread([1 / s for s in each["python"]])[0],
               "calls_per_s": spread([1 / s for s in each["a + b"]])[0]}  # fmt: skip
    return Findings(_answers(setting, each, fastest), rows, context, tuple(notes))


def _python_adds() -> int:
    total = 0
    for _ in range(INNER):
        total += 1
    return total


def _empty_loop() -> None:
    for _ in range(INNER):
        pass


def _adds(a: Any, b: Any) -> None:
    for _ in range(INNER):
        a + b


def _inference_adds(a: Any, b: Any) -> None:
    import torch

    with torch.inference_mode():
        for _ in range(INNER):
            a + b


def _adds_out(a: Any, b: Any, out: Any) -> None:
    import torch

    add = torch.add
    with torch.inference_mode():
        for _ in range(INNER):
            add(a, b, out=out)


def _enters(a: Any) -> None:
    for _ in range(INNER):
        a.dim()


def _rows(timed: dict[str, Series]) -> tuple[list[Row], list[str]]:
    each = {name: [s / INNER for s in found.seconds] for name, found in timed.items()}
    rows: list[Row] = []
    for name, wider, narrower in COSTS:
        inner = each[narrower] if narrower else [0.0] * len(each[wider])
        found = spread([a - b for a, b in zip(each[wider], inner)])
        rows.append(
            {"layer": name, "seconds": found[0], "low_s": found[1], "high_s": found[2],
             "total_s": spread(each["a + b"])[0]}
        )  # fmt: skip
    below = [row["layer"] for row in rows if row["high_s"] < 0]
    return rows, [f"Measured below zero (noise): {', '.join(below)}."] if below else []


def _answers(
    setting: Setting, each: dict[str, list[float]], fastest: float | None
) -> dict[str, Answer]:
    adds = [1 / s for s in each["python"]]
    calls = [1 / s for s in each["a + b"]]
    answers = {
        "python": Answer(Measured(*spread(adds)), "total += 1 in a for loop, loop included"),
        "dispatch": Answer(
            Measured(*spread(calls)),
            "a + b in a for loop"
            + (": PyTorch's dispatch has become faster since" if min(calls) > 560e3 else ""),
        ),
    }
    if fastest is None:
        unknown = "no ceiling of the device's arithmetic is known"
        return {**answers, "device": Answer(None, unknown), "sliver": Answer(None, unknown)}
    ratio = Measured(*spread([fastest * s for s in each["python"]]))
    answers["device"] = Answer(
        ratio,
        f"{si(fastest, 'FLOP/s')} at most against {si(spread(adds)[0], 'op/s')}"
        + ("" if setting.is_gpu else ": a few CPU cores, not a GPU"),
    )
    # One multiplication at the ceiling of a single lane: all others idle.
    useful_s = _one_element_s(setting)
    shares = [100 * (1 - useful_s / s) for s in each["a + b"]]
    answers["sliver"] = Answer(
        Measured(*spread(shares)),
        f"an addition of two loaded numbers takes about {useful_s * 1e9:.1f} ns (two loads, an "
        f"addition and a store); a + b takes {spread(each['a + b'])[0] * 1e9:.0f} ns",
    )
    return answers


def _one_element_s(setting: Setting) -> float:
    """Seconds that NumPy's inner loop takes per element of an array in the first cache.

    An upper bound of what one element costs: it includes the loop.
    """
    x = np.ones(1024, np.float32)
    y = np.empty_like(x)

    def adds() -> None:
        for _ in range(100):
            np.add(x, x, out=y)

    timed = setting.time_in_turns({"adds": adds}, seconds=0.05)
    return timed["adds"].summary().median / (100 * x.size)


def _draw(outcome: Outcome, figure: Figure) -> None:
    figure.set_size_inches(10.5, 4.6)
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    context = outcome.context
    rates = [
        ("Python: additions", context["adds_per_s"], 32e6),
        ("PyTorch: a + b", context["calls_per_s"], 280e3),
        ("device: FLOPs", context["fastest"], 312e12),
    ]
    for position, (_, here, article) in enumerate(reversed(rates)):
        if here:
            left.barh(
                position + 0.2, here, 0.36, color=BLUE, label="here" if not position else None
            )
            left.annotate(f" {si(here, '/s')}", (here, position + 0.2), va="center", fontsize=8)
        left.barh(position - 0.2, article, 0.36, color=ARTICLE_COLOUR, alpha=0.5,
                  label="article (A100: 312 TF)" if not position else None)  # fmt: skip
        left.annotate(f" {si(article, '/s')}", (article, position - 0.2), va="center", fontsize=8)
    left.set_xscale("log")
    left.set_xlim(1e4, 1e17)
    left.set_yticks(range(len(rates)), [name for name, _, _ in reversed(rates)])
    left.set_xlabel("operations per second (log)")
    left.set_title("three rates")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    _draw_flame(right, outcome.rows)
    title(figure, "Overhead: the layers around one addition", outcome.device)


def _draw_flame(axes: Axes, rows: list[Row]) -> None:
    """Nested bars: each layer sits on the one that calls it, its own cost to the right."""
    total_ns = rows[0]["total_s"] * 1e9
    nested = list(reversed(rows))
    left_over = total_ns
    colours = (GREY, GOLD, ORANGE, GREEN, PURPLE)
    for depth, (row, colour) in enumerate(zip(nested, colours)):
        own_ns = max(row["seconds"], 0.0) * 1e9
        axes.barh(depth, left_over, 0.92, color=colour, edgecolor="white")
        axes.annotate(f"{row['layer']}: {own_ns:.0f} ns self time", (total_ns * 0.01, depth),
                      va="center", fontsize=8.5, color="white" if depth == 0 else "black",
                      fontweight="bold")  # fmt: skip
        left_over = max(left_over - own_ns, 0.0)
    axes.set_xlim(0, total_ns)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.set_xlabel(f"ns of one a + b on one element, {total_ns:.0f} in all")
    axes.set_title("where one a + b spends its time: layers, callers below")


EXPERIMENT = Experiment(
    name="overhead",
    title="Overhead",
    question="How many operations do Python, PyTorch and the device do in the same time?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=10,
)
