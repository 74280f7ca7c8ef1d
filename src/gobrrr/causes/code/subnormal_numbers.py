"""Subnormal numbers, with which many processors compute some hundred times slower: flush them."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.timeline.quantities import percent, time_text

# Of the values of a tensor: fewer are met by few vectors.
_LEAST_SHARE = 1e-3
_VALUES_OF_VECTOR = 16
# What a vector with such a value in it costs more (measured with torch 2.13 on an Intel processor
# with AVX-512: products of 1 to 100 % such values 31 to 66 ns, matrix products as much for each
# vector of multiply-adds). Others take less: what ops take above their roof bounds it.
_ASSIST_S = 40e-9


def _vectors(op: OpFact) -> float:
    """Vectors of arithmetic."""
    return ((op.matrix_flops or 0.0) / 2 + (op.vector_flops or 0.0)) / _VALUES_OF_VECTOR


def _below_s(op: OpFact) -> float:
    return op.kernel_s if op.below_s is None else op.below_s


def _find(facts: Facts) -> Found | None:
    program = facts.program
    # Where they are flushed they stay in memory, and cost nothing.
    if program is None or facts.on_gpu or program.flags.get("flushes_subnormals"):
        return None
    shares = {
        (fact.op, fact.line): fact for fact in program.subnormal if fact.share >= _LEAST_SHARE
    }
    found = [op for op in facts.ops if (op.name, op.source) in shares and _vectors(op) > 0]
    below_s = sum(map(_below_s, found))
    roof_s = sum(op.roof_s or 0.0 for op in found)
    # At half of their roof they are as fast as any.
    if not found or below_s < roof_s:
        return None
    expected_s = 0.0
    for op in found:
        met = 1 - (1 - shares[op.name, op.source].share) ** _VALUES_OF_VECTOR
        expected_s += min(0.9 * _below_s(op), _ASSIST_S * met * _vectors(op))
    worst = max(found, key=_below_s)
    fact = shares[worst.name, worst.source]
    return saves(
        f"{percent(fact.share, 1)} of the {fact.dtype} values that {fact.op.removeprefix('aten::')}"
        f" reads or makes are subnormal; it and ops like it take {time_text(below_s)} more than "
        f"their FLOPs and bytes, of which vectors with such a value in them are about "
        f"{time_text(expected_s)}",
        lines_of(sorted(found, key=_below_s)), 0.3 * expected_s, expected_s, below_s,
    )  # fmt: skip


SUBNORMAL_NUMBERS = Cause(
    name="subnormal_numbers",
    title="subnormal (denormal) numbers slow arithmetic down (torch.set_flush_denormal)",
    words=("denormal", "subnormal", "torch.set_flush_denormal", "denormals CPU slow",
           "flush to zero", "training gets slower over time"),
    find=_find,
    remedy="torch.set_flush_denormal(True) at the start of the program, in each thread that "
    "computes; or values that do not decay towards zero (a larger eps, no weight decay of them)",
)  # fmt: skip
