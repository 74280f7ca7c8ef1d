"""The same weights cast to another type again and again: cast them once."""

from __future__ import annotations

from collections import defaultdict

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.updates import passes_of
from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.timeline.ops import TensorSpec
from gobrrr.timeline.quantities import count, percent, time_text

_FLOATS = ("float64", "float32", "bfloat16", "float16")


def _cast_weight(op: OpFact, weights: frozenset[int]) -> TensorSpec | None:
    """The weight that an op makes another type of; ``None``: it does not."""
    if op.name != "aten::_to_copy" or not op.call.outputs:
        return None
    given = next(iter(op.call.tensors), None)
    made = op.call.outputs[0].dtype
    if given is None or given.storage not in weights:
        return None
    return given if made in _FLOATS and given.dtype in _FLOATS and made != given.dtype else None


def _find(facts: Facts) -> Found | None:
    if not facts.in_order or not facts.weight_storages:
        return None
    by_weight: dict[tuple[object, ...], list[OpFact]] = defaultdict(list)
    for op in facts.ops:
        given = _cast_weight(op, facts.weight_storages)
        if given is not None and op.call.outputs:
            to = op.call.outputs[0].dtype
            by_weight[given.storage, given.offset, given.shape, to].append(op)
    # A step that trains needs one cast of each weight that it has changed; of micro-batches each
    # has an autocast region of its own, at whose end the casts are forgotten.
    passes = sum(map(len, passes_of(facts)))
    needed = max(1, passes) if facts.trains else 0
    repeated = [casts for casts in by_weight.values() if len(casts) > needed]
    if not repeated:
        return None
    each = [op for casts in repeated for op in casts]
    taken_s = sum(op.time_s + op.host_s for op in each)
    saved_s = sum(
        sum(op.time_s + op.host_s for op in casts) * (1 - needed / len(casts)) for casts in repeated
    )
    how = f"{count(needed)} of each would do" if facts.trains else "no step changes them"
    return saves(
        f"{count(len(each))} casts a step of {count(len(repeated))} weights; {how}",
        (*lines_of(each)[:2], *_calls(facts)), 0.5 * saved_s, 0.9 * saved_s, saved_s,
        f"{time_text(taken_s)} ({percent(min(1.0, taken_s / facts.step_s))} of the step)",
    )  # fmt: skip


def _calls(facts: Facts) -> tuple[str, ...]:
    """Where the program calls its model, which is where autocast stands and weights are given."""
    calls = () if facts.program is None else facts.program.calls
    found = max(calls, key=lambda call: call.total_s, default=None)
    return () if found is None or not found.source else (found.source,)


REPEATED_CASTS = Cause(
    name="repeated_casts",
    title="the same weights are cast again and again (autocast cache, cast once)",
    words=("autocast cache", "cache_enabled", "autocast inference_mode", "cast weights once",
           "_to_copy"),
    find=_find,
    remedy="inference: model.to(torch.bfloat16) once instead of autocast; training: one autocast "
    "region around the whole forward pass, with its cache enabled (cache_enabled=True)",
)  # fmt: skip
