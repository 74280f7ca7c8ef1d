"""The diagnosis in two or three sentences that a newcomer understands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from gobrrr.attribution.leaves import top_levels
from gobrrr.diagnosis.fix_schema import ELIMINATED_WORK
from gobrrr.diagnosis.known_causes import is_headline, known_causes, tells_most
from gobrrr.diagnosis.out_of_proportion import KINDS
from gobrrr.diagnosis.pipelines import waits_for_stages
from gobrrr.diagnosis.remedies import line_of, remedy_of, remedy_of_part
from gobrrr.diagnosis.schema import Diagnosis, OpRow, Ratio, Split
from gobrrr.roofline.operator_limits import LIMITS
from gobrrr.timeline.names import UNKNOWN_LINE, short_kernel_name, short_source
from gobrrr.timeline.quantities import count, multiple, multiple_range, percent, time_text

# A margin between the two largest top levels under this share of the step is a close call.
CLOSE_MARGIN = 0.05
# A part of another level, or a guess, that is larger than this share of the step is named.
WORTH_SAYING = 0.15
# An op whose time below its ceiling is a larger share of the step is named beside the largest op.
WORTH_NAMING_SLOW = 0.1
# Below this share of the step no single row of the ops is named where its op's rows are more.
WORTH_NAMING_ALONE = 0.03
_MEANING = {
    "compute": "{share} of {step} is in compute-bound ops",
    "memory": "{share} of {step} is in memory-bound ops",
    "overhead": "For {share} of {step} the {device} neither computes nor moves data",
    "unmodelled": "{share} of {step} is in kernels whose work or ceiling is unknown",
}
# Of the wall time: where the steps take less, what stands beside them is the headline.
MOSTLY_BESIDE = 0.5
# Below this share of the step all work together is said to be within the fixed cost of its ops.
HARDLY_ANY = 0.01
# Another level below this share of the step is said to promise no more than that.
LITTLE = 0.25
# Where the ends of the steps' interval, or their mean and median, are this many times each other,
# means are those of no step.
VARY = 2.0
# An op or a trial is the first of its kind where it leads the next by more than this share.
_CLEARLY = 1.01
# Parts of a level that are told in place of its ops where they are most of it.
_PARTS = {
    "network": ("memory.network", "memory.network_wait"),
    "copies": ("memory.copies",),
    "data_loading": ("overhead.data_loading",),
}

# Parts that are named in addition to another regime, where they are large.
_WORTH_NAMING = {
    "waiting for data": _PARTS["data_loading"],
    "sleeping (a lock, a timer, a file)": ("overhead.asleep",),
    "page faults of fresh outputs": ("memory.page_faults",),
    "exposed communication": _PARTS["network"],
    "exposed copies between host and device": _PARTS["copies"],
    "compilation": ("overhead.compilation",),
    "garbage collection": ("overhead.garbage_collection",),
}


def split_of(leaves_s: Mapping[str, float]) -> Split:
    """Top-level sums of leaves in seconds."""
    sums = top_levels(leaves_s)
    return Split(
        compute_s=sums["compute"],
        memory_s=sums["memory"],
        overhead_s=sums["overhead"],
        unmodelled_s=sums["unmodelled"],
    )


def regime_of(leaves_s: Mapping[str, float]) -> tuple[str, bool]:
    """The largest top level, and whether the margin to the next is under 5 % of the step."""
    sums = top_levels(leaves_s)
    ordered = sorted(sums, key=lambda name: -sums[name])
    step_s = sum(sums.values())
    close = sums[ordered[0]] - sums[ordered[1]] < CLOSE_MARGIN * step_s
    return ordered[0], close


def verdict_of(diagnosis: Diagnosis) -> str:
    """Regime and its share, what most of it is, what was tried, and what can help.

    Empty where the diagnosis has no regime. What was tried is in it once findings have come in.
    """
    regime = diagnosis.regime
    causes = known_causes(diagnosis)
    if regime is None:
        return " ".join([*_provisionally(diagnosis), *causes])
    sums = top_levels(diagnosis.leaves)
    step_s = diagnosis.accounted_s
    share = sums[regime] / step_s if step_s else 0.0
    moves = regime == "memory" and _main_part(diagnosis, regime) is not None
    meaning = "{share} of {step} goes to moving data" if moves else _MEANING[regime]
    device = "processor" if diagnosis.device.kind == "cpu" else "device"
    named = "Not modelled" if regime == "unmodelled" else f"{regime.capitalize()}-bound"
    told = meaning.format(share=percent(share), device=device, step=_which_step(diagnosis))
    first = f"{named}{_provided(diagnosis)}. {told}"
    first += _sides_told(diagnosis, regime)
    if regime == "overhead" and work_in_fixed_cost(diagnosis):
        first += " (its work takes no longer than the fixed cost of its ops)"
    detail = _detail(diagnosis, regime)
    join = ". " if regime in ("compute", "memory") and not moves else ": "
    apart = join == ". " or not detail
    sentences = [f"{first}." if apart else f"{first}{join}{detail}."]
    # Where most of the wall time is no part of a step, that comes first, and why.
    beside = _beside_the_steps(diagnosis)
    causes_first = is_headline(diagnosis) or bool(beside)
    sentences = [*causes, *sentences] if causes_first else [*sentences, *causes]
    sentences = [*beside, *sentences]
    sentences += [f"{detail}."] if detail and apart else []
    second = sorted(sums, key=lambda name: -sums[name])[1]
    if diagnosis.close and not _varies(diagnosis):
        sentences.append(
            f"It is a close call: {second} takes {percent(sums[second] / step_s)}, so reducing "
            "either one helps."
        )
    sentences += _guessed(diagnosis, regime)
    sentences += _out_of_proportion(diagnosis)
    sentences += _tried(diagnosis)
    levels = (regime, second) if diagnosis.close else (regime,)
    # Levels of equal makes have one remedy.
    sentences += dict.fromkeys(filter(None, (remedy_of(diagnosis, level) for level in levels)))
    if not tells_most(diagnosis, WORTH_SAYING):
        sentences += _in_addition(diagnosis, regime, levels)
        sentences += _little_to_win(diagnosis, levels)
    return " ".join(sentences)


def _varies(diagnosis: Diagnosis) -> bool:
    """Whether steps differ by so much that the levels of the mean step are those of none."""
    time = diagnosis.step.time_s
    ends = ((time.low, time.high or time.low), (time.median, time.mean), (time.mean, time.median))
    apart = time.n > 1 and any(high > VARY * low for low, high in ends)
    return diagnosis.step.varying or apart


def _which_step(diagnosis: Diagnosis) -> str:
    """The step that shares are of: that of one, of steps alike, or of the mean of several."""
    if _varies(diagnosis):
        return "the mean step"
    several = diagnosis.step.time_s.n > 1 and diagnosis.step.profiled_steps != 1
    return "each step" if several else "the step"


def _beside_the_steps(diagnosis: Diagnosis) -> list[str]:
    """What takes more of the wall time than the steps do, and steps of a second kind."""
    wall = diagnosis.wall
    if wall is None or not wall.parts:
        return []
    largest, steps = wall.parts[0], percent(wall.steps_share)
    at = f" ({short_source(largest.source)})" if largest.source else ""
    kinds = 1 + sum(part.name.startswith("steps") for part in wall.parts)
    if largest.name.startswith("steps") and largest.share > WORTH_SAYING:
        number = "two" if kinds == 2 else count(kinds)
        return [
            f"There are {number} kinds of steps: those diagnosed here take {steps} of the wall "
            f"time, {largest.name} {percent(largest.share)}{at}."
        ]
    if wall.steps_share >= MOSTLY_BESIDE:
        return []
    return [
        f"Most of the wall time is outside the steps: {largest.name} "
        f"{percent(largest.share)}{at}, the steps {steps}."
    ]


def _provisionally(diagnosis: Diagnosis) -> list[str]:
    """What processor time and counts tell of a step whose time says nothing."""
    found = diagnosis.provisional
    if found is None:
        return []
    rest = "kernels" if found.regime == "overhead" else "overhead"
    text = (
        f"Provisional, by processor time and counts: {found.regime}-bound. Of "
        f"{time_text(found.processor_s)} of processor time a step, {rest} "
        f"{'take' if rest == 'kernels' else 'takes'} at most {time_text(found.rest_s)}"
    )
    if rest == "overhead":
        text += (
            f"; at the ceilings its FLOPs take {time_text(found.compute_roof_s)}, its bytes and "
            f"page faults {time_text(found.memory_roof_s)}"
        )
    # Wall time and processor time have parts of other sizes.
    return [f"{text} (the split is of wall time, with the waits for a processor in it)."]


def work_in_fixed_cost(diagnosis: Diagnosis) -> bool:
    """Whether a step has work, and next to no time of its own for it.

    Of an op that takes no longer than any op does, all is fixed cost.
    """
    split = diagnosis.split
    shown_s = split.compute_s + split.memory_s + split.unmodelled_s
    works = any(row.flops or row.bytes for row in diagnosis.ops)
    return works and shown_s < HARDLY_ANY * diagnosis.accounted_s


def _sides_told(diagnosis: Diagnosis, level: str) -> str:
    """How much of a level lies at the ceiling, and how much in kernels slower than could be."""
    found = {"roof": 0.0, "below": 0.0}
    for leaf, time_s in diagnosis.leaves.items():
        side = leaf.rpartition(".")[2]
        if leaf.startswith(level) and side in found:
            found[side] += time_s
    step_s = diagnosis.accounted_s
    if not sum(found.values()) or not step_s or _main_part(diagnosis, level):
        return ""
    at, below = found["roof"] / step_s, found["below"] / step_s
    return f": {percent(at)} at the ceiling, {percent(below)} below it"


def _tried(diagnosis: Diagnosis) -> list[str]:
    """What came of the changes that were tried on this program; empty where none was."""
    summary = diagnosis.fixes
    trials = {f.fix: f.verification for f in diagnosis.findings if f.verification is not None}
    if summary is None or not trials:
        return []
    best = summary.verification
    if summary.best and best is not None and best.speedup is not None:
        names, gain = " + ".join(summary.best), multiple_range(best.speedup)
        others = [
            finding
            for finding in diagnosis.findings
            if finding.verification is not None
            and finding.verification.won
            and list(finding.verification.fixes or [finding.fix]) != summary.best
            and not _clearly_more(best.speedup, finding.verification.speedup)
        ]
        if not others:
            return [f"Of the changes tried here, {names} helps most: {gain}."]
        if all(finding.precision for finding in others):
            kept = "Of the changes tried here that keep the precision"
            return [f"{kept}, {names} helps most: {gain}."]
        return [f"Of the changes tried here, {names} was kept: {gain}."]
    if any(trial.won or trial.verdict == ELIMINATED_WORK for trial in trials.values()):
        # One is faster, and is no answer: it changes the precision, leaves work out or did not
        # hold.
        return []
    if len(trials) == 1:
        return [f"{next(iter(trials))} was tried here and did not prove faster."]
    return [f"None of the {count(len(trials))} changes tried here proved faster."]


def _clearly_more(ours: Ratio, theirs: Ratio | None) -> bool:
    """Whether a speedup is above another by more than what alike ones differ by."""
    return theirs is None or ours.median > _CLEARLY * theirs.median


def _little_to_win(diagnosis: Diagnosis, levels: tuple[str, ...]) -> list[str]:
    """The most that is to be saved of the other levels alone: what these take."""
    sums, step_s = top_levels(diagnosis.leaves), diagnosis.accounted_s
    promised = _promising_more(diagnosis, sums)
    # What kernels of unknown work are bound by may be either.
    unknown = sums["unmodelled"] >= LITTLE * step_s
    little = [
        (level, percent(sums[level] / step_s))
        for level in (("overhead",) if unknown else ("compute", "memory", "overhead"))
        if step_s and level not in levels and sums[level] < LITTLE * step_s
    ]
    little = [(level, share) for level, share in little if level not in promised]
    if not little:
        return []
    (level, share), *rest = little
    text = f"{level.capitalize()} is {share} of the step"
    text += "".join(f" and {more} {its}" for more, its in rest)
    alone = "either of them" if rest else "it"
    return [f"{text}: removing {alone} entirely would save no more."]


def _promising_more(diagnosis: Diagnosis, sums: Mapping[str, float]) -> set[str]:
    """Levels that a finding promises to save more of than they take: removing them is not all."""
    found: set[str] = set()
    for finding in diagnosis.findings:
        levels = {leaf.partition(".")[0] for leaf in finding.leaves} or set(sums)
        saved_s = finding.worth_s
        if saved_s is not None and saved_s > sum(sums[level] for level in levels if level in sums):
            found |= levels
    return found


def _provided(diagnosis: Diagnosis) -> str:
    """What a prediction rests on, for the first line: assumptions, and work that has no formula."""
    found = ""
    assumed = int(diagnosis.source.get("assumptions", 0))
    if assumed:
        notices = "notice holds" if assumed == 1 else f"{assumed} notices hold"
        found += f", provided that the first {notices}"
    modelled = diagnosis.coverage.modelled_time_fraction
    if diagnosis.source.get("kind") == "prediction" and modelled is not None:
        unmodelled = 1 - modelled
        if unmodelled > WORTH_SAYING:
            found += f", with {percent(unmodelled)} of its kernel time not modelled"
    return found


def _guessed(diagnosis: Diagnosis, regime: str) -> list[str]:
    """How much of the regime is told from names alone, where that is much."""
    step_s = diagnosis.accounted_s
    guessed = diagnosis.leaves.get(f"{regime}.unmodelled", 0.0)
    if regime == "unmodelled" or guessed <= WORTH_SAYING * step_s:
        return []
    return [
        f"{percent(guessed / step_s)} of the step counts as {regime} by the names of its kernels "
        "alone (no work formula, or no ceiling)."
    ]


def _in_addition(diagnosis: Diagnosis, regime: str, levels: tuple[str, ...]) -> list[str]:
    """Large parts of other levels, and what helps them where their level's remedy is not told."""
    step_s = diagnosis.accounted_s
    found = []
    for what, leaves in _WORTH_NAMING.items():
        time_s = sum(diagnosis.leaves.get(leaf, 0.0) for leaf in leaves)
        if not leaves[0].startswith(regime) and time_s > WORTH_SAYING * step_s:
            where = _where(diagnosis, leaves[0].removeprefix("overhead."), time_s)
            found.append(f"In addition, {percent(time_s / step_s)} goes to {what}{where}.")
            if leaves[0].partition(".")[0] not in levels:
                found.append(remedy_of_part(diagnosis, leaves[0]))
    return found


