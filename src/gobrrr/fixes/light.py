"""The least time that a step can take once fixes have changed its work: fused, in fewer bits."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from gobrrr.diagnosis.facts import Facts, OpFact
from gobrrr.diagnosis.fusion.groups import find_groups, seconds_to_move
from gobrrr.fixes.attention.attention import find_attention
from gobrrr.fixes.fix import Fix
from gobrrr.fixes.patterns.unneeded_work import constant_ops, unread_ops


def speed_of_light_with(facts: Facts, fixes: Sequence[Fix]) -> float | None:
    """Seconds below which the step cannot go with these fixes; ``None`` if no bound is known.

    Without fixes the sum of the ops' roofs. Each fix declares what it leaves of the work
    (``Effect``): fusion moves each value once, 16 bits halve all bytes, a lower precision raises
    the rate of matrix products. A compiler that fuses also drops what nobody reads and may fold
    what never changes; such ops bound nothing. Anything below has lost work that it should do.
    """
    effects = [fix.effect for fix in fixes]
    if not facts.in_order or not all(effect.bounded for effect in effects):
        return None
    needless: set[int] = set()
    if any(effect.fuses for effect in effects):
        needless = {id(op) for op in [*(unread_ops(facts) or ()), *(constant_ops(facts) or ())]}
    known = [op for op in facts.ops if op.roof_s is not None and id(op) not in needless]
    bytes_left = prod(effect.bytes_left for effect in effects)
    speedup = max((_gain(facts, effect.matrix_dtype) for effect in effects), default=1.0)
    fused: set[int] = set()
    inside: set[int] = set()
    light_s = 0.0
    if any(effect.fuses for effect in effects):
        runs = find_attention(facts)
        if runs and facts.trains:
            # The compiler fuses the backward pass of attention too, which is not told apart here.
            return None
        inside = {id(op) for run in runs for op in run}
        fused |= {id(op) for run in runs for op in run if not op.matrix_flops}
        for group in find_groups(facts):
            members = {id(op) for op in group.ops}
            if members & inside:
                continue
            fused |= members
            if not members & needless:
                # What a group moves of which a part goes is unknown: it bounds nothing.
                light_s += bytes_left * (seconds_to_move(facts, group.bytes_after) or 0.0)
    rate = facts.rate("matrix.float32")
    for op in known:
        if id(op) in inside and op.matrix_flops:
            # Its scores stay in the cache: arithmetic alone is left.
            light_s += op.matrix_flops / rate / speedup if rate else 0.0
        elif id(op) not in fused:
            light_s += _roof_s(op, bytes_left, speedup)
    return light_s


def _gain(facts: Facts, dtype: str) -> float:
    full, low = facts.rate("matrix.float32"), facts.rate(f"matrix.{dtype}")
    return low / full if full and low else 1.0


def _roof_s(op: OpFact, bytes_left: float, speedup: float) -> float:
    roof_s = op.roof_s or 0.0
    if op.matrix_flops:
        return roof_s / max(speedup, 1.0 / bytes_left)
    return roof_s * bytes_left
