"""The one assembler: an attributed step -> its ``Diagnosis``.

Every rule about a diagnosis stands here once, whatever the step came from: a run, a trace, a
prediction, a trace carried to another device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from msgspec.structs import replace

from gobrrr.attribution.attributed import Attributed, AttributedOp, StepTimes
from gobrrr.attribution.leaves import IdleGap
from gobrrr.attribution.recomputed import recomputed, seen
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.drawing import timeline_columns
from gobrrr.diagnosis.impossible import against_work, contradictions
from gobrrr.diagnosis.out_of_proportion import out_of_proportion
from gobrrr.diagnosis.records import (
    collective_rows,
    device_time_record,
    level_rows,
    spread_record,
)
from gobrrr.diagnosis.schema import (
    NO_VERDICT,
    OF_THE_MACHINE,
    Concurrent,
    Coverage,
    DeviceRecord,
    Diagnosis,
    GroupRow,
    IdleRow,
    ProvisionalVerdict,
    SlowStep,
    StepRecord,
)
from gobrrr.diagnosis.tables import (
    above_ceiling_rows,
    coverage_of,
    group_rows,
    op_class_of,
    op_rows,
)
from gobrrr.diagnosis.utilisation import matrix_work
from gobrrr.diagnosis.verdict import regime_of, split_of, verdict_of
from gobrrr.measure.load import TAKEN_AWAY as MOST_TAKEN_AWAY
from gobrrr.timeline.collector import uncollected
from gobrrr.timeline.data import PHASE_NAMES, Phase
from gobrrr.timeline.quantities import percent, time_text
from gobrrr.work.registry import failure_notices

# What tables call the time in which a processor's lane waits for other ranks.
COMMUNICATION = "(waiting for other ranks)"
_TAKEN_AWAY = (
    f"For more than {percent(MOST_TAKEN_AWAY)} of the time this program waited for a processor: "
    "other programs, a hypervisor or more threads of its own than processors had it. "
    f"{OF_THE_MACHINE}, so {{}} and no prediction. Measure again on an idle machine"
)
TAKEN_AWAY = f"{_TAKEN_AWAY.format(NO_VERDICT)}."
_FEWER_THREADS = ", or with --threads 1: threads that wait for each other suffer most"
# Profiled steps are brought to the length of timed ones by no other factor: a profiler costs a few
# times a step of small ops, and page faults come and go.
LIKELY_SCALE = (0.1, 4.0)
# A step longer than this many medians is slow.
SLOW_STEP = 1.5
# Under this share of kernel time, sums over the modelled kernels would pass for the whole.
MOSTLY_MODELLED = 0.9
# Under this share what is known of the kernels says nothing of them, where they are most of a step.
HARDLY_MODELLED, MOST_OF_STEP = 0.1, 0.5


@uncollected()
def assemble(step: Attributed, *, source: dict[str, Any], environment: dict[str, Any]) -> Diagnosis:
    """The diagnosis of an attributed step; batch doubling, ranks and findings are added to it.

    Args:
        step: what was attributed.
        source: what was diagnosed (``Diagnosis.source``).
        environment: versions and settings.

    Raises:
        AccountingError: the leaves do not sum to the step.
    """
    leaves = {name: ns * 1e-9 for name, ns in step.leaves_ns.items()}
    ops, shares = step.ops, step.shares
    beside_s = {name: ("overhead", ns * 1e-9) for name, ns in step.beside_ns.items()}
    beside_s[COMMUNICATION] = ("memory", step.communication_ns * 1e-9)
    record = _step_record(step.step, ops)
    step_s = sum(leaves.values())

    def grouped(key: Callable[[AttributedOp], tuple[str, str | None]]) -> list[GroupRow]:
        return group_rows(ops, shares, key, step_s, beside_s)

    coverage = coverage_of(ops, shares, step.unlinked_ns * 1e-9)
    modelled = _mostly_modelled(coverage)
    hfu, mfu_dtype = mfu_of(ops, step.ceilings, step_s) if modelled else (None, None)
    again = computed_again(ops)
    mfu = mfu_of(again.others, step.ceilings, step_s)[0] if modelled and again.flops else hfu
    wrong = [
        *contradictions(hfu, shares, step_s, step.ceilings),
        *against_work(ops, shares, leaves, step.ceilings),
    ]
    wrong += hardly_modelled(coverage, step, step_s)
    provisional = None
    if step.step.taken_away:
        # The work is believed; a profiled step of another length is no wonder.
        provisional = None if wrong else step.step.provisional
        wrong.append(_taken_away(step, provisional is not None))
    else:
        wrong += changed_meanwhile(step.step)
    regime, close = (None, False) if wrong else regime_of(leaves)
    diagnosis = Diagnosis(
        environment=environment,
        source=source,
        device=_device_record(step),
        step=record,
        split=split_of(leaves),
        leaves=leaves,
        regime=regime,
        close=close,
        provisional=None if provisional is None else ProvisionalVerdict(**asdict(provisional)),
        mfu=None if wrong else mfu,
        hfu=hfu if again.flops and not wrong else None,
        mfu_dtype=mfu_dtype,
        speed_of_light_s=(
            speed_of_light(leaves, step.ceilings, min(hfu or 0.0, 1.0) * step_s)
            if modelled and not wrong
            else None
        ),
        coverage=coverage,
        # Only a measurement can be faster than the ceilings allow.
        above_ceiling=above_ceiling_rows(ops, shares) if step.step.time.n else [],
        ops=op_rows(ops, shares),
        classes=grouped(lambda item: (op_class_of(item, shares), None)),
        modules=[
            replace(row, module_class=step.module_classes.get(row.name))
            for row in grouped(lambda item: (item.op.module, PHASE_NAMES[item.op.phase]))
        ],
        lines=grouped(lambda item: (item.op.source, PHASE_NAMES[item.op.phase])),
        phases=grouped(lambda item: (PHASE_NAMES[item.op.phase], None)),
        idle=idle_rows(step.idle),
        wall=step.step.wall,
        device_time=None if step.device_time is None else device_time_record(step.device_time),
        collectives=collective_rows(step.collectives),
        findings=[]
        if wrong
        else out_of_proportion(ops, shares, step_s, on_cpu=step.device.kind == "cpu"),
        timeline=None if step.drawn is None else timeline_columns(step.drawn),
        concurrent=[
            Concurrent(thread=op.thread, name=op.name, time_s=op.duration_ns * 1e-9)
            for op in step.concurrent
        ],
        notices=[*wrong, *step.notices, *failure_notices(op.op.call for op in ops)],
        counters={**step.counters, **_work_done(ops)},
    )
    diagnosis.verdict = verdict_of(diagnosis)
    diagnosis.check()
    return diagnosis


def _taken_away(step: Attributed, provisional: bool) -> str:
    """Why there is no verdict, or none but what processor time and counts tell; what helps."""
    text = _TAKEN_AWAY.format(f"{NO_VERDICT} but a provisional one" if provisional else NO_VERDICT)
    waits = step.device.kind == "cpu" and (step.threads or 1) > 1
    return f"{text}{_FEWER_THREADS if waits else ''}."


def _device_record(step: Attributed) -> DeviceRecord:
    device, ceilings = step.device, step.ceilings
    return DeviceRecord(
        name=device.name,
        kind=device.kind,
        threads=step.threads,
        memory_bytes=device.memory_bytes,
        ceilings=[] if ceilings is None else list(ceilings.rows.values()),
        levels=[] if ceilings is None else level_rows(ceilings),
    )


def _step_record(step: StepTimes, ops: Sequence[AttributedOp]) -> StepRecord:
    return StepRecord(
        time_s=spread_record(step.time),
        kind=kind_of(step, ops),
        basis=step.basis,
        profiled_time_s=step.profiled_s,
        profiler_cost_s=step.profiler_cost_s,
        host_scale=step.host_scale,
        kernel_scale=step.kernel_scale,
        slow_steps=slow_steps(step.samples_s),
        samples_s=list(step.samples_s),
        ended_s=list(step.ended_s),
        profiled_steps=step.profiled_steps,
        what=step.what,
        varying=step.varying,
        tokens=step.tokens,
        fused_optimizer=step.fused_optimizer,
        seen=step.seen,
    )


def kind_of(step: StepTimes, ops: Sequence[AttributedOp]) -> str:
    """What a step is: training if anything of it runs backward."""
    if step.whole_trace:
        return "trace"
    if step.kind:
        return step.kind
    return "training step" if any(item.op.phase is Phase.BACKWARD for item in ops) else "step"


def slow_steps(samples_s: Sequence[float]) -> list[SlowStep]:
    """The steps that took more than ``SLOW_STEP`` times the median."""
    if not samples_s:
        return []
    # By hand: ``statistics`` takes as long to load as a short trace to attribute.
    ordered, half = sorted(samples_s), len(samples_s) // 2
    limit_s = SLOW_STEP * (ordered[half] + ordered[-1 - half]) / 2
    return [
        SlowStep(index=i, time_s=time_s) for i, time_s in enumerate(samples_s) if time_s > limit_s
    ]


def _mostly_modelled(coverage: Coverage) -> bool:
    fraction = coverage.modelled_time_fraction
    return fraction is not None and fraction >= MOSTLY_MODELLED


def changed_meanwhile(times: StepTimes) -> list[str]:
    """A sentence where profiled steps are nothing like the timed ones, whose parts they tell."""
    low, high = LIKELY_SCALE
    scale, profiled_s = times.host_scale, times.profiled_s
    if not times.time.n or scale is None or profiled_s is None or low <= scale <= high:
        return []
    return [
        f"The profiled steps took {time_text(profiled_s)} each and the timed ones "
        f"{time_text(times.time.median)}: the program or the machine changed between them, "
        f"so {NO_VERDICT} and no prediction."
    ]


def hardly_modelled(coverage: Coverage, step: Attributed, step_s: float) -> list[str]:
    """A sentence where next to nothing is known of what the step does; without ceilings none."""
    fraction = coverage.modelled_time_fraction
    lost_s = sum(op.time_s for op in coverage.unmodelled)
    if fraction is None or step.ceilings is None or fraction >= HARDLY_MODELLED:
        return []
    if lost_s < MOST_OF_STEP * step_s:
        return []
    why = ", ".join(dict.fromkeys(op.reason for op in coverage.unmodelled if op.reason))
    return [
        f"Only {percent(fraction)} of the kernel time is of ops whose work and ceilings are known"
        f"{f' ({why})' if why else ''}, so {NO_VERDICT} and no prediction."
    ]


class ComputedAgain(NamedTuple):
    """Matrix FLOPs that a step computes twice, and the ops without those that do."""

    flops: float
    others: list[AttributedOp]


def computed_again(ops: Sequence[AttributedOp]) -> ComputedAgain:
    """What activation checkpointing computes again: no work of the model's."""
    places = recomputed([seen(item.op) for item in ops])
    others = [item for place, item in enumerate(ops) if place not in places]
    return ComputedAgain(sum(_matrix_flops(ops[place]) for place in places), others)


