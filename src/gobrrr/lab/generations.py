"""Does compute grow faster than bandwidth from one device to the next?

If it does, the ridge point (FLOPs per byte at which compute takes over) moves up with every
generation, and operators that were compute-bound become memory-bound without any change.

Expected: yes for matrix arithmetic. The ratio of doublings is how often compute doubled in the time
in which bandwidth doubled once: log(compute growth) / log(bandwidth growth). Above 1, the balance
shifts. Everything here is arithmetic on data sheets (dense rates, each with its source in
``gobrrr devices NAME``) and on gobrrr's formulas for the operators of one DiT-XL/2 block (width
1152, 16 heads, MLP 4608, https://arxiv.org/abs/2212.09748) in half precision; nothing is timed, so
the intervals are points.

Source: https://horace.io/brrr_intro.html, "Compute".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING

from gobrrr.devices.datasheet import find_datasheet
from gobrrr.lab.drawing import BLUE, GREEN, GREY, ORANGE, title
from gobrrr.lab.experiment import Answer, Claim, Experiment, Findings, Measured, Outcome, Row
from gobrrr.lab.setting import Setting
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.timeline.quantities import significant
from gobrrr.work import work_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NVIDIA = ("V100-SXM2", "A100-SXM-80GB", "H100-SXM", "B200")
AMD = ("MI250X-card", "MI300X", "MI355X")
WIDTH, HEADS, INNER = 1152, 16, 4608
TOKENS = 256  # a 256 x 256 image: 32 x 32 latents in patches of 2

CLAIMS = (
    Claim(
        "nvidia",
        "Compute grows faster than bandwidth",
        "it doubles more often",
        "doublings of half-precision matrix FLOP/s per doubling of bandwidth, V100 to B200",
        unit="x",
        least=1.05,
        timed=False,
    ),
    Claim(
        "amd",
        "Compute grows faster than bandwidth on AMD's GPUs too",
        "not in the article",
        "doublings of half-precision matrix FLOP/s per doubling of bandwidth, MI250X to MI355X",
        unit="x",
        least=1.05,
        timed=False,
    ),
    Claim(
        "vector",
        "Arithmetic outside the matrix unit grows no faster than bandwidth",
        "FLOPs outside matrix products get left behind",
        "doublings of float32 vector FLOP/s per doubling of bandwidth, V100 to B200",
        unit="x",
        most=1.0,
        timed=False,
    ),
    Claim(
        "crossing",
        "So operators that were compute-bound become memory-bound",
        "balance shifts",
        "operators of a DiT block that are compute-bound on a V100 and not on a B200",
        unit="operators",
        least=1,
        timed=False,
    ),
)


@dataclass(frozen=True)
class _Balance:
    """A device's figures: FLOP/s and bytes/s."""

    key: str
    matrix: float
    vector: float
    bandwidth: float


def _run(setting: Setting) -> Findings:
    notes: list[str] = []
    rows: list[Row] = []
    lines: dict[str, list[_Balance]] = {}
    for line, keys in (("NVIDIA", NVIDIA), ("AMD", AMD)):
        found = [_balance(key) for key in keys]
        missing = [key for key, balance in zip(keys, found) if balance is None]
        if missing:
            notes.append(f"No data-sheet figures for {', '.join(missing)}.")
        lines[line] = [balance for balance in found if balance is not None]
        rows += [_device_row(line, balance) for balance in lines[line]]
    intensities = {name: intensity_of(calls) for name, calls in block_operators().items()}
    rows += [
        {"kind": "operator", "name": name, "intensity": value}
        for name, value in intensities.items()
    ]
    return Findings(_answers(lines, intensities), rows, {"tokens": TOKENS}, tuple(notes))


def _balance(key: str) -> _Balance | None:
    sheet = find_datasheet(key)
    if sheet is None:
        return None
    # float16 is there since Volta, bfloat16 came later and is as fast.
    matrix, vector = sheet.matrix.get("float16"), sheet.vector.get("float32")
    if matrix is None or vector is None:
        return None
    return _Balance(key, matrix.value, vector.value, sheet.memory_bytes_per_s.value)