def _out_of_proportion(diagnosis: Diagnosis) -> list[str]:
    """The kind of ops that takes most beyond what its work needs, where that is much."""
    for finding in diagnosis.findings:
        saved = finding.prediction
        if finding.fix not in KINDS or saved is None:
            continue
        if saved.expected_s > WORTH_SAYING * diagnosis.accounted_s:
            where = f" ({short_source(finding.sources[0])})" if finding.sources else ""
            left = multiple(1 / saved.speedup)
            return [
                f"{finding.title}{where}: without that, or with something cheaper, the step "
                f"could take {left} the time."
            ]
    return []


def _main_part(diagnosis: Diagnosis, regime: str) -> str | None:
    """The key of ``_PARTS`` that is more than half of its level; ``None`` if there is none."""
    level_s = top_levels(diagnosis.leaves)[regime]
    for part, leaves in _PARTS.items():
        time_s = sum(diagnosis.leaves[leaf] for leaf in leaves if leaf.startswith(regime))
        if time_s > 0.5 * level_s:
            return part
    return None


def _detail(diagnosis: Diagnosis, regime: str) -> str:
    step_s = diagnosis.accounted_s
    if regime == "overhead":
        return _overhead_detail(diagnosis)
    rows = [row for row in diagnosis.ops if row.regime == regime]
    if not rows:
        return ""
    part = _main_part(diagnosis, regime)
    if part is not None:
        time_s = sum(diagnosis.leaves[leaf] for leaf in _PARTS[part])
        share = percent(time_s / step_s)
        if part != "network":
            return f"exposed copies between host and device take {share}"
        if waits_for_stages(diagnosis):
            return f"waiting for other stages of the pipeline, with exposed sends, takes {share}"
        return f"exposed collectives take {share}"
    largest = rows[0]
    text = _many_shapes(diagnosis, rows)
    if not text:
        text = f"{_named(largest)} alone takes {_share_of(diagnosis, largest)} of the step"
        if largest.unit in LIMITS:
            text += f", bound by {largest.unit}"
        text += _of_roof(largest)
    slow, *others = sorted(rows, key=lambda row: -(row.below_s or 0.0))
    most_s, next_s = slow.below_s or 0.0, max((row.below_s or 0.0 for row in others), default=0.0)
    first = most_s > max(WORTH_NAMING_SLOW * step_s, _CLEARLY * next_s)
    if slow is not largest and first:
        share = _share_of(diagnosis, slow)
        text += f"; the most time below the ceiling is in {_named(slow)}, {share} of the step"
        text += _of_roof(slow)
    if regime == "memory":
        faults = diagnosis.leaves.get("memory.page_faults", 0.0)
        if faults > 0.1 * step_s:
            text += f"; page faults of fresh outputs take {percent(faults / step_s)}"
    return text


