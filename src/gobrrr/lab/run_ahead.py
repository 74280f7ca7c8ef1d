"""Does the CPU run ahead of the GPU?

PyTorch launches kernels and does not wait for them. If kernels are long the CPU gets ahead, kernels
queue up, and what Python and the framework cost is hidden behind them. If they are short the GPU is
done before the next launch arrives and starves.

Expected: for a model of large operators many kernels queued and the GPU active nearly all the time;
for a small one at most one kernel queued and the GPU idle most of the time.

Without a GPU this reads two recordings of the same device (an H100): a small BERT, and Qwen1.5
0.5B. With one, two loops are recorded here: additions of one element, and large matrix products. A
CPU runs its operators in the calling thread, so nothing can run ahead there.

Source: https://horace.io/brrr_intro.html, "Overhead".
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr.lab.drawing import ARTICLE_COLOUR, BLUE, ORANGE, title
from gobrrr.lab.excerpts import Excerpt, excerpt_of, shipped_excerpt
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
from gobrrr.lab.setting import Setting, spread
from gobrrr.measure import summarise
from gobrrr.measure.torch_profiler import profiler_of_torch
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.quantities import percent, time_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL, LARGE = "small operators", "large operators"
RECORDED = {SMALL: "h100_bert_small_inference", LARGE: "h100_qwen1.5_0.5b_inference"}
SLICES = 20
# How much of the start is drawn: enough launches to see the pattern.
DRAWN_LAUNCHES = 60

CLAIMS = (
    Claim(
        "ahead",
        "With large operators the CPU runs ahead of the GPU",
        "the CPU can run ahead (trace)",
        "kernels queued on the GPU when a launch returns",
        unit="kernels",
        least=4,
        timed=False,
    ),
    Claim(
        "hidden",
        "With large operators overhead is hidden: the GPU stays busy",
        "no gaps between kernels (trace)",
        "share of the time in which a kernel runs, large operators",
        unit="%",
        least=90,
        timed=False,
    ),
    Claim(
        "waiting",
        "With small operators the GPU waits for the CPU",
        "the GPU spends its time waiting (trace)",
        "kernels queued on the GPU when a launch returns",
        unit="kernels",
        most=1,
        timed=False,
    ),
    Claim(
        "starved",
        "With small operators the GPU is mostly idle",
        "mostly gaps (trace)",
        "share of the time in which a kernel runs, small operators",
        unit="%",
        most=50,
        timed=False,
    ),
)


def _run(setting: Setting) -> Findings:
    notes: tuple[str, ...]
    if setting.is_gpu:
        lanes = {SMALL: _record(setting, SMALL), LARGE: _record(setting, LARGE)}
        notes = ("Recorded here: additions of one element, and products of 4096 x 4096.",)
    else:
        lanes = {size: shipped_excerpt(name) for size, name in RECORDED.items()}
        notes = tuple(
            f"{size}: {lane.what} on an {lane.device}, recorded by others: {lane.source}."
            for size, lane in lanes.items()
        )
    rows: list[Row] = [_row(size, lane) for size, lane in lanes.items()]
    return Findings(_answers(lanes), rows, {}, notes)


def _row(size: str, lane: Excerpt) -> Row:
    count = min(DRAWN_LAUNCHES, len(lane.launch_start_ns))
    # A stretch from the middle: the start of a recording has nothing queued yet.
    first = max(0, (len(lane.launch_start_ns) - count) // 2)
    part = slice(first, first + count)
    origin = lane.launch_start_ns[first]
    return {
        "size": size, "what": lane.what, "device": lane.device, "kernels": len(lane.waits_ns()),
        "active": sum(lane.active_fractions(1)),
        "wait_s": summarise(lane.waits_ns()).median * 1e-9,
        "kernel_s": summarise(
            [e - s for s, e in zip(lane.kernel_start_ns, lane.kernel_end_ns)]
        ).median * 1e-9,
        "launch_ns": [[s - origin, e - origin] for s, e in
                      zip(lane.launch_start_ns[part], lane.launch_end_ns[part])],
        "kernel_ns": [[s - origin, e - origin] for s, e in
                      zip(lane.kernel_start_ns, lane.kernel_end_ns)
                      if e > origin and s < lane.kernel_end_ns[first + count - 1]],
        "links_ns": [s - origin for s in lane.kernel_start_ns[part]],
        "queued": lane.queued()[part],
    }  # fmt: skip


def _answers(lanes: dict[str, Excerpt]) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    for size, queue_key, active_key in ((LARGE, "ahead", "hidden"), (SMALL, "waiting", "starved")):
        lane = lanes[size]
        wait_s = summarise(lane.waits_ns()).median * 1e-9
        answers[queue_key] = Answer(
            Measured(*spread(lane.queued())),
            f"{lane.what}: a kernel starts {time_text(wait_s)} after its launch returned (median "
            f"of {len(lane.waits_ns())})",
        )
        shares = [100 * share for share in lane.active_fractions(SLICES)]
        answers[active_key] = Answer(
            Measured(*spread(shares)),
            f"{percent(sum(lane.active_fractions(1)))} of the whole recording; the interval is "
            f"over {SLICES} equal stretches of it",
        )
    return answers


def _record(setting: Setting, size: str) -> Excerpt:
    """Profiles a loop on the GPU here."""
    import torch
    from torch.profiler import ProfilerActivity

    n, calls = (1, 400) if size == SMALL else (4096, 60)
    a = torch.randn(n, n, device=setting.device)
    out = torch.empty_like(a)

    def loop() -> None:
        for _ in range(calls):
            if size == SMALL:
                torch.add(a, a, out=out)
            else:
                torch.mm(a, a, out=out)
        setting.synchronise()

    loop()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profiler_of_torch(activities=activities, only_exported=True) as recorded:
        loop()
    with tempfile.TemporaryDirectory(prefix="gobrrr-") as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        timeline = read_trace(path)
    what = "additions of one element" if size == SMALL else "4096 x 4096 products"
    try:
        return excerpt_of(timeline, what, "recorded here")
    except ValueError as error:
        raise SkipExperimentError(f"the profiler saw no kernels: {error}") from error


def _draw(outcome: Outcome, figure: Figure) -> None:
    figure.set_size_inches(10.5, 5.2)
    panels: Any = figure.subplots(2, 1)
    rows = sorted(outcome.rows, key=_is_large)
    for axes, row in zip(panels, rows):
        _draw_lanes(axes, row)
    device = rows[0]["device"]
    title(figure, "Does the CPU run ahead of the GPU?", device)


def _is_large(row: Row) -> bool:
    large: bool = row["size"] == LARGE
    return large


def _draw_lanes(axes: Axes, row: Row) -> None:
    scale = 1e-6 if row["kernel_ns"][-1][1] > 5e6 else 1e-3
    unit = "ms" if scale == 1e-6 else "µs"
    for place, key, colour in ((1, "launch_ns", BLUE), (0, "kernel_ns", ORANGE)):
        spans = [(s * scale, max(e - s, 1) * scale) for s, e in row[key]]
        axes.broken_barh(spans, (place - 0.3, 0.6), facecolors=colour, linewidth=0)
    _draw_links(axes, row, scale)
    axes.set_yticks([0, 1], ["GPU: kernels", "CPU: launches"])
    axes.set_ylim(-0.75, 1.5)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"{unit} from a launch in the middle of the recording")
    axes.grid(visible=False)
    axes.set_title(
        f"{row['size']}: {row['what']}. GPU active {percent(row['active'])}; median kernel "
        f"{time_text(row['kernel_s'])}, queued for {time_text(row['wait_s'])}"
    )
    reading = "the CPU is ahead" if row["size"] == LARGE else "the GPU waits for the CPU"
    axes.annotate(f"the article: {reading}", (0.995, 0.03), xycoords="axes fraction", ha="right",
                  va="bottom", fontsize=8.5, color=ARTICLE_COLOUR,
                  bbox={"facecolor": "white", "alpha": 0.85, "linewidth": 0})  # fmt: skip


def _draw_links(axes: Axes, row: Row, scale: float) -> None:
    """Lines from some launches to the kernels that they started."""
    for i in range(0, len(row["launch_ns"]), max(1, len(row["launch_ns"]) // 12)):
        ends = [row["launch_ns"][i][1] * scale, row["links_ns"][i] * scale]
        axes.plot(ends, [0.7, 0.3], color="black", linewidth=0.6)


EXPERIMENT = Experiment(
    name="run-ahead",
    title="Running ahead",
    question="Does the CPU run ahead of the GPU, and what if it cannot?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=5,
)
