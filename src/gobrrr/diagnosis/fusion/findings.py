"""Fusion opportunities of a measured step, as findings of its diagnosis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache

from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.advice import FUSION
from gobrrr.diagnosis.facts import OpFact
from gobrrr.diagnosis.fusion.groups import placed
from gobrrr.diagnosis.schema import Finding, Prediction
from gobrrr.roofline.dataflow import link
from gobrrr.roofline.opportunities import (
    ATTENTION,
    BYTES,
    OTHERWISE,
    Opportunity,
    Pattern,
    find_opportunities,
    patterns,
)
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.timeline.quantities import percent, si, time_text
from gobrrr.work.traffic import broadcast, is_inplace, promote

# A finding is worth a row from this share of the step.
LEAST_SHARE = 0.01
MOST_FINDINGS = 8
_LEAVES = ["memory.device.roof", "memory.device.below"]
_COMPILE = "torch.compile(model), which makes one kernel of them"
_SDPA = "torch.nn.functional.scaled_dot_product_attention(query, key, value)"
# Operators that are grouped at once: which group depends on which is kept for each pair of groups.
OPS_TOGETHER = 8_000
# Results that a trace's operator may read: a norm reads its input three kernels later.
_RECENT = 6
_OPTIMIZER_NAMES = ("_foreach_", "_fused_")


def fusion_findings(
    ops: Sequence[OpFact],
    ceilings: Ceilings | None,
    step_s: float,
    *,
    linked: bool = True,
    kept: Collection[int] = (),
    multiprocessors: int | None = None,
    on_cpu: bool = False,
) -> list[Finding]:
    """What fusing would save, the most first; groups that come in several layers are one finding.

    Args:
        ops: in order of execution, optimizer included (which is left to its own fixes).
        ceilings: of the device; without them nothing is predicted, and nothing found.
        step_s: seconds per step.
        linked: whether tensors carry storage ids. A trace has none: a neighbour that reads a
            tensor of the same shape is then taken to read the result, and whether something else
            needs the result too is unknown (the low end of the prediction says that it does).
        kept: storages whose content outlives the step, where that is known.
        multiprocessors: of the device.
        on_cpu: whether it is a processor.
    """
    if ceilings is None:
        return []
    ops = [op for op in ops if not _of_optimizer(op)]
    known = ops if linked else with_guessed_storages(ops)
    opportunities: list[Opportunity] = []
    for begin in range(0, len(known), OPS_TOGETHER):
        # What a later part reads is read by nothing here, and so is kept.
        flow = link([placed(op) for op in known[begin : begin + OPS_TOGETHER]], kept)
        opportunities += [
            replace(found, members=tuple(begin + flow.ops[m].index for m in found.members))
            for found in find_opportunities(
                flow, ceilings, multiprocessors=multiprocessors, on_cpu=on_cpu
            )
            if len(found.ops) > 1
        ]
    findings = [
        f for pattern in patterns(opportunities) if (f := _finding(pattern, ops, step_s, linked))
    ]
    findings.sort(key=lambda f: -_expected_s(f))
    shown = [f for f in findings if _expected_s(f) >= LEAST_SHARE * step_s][:MOST_FINDINGS]
    rest = _together(findings[len(shown) :], step_s)
    return shown if rest is None else [*shown, rest]


def _expected_s(finding: Finding) -> float:
    return 0.0 if finding.prediction is None else finding.prediction.expected_s


def _together(small: Sequence[Finding], step_s: float) -> Finding | None:
    """One finding for what is too small to be told each on its own."""
    known = [f.prediction for f in small if f.prediction is not None]
    expected_s = sum(p.expected_s for p in known)
    if expected_s < LEAST_SHARE * step_s:
        return None
    return Finding(
        fix=FUSION,
        title=f"Fuse: {len(small)} smaller groups",
        prediction=_prediction(
            sum(p.low_s for p in known), expected_s, sum(p.high_s for p in known), step_s
        ),
        because=f"{len(small)} groups that are not listed one by one (each under "
        f"{percent(LEAST_SHARE)} of the step, or beyond the {MOST_FINDINGS} largest) save "
        f"{time_text(expected_s)} together.",
        sources=list(dict.fromkeys(s for f in small for s in f.sources))[:5],
        leaves=_LEAVES,
        remedy=_COMPILE,
    )


def _prediction(low_s: float, expected_s: float, high_s: float, step_s: float) -> Prediction:
    # Nothing saves the whole step.
    saved = min(expected_s, 0.999 * step_s)
    return Prediction(
        low_s=low_s, expected_s=expected_s, high_s=high_s, speedup=step_s / (step_s - saved)
    )


def _of_optimizer(op: OpFact) -> bool:
    return op.phase == "optimizer" or _updates(op.call.name)


@lru_cache(maxsize=1024)
def _updates(name: str) -> bool:
    return name.partition("::")[2].startswith(_OPTIMIZER_NAMES)


def _finding(
    pattern: Pattern, ops: Sequence[OpFact], step_s: float, linked: bool
) -> Finding | None:
    low = expected = high = 0.0
    for place in pattern.places:
        members = [ops[m] for m in place.members]
        fixed_s = sum(op.fixed_s for op in members)
        one_fixed_s = fixed_s / len(members)
        if place.saved_s is None:
            return None
        gone_fixed_s = fixed_s - one_fixed_s
        least_saved_s, saved_s, most_saved_s = _saved_s(place, [op.kernel_s for op in members])
        low += least_saved_s if linked else 0.0
        expected += saved_s + gone_fixed_s
        high += most_saved_s + gone_fixed_s
    low, high = min(low, expected), max(high, expected)
    if expected <= 0:
        return None
    return Finding(
        fix=FUSION,
        title=_title(pattern.first),
        prediction=_prediction(low, expected, high, step_s),
        because=sentence(pattern, expected),
        sources=list(dict.fromkeys(s for place in pattern.places for s in place.sources))[:5],
        leaves=_LEAVES,
        remedy=_SDPA if pattern.first.kind == ATTENTION else _COMPILE,
    )


def _saved_s(place: Opportunity, kernels_s: Sequence[float]) -> tuple[float, float, float]:
    """Seconds of its operators' kernels that one kernel saves: low, expected, high.

    Time that is neither FLOPs nor bytes is not saved by moving fewer of these: of an operator whose
    time something else decides, at the very best what its bytes take at the ceilings.
    """
    each = list(zip(kernels_s, place.moving_s, place.decided, strict=True))
    at_ceiling = [(min(kernel_s, least_s), least_s) for kernel_s, least_s, _ in each]
    expected = [
        (kernel_s, least_s) if by == BYTES else of_bytes
        for (kernel_s, least_s, by), of_bytes in zip(each, at_ceiling)
        if by != OTHERWISE
    ]
    movable_s, moving_s = (sum(column) for column in zip(*expected)) if expected else (0.0, 0.0)
    left_s = place.moving_fused_s
    # As fast relative to its roof as its operators are now; at best as the best of them is.
    saved_s = movable_s * max(0.0, 1 - left_s / moving_s) if moving_s > 0 else 0.0
    reached = [min(least_s / s, 1.0) for s, least_s, by in each if by == BYTES and s > 0]
    best = max(reached, default=1.0)
    others_s = sum(s for (s, _), (_, _, by) in zip(at_ceiling, each) if by == OTHERWISE)
    most_s = movable_s + others_s - left_s / best if best > 0 else 0.0
    # At the ceilings no more than the bytes are saved.
    least_saved_s = min(saved_s, max(0.0, place.saved_s or 0.0), max(0.0, moving_s - left_s))
    return least_saved_s, saved_s, max(saved_s, most_s)


def _title(first: Opportunity) -> str:
    return f"Fuse: {first.kind} ({_listed(first.ops)})"


def _listed(names: Sequence[str]) -> str:
    """``mul x3, add x2, gelu``: in order of first use, at most six different ones."""
    counts = Counter(names)
    parts = [name if n == 1 else f"{name} ×{n}" for name, n in counts.items()]
    return ", ".join(parts[:6]) + (f" and {len(parts) - 6} more" if len(parts) > 6 else "")


def sentence(pattern: Pattern, expected_s: float) -> str:
    """The arithmetic of a pattern, as a sentence."""
    first, places = pattern.first, len(pattern.places)
    count = len(first.ops)
    where = f" in each of {places} places" if places > 1 else ""
    text = (
        f"{count} ops{where} move {si(pattern.bytes_now, 'B')}; one kernel would move "
        f"{si(pattern.bytes_fused, 'B')}, which saves {time_text(expected_s)}"
    )
    if first.kind == ATTENTION:
        # Nothing but ``scaled_dot_product_attention`` itself, taken apart, calls this softmax.
        if any(name.endswith("_safe_softmax") for name in first.ops):
            text += (
                ". scaled_dot_product_attention is called, but not its fused kernel, which on a "
                "CPU takes no dropout, no mask that needs a gradient, and only queries, keys and "
                "values that are contiguous in the last dimension"
            )
        else:
            text += "; scaled_dot_product_attention keeps the scores on chip"
    elif first.free_flops_per_element is not None and first.flops_per_element >= 1:
        free, has = first.free_flops_per_element, first.flops_per_element
        bound = "stays memory-bound up to" if has < free else "is compute-bound beyond"
        text += f". It {bound} {free:.0f} FLOPs per element and has {has:.0f}"
    return text + "."


def with_guessed_storages(ops: Sequence[OpFact]) -> list[OpFact]:
    """Operators of a trace, which names no storages, with those that their order suggests.

    A tensor is taken to be the latest of the last few results with its size, row length and
    dtype; all else is read from elsewhere.
    """
    found: list[OpFact] = []
    recent: list[TensorSpec] = []
    for storage, op in enumerate(ops):
        call = op.call
        args: list[Arg] = []
        used: set[int | None] = set()
        for arg in call.args:
            if isinstance(arg, TensorSpec):
                match = next(
                    (r for r in reversed(recent) if r.storage not in used and _may_be(arg, r)),
                    None,
                )
                used.add(None if match is None else match.storage)
                args.append(_with_storage(arg, None if match is None else match.storage))
            else:
                args.append(arg)
        bare = OpCall(call.name, tuple(args), call.outputs, call.overload)
        outputs = _result_of(bare, storage)
        if outputs:
            recent = [*(r for r in recent if r.storage != outputs[0].storage), outputs[0]]
            recent = recent[-_RECENT:]
        new = OpCall(call.name, tuple(args), outputs, call.overload)
        found.append(replace(op, call=new))
    return found


def _may_be(arg: TensorSpec, result: TensorSpec) -> bool:
    """Whether an argument can be a view of the result: as many elements in rows as long."""
    if arg.dtype != result.dtype:
        return False
    return arg.numel == result.numel and arg.shape[-1:] == result.shape[-1:]


def _with_storage(spec: TensorSpec, storage: int | None) -> TensorSpec:
    return TensorSpec(spec.shape, spec.dtype, spec.strides, storage, spec.device, spec.offset)


def _result_of(call: OpCall, storage: int) -> tuple[TensorSpec, ...] | None:
    """The result, where it follows from the inputs: of their common shape."""
    if call.outputs:
        return tuple(_with_storage(spec, storage) for spec in call.outputs[:1])
    tensors = [arg for arg in call.args if isinstance(arg, TensorSpec)]
    if not tensors:
        return None
    if is_inplace(call):
        own = tensors[0]
        return (_with_storage(own, own.storage if own.storage is not None else storage),)
    name = call.name.partition("::")[2]
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        factors = tensors[1:3] if "add" in name else tensors[:2]
        # A trace holds what was recorded, of a nested tensor for one no sizes.
        if len(factors) < 2 or min(len(factor.shape) for factor in factors) < 2:
            return None
        a, b = factors
        return (TensorSpec((*a.shape[:-1], b.shape[-1]), a.dtype, None, storage),)
    if "norm" in name or "softmax" in name:
        return (_with_storage(tensors[0], storage),)
    if name in ("sum", "mean", "amax", "amin", "cat", "embedding", "index", "index_select"):
        return None
    try:
        shape = broadcast([t.shape for t in tensors])
    except ValueError:
        return None
    return (TensorSpec(shape, promote(tensors), None, storage),)
