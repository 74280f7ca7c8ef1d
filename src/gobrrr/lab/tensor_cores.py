"""How much faster is matrix work than everything else?

An A100 multiplies matrices at 312 TFLOP/s (bfloat16, tensor cores) and does everything else at 19.5
(float32). So FLOPs that are not in a matrix multiplication are sixteen times as dear.

Expected: a large factor where there is a matrix unit (tensor cores, AMX) and about one where there
is none: a CPU's best matrix product is vector arithmetic done well. Dimensions that are not
multiples of eight keep float16 products off the fast path, or on a padded one.

Sources: https://horace.io/brrr_intro.html, "Compute"; shapes:
https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gobrrr.devices.ceilings import Ceilings
from gobrrr.lab.drawing import ARTICLE_COLOUR, BLUE, GREY, ORANGE, title, with_units
from gobrrr.lab.experiment import Answer, Claim, Experiment, Findings, Measured, Outcome, Row
from gobrrr.lab.setting import Setting, spread, torch_generator
from gobrrr.measure import Series
from gobrrr.measure.timing import time_block
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.timeline.quantities import si
from gobrrr.work import work_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPES = "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/"
CPU_SIZE, GPU_SIZE = 1024, 8192
# A product may not take longer than this for a sample: some dtypes have no fast path at all.
LONGEST_S = 0.4
DTYPES = ("bfloat16", "float16", "tf32", "float32", "float64")
# Off a multiple of eight by one and by four.
ODD = (0, 1, 4)

CLAIMS = (
    Claim(
        "ratio",
        "Matrix products run far faster than all other arithmetic",
        "312 TFLOP/s against 19.5, 16x (A100)",
        "best rate of a matrix product over the float32 vector ceiling",
        unit="x",
        least=4.0,
    ),
    Claim(
        "same-dtype",
        "In the same dtype, float32, matrix products are no faster than vector arithmetic",
        "19.5 TFLOP/s both, without TF32 (A100)",
        "rate of a float32 product over the float32 vector ceiling",
        unit="x",
        least=0.5,
        most=1.2,
    ),
    Claim(
        "shapes",
        "Dimensions that are not multiples of 8 miss the fast path",
        "several times slower before cuBLAS 11, padded since",
        "rate at n a multiple of 8 over rate at n + 1, in the fastest 16-bit dtype",
        unit="x",
        least=1.15,
        source=SHAPES,
    ),
)


def _run(setting: Setting) -> Findings:
    import torch

    size = GPU_SIZE if setting.is_gpu else CPU_SIZE
    ceilings = setting.ceilings()
    rows: list[Row] = []
    calls: dict[str, Callable[[], object]] = {}
    shapes: dict[str, tuple[str, int, int]] = {}
    for dtype in DTYPES:
        if dtype == "tf32" and not setting.is_gpu:
            continue
        n = _fitting_size(setting, dtype, size)
        calls[dtype] = _product(setting, dtype, n)
        shapes[dtype] = (dtype, n, 0)
    # A dtype without a fast path says nothing about shapes.
    short = next((d for d in ("bfloat16", "float16") if shapes[d][1] == size), "float32")
    for odd in ODD:
        key = f"sweep {odd:+d}"
        calls[key] = _product(setting, short, size + odd)
        shapes[key] = (short, size + odd, odd)
    try:
        timed = setting.time_in_turns(calls, seconds=min(8.0, setting.left_s / 2))
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    for key, found in timed.items():
        dtype, n, odd = shapes[key]
        flops = flops_of_product(n, "float32" if dtype == "tf32" else dtype)
        low, middle, high = sorted(spread([flops / s for s in found.seconds]))
        rows.append(
            {
                "key": key, "dtype": dtype, "n": n, "odd": odd, "sweep": " " in key,
                "flops_per_s": middle, "low": low, "high": high,
                "vector": _vector_ceiling(ceilings, dtype),
            }
        )  # fmt: skip
    rates = {key: [flops_of_product(shapes[key][1], "float32") / s for s in found.seconds]
             for key, found in timed.items()}  # fmt: skip
    answers = _answers(rates, timed, ceilings.vector_flops_per_s("float32"), shapes)
    return Findings(answers, rows, {"size": size, "vector": ceilings.value("vector.float32")})


def flops_of_product(n: int, dtype: str) -> float:
    """FLOPs of an n x n x n product by gobrrr's formula: 2 n^3."""
    square = TensorSpec((n, n), dtype)
    work = work_of(OpCall("aten::mm", (square, square), (square,)))
    assert work is not None and work.flops is not None
    return work.flops


def _vector_ceiling(ceilings: Ceilings, dtype: str) -> float | None:
    return ceilings.vector_flops_per_s("float32" if dtype == "tf32" else dtype)


def _product(setting: Setting, dtype: str, n: int) -> Callable[[], object]:
    import torch

    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    generator = torch_generator(setting)
    a = torch.randn(n, n, generator=generator, device=setting.device).to(kind)
    b = torch.randn(n, n, generator=generator, device=setting.device).to(kind)
    out = torch.empty_like(a)

    def multiply() -> None:
        if setting.is_gpu:
            torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        torch.mm(a, b, out=out)

    multiply()
    if dtype != "tf32":
        _check(a, b, out)
    return multiply