def _device_row(line: str, balance: _Balance) -> Row:
    return {
        "kind": "device", "line": line, "name": balance.key, "matrix": balance.matrix,
        "vector": balance.vector, "bandwidth": balance.bandwidth,
        "ridge": balance.matrix / balance.bandwidth,
        "vector_ridge": balance.vector / balance.bandwidth,
    }  # fmt: skip


def block_operators() -> dict[str, tuple[OpCall, ...]]:
    """The operators of one DiT-XL/2 block on one image, in float16, as gobrrr records them."""

    def tensor(*shape: int) -> TensorSpec:
        return TensorSpec(shape, "float16")

    def product(rows: int, inner: int, columns: int) -> OpCall:
        left, right = tensor(rows, inner), tensor(inner, columns)
        return OpCall("aten::addmm", (tensor(columns), left, right, 1, 1), (tensor(rows, columns),))

    def pointwise(name: str, *inputs: TensorSpec) -> OpCall:
        return OpCall(name, inputs, (tensor(1, TOKENS, WIDTH),))

    x = tensor(1, TOKENS, WIDTH)
    head = tensor(1, HEADS, TOKENS, WIDTH // HEADS)
    scores = tensor(HEADS, TOKENS, TOKENS)
    flat, flipped = tensor(HEADS, TOKENS, WIDTH // HEADS), tensor(HEADS, WIDTH // HEADS, TOKENS)
    condition = tensor(1, 1, WIDTH)
    return {
        "AdaLN's linear, batch 1": (product(1, WIDTH, 6 * WIDTH),),
        "layer norm": (OpCall("aten::native_layer_norm", (x, (WIDTH,), None, None, 1e-6),
                              (x, tensor(1, TOKENS, 1), tensor(1, TOKENS, 1))),),
        "scale, shift": (pointwise("aten::mul", x, condition),
                         pointwise("aten::add", x, condition)),
        "q, k, v": (product(TOKENS, WIDTH, 3 * WIDTH),),
        "attention, unfused": (
            OpCall("aten::bmm", (flat, flipped), (scores,)),
            OpCall("aten::_softmax", (scores, -1, False), (scores,)),
            OpCall("aten::bmm", (scores, flat), (flat,)),
        ),
        "attention, flash": (
            OpCall("aten::_scaled_dot_product_flash_attention", (head, head, head, 0.0, False),
                   (head, TensorSpec((1, HEADS, TOKENS), "float32"))),
        ),
        "attention's projection": (product(TOKENS, WIDTH, WIDTH),),
        "gate": (pointwise("aten::mul", x, condition), pointwise("aten::add", x, x)),
        "MLP up": (product(TOKENS, WIDTH, INNER),),
        "gelu": (OpCall("aten::gelu", (tensor(1, TOKENS, INNER), "tanh"),
                        (tensor(1, TOKENS, INNER),)),),
        "MLP down": (product(TOKENS, INNER, WIDTH),),
    }  # fmt: skip


def intensity_of(calls: tuple[OpCall, ...]) -> float | None:
    """FLOPs per byte of some calls together; ``None`` if one has no formula."""
    flops = moved = 0.0
    for call in calls:
        work = work_of(call)
        if work is None or work.flops is None or work.bytes_moved is None:
            return None
        flops += work.flops
        moved += work.bytes_moved
    return flops / moved if moved else None


def doublings(first: _Balance, last: _Balance, what: str) -> float:
    """How often ``matrix`` or ``vector`` doubled while bandwidth doubled once."""
    growth: float = getattr(last, what) / getattr(first, what)
    return log(growth) / log(last.bandwidth / first.bandwidth)


def _answers(
    lines: dict[str, list[_Balance]], intensities: dict[str, float | None]
) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for key, line, what in (
        ("nvidia", "NVIDIA", "matrix"), ("amd", "AMD", "matrix"), ("vector", "NVIDIA", "vector"),
    ):  # fmt: skip
        found = lines[line]
        if len(found) < 2:
            answers[key] = Answer(None, "fewer than two devices have data-sheet figures")
            continue
        first, last = found[0], found[-1]
        value = doublings(first, last, what)
        answers[key] = Answer(
            Measured(value, value, value),
            f"{first.key} to {last.key}: FLOP/s grew "
            f"{significant(getattr(last, what) / getattr(first, what))}x, bandwidth "
            f"{significant(last.bandwidth / first.bandwidth)}x",
        )
    known = {name: value for name, value in intensities.items() if value is not None}
    old, new = (b.matrix / b.bandwidth for b in (lines["NVIDIA"][0], lines["NVIDIA"][-1]))
    crossed = [name for name, value in known.items() if old <= value < new]
    count = float(len(crossed))
    answers["crossing"] = Answer(
        Measured(count, count, count),
        f"ridge point {significant(old)} FLOP/B on the {lines['NVIDIA'][0].key}, "
        f"{significant(new)} on the {lines['NVIDIA'][-1].key}; between them: "
        f"{', '.join(crossed) or 'none'} (one image, {TOKENS} tokens)",
    )
    return answers


def _draw(outcome: Outcome, figure: Figure) -> None:
    figure.set_size_inches(11, 4.8)
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    devices = [row for row in outcome.rows if row["kind"] == "device"]
    for line, colour in (("NVIDIA", GREEN), ("AMD", ORANGE)):
        found = [row for row in devices if row["line"] == line]
        left.plot(range(len(found)), [r["ridge"] for r in found], "o-", color=colour,
                  label=f"{line}, matrix float16")  # fmt: skip
        left.plot(range(len(found)), [r["vector_ridge"] for r in found], "o:", color=colour,
                  label=f"{line}, vector float32")  # fmt: skip
        for i, row in enumerate(found):
            left.annotate(row["name"], (i, row["ridge"]), ha="center", fontsize=8, color=colour,
                          xytext=(0, 7 if line == "NVIDIA" else -14),
                          textcoords="offset points")  # fmt: skip
    left.set_yscale("log")
    left.set_ylabel("ridge point: FLOPs per byte")
    left.set_xlabel("generation")
    left.set_xticks(range(4), ["1", "2", "3", "4"])
    left.margins(x=0.15, y=0.15)
    left.legend(loc="center", bbox_to_anchor=(0.62, 0.5))
    left.set_title("ridge points rise")
    _draw_operators(right, outcome, [row for row in devices if row["line"] == "NVIDIA"])
    title(figure, "Ridge points from data sheets, and the operators of a DiT block", "V100 to B200")


def _draw_operators(axes: Axes, outcome: Outcome, devices: list[Row]) -> None:
    operators = [r for r in outcome.rows if r["kind"] == "operator" and r["intensity"]]
    operators.sort(key=_intensity)
    low, high = devices[0]["ridge"], devices[-1]["ridge"]
    colours = [
        BLUE if r["intensity"] >= high else ORANGE if r["intensity"] >= low else GREY
        for r in operators
    ]
    values = [r["intensity"] for r in operators]
    bars = axes.barh([r["name"] for r in operators], values, color=colours)
    axes.bar_label(bars, [significant(v) for v in values], padding=3, fontsize=8)
    for position, row in enumerate(devices):
        axes.axvline(row["ridge"], color=GREEN, linewidth=1.0, linestyle="--")
        axes.annotate(row["name"], (row["ridge"], 0.02 + 0.07 * position), fontsize=7.5,
                      xycoords=("data", "axes fraction"), color=GREEN, ha="right",
                      xytext=(-2, 0), textcoords="offset points")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(right=max(*values, high) * 2.5)
    axes.set_xlabel(f"FLOPs per byte, float16, {outcome.context['tokens']} tokens")
    axes.annotate(
        "orange: compute-bound on a V100,\nnot on a B200; grey: memory-bound on both", (0.97, 0.4),
        xycoords="axes fraction", ha="right", fontsize=8.5,
        bbox={"facecolor": "white", "linewidth": 0, "pad": 2},
    )  # fmt: skip
    axes.grid(visible=False, axis="y")
    axes.set_title("operators of a DiT-XL/2 block")


def _intensity(row: Row) -> float:
    value: float = row["intensity"]
    return value


EXPERIMENT = Experiment(
    name="generations",
    title="Generations of devices",
    question="Does compute grow faster than bandwidth from one device to the next?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=5,
)
