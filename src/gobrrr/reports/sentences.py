"""The lines of a diagnosis that are not tables, without colour or layout."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.diagnosis.schema import NO_VERDICT, Diagnosis, Finding
from gobrrr.diagnosis.verdict import work_in_fixed_cost
from gobrrr.reports.cause_lines import cause_lines, cause_saving
from gobrrr.reports.fix_table import CANNOT_TELL, trial_line
from gobrrr.reports.tables import time_scale
from gobrrr.reports.words import PARTS, Part, cause_label
from gobrrr.timeline.names import op_name, plain_name, short_source
from gobrrr.timeline.quantities import (
    UNKNOWN,
    count,
    multiple,
    percent,
    share,
    si,
    significant,
    time_text,
)

# How many source lines stand beside a cause of overhead in the split; --by cause shows all.
_LINES_PER_CAUSE = 2
_NAMED = 3
# From this share of the timed steps on, slow ones are a kind of their own.
_OF_TWO_LENGTHS = 0.2
# Slow steps whose times are further apart than this are not of one length.
_OF_ONE_LENGTH = 1.5
# Ends a part of a prediction that has no interval (``gobrrr.prediction.step.explanation``).
_NO_INTERVAL = " (no interval)"
# Of all steps and of the timed ones: a sentence more would say nothing new.
_MEANS_ALIKE = 0.10
# Above this share of the wall time the steps are all there is; below the other a part is not named.
_WALL_OF_STEPS, _LEAST_OF_WALL = 0.99, 0.002


@dataclass(frozen=True, slots=True)
class SplitPart:
    """One line under a top level."""

    label: str
    time_s: float
    note: str


@dataclass(frozen=True, slots=True)
class SplitLevel:
    """One top level with its non-zero parts; ``roof_s`` of it is work at the ceilings.

    ``note``: where its work is, if it is next to nothing.
    """

    name: str
    time_s: float
    roof_s: float
    parts: tuple[SplitPart, ...]
    note: str = ""


def title(diagnosis: Diagnosis) -> str:
    """What was diagnosed, where: ``train.py · training step · AMD EPYC, 2 threads``."""
    device = plain_name(diagnosis.device.name) or f"unknown {diagnosis.device.kind} device"
    if diagnosis.device.threads:
        plural = "s" if diagnosis.device.threads > 1 else ""
        device = f"{device}, {diagnosis.device.threads} thread{plural}"
    torch_version = diagnosis.environment.get("torch")
    parts = (
        plain_name(str(diagnosis.source.get("name") or "")),
        _rank(diagnosis),
        plain_name(diagnosis.step.kind),
        device,
        f"torch {plain_name(str(torch_version))}" if torch_version else "",
    )
    return " · ".join(part for part in parts if part)


def _rank(diagnosis: Diagnosis) -> str:
    rank, size = diagnosis.source.get("rank"), diagnosis.source.get("world_size")
    if not isinstance(rank, int) or size == 1:
        return ""
    return f"rank {rank} of {size}" if isinstance(size, int) else f"rank {rank}"


def spread_of_step(diagnosis: Diagnosis) -> str:
    """``98.5 to 101.3, 24 timed steps``, or ``predicted, 11.2 to 13.8``; without the unit.

    Of steps that vary ``24 timed steps; median 99.2, 98.5 to 101.3``.
    """
    scale, time = time_scale(diagnosis), diagnosis.step.time_s
    spread = [f"{scale.number(time.low)} to {scale.number(time.high)}"] if time.high else []
    if time.n == 0:
        if time.high is None:
            # A lower bound, in files of earlier versions.
            spread = [f"{scale.number(time.low)} or more"]
        elif time.low == time.high:
            spread = []
        bound = ["host-bound"] if diagnosis.source.get("host_bound") else []
        inside = ["predicted", *bound, *spread]
    else:
        # Of a trace all steps are recorded; of a run more ran than were timed.
        timed = "" if diagnosis.source.get("kind") == "trace" else "timed "
        steps = f"{time.n} {timed}step{'s' if time.n != 1 else ''}"
        if diagnosis.too_long:
            # The interval is of the noise among them, and not of what all have more.
            steps = f"of these {steps} alone"
        if diagnosis.step.varying:
            # The interval is the median's, and may lie beside the mean that the figures are.
            middle = ", ".join([f"median {scale.number(time.median)}", *(spread * (time.n > 1))])
            return f"{steps}; {middle}"
        inside = [*(spread if time.n > 1 else []), steps]
    return ", ".join(inside)


def step_time(diagnosis: Diagnosis) -> str:
    """``100.0 ms per step (98.5 to 101.3, 24 timed steps; mean 102.1)``."""
    scale, time = time_scale(diagnosis), diagnosis.step.time_s
    headline_s = time.mean if diagnosis.step.varying else time.median
    text = spread_of_step(diagnosis)
    if not diagnosis.step.varying and scale.number(time.mean) != scale.number(time.median):
        text = f"{text}; mean {scale.number(time.mean)}"
        if diagnosis.step.basis == "mean":
            text += ", which the split adds up to"
    if diagnosis.step.tokens and headline_s > 0:
        text = f"{text}; {significant(diagnosis.step.tokens / headline_s)} tokens per second"
    if diagnosis.step.varying:
        text = f"{text}; steps vary, so all figures below are means"
    return f"{scale.text(headline_s)} per step ({text})"


def what_a_step_is(diagnosis: Diagnosis) -> str:
    """``A step is one step of the optimizer (Adam `opt`); 66 ran.``; empty if nobody chose."""
    return plain_name(diagnosis.step.what, 2000)


def no_verdict(diagnosis: Diagnosis) -> str:
    """Why there is no verdict; empty where there is one, or nothing is said of it."""
    if diagnosis.regime is not None or not diagnosis.notices:
        return ""
    # Those of a job come before it.
    why = (notice for notice in diagnosis.notices if NO_VERDICT in notice)
    return plain_name(next(why, diagnosis.notices[0]), 2000)


def wall_time(diagnosis: Diagnosis) -> str:
    """What the program's time goes to besides these steps; empty if it is nothing much.

    ``Wall time: training steps 43 %, evaluation 57 % (train.py:9 in evaluate, 41 ms, once in 8
    steps).``
    """
    wall = diagnosis.wall
    if wall is None or wall.steps_share > _WALL_OF_STEPS:
        return ""
    parts = [part for part in wall.parts if part.share >= _LEAST_OF_WALL]
    what = diagnosis.step.kind.split(" (")[0]
    named = [f"{plain_name(what)}s {percent(wall.steps_share)}"]
    for part in parts[:_NAMED]:
        inside = [plain_name(part.source)] if part.source else []
        inside.append(f"{time_text(part.time_s)}{_how_often(part.per_step, wall.windows)}")
        named.append(f"{plain_name(part.name)} {percent(part.share)} ({', '.join(inside)})")
    if len(parts) > _NAMED:
        rest = sum(part.share for part in parts[_NAMED:])
        named.append(f"{len(parts) - _NAMED} more {percent(rest)}")
    return f"Wall time: {', '.join(named)}."


def _how_often(per_step: float, windows: int) -> str:
    if per_step >= 1.5:
        return f", {per_step:.0f} times a step"
    if per_step >= 0.67:
        return ""
    # Of what was seen a single time nobody knows when it comes again.
    return ", seen once" if per_step * windows < 1.5 else f", once in {1 / per_step:.0f} steps"


def seen_steps(diagnosis: Diagnosis) -> str:
    """What all steps took, where that is not what the timed ones took; empty if it is.

    ``43 steps ran with nothing attached, 24 of them timed: mean 131.4 ms, median 99.0 ms.``
    """
    seen, time = diagnosis.step.seen, diagnosis.step.time_s
    if seen is None or seen.count <= time.n:
        return ""
    if abs(seen.mean_s - time.mean) <= _MEANS_ALIKE * time.mean:
        return ""
    scale = time_scale(diagnosis)
    return (
        f"{seen.count} steps ran with nothing attached, {time.n} of them timed: mean "
        f"{scale.text(seen.mean_s)}, median {scale.text(seen.median_s)}."
    )


def slow_steps(diagnosis: Diagnosis) -> str:
    """``1 slow step in 24: 151 ms (data loading)``; empty if there is none.

    Where many are slow: ``Steps of two lengths: 8 of 24 take 140 to 151 ms, the median step 62
    ms.``
    """
    slow = diagnosis.step.slow_steps
    if not slow:
        return ""
    scale, timed = time_scale(diagnosis), diagnosis.step.time_s
    if len(slow) >= max(2, _OF_TWO_LENGTHS * timed.n):
        times = [step.time_s for step in slow]
        alike = max(times) <= _OF_ONE_LENGTH * min(times)
        lengths = "Steps of two lengths" if alike else "Slow steps"
        return (
            f"{lengths}: {len(slow)} of {timed.n} take {scale.number(min(times))} to "
            f"{scale.text(max(times))}, the median step {scale.text(timed.median)}."
        )
    named = [
        scale.text(step.time_s) + (f" ({cause_label(step.cause)})" if step.cause else "")
        for step in slow[:_NAMED]
    ]
    more = f" and {len(slow) - _NAMED} more" if len(slow) > _NAMED else ""
    plural = "s" if len(slow) > 1 else ""
    return f"{len(slow)} slow step{plural} in {diagnosis.step.time_s.n}: {', '.join(named)}{more}"


def split_levels(diagnosis: Diagnosis) -> tuple[SplitLevel, ...]:
    """The three levels, and the fourth where something could not be told; parts largest first."""
    levels = []
    for name, parts in PARTS.items():
        time_s = getattr(diagnosis.split, f"{name}_s")
        if name == "unmodelled" and not time_s:
            continue
        shown = [part for part in (_split_part(diagnosis, part) for part in parts) if part.time_s]
        shown.sort(key=lambda part: -part.time_s)
        roof_s = sum(diagnosis.leaves.get(part.roof, 0.0) for part in parts)
        # Not nothing: the accounting gives an op its fixed cost first.
        hidden = name in ("compute", "memory") and work_in_fixed_cost(diagnosis)
        note = "within the fixed cost of ops" if hidden else ""
        levels.append(SplitLevel(name, time_s, roof_s, tuple(shown), note))
    return tuple(levels)


def _split_part(diagnosis: Diagnosis, part: Part) -> SplitPart:
    leaves = diagnosis.leaves
    if part.leaf:
        time_s = leaves.get(part.leaf, 0.0)
        return SplitPart(part.label, time_s, _lines(diagnosis, part.leaf) or part.meaning)
    scale = time_scale(diagnosis)
    roof_s, below_s = leaves.get(part.roof, 0.0), leaves.get(part.below, 0.0)
    note = f"{scale.number(roof_s)} at the ceiling, {scale.number(below_s)} below it"
    return SplitPart(part.label, roof_s + below_s, note)


def _lines(diagnosis: Diagnosis, leaf: str) -> str:
    """The source lines that spend most of a cause, else its detail."""
    cause = leaf.removeprefix("overhead.")
    rows = [row for row in diagnosis.idle if row.cause == cause]
    scale = time_scale(diagnosis)

    # One line of the program may stand there several times, with different details.
    times: dict[str, float] = {}
    for row in rows:
        where = short_source(row.source) if row.source else plain_name(row.detail or "")
        times[where] = times.get(where, 0.0) + row.time_s
    named = [(where, time_s) for where, time_s in times.items() if where][:_LINES_PER_CAUSE]
    parts, file = [], ""
    for where, time_s in named:
        of_file, colon, line = where.rpartition(":")
        # A second line of the same file is given by its number alone.
        shown = f":{line}" if colon and of_file == file else where
        file = of_file
        parts.append(f"{shown} {scale.number(time_s)}" if len(times) > 1 else shown)
    return ", ".join(parts)


_MOST_TIMES = 1000


def speed_of_light(diagnosis: Diagnosis) -> str:
    """The step time at the ceilings, and the MFU; empty if neither is known."""
    scale, light_s = time_scale(diagnosis), diagnosis.speed_of_light_s
    parts = []
    if light_s is not None:
        times = diagnosis.accounted_s / light_s if light_s else 0.0
        # Of a step that is hardly any work the factor says nothing more.
        many = f" (over {_MOST_TIMES}x)" if times > _MOST_TIMES else f" ({significant(times)}x)"
        ratio = many if light_s else ""
        parts.append(f"Speed of light {scale.text(light_s)}{ratio}: this work at the ceilings.")
    if diagnosis.mfu is not None:
        of = f" of the {diagnosis.mfu_dtype} peak" if diagnosis.mfu_dtype else ""
        hfu = diagnosis.hfu
        again = f"; HFU {percent(hfu, 1)}, with what is computed again" if hfu is not None else ""
        parts.append(f"MFU {percent(diagnosis.mfu, 1)}{of}{again}.")
    return " ".join(parts)


def energy(diagnosis: Diagnosis) -> str:
    """What a predicted step will draw from the board; empty if that is not known.

    ``Energy about 41 J a step, 320 W of the board's 700 W: static 63 %, arithmetic 25 %, memory
    12 %; not validated against measurements. 50.0 tokens per joule (2048 tokens).``
    """
    found = diagnosis.energy
    if found is None or found.joules <= 0:
        return ""
    parts = (("static", found.static_j), ("arithmetic", found.arithmetic_j),
             ("memory", found.memory_j))  # fmt: skip
    named = ", ".join(f"{name} {percent(joules / found.joules)}" for name, joules in parts)
    text = (
        f"Energy about {si(found.joules, 'J')} a step, {si(found.mean_w, 'W')} of the board's "
        f"{si(found.board_w, 'W')}: {named}; not validated against measurements."
    )
    if found.joules_per_token is None:
        return text
    per_joule = significant(1 / found.joules_per_token)
    return f"{text} {per_joule} tokens per joule ({found.tokens} tokens)."


def least_certain(diagnosis: Diagnosis) -> str:
    """The parts of a predicted step that are known least; empty of a measured one.

    ``Least certain, with 80 % intervals: products in 16 bits 139 µs (124 µs to 155 µs).``
    """
    parts = diagnosis.source.get("least_certain")
    if not isinstance(parts, list) or not parts:
        return ""
    told = [plain_name(str(part), 200) for part in parts]
    without = [part.removesuffix(_NO_INTERVAL) for part in told if part.endswith(_NO_INTERVAL)]
    known = [part for part in told if not part.endswith(_NO_INTERVAL)]
    lists = [f"with 80 % intervals: {', '.join(known)}"] if known else []
    lists += [f"without an interval: {', '.join(without)}"] if without else []
    return f"Least certain, {'; '.join(lists)}."


def device_time(diagnosis: Diagnosis) -> str:
    """What the device's streams did in the whole window; empty if that was not recorded."""
    device = diagnosis.device_time
    if device is None:
        return ""
    parts = [f"compute kernels {time_text(device.compute_kernels_s)}"]
    if device.collectives_s:
        exposed = time_text(device.exposed_collectives_s)
        parts.append(f"collectives {time_text(device.collectives_s)} ({exposed} exposed)")
    if device.exposed_copies_s:
        parts.append(f"exposed copies {time_text(device.exposed_copies_s)}")
    busy = share(device.busy_s, device.window_s, 1)
    # Not the step: that may begin and end with its host, and there may be several in the window.
    window = f"{time_text(device.window_s)} from first to last kernel"
    if diagnosis.source.get("kind") == "trace" and diagnosis.step.time_s.n > 1:
        window += f" ({diagnosis.step.time_s.n} steps)"
    return f"Device busy {busy} of {window}: {', '.join(parts)}."


