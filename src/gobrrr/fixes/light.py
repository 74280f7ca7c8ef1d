"""The least time that a step can take once fixes have changed its work: fused, in fewer bits."""

from __future__ import annotations

from collections.abc import Iterable

from gobrrr.fixes.attention import find_attention
from gobrrr.fixes.compilation import NAMES
from gobrrr.fixes.facts import Facts, OpFact
from gobrrr.fixes.fix import Fix
from gobrrr.fixes.fusion import find_groups, seconds_to_move
from gobrrr.fixes.memory_budget import NAMES_OF_BUDGETS

_FUSES = frozenset((*NAMES, "aot_inductor", *NAMES_OF_BUDGETS))
_HALVES = frozenset(("bf16_autocast", "fp16_autocast", "bf16_storage"))
_FASTER_MATRICES = {"tf32": "tf32", "bf16_matmul": "bfloat16", "bf16_autocast": "bfloat16",
                    "fp16_autocast": "float16", "bf16_storage": "bfloat16"}  # fmt: skip
# These take work away, and say so: no bound from the work as it was holds.
_SPARES_WORK = frozenset(("unused_gradients", "no_checkpointing", "int8_weights", "fp8",
                          "fused_attention", "fused_optimizer", "set_to_none"))  # fmt: skip
# With these the ceilings are others: they were measured with today's number of threads.
_OTHER_CEILINGS = frozenset(("all_threads", "one_thread"))


def speed_of_light_with(facts: Facts, fixes: Iterable[Fix]) -> float | None:
    """Seconds below which the step cannot go with these fixes; ``None`` if no bound is known.

    Without fixes the sum of the ops' roofs. Fusion moves each value once; 16 bits halve all bytes
    and raise the rate of matrix products. Anything below has lost work that it should do.
    """
    names = {fix.name for fix in fixes}
    if names & (_SPARES_WORK | _OTHER_CEILINGS) or not facts.in_order:
        return None
    known = [op for op in facts.ops if op.roof_s is not None]
    half = 0.5 if names & _HALVES else 1.0
    speedup = max((_gain(facts, name) for name in names), default=1.0)
    fused: set[int] = set()
    inside: set[int] = set()
    light_s = 0.0
    if names & _FUSES:
        runs = find_attention(facts)
        if runs and facts.trains:
            # The compiler fuses the backward pass of attention too, which is not told apart here.
            return None
        inside = {id(op) for run in runs for op in run}
        fused |= {id(op) for run in runs for op in run if not op.matrix_flops}
        for group in find_groups(facts):
            if any(id(op) in inside for op in group.ops):
                continue
            fused |= {id(op) for op in group.ops}
            light_s += half * (seconds_to_move(facts, group.bytes_after) or 0.0)
    rate = facts.rate("matrix.float32")
    for op in known:
        if id(op) in inside and op.matrix_flops:
            # Its scores stay in the cache: arithmetic alone is left.
            light_s += op.matrix_flops / rate / speedup if rate else 0.0
        elif id(op) not in fused:
            light_s += _roof_s(op, half, speedup)
    return light_s


def _gain(facts: Facts, name: str) -> float:
    dtype = _FASTER_MATRICES.get(name)
    if dtype is None:
        return 1.0
    full, low = facts.rate("matrix.float32"), facts.rate(f"matrix.{dtype}")
    return low / full if full and low else 1.0


def _roof_s(op: OpFact, half: float, speedup: float) -> float:
    roof_s = op.roof_s or 0.0
    if op.matrix_flops:
        return roof_s / max(speedup, 1.0 / half)
    return roof_s * half