def _many_shapes(diagnosis: Diagnosis, rows: Sequence[OpRow]) -> str:
    """The op that takes most, where it has so many shapes that none of them says much."""
    step_s = diagnosis.accounted_s
    if rows[0].time_s >= WORTH_NAMING_ALONE * step_s:
        return ""
    of_name: dict[str, list[OpRow]] = defaultdict(list)
    for row in rows:
        of_name[row.name].append(row)
    found = max(of_name.values(), key=lambda same: sum(row.time_s for row in same))
    time_s, shapes = sum(map(_in_level, found)), len({row.shapes for row in found})
    if shapes < 3 or time_s < WORTH_NAMING_ALONE * step_s:
        return ""
    name, share = short_kernel_name(found[0].name), _share_of(diagnosis, *found)
    return f"{name} takes {share} of the step, on {shapes} different shapes"


def _in_level(row: OpRow) -> float:
    """Seconds of an op in the level that it is bound by: fixed cost is overhead."""
    return row.kernel_s - (row.page_faults_s if row.regime == "compute" else 0.0)


def _share_of(diagnosis: Diagnosis, *rows: OpRow) -> str:
    """Ops of one level as a share of the step, which is no larger than the level's.

    Kernels of an op may be bound by different things: what another level has of it is left out.
    """
    level_s = top_levels(diagnosis.leaves)[rows[0].regime]
    return percent(min(sum(map(_in_level, rows)), level_s) / diagnosis.accounted_s)


