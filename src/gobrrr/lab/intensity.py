"""How much arithmetic is free beside moving the data?

``x = x * 2`` repeated inside one fused kernel reads x once and writes it once however often it is
repeated. The article's plot on an A100 is flat until 32 to 64 repeats, then time grows with them,
FLOP/s reach 9.75 TF (no multiply-add) and the achieved bandwidth falls.

Expected: time stays flat up to the ridge point, ceiling of FLOP/s over ceiling of bytes/s. In the
article's text an A100 loads 400 billion numbers a second and so has about a hundred operations for
each; an fp32 number is 4 bytes, read and written it is 8, and 19.5 TF / (1.5 TB/s / 8 B) = 104
operations, of which half are the additions of multiply-adds: 52 multiplications, as in its plot.

On a CPU one chain of dependent operations waits for itself, so its FLOP/s fall short of the
ceiling; the same arithmetic with many chains in flight does not. Both are shown.

Source: https://horace.io/brrr_intro.html, "Reasoning about Memory-Bandwidth Costs".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.lab.compiled import compile_chains, fuse
from gobrrr.lab.drawing import (
    COLOURS,
    article_span,
    ceiling_line,
    plain_ticks,
    time_ticks,
    title,
    with_units,
)
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
from gobrrr.lab.setting import Setting, crossing, spread, torch_generator
from gobrrr.measure import Series
from gobrrr.timeline.quantities import percent, si, significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

REPEATS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
# Compiled in this order while there is time: the shape of the curve first, the long unrolls last.
COMPILE_ORDER = (1, 16, 64, 8, 32, 4, 128, 2, 256, 512, 1024)
CPU_ELEMENTS = 8 * 2**20
GPU_ELEMENTS = 64 * 2**20
BYTES_PER_ELEMENT = 8  # float32, read once and written once
# Where time is half as long again as for one repeat, a roofline is at 1.5 times its ridge.
RISE = 1.5

COMPILED, COMPILED_ADD = "x * 2, torch.compile", "x * a + b, torch.compile"
LOOPS = {
    "multiply, one chain": (False, False),
    "multiply, many chains": (False, True),
    "multiply-add, one chain": (True, False),
    "multiply-add, many chains": (True, True),
}
FACTOR, TERM = 1.0001, 0.0001

CLAIMS = (
    Claim(
        "free-until",
        "Repeating x = x * 2 in a fused kernel costs nothing until tens of repeats",
        "flat until 32 to 64 repeats (A100)",
        "repeats at which the flat part and the rising part meet",
        least=16,
        most=128,
    ),
    Claim(
        "ridge",
        "The kernel becomes compute-bound at the device's ridge point",
        "52 multiplications by arithmetic, 32 to 64 in the plot (A100)",
        "measured crossover over the ridge point of the measured ceilings",
        unit="x",
        least=0.5,
        most=2.0,
    ),
    Claim(
        "peak",
        "Achieved FLOP/s rise to the vector peak",
        "9.75 TFLOP/s, half of 19.5 because there is no multiply-add (A100)",
        "best FLOP/s of the repeated multiplication over the multiplication ceiling",
        unit="x",
        least=0.8,
    ),
    Claim(
        "bandwidth",
        "Achieved bandwidth falls as repeats grow",
        "from about 1.3 TB/s at one repeat towards zero (A100, read off the plot)",
        "bandwidth at the most repeats over bandwidth at one",
        unit="x",
        most=0.1,
    ),
)


def _run(setting: Setting) -> Findings:
    import torch

    elements = GPU_ELEMENTS if setting.is_gpu else CPU_ELEMENTS
    notes: list[str] = []
    calls: dict[tuple[str, int], Callable[[], object]] = {}
    threads = torch.get_num_threads()
    if not setting.is_gpu:
        loops = compile_chains()
        # Rounded down to whole blocks of the loops: 12 vectors of 16 on AVX-512.
        elements -= elements % loops.granule
    x = torch.rand(elements, generator=torch_generator(setting), device=setting.device) + 0.5
    y = torch.empty_like(x)
    if not setting.is_gpu:
        for curve, (adds, many) in LOOPS.items():
            for repeat in REPEATS:
                calls[curve, repeat] = _loop_call(loops, x, y, repeat, adds, many, threads)
                if repeat in (1, 64):
                    calls[curve, repeat]()
                    _check(curve, repeat, x, y)
        notes.append(
            f"Many chains: {loops.chains} vectors in flight per thread, in a C++ loop; "
            f"{threads} threads."
        )
    notes += _compile_curves(setting, x, y, calls)
    setting.progress("intensity: timing")
    timed = setting.time_in_turns(
        {f"{curve}|{repeat}": call for (curve, repeat), call in calls.items()},
        seconds=max(4.0, min(15.0, setting.left_s)),
    )
    series = {key: timed[f"{key[0]}|{key[1]}"] for key in calls}
    return _findings(setting, elements, series, notes)


def _loop_call(
    loops: Any, x: Any, y: Any, repeat: int, adds: bool, many: bool, threads: int
) -> Callable[[], object]:
    term = TERM if adds else None
    return lambda: loops.run(x, y, repeat, factor=FACTOR, term=term, many=many, threads=threads)


def _compile_curves(
    setting: Setting, x: Any, y: Any, calls: dict[tuple[str, int], Callable[[], object]]
) -> list[str]:
    """Adds what torch.compile makes of the chains, as far as the time goes; returns notes."""
    try:
        curves = (COMPILED, COMPILED_ADD) if setting.is_gpu else (COMPILED,)
        left_out: list[int] = []
        spent_limit = setting.budget_s * 0.6
        for repeat in COMPILE_ORDER:
            if setting.budget_s - setting.left_s > spent_limit:
                left_out.append(repeat)
                continue
            setting.progress(f"intensity: compiling {repeat} repeats")
            for curve in curves:
                fused = fuse(setting, _chain(curve, repeat))
                fused(x, y)
                _check(curve, repeat, x, y)
                calls[curve, repeat] = partial(fused, x, y)
    except SkipExperimentError as error:
        if setting.is_gpu:
            raise
        return [f"No curve of torch.compile: {error}."]
    if left_out:
        listing = ", ".join(map(str, sorted(left_out)))
        return [f"Not compiled within the time budget: {listing} repeats (--budget gives more)."]
    return []


def _chain(curve: str, repeat: int) -> Callable[[Any, Any], None]:
    def repeated(x: Any, out: Any) -> None:
        for _ in range(repeat):
            x = x * 2 if curve == COMPILED else x * FACTOR + TERM
        # Into a given output: a fresh one would cost page faults on a CPU.
        out.copy_(x)

    return repeated


def _check(curve: str, repeat: int, x: Any, y: Any) -> None:
    """The kernel must have done the arithmetic, on elements from all over the array."""
    import torch

    some = slice(None, None, 4099)
    expected = x[some].double()
    if curve == COMPILED:
        expected = expected * 2.0 ** min(repeat, 1023)
    else:
        adds = curve == COMPILED_ADD or LOOPS.get(curve, (False, False))[0]
        grown = FACTOR**repeat
        expected = expected * grown + (TERM * (grown - 1) / (FACTOR - 1) if adds else 0.0)
    if not torch.allclose(y[some], expected.float(), rtol=1e-3, atol=1e-6):
        raise ArithmeticError(f"{repeat} repeats of {curve!r} gave wrong results")


def flops_per_repeat(curve: str) -> int:
    """2 for a multiply-add, 1 for a multiplication."""
    return 2 if curve == COMPILED_ADD or curve.startswith("multiply-add") else 1


def _findings(
    setting: Setting,
    elements: int,
    series: Mapping[tuple[str, int], Series],
    notes: list[str],
) -> Findings:
    ceilings = setting.ceilings()
    moved = elements * BYTES_PER_ELEMENT
    level = ceilings.level_for(moved)
    bandwidth = level.bandwidth_bytes_per_s(0.5) if level is not None else None
    multiply = ceilings.value("vector.float32.multiply")
    multiply_add = ceilings.value("vector.float32")
    rows = [
        _row(curve, repeat, elements, found) for (curve, repeat), found in sorted(series.items())
    ]
    curves = sorted({curve for curve, _ in series})
    by_curve = {
        curve: {repeat: found for (name, repeat), found in series.items() if name == curve}
        for curve in curves
    }
    subject = COMPILED if len(by_curve.get(COMPILED, {})) >= 4 else "multiply, one chain"
    if subject not in by_curve:
        # Chains that this file writes itself run on CPUs alone.
        raise SkipExperimentError("too few compiled within the time budget (--budget gives more)")
    answers = _answers(by_curve, subject, elements, bandwidth, multiply)
    context = {
        "elements": elements,
        "bytes": moved,
        "level": level.name if level is not None else None,
        "bandwidth": bandwidth,
        "multiply": multiply,
        "multiply_add": multiply_add,
        "crossover": answers["free-until"].measured,
        "subject": subject,
    }
    many = by_curve.get("multiply, many chains")
    if many and multiply:
        best = max(elements * r / s.summary().median for r, s in many.items())
        notes.append(
            f"With many chains in flight the multiplication reaches {si(best, 'FLOP/s')}, "
            f"{percent(best / multiply)} of its ceiling; a single chain is latency-bound."
        )
    notes.append(
        "The calculation for an A100, corrected: 19.5 TFLOP/s / (1.5 TB/s / 8 bytes) = 104 "
        "operations per number read and written, 52 of them multiplications."
    )
    return Findings(answers, rows, context, tuple(notes))


def _row(curve: str, repeat: int, elements: int, found: Series) -> Row:
    took = found.summary()
    flops = elements * repeat * flops_per_repeat(curve)
    moved = elements * BYTES_PER_ELEMENT
    return {
        "curve": curve,
        "repeat": repeat,
        "seconds": took.median,
        "low_s": took.low,
        "high_s": took.high,
        "flops_per_s": flops / took.median,
        "bytes_per_s": moved / took.median,
        "intensity": flops / moved,
    }


def crossovers(found: Mapping[int, Series]) -> list[float]:
    """Per round: the repeats at which the flat and the rising part of the roofline meet.

    Rounds in which time never rises by half give nothing.
    """
    repeats = sorted(found)
    rounds = min(len(series.seconds) for series in found.values())
    meets = []
    for i in range(rounds):
        times = [found[repeat].seconds[i] for repeat in repeats]
        x = crossing([float(r) for r in repeats], times, RISE * times[0])
        if x is not None:
            meets.append(max(1.0, x / RISE))
    return meets


def _answers(
    by_curve: Mapping[str, Mapping[int, Series]],
    subject: str,
    elements: int,
    bandwidth: float | None,
    multiply: float | None,
) -> dict[str, Answer]:
    found = by_curve[subject]
    most = max(found)
    meets = crossovers(found)
    if len(meets) < 3:
        unknown = f"time had not risen by half at {most} repeats"
        answers = {"free-until": Answer(None, unknown), "ridge": Answer(None, unknown)}
    else:
        where = Measured(*spread(meets))
        answers = {
            "free-until": Answer(
                where, f"of {subject}; with fewer than {significant(where.value)} memory-bound"
            )
        }
        if bandwidth and multiply:
            ridge = multiply / (bandwidth / BYTES_PER_ELEMENT)
            answers["ridge"] = Answer(
                Measured(*(v / ridge for v in where)),
                f"{si(multiply, 'FLOP/s')} of multiplications over {si(bandwidth, 'B/s')} puts the "
                f"ridge point at {significant(ridge)} repeats; found at {significant(where.value)}",
            )
        else:
            answers["ridge"] = Answer(None, "no ceiling of multiplication or bandwidth is known")
    best = min(found, key=lambda repeat: found[repeat].summary().median / repeat)
    rates = [elements * best / s for s in found[best].seconds]
    if multiply:
        value = Measured(*(rate / multiply for rate in spread(rates)))
        short = "" if value.high >= 0.8 else ": a chain of dependent operations is latency-bound"
        answers["peak"] = Answer(
            value,
            f"{si(multiply * value.value, 'FLOP/s')} at {best} repeats, of a ceiling of "
            f"{si(multiply, 'FLOP/s')}{short}",
        )
    else:
        answers["peak"] = Answer(None, "no ceiling of multiplication is known")
    ratios = [a / b for a, b in zip(found[1].seconds, found[most].seconds)]
    answers["bandwidth"] = Answer(
        Measured(*spread(ratios)), f"at {most} repeats and at one; both move the same bytes"
    )
    return answers


def _draw(outcome: Outcome, figure: Figure) -> None:
    figure.set_size_inches(11, 4.6)
    panels: list[Axes] = list(figure.subplots(1, 3))
    curves = sorted({row["curve"] for row in outcome.rows})
    context = outcome.context
    quantities = (("seconds", "s"), ("flops_per_s", "FLOP/s"), ("bytes_per_s", "B/s"))
    titles = ("time of the kernel", "achieved FLOP/s", "achieved bandwidth")
    for axes, (key, unit), heading in zip(panels, quantities, titles):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        for colour, curve in zip(COLOURS, curves):
            rows = sorted((r for r in outcome.rows if r["curve"] == curve), key=_repeat)
            axes.plot(
                [r["repeat"] for r in rows], [r[key] for r in rows], "o-", markersize=3.5,
                color=colour, label=curve, linewidth=2.6 if curve == context["subject"] else 1.3,
            )  # fmt: skip
        plain_ticks(axes.xaxis, REPEATS[::2])
        time_ticks(axes.yaxis) if unit == "s" else with_units(axes.yaxis, unit)
        axes.set_xlabel("repeats")
        axes.set_title(heading)
        article_span(axes, 32, 64, "article\n(A100)")

        if context["crossover"]:
            where = context["crossover"][0]
            axes.axvline(where, color="black", linestyle=":", linewidth=1.1)
            axes.annotate(f" {significant(where)} here", (where, 0.02), fontsize=8,
                          xycoords=("data", "axes fraction"))  # fmt: skip
    ceiling_line(panels[1], context["multiply"], "multiply ceiling")
    ceiling_line(panels[1], context["multiply_add"], "multiply-add ceiling")
    ceiling_line(panels[2], context["bandwidth"], f"{context['level']} copy ceiling")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    title(figure, "Arithmetic is free until the kernel is compute-bound", outcome.device)


def _repeat(row: Row) -> int:
    repeat: int = row["repeat"]
    return repeat


EXPERIMENT = Experiment(
    name="intensity",
    title="Arithmetic intensity",
    question="How often can x = x * 2 be repeated in one fused kernel before it costs anything?",
    claims=CLAIMS,
    run=_run,
    draw=_draw,
    budget_s=46,
)