def _check(a: Any, b: Any, out: Any) -> None:
    import torch

    expected = a[:2].double() @ b.double()
    # bfloat16 keeps 8 bits; sums of n products of standard normals are of size sqrt(n).
    tolerance = 0.05 * a.shape[0] ** 0.5
    if not torch.allclose(out[:2].double(), expected, atol=tolerance, rtol=0.05):
        raise ArithmeticError(f"the product in {a.dtype} gave wrong results")


def _fitting_size(setting: Setting, dtype: str, most: int) -> int:
    """The largest of ``most``, ``most / 2``, ... whose product takes less than ``LONGEST_S``.

    Starts small: float16 on a CPU without float16 arithmetic is 150 times slower than float32.
    """
    n = max(64, most // 16)
    while n < most:
        call = _product(setting, dtype, n)
        if time_block(call, 1, setting.clock, setting.synchronise) * 8 > LONGEST_S:
            break
        n *= 2
    return n


def _answers(
    rates: dict[str, list[float]],
    timed: dict[str, Series],
    vector: float | None,
    shapes: dict[str, tuple[str, int, int]],
) -> dict[str, Answer]:
    middle = {key: spread(found)[0] for key, found in rates.items()}
    best = max((key for key in rates if " " not in key), key=middle.__getitem__)
    aligned, odd = timed["sweep +0"], timed["sweep +1"]
    ratios = [rate_a / rate_b for rate_a, rate_b in zip(rates["sweep +0"], rates["sweep +1"])]
    answers = {
        "shapes": Answer(
            Measured(*spread(ratios)),
            f"{shapes['sweep +0'][0]}: n = {shapes['sweep +0'][1]} reaches "
            f"{si(middle['sweep +0'], 'FLOP/s')}, "
            f"n = {shapes['sweep +1'][1]} {si(middle['sweep +1'], 'FLOP/s')} "
            f"({aligned.summary().n} and {odd.summary().n} samples)",
        )
    }
    if vector is None:
        unknown = Answer(None, "no vector ceiling is known")
        return {**answers, "ratio": unknown, "same-dtype": unknown}
    answers["ratio"] = Answer(
        Measured(*(value / vector for value in spread(rates[best]))),
        f"{best} products reach {si(middle[best], 'FLOP/s')}, "
        f"float32 vectors {si(vector, 'FLOP/s')}"
        + ("" if middle[best] > 4 * vector else ": there is no separate matrix unit here"),
    )
    answers["same-dtype"] = Answer(
        Measured(*(value / vector for value in spread(rates["float32"]))),
        f"float32 products reach {si(middle['float32'], 'FLOP/s')} of {si(vector, 'FLOP/s')}",
    )
    return answers


def _draw(outcome: Outcome, figure: Figure) -> None:
    figure.set_size_inches(10, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    products = [row for row in outcome.rows if not row["sweep"]]
    names = [row["dtype"] for row in products]
    places = range(len(names))
    bars = left.bar([i - 0.2 for i in places], [r["flops_per_s"] for r in products], 0.38,
                    color=BLUE, label="matrix product, achieved")  # fmt: skip
    left.bar_label(bars, [f"{si(r['flops_per_s'], 'FLOP/s')}\nn = {r['n']}" for r in products],
                   fontsize=7.5, padding=2)  # fmt: skip
    known = [(i + 0.2, r["vector"]) for i, r in zip(places, products) if r["vector"]]
    vector = left.bar([i for i, _ in known], [v for _, v in known], 0.38, color=ORANGE,
                      label="vector ceiling, same dtype")  # fmt: skip
    left.bar_label(vector, [si(v, "FLOP/s") for _, v in known], fontsize=7.5, padding=2)
    if outcome.context["vector"]:
        article = 16 * outcome.context["vector"]
        left.axhline(article, color=ARTICLE_COLOUR, linestyle=":", linewidth=1.4)
        left.annotate("16x the float32 vector rate: an A100", (0.99, article),
                      xycoords=("axes fraction", "data"), xytext=(0, 3), ha="right",
                      textcoords="offset points", color=ARTICLE_COLOUR, fontsize=8)  # fmt: skip
    left.set_xticks(list(places), names)
    left.set_yscale("log")
    left.margins(y=0.2)
    left.set_title("matrix rate and vector rate")
    with_units(left.yaxis, "FLOP/s")
    left.legend(loc="upper left", bbox_to_anchor=(0, -0.08), ncols=2)
    sweep = sorted((r for r in outcome.rows if r["sweep"]), key=_size)
    errors = [[r["flops_per_s"] - r["low"] for r in sweep],
              [r["high"] - r["flops_per_s"] for r in sweep]]  # fmt: skip
    bars = right.bar([str(r["n"]) for r in sweep], [r["flops_per_s"] for r in sweep], 0.6,
                     color=[BLUE if r["odd"] % 8 == 0 else GREY for r in sweep], yerr=errors,
                     error_kw={"linewidth": 0.8})  # fmt: skip
    right.bar_label(bars, [si(r["flops_per_s"], "FLOP/s") for r in sweep], padding=4, fontsize=8)
    right.set_title(f"{sweep[0]['dtype']}: n a multiple of 8, and other n")
    right.set_xlabel("n of an n x n x n product")
    right.margins(y=0.15)
    with_units(right.yaxis, "FLOP/s")
    title(figure, "Matrix products against all other arithmetic", outcome.device)


def _size(row: Row) -> int:
    n: int = row["n"]
    return n


EXPERIMENT = Experiment(
    name="tensor-cores",
    title="Tensor cores",
    question="How much faster are matrix products than all other arithmetic?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=15,
)
