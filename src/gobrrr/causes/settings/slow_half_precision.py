"""Matrix products in 16 bits that a processor computes slower than it would in 32."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.timeline.quantities import multiple, percent, time_text

_HALF = ("float16", "bfloat16")
# Of float32's ceilings, what its kernels reach: the least, what is expected, all.
_LEAST, _USUAL = 0.3, 0.6
# A product that is slower than float32 at this share of its ceilings is no chance of a shape; one
# that moves bytes most of its time, or has units of its own, may be slow for other reasons.
_SLOWER, _MUCH_SLOWER = 0.4, 0.1
_UNITS = {"float16": ("avx512_fp16", "amx_fp16", "fphp", "asimdhp"),
          "bfloat16": ("avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16")}  # fmt: skip


def _in_single_s(op: OpFact, flops_per_s: float, bytes_per_s: float | None) -> float:
    """Seconds of the same product in float32 at the ceilings: twice the bytes."""
    moved_s = 0.0 if not bytes_per_s else 2.0 * (op.bytes_moved or 0) / bytes_per_s
    return max((op.matrix_flops or 0.0) / flops_per_s, moved_s)


def _is_slow(op: OpFact, facts: Facts, known: tuple[str, ...], flops_per_s: float) -> bool:
    bytes_per_s = facts.dram_bytes_per_s
    single_s = _in_single_s(op, flops_per_s, bytes_per_s)
    moves = single_s > (op.matrix_flops or 0.0) / flops_per_s
    has_units = any(unit in known for unit in _UNITS[op.dtype or ""])
    return op.kernel_s * (_MUCH_SLOWER if moves or has_units else _SLOWER) > single_s


def _find(facts: Facts) -> Found | None:
    rate, known = facts.rate("matrix.float32"), facts.instruction_sets
    if facts.on_gpu or not rate or known is None:
        return None
    half = [op for op in facts.ops if op.dtype in _HALF and (op.matrix_flops or 0.0) > 0]
    found = [op for op in half if _is_slow(op, facts, known, rate)]
    taken_s = sum(op.kernel_s for op in found)
    single_s = sum(_in_single_s(op, rate, facts.dram_bytes_per_s) for op in found)
    if not found or single_s <= 0:
        return None
    name = max(_HALF, key=lambda dtype: sum(op.kernel_s for op in found if op.dtype == dtype))
    has = [each for each in known if "fp16" in each or "bf16" in each]
    units = f"; it has {', '.join(has)}" if has else ", which has no such units"
    return saves(
        f"matrix products in {name} take {time_text(taken_s)} "
        f"({percent(taken_s / facts.step_s)} of the step); at the ceilings of float32 the same "
        f"take {time_text(single_s)}, {multiple(taken_s / single_s, 1)} less, on this "
        f"processor{units}",
        lines_of(found),
        taken_s - single_s / _LEAST, taken_s - single_s / _USUAL, taken_s - single_s,
    )  # fmt: skip


SLOW_HALF_PRECISION = Cause(
    name="slow_half_precision",
    title="16-bit matrix products are slower than float32 on this processor (half on CPU)",
    words=("float16 on CPU slow", "bfloat16 on CPU", "half precision CPU", "avx512_fp16",
           "avx512_bf16", "amx"),
    find=_find,
    remedy="model.float() and inputs in float32 (no half(), no autocast); bfloat16 where the "
    "processor has avx512_bf16 or amx and it is measured to be faster",
)  # fmt: skip