def card(diagnosis: Diagnosis) -> str:
    """What the card drew and ran at while steps were timed; empty if that is not known.

    ``Card: 41.2 J a step and 612 W of 700 W, measured by it; SM clock 1755 of 1980 MHz; 61 °C.``
    """
    found = diagnosis.card
    if found is None:
        return ""
    parts = []
    if found.joules_per_step is not None:
        limit = "" if found.power_limit_w is None else f" of {si(found.power_limit_w, 'W')}"
        parts.append(
            f"{si(found.joules_per_step, 'J')} a step and {si(found.mean_w, 'W')}{limit}, measured "
            "by it"
        )
    if found.sm_mhz is not None:
        most = "" if found.sm_max_mhz is None else f" of {found.sm_max_mhz:.0f}"
        parts.append(f"SM clock {found.sm_mhz:.0f}{most} MHz")
    if found.temperature_c is not None:
        parts.append(f"{found.temperature_c:.0f} °C")
    return f"Card: {'; '.join(parts)}." if parts else ""


def measuring(diagnosis: Diagnosis) -> str:
    """What the profiler cost and what was scaled; empty if nothing was profiled."""
    scale, step = time_scale(diagnosis), diagnosis.step
    parts = []
    if step.profiled_time_s is not None:
        plural = "s" if step.profiled_steps != 1 else ""
        steps = f" over {step.profiled_steps} step{plural}" if step.profiled_steps else ""
        parts.append(f"profiled{steps}: {scale.text(step.profiled_time_s)} per step")
    if step.profiler_cost_s is not None:
        parts.append(f"profiler's cost subtracted: {scale.text(step.profiler_cost_s)}")
    if step.host_scale is not None and step.host_scale == step.kernel_scale:
        parts.append(f"all parts scaled by {step.host_scale:.3f}")
    else:
        for what, factor in (("host", step.host_scale), ("kernel", step.kernel_scale)):
            if factor is not None:
                parts.append(f"{what} parts scaled by {factor:.3f}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def coverage(diagnosis: Diagnosis) -> list[str]:
    """What is modelled, what is not, what beat its roof, and what ran beside the step."""
    scale, lines = time_scale(diagnosis), []
    modelled = diagnosis.coverage.modelled_time_fraction
    missing = [
        f"{op_name(op.op)} {scale.text(op.time_s)}"
        + (f" ({plain_name(op.reason)})" if op.reason else "")
        for op in diagnosis.coverage.unmodelled
    ]
    if modelled is not None or missing:
        lines.append(f"Modelled: {percent(modelled, 1)} of kernel time.{_named(' Not', missing)}")
    if diagnosis.coverage.unlinked_s:
        unlinked = scale.text(diagnosis.coverage.unlinked_s)
        lines.append(f"Kernels without a known op: {unlinked}.")
    above = [
        f"{op_name(op.op)} {plain_name(op.shapes, 60)} {time_text(op.time_s)}, "
        f"{percent(op.roof_s / op.time_s)} of its ceiling"
        for op in diagnosis.above_ceiling
        # Less than half a percent above is the roof, to the digits that are shown.
        if op.time_s > 0 and op.roof_s >= 1.005 * op.time_s
    ]
    if above:
        # Times are of other steps than shapes: experts and routes differ from one to the next.
        why = (
            "cache, a ceiling too low, a formula that counts too much, or shapes that vary from "
            "step to step"
        )
        lines.append(f"Faster than the ceilings allow ({why}){_named(':', above)}")
    beside = [
        f"{plain_name(row.thread)} {op_name(row.name)} {scale.text(row.time_s)}"
        for row in diagnosis.concurrent
    ]
    if beside:
        lines.append(f"Other threads and devices, not part of the step's time{_named(':', beside)}")
    return lines


def _named(lead: str, items: list[str]) -> str:
    if not items:
        return ""
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    lead = lead if lead.endswith(":") else f"{lead}:"
    return f"{lead} {', '.join(items[:_NAMED])}{more}."


def finding_lines(finding: Finding, diagnosis: Diagnosis) -> tuple[str, str, list[str]]:
    """A finding as its title, its saving, and the lines under it, the first with its name."""
    scale = time_scale(diagnosis)
    saving = UNKNOWN
    if finding.prediction is not None:
        p, saving = finding.prediction, CANNOT_TELL
        if p.tells(diagnosis.accounted_s):
            span = f"({scale.number(p.low_s)} to {scale.number(p.high_s)})"
            saving = f"{scale.text(p.expected_s)} {span}, {multiple(p.speedup)}"
    lines = [plain_name(finding.because)] if finding.because else []
    if lines and finding.title not in (None, "", finding.fix):
        # Under a title the name by which tables and --only know it.
        lines = [plain_name(f"{finding.fix}: {finding.because}")]
    if finding.is_cause:
        saving = cause_saving(finding, saving)
        lines += cause_lines(finding)
    if finding.verification is not None:
        null = None if diagnosis.fixes is None else diagnosis.fixes.null
        lines.append(f"tried: {trial_line(finding.verification, null, finding.precision)}")
    return plain_name(finding.title or finding.fix), saving, lines


def batch_note(diagnosis: Diagnosis) -> str:
    """The outcome of the batch-doubling test; empty if it was not run."""
    doubling = diagnosis.batch_doubling
    if doubling is None:
        return ""
    n = count(doubling.doubled_time_s.n)
    measured = f"{time_text(doubling.doubled_time_s.median)} at 2x over {n} steps"
    return f"{plain_name(doubling.sentence)} ({measured})"
