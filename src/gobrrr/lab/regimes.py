"""Does each remedy cure its own regime, and only that?

The article ends with a table. Overhead-bound: tracing, operator fusion, no Python, a real JIT.
Bandwidth-bound: operator fusion. Compute-bound: tensor cores, more money for Nvidia. Here are one
small program per regime and one remedy per row, each applied to each.

Expected: the diagonal is large. Fusion helps overhead as well, as the table says, since one kernel
is one dispatch. The matrix unit's dtype does nothing for what has no matrix product.

- overhead: two hundred additions and multiplications of 64 numbers,
- bandwidth: eight pointwise operators over arrays beyond the caches,
- compute: a product of large matrices in float32;
- trace: the same operators without Python (on a GPU a CUDA graph; on a CPU ``torch.jit.trace``,
  frozen, whose fuser is off on a CPU),
- fuse: ``torch.compile``,
- matrix unit: matrix products in bfloat16 (autocast), the rest as it was.

Source: https://horace.io/brrr_intro.html, "So what can you do about it?" (the table at its end).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gobrrr.devices.cuda.graphs import captured
from gobrrr.lab.compiled import compiler_problem, fuse
from gobrrr.lab.drawing import ARTICLE_COLOUR, title
from gobrrr.lab.experiment import Answer, Claim, Experiment, Findings, Measured, Outcome, Row
from gobrrr.lab.setting import Setting, ratio_of, torch_generator
from gobrrr.timeline.quantities import percent, time_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROGRAMS = ("overhead", "bandwidth", "compute")
REMEDIES = ("trace", "fuse", "matrix unit")
# Where the article's table has a cross.
MEANT = {("overhead", "trace"), ("overhead", "fuse"), ("bandwidth", "fuse"),
         ("compute", "matrix unit")}  # fmt: skip
TINY, LINKS = 64, 100
CPU_ELEMENTS, GPU_ELEMENTS = 8 * 2**20, 64 * 2**20
CPU_SIZE, GPU_SIZE = 256, 8192

CLAIMS = (
    Claim(
        "overhead",
        "Tracing speeds up an overhead-bound program",
        "tracing, fusion, a real JIT",
        "speedup by tracing of the overhead-bound program",
        unit="x",
        least=1.2,
    ),
    Claim(
        "bandwidth",
        "Fusion speeds up a bandwidth-bound program",
        "operator fusion",
        "speedup by fusion of the bandwidth-bound program",
        unit="x",
        least=1.5,
    ),
    Claim(
        "compute",
        "The matrix unit speeds up a compute-bound program",
        "tensor cores",
        "speedup by bfloat16 products of the compute-bound program",
        unit="x",
        least=1.5,
    ),
    Claim(
        "elsewhere",
        "A remedy for another regime gains little",
        "not in the table",
        "largest speedup by a remedy that the table does not name for the program's regime",
        unit="x",
        most=1.15,
    ),
)


def _tiny(x: Any) -> Any:
    for _ in range(LINKS):
        x = x * 1.01
        x = x + 0.01
    return x


def _pointwise(x: Any) -> Any:
    y = (x * 1.5 + 0.5).clamp(-4.0, 4.0)
    return ((y - 0.25) * y).abs() * 0.5 + x


def _product(x: Any) -> Any:
    return x @ x


BODIES: dict[str, Callable[[Any], Any]] = {
    "overhead": _tiny, "bandwidth": _pointwise, "compute": _product,
}  # fmt: skip


def _run(setting: Setting) -> Findings:
    import torch

    size = GPU_SIZE if setting.is_gpu else CPU_SIZE
    shapes = {
        "overhead": (TINY,),
        "bandwidth": (GPU_ELEMENTS if setting.is_gpu else CPU_ELEMENTS,),
        "compute": (size, size),
    }
    notes: list[str] = []
    rows: list[Row] = []
    speedups: dict[tuple[str, str], Measured] = {}
    problem = compiler_problem(setting)
    if problem:
        notes.append(f"No column for fusion: {problem}.")
    for program in PROGRAMS:
        x = torch.randn(shapes[program], generator=torch_generator(setting), device=setting.device)
        body = BODIES[program]
        calls: dict[str, Callable[[], object]] = {"as it is": _without_gradients(body, x)}
        for remedy in REMEDIES:
            if remedy == "fuse" and problem:
                continue
            setting.progress(f"regimes: {remedy} for the {program}-bound program")
            calls[remedy] = _treated(setting, remedy, body, x)
            _check(program, remedy, calls["as it is"](), calls[remedy]())
        timed = setting.time_in_turns(calls, seconds=min(2.0, max(1.0, setting.left_s / 4)))
        found = setting.diagnose(calls["as it is"], steps=5, warmup=2)
        split = {
            "compute": found.split.compute_s, "bandwidth": found.split.memory_s,
            "overhead": found.split.overhead_s,
        }  # fmt: skip
        for name, series in timed.items():
            took = series.summary()
            ratio = Measured(*ratio_of(timed["as it is"], series))
            if name != "as it is":
                speedups[program, name] = ratio
            rows.append(
                {
                    "program": program, "remedy": name, "seconds": took.median,
                    "speedup": ratio.value, "low": ratio.low, "high": ratio.high,
                    "regime_share": split[program] / found.accounted_s,
                }
            )  # fmt: skip
    return Findings(_answers(speedups, rows), rows, {}, tuple(notes))


def _without_gradients(body: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    import torch

    def call() -> Any:
        with torch.no_grad():
            return body(x)

    return call


def _treated(
    setting: Setting, remedy: str, body: Callable[[Any], Any], x: Any
) -> Callable[[], Any]:
    import torch

    if remedy == "fuse":
        compiled = _without_gradients(fuse(setting, body), x)
        compiled()
        return compiled
    if remedy == "matrix unit":

        def cast() -> Any:
            with torch.no_grad(), torch.autocast(x.device.type, dtype=torch.bfloat16):
                return body(x)

        return cast
    return _graph(body, x) if setting.is_gpu else _trace(body, x)


def _trace(body: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    """The operators recorded once and run by TorchScript's interpreter, one by one."""
    import torch

    class Module(torch.nn.Module):  # type: ignore[misc]
        def forward(self, given: Any) -> Any:
            return body(given)

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.freeze(torch.jit.trace(Module().eval(), (x,), check_trace=False))

    def call() -> Any:
        with torch.no_grad():
            return traced(x)

    for _ in range(3):
        call()
    return call