def _named(row: OpRow) -> str:
    return " ".join(filter(None, (short_kernel_name(row.name), row.shapes)))


def _of_roof(row: OpRow) -> str:
    """How near its roof an op is; what ran faster than its roof is not said to be below it."""
    if row.roof_fraction is None:
        return ""
    if row.roof_fraction > 1.0:
        return ", faster than its ceiling"
    return f", at {percent(row.roof_fraction)} of its ceiling"


def _overhead_detail(diagnosis: Diagnosis) -> str:
    causes = sorted(
        (
            (time_s, name.removeprefix("overhead."))
            for name, time_s in diagnosis.leaves.items()
            if name.startswith("overhead.") and time_s > 0
        ),
        reverse=True,
    )
    if not causes:
        return ""
    time_s, cause = causes[0]
    share = percent(time_s / diagnosis.accounted_s)
    ops = count(sum(row.count for row in diagnosis.ops))
    words = {
        "python": f"Python takes {share}",
        "dispatch": f"dispatching {ops} ops takes {share}",
        "data_loading": f"waiting for data takes {share}",
        "asleep": f"sleeping (a lock, a timer, a file) takes {share}",
        "launch": f"launching kernels takes {share}",
        "kernel_gap": f"gaps between kernels that were queued take {share}",
        "synchronisation": f"waiting for synchronisation takes {share}",
    }
    text = words.get(cause, f"{cause.replace('_', ' ')} takes {share}")
    return text if cause == "dispatch" else text + _where(diagnosis, cause, time_s)


def _where(diagnosis: Diagnosis, cause: str, time_s: float) -> str:
    """The line that most of a cause's ``time_s`` seconds are at, and how many; or nothing."""
    found = line_of(diagnosis, cause, time_s)
    if found is None:
        rows = [row for row in diagnosis.idle if (row.cause, row.source) == (cause, UNKNOWN_LINE)]
        own = sum(row.time_s for row in rows) > 0.5 * time_s
        return ", most of it the framework's own" if own else ""
    line, share = found
    return f", {'most' if share > 0.5 else percent(share)} of it at {line}"