def _matrix_flops(item: AttributedOp) -> float:
    return 0.0 if item.work is None else (item.work.matrix_flops or 0.0) * item.weight


def mfu_of(
    ops: Sequence[AttributedOp], ceilings: Ceilings | None, step_s: float
) -> tuple[float | None, str | None]:
    """Share of the matrix peak that the step reaches, and that peak's dtype.

    FLOPs of the ops that are given against the peak of the dtype that does most of them (Chowdhery
    et al., "PaLM", appendix B). The dtype is ``None`` without matrix products, the share without
    a ceiling.
    """
    flops, dtype = matrix_work(
        (op.work, op.weight) for op in ops if op.share >= 0 and op.work is not None
    )
    if dtype is None or step_s <= 0:
        return None, None
    rate = None if ceilings is None else ceilings.matrix_flops_per_s(dtype)
    return (None if rate is None else flops / rate / step_s), dtype


def speed_of_light(
    leaves_s: dict[str, float], ceilings: Ceilings | None, at_peak_s: float
) -> float | None:
    """The step if nothing but the roofs were left, in seconds; ``None`` without ceilings.

    ``at_peak_s``: what the step's matrix products take at the peak, which is the least too. Leaves
    hold less where such kernels run beside each other on several streams.
    """
    if ceilings is None:
        return None
    roofs_s = sum(time_s for name, time_s in leaves_s.items() if name.endswith(".roof"))
    return max(roofs_s, at_peak_s)


def idle_rows(gaps: Sequence[IdleGap]) -> list[IdleRow]:
    """Overhead by cause, line and call, the most time first."""
    totals: dict[tuple[str, str | None, str | None], float] = {}
    for gap in gaps:
        key = (gap.leaf.removeprefix("overhead."), gap.source or None, gap.detail)
        totals[key] = totals.get(key, 0.0) + gap.duration_ns * 1e-9
    rows = [
        IdleRow(cause=cause, time_s=time_s, source=source, detail=detail)
        for (cause, source, detail), time_s in totals.items()
        if time_s > 0
    ]
    rows.sort(key=lambda row: -row.time_s)
    return rows


def _work_done(ops: Sequence[AttributedOp]) -> dict[str, float]:
    known = [(op.work, op.weight) for op in ops if op.work is not None]
    return {
        "flops": float(sum((work.flops or 0.0) * weight for work, weight in known)),
        "bytes": float(sum((work.bytes_moved or 0) * weight for work, weight in known)),
    }