def _graph(body: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    import torch

    with torch.no_grad():
        replay, result = captured(lambda: body(x))

    def call() -> Any:
        replay()
        return result

    return call


def _check(program: str, remedy: str, expected: Any, found: Any) -> None:
    import torch

    # A product in bfloat16 keeps 8 bits; sums of 1024 products are of size 32.
    loose = remedy == "matrix unit" and program == "compute"
    tolerance = 0.05 * expected.shape[-1] ** 0.5 if loose else 1e-4
    if not torch.allclose(expected.float(), found.float(), rtol=1e-3, atol=tolerance):
        raise ArithmeticError(f"{remedy} changes the result of the {program}-bound program")


def _answers(speedups: dict[tuple[str, str], Measured], rows: list[Row]) -> dict[str, Answer]:
    shares = {row["program"]: row["regime_share"] for row in rows}
    answers: dict[str, Answer] = {}
    for program, remedy in (
        ("overhead", "trace"), ("bandwidth", "fuse"), ("compute", "matrix unit"),
    ):  # fmt: skip
        value = speedups.get((program, remedy))
        took = next(
            r["seconds"] for r in rows if r["program"] == program and r["remedy"] == "as it is"
        )
        because = (
            f"{time_text(took)} unchanged, {percent(shares[program])} of it {program} in gobrrr's "
            "split"
        )
        if program == "compute" and value is not None and value.high < 1.5:
            because += "; bfloat16 products have no fast path here"
        answers[program] = Answer(value, because)
    others = {key: value for key, value in speedups.items() if key not in MEANT}
    program, remedy = max(others, key=lambda key: others[key].value)
    answers["elsewhere"] = Answer(
        others[program, remedy], f"{remedy} for the {program}-bound program"
    )
    return answers


def _draw(outcome: Outcome, figure: Figure) -> None:
    from matplotlib.colors import LogNorm

    figure.set_size_inches(8.4, 4.8)
    axes = figure.subplots()
    by_key = {(row["program"], row["remedy"]): row for row in outcome.rows}
    remedies = [name for name in REMEDIES if ("compute", name) in by_key]
    grid = [[by_key[program, name]["speedup"] for name in remedies] for program in PROGRAMS]
    image = axes.imshow(grid, cmap="RdYlBu", norm=LogNorm(0.2, 5.0), aspect="auto")
    for i, program in enumerate(PROGRAMS):
        for j, name in enumerate(remedies):
            row = by_key[program, name]
            text = f"{row['speedup']:.2f}x\n{row['low']:.2f} to {row['high']:.2f}"
            axes.text(j, i, text, ha="center", va="center", fontsize=11,
                      color="white" if not 0.4 < row["speedup"] < 2.6 else "black")  # fmt: skip
            if (program, name) in MEANT:
                axes.add_patch(_frame(j, i))
    labels = {"trace": "trace\n(no Python)", "fuse": "fuse\n(torch.compile)",
              "matrix unit": "matrix unit\n(bfloat16 products)"}  # fmt: skip
    axes.set_xticks(range(len(remedies)), [labels[name] for name in remedies])
    axes.set_yticks(
        range(len(PROGRAMS)),
        [f"{p}-bound\n({percent(by_key[p, 'as it is']['regime_share'])} {p} in gobrrr's split)"
         for p in PROGRAMS],
    )  # fmt: skip
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    bar = figure.colorbar(image, ax=axes, shrink=0.8)
    bar.set_label("speedup")
    bar.minorticks_off()
    bar.set_ticks([0.2, 0.5, 1, 2, 5], labels=["0.2x", "0.5x", "1x", "2x", "5x"])
    axes.set_xlabel("framed: the article's remedy for that regime", color=ARTICLE_COLOUR)
    title(figure, "Each remedy on each regime", outcome.device)


def _frame(column: int, row: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, fill=False, linewidth=2.5,
                     edgecolor=ARTICLE_COLOUR)  # fmt: skip


EXPERIMENT = Experiment(
    name="regimes",
    title="Regimes and remedies",
    question="Does each remedy help in its own regime, and only there?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=20,
)
