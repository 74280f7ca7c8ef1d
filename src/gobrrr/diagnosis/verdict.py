"""The diagnosis in two or three sentences that a newcomer understands."""

from __future__ import annotations

from collections.abc import Mapping

from gobrrr.attribution.leaves import top_levels
from gobrrr.diagnosis.schema import Diagnosis, Split
from gobrrr.timeline.names import short_kernel_name
from gobrrr.timeline.quantities import count, percent

# A margin between the two largest top levels under this share of the step is a close call.
CLOSE_MARGIN = 0.05
# A part of another level, or a guess, that is larger than this share of the step is named.
WORTH_SAYING = 0.15
# A line that holds less than this share of its cause is not where to look.
LEAST_OF_CAUSE = 0.05

REMEDIES = {
    "overhead": (
        "More work per op (a larger batch), fewer ops (torch.compile, fused optimizers, CUDA "
        "graphs) or less Python would help; faster arithmetic would not."
    ),
    "memory": (
        "Moving fewer bytes would help: fusing pointwise chains (torch.compile), smaller dtypes, "
        "reusing buffers; more FLOP/s or less Python would not."
    ),
    "compute": (
        "Faster arithmetic would help: smaller dtypes on the matrix unit, shapes that suit it, "
        "less work, or a faster device; fusing or less Python would not."
    ),
    "network": (
        "Hiding or shrinking communication would help: overlap with compute, other bucket sizes, "
        "smaller gradients or activations, a faster link; faster kernels would not."
    ),
    "copies": (
        "Fewer or hidden copies would help: data that stay on the device, pinned memory with "
        "non_blocking=True, a prefetched batch; faster kernels would not."
    ),
    "data_loading": (
        "Feeding the device would help: more loader workers, prefetching, decoding and augmenting "
        "elsewhere; faster kernels or fewer ops would not."
    ),
    "unmodelled": (
        "Most kernel time has no work formula or no ceiling here, so no remedy can be derived from "
        "it."
    ),
}
_SLOW_LOADER = (
    "Producing batches faster would help: DataLoader(num_workers=...) to prepare them beside the "
    "step, a cheaper __getitem__, data kept ready in memory; a larger batch, a compiler or faster "
    "arithmetic would not."
)
_MEANING = {
    "compute": "the {} is doing arithmetic",
    "memory": "the {} waits for bytes to move",
    "overhead": "the {} neither computes nor moves data",
    "unmodelled": "it is unknown what the {} does",
}
# Parts of a level that have remedies of their own where they are most of it.
_PARTS = {
    "network": ("memory.network", "memory.network_wait"),
    "copies": ("memory.copies",),
    "data_loading": ("overhead.data_loading",),
}

# Parts that are named beside another regime, where they are large.
_WORTH_NAMING = {
    "waiting for data": _PARTS["data_loading"],
    "page faults of fresh outputs": ("memory.page_faults",),
    "communication that nothing hides": _PARTS["network"],
    "copies that nothing hides": _PARTS["copies"],
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
    """Regime and its share, what most of it is, and what can help."""
    sums = top_levels(diagnosis.leaves)
    step_s = diagnosis.accounted_s
    regime = diagnosis.regime
    share = sums[regime] / step_s if step_s else 0.0
    meaning = _MEANING[regime].format("processor" if diagnosis.device.kind == "cpu" else "device")
    first = f"{regime.capitalize()}-bound{_provided(diagnosis)}."
    first += f" {percent(share)} of each step {meaning}"
    detail = _detail(diagnosis, regime)
    sentences = [f"{first}: {detail}." if detail else f"{first}."]
    if diagnosis.close:
        other = sorted(sums, key=lambda name: -sums[name])[1]
        sentences.append(
            f"It is a close call: {other} takes {percent(sums[other] / step_s)}, so remedies for "
            "both apply."
        )
    sentences += _beside_the_point(diagnosis, regime)
    remedy = REMEDIES[_main_part(diagnosis, regime) or regime]
    if diagnosis.device.kind == "cpu" and _main_part(diagnosis, regime) == "data_loading":
        remedy = _SLOW_LOADER
    sentences.append(remedy)
    return " ".join(sentences)


def _provided(diagnosis: Diagnosis) -> str:
    """What a prediction rests on, for the first line: assumptions, and work that has no formula."""
    found = ""
    assumed = int(diagnosis.source.get("assumptions", 0))
    if assumed:
        notices = "notice says" if assumed == 1 else f"{assumed} notices say"
        found += f", if what the first {notices} holds"
    modelled = diagnosis.coverage.modelled_time_fraction
    if diagnosis.source.get("kind") == "prediction" and modelled is not None:
        unmodelled = 1 - modelled
        if unmodelled > WORTH_SAYING:
            found += f", with no formula for what takes {percent(unmodelled)} of its kernels' time"
    return found


def _beside_the_point(diagnosis: Diagnosis, regime: str) -> list[str]:
    """What the regime's name alone would hide: guesses, and large parts of the other levels."""
    step_s = diagnosis.accounted_s
    found = []
    guessed = diagnosis.leaves.get(f"{regime}.unmodelled", 0.0)
    if regime != "unmodelled" and guessed > WORTH_SAYING * step_s:
        found.append(
            f"{percent(guessed / step_s)} of the step counts as {regime} by the names of its "
            "kernels alone: no work formula fits what was recorded of them, or the device has no "
            "ceiling for it."
        )
    for what, leaves in _WORTH_NAMING.items():
        time_s = sum(diagnosis.leaves.get(leaf, 0.0) for leaf in leaves)
        if not leaves[0].startswith(regime) and time_s > WORTH_SAYING * step_s:
            found.append(f"Beside that, {percent(time_s / step_s)} goes to {what}.")
    return found


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
        what = (
            "collectives that nothing hides" if part == "network" else "copies that nothing hides"
        )
        return f"{what} take {percent(time_s / step_s)}"
    largest = rows[0]
    name = " ".join(filter(None, (short_kernel_name(largest.name), largest.shapes)))
    text = f"{name} alone takes {percent(largest.time_s / step_s)} of the step"
    if largest.roof_fraction is not None:
        text += f", at {percent(min(1.0, largest.roof_fraction))} of its roof"
    if regime == "memory":
        faults = diagnosis.leaves.get("memory.page_faults", 0.0)
        if faults > 0.1 * step_s:
            text += f"; page faults of fresh outputs take {percent(faults / step_s)}"
    return text


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
        "launch": f"launching kernels takes {share}",
        "synchronisation": f"waiting in synchronisations takes {share}",
    }
    text = words.get(cause, f"{cause.replace('_', ' ')} takes {share}")
    return text if cause == "dispatch" else text + _where(diagnosis, cause, time_s)


def _where(diagnosis: Diagnosis, cause: str, time_s: float) -> str:
    """The line that most of a cause's ``time_s`` seconds are at, and how many; or nothing."""
    rows = [row for row in diagnosis.idle if row.cause == cause and row.source]
    if not rows:
        return ""
    largest = max(rows, key=lambda row: row.time_s)
    share = largest.time_s / time_s
    if share < LEAST_OF_CAUSE:
        return ""
    return f", {'most' if share > 0.5 else percent(share)} of it at {largest.source}"
