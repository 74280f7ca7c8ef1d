"""Fused attention in place of matmul, softmax, matmul: the scores are never written to memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.fixes.attention.graphs import fuse_attention_in_graph
from gobrrr.fixes.changes import changed, changes_of
from gobrrr.fixes.device_constants import Constant, constant, unmeasured
from gobrrr.fixes.fix import (
    MEMORY,
    NUMERICS,
    RANDOMNESS,
    UNBOUNDED,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.patterns.layout_copies import only_moves
from gobrrr.fixes.programs import as_program, is_module
from gobrrr.fixes.scripts import before_first_call, compile_in_place
from gobrrr.fixes.spread import KERNELS
from gobrrr.timeline.quantities import time_text
from gobrrr.timeline.workload import Workload

_PRODUCTS = ("aten::bmm", "aten::baddbmm", "aten::matmul")
# Ops on the way from the softmax to either product: scales, biases, masks, casts, dropout.
_MOST_BETWEEN = 9
_SOFTMAX = ("aten::_softmax", "aten::_safe_softmax")
_CONSTANTS = ("reached", "reached_backward", "call_s")


def find_attention(facts: Facts) -> list[tuple[OpFact, ...]]:
    """Runs of product, softmax, product over the same scores, with what stands between them.

    What is computed meanwhile of other data (the values' projection) is none of it.
    """
    ops = [op for op in facts.ops if op.time_s > 0 and op.phase != "optimizer"]
    found = []
    for position, op in enumerate(ops):
        if op.name not in _SOFTMAX or not op.shapes:
            continue
        # Where it is not known what each op reads, they stand side by side.
        specs = (*op.call.tensors, *(op.call.outputs or ()))
        known = bool(op.call.outputs) and all(spec.storage is not None for spec in specs)
        back, on = (_makers, _readers) if known else (_before, _after)
        before, after = _way(ops, position, back, set()), _way(ops, position, on, set())
        if before is not None and after is not None:
            found.append((*reversed(before), op, *after))
    return found


_Next = Callable[[list[OpFact], int], list[int]]


def _way(ops: list[OpFact], position: int, next_ones: _Next, seen: set[int]) -> list[OpFact] | None:
    """The ops on the way to a product, with scales, masks and casts between; it stands last."""
    for other in next_ones(ops, position):
        if other in seen or len(seen) > _MOST_BETWEEN:
            continue
        seen.add(other)
        op = ops[other]
        if op.name in _PRODUCTS:
            return [op]
        # A function of the scores (tanh, to cap them) is none that the fused kernel computes.
        passes = not op.matrix_flops and not op.special
        further = _way(ops, other, next_ones, seen) if passes else None
        if further is not None:
            return [op, *further]
    return None


def _before(ops: list[OpFact], position: int) -> list[int]:
    return [position - 1] if position else []


def _after(ops: list[OpFact], position: int) -> list[int]:
    return [position + 1] if position + 1 < len(ops) else []


def _sizes(op: OpFact) -> dict[int, int]:
    """How many elements each result has, by its storage."""
    return {spec.storage: spec.numel for spec in op.call.outputs or () if spec.storage is not None}


def _makers(ops: list[OpFact], position: int) -> list[int]:
    """The ops that made what this one reads, of the size of its own result."""
    size = max(_sizes(ops[position]).values(), default=0)
    wanted = {spec.storage for spec in ops[position].call.tensors if spec.numel == size}
    found = []
    for other in range(position - 1, -1, -1):
        made = wanted & _sizes(ops[other]).keys()
        if made:
            found.append(other)
            wanted -= made
        if not wanted:
            break
    return found


def _readers(ops: list[OpFact], position: int) -> list[int]:
    """The ops that read what this one made: products, and those that make as much of it."""
    made = _sizes(ops[position])
    size = max(made.values(), default=0)
    found = []
    for other in range(position + 1, len(ops)):
        op, makes = ops[other], _sizes(ops[other])
        reads = any(spec.storage in made for spec in op.call.tensors)
        if reads and (op.name in _PRODUCTS or size in makes.values()):
            found.append(other)
        # What is written there now is something else, or what the reader made of it.
        if made.keys() & makes.keys():
            break
    return found


def attention_on(facts: Facts, lines: Collection[str]) -> list[tuple[OpFact, ...]]:
    """Those of ``find_attention`` that are called on these lines."""
    return [run for run in find_attention(facts) if any(op.source in lines for op in run)]


def fused_seconds(facts: Facts, runs: list[tuple[OpFact, ...]]) -> tuple[float, float] | None:
    """Seconds of these attentions now and fused, backward passes included.

    ``None`` where the rate of matrix products is unknown.
    """
    seconds = _fused(facts, runs)
    return None if seconds is None else (seconds[0], seconds[1][1])


def _fused(
    facts: Facts, runs: list[tuple[OpFact, ...]]
) -> tuple[float, tuple[float, float, float]] | None:
    """Seconds now, and fused: slow, expected, fast."""
    ops = [op for run in runs for op in run]
    forward_s = sum(op.time_s + op.host_s for op in ops)
    flops = sum(op.matrix_flops or 0.0 for op in ops)
    rate = facts.rate(f"matrix.{ops[0].dtype or 'float32'}") or facts.rate("matrix.float32")
    if rate is None:
        return None
    per_exponential = facts.rate("vector.float32.exp")
    exponentials_s = sum(op.special for op in ops) / per_exponential if per_exponential else 0.0
    # What a GPU's kernels reach was measured with their exponentials.
    exponentials_s = 0.0 if facts.on_gpu else exponentials_s
    reached, backward, call_s = (each.values for each in _constants(facts, ops[0].dtype))
    # Of the forward pass two products; of the backward pass five, the scores among them
    # (FlashAttention, arXiv:2205.14135, 3.1).
    passes = 1 + facts.trains
    slow_s, expected_s, fast_s = (
        flops / rate * (1.0 / reached[i] + facts.trains * 2.5 / backward[i])
        + passes * (exponentials_s + len(runs) * call_s[i])
        for i in range(3)
    )
    now_s = forward_s + (_backward_s(facts, runs, forward_s) if facts.trains else 0.0)
    return now_s, (slow_s, expected_s, fast_s)


def _constants(facts: Facts, dtype: str | None) -> list[Constant]:
    return [constant(f"attention.{name}", facts, dtype) for name in _CONSTANTS]


def _copies_s(facts: Facts, runs: list[tuple[OpFact, ...]]) -> float:
    """Seconds of copies that lay out what the products read and make: fused, strides are read."""
    place = {id(op): i for i, op in enumerate(facts.ops)}
    copies: set[int] = set()
    for run in runs:
        for product in (op for op in run if op.name in _PRODUCTS):
            for storage, _ in product.reads:
                copies |= _copy_of(facts, storage, range(place[id(product)] - 1, -1, -1))
        for storage, _ in run[-1].writes:
            last = place[id(run[-1])]
            copies |= _copy_of(facts, storage, range(last + 1, len(facts.ops)), of=True)
    members = {place[id(op)] for run in runs for op in run}
    return sum(facts.ops[found].time_s for found in copies - members)


def _copy_of(facts: Facts, storage: int, places: range, *, of: bool = False) -> set[int]:
    """The copy, the first on this way, that made (``of``: that reads) what a storage holds."""
    for found in places:
        op = facts.ops[found]
        written, read = storage in dict(op.writes), storage in dict(op.reads)
        if only_moves(op) and (read if of else written):
            return {found}
        # What is in it before that, or after, is something else.
        if written and not read:
            break
    return set()


def _backward_s(facts: Facts, runs: list[tuple[OpFact, ...]], forward_s: float) -> float:
    """Seconds of the backward ops that read or write tensors of the scores' size."""
    sizes = {op.call.tensors[0].numel for run in runs for op in run if op.name in _SOFTMAX}
    found = [
        op for op in facts.ops
        if op.phase == "backward"
        and any(spec.numel in sizes for spec in (*op.call.tensors, *(op.call.outputs or ())))
    ]  # fmt: skip
    # Twice the forward pass where the ops are not known one by one.
    return sum(op.time_s + op.host_s for op in found) or 2.0 * forward_s


def _consider(facts: Facts) -> Considered:
    if facts.compiled:
        return RuledOut("the program is compiled: torch.compile fuses the attention that it knows")
    runs = find_attention(facts)
    called = {call.line for call in facts.attention_calls}
    by_hand = [run for run in runs if not any(op.source in called for op in run)]
    if runs and not by_hand and any(call.strided for call in facts.attention_calls):
        return RuledOut(
            "scaled_dot_product_attention is called already; on rows that are not contiguous "
            "PyTorch runs it as separate ops on a CPU (see attention_layout)"
        )
    if runs and not by_hand:
        return RuledOut(
            "scaled_dot_product_attention is called already; with dropout or a trainable mask "
            "PyTorch runs it as separate ops on a CPU"
        )
    runs = by_hand
    if not runs:
        return RuledOut("no attention is computed as separate product, softmax and product")
    seconds = _fused(facts, runs)
    if seconds is None:
        return RuledOut("this machine's rate of matrix products is unknown")
    now_s, (slow_s, after_s, fast_s) = seconds
    saved_s = now_s - after_s
    # On a processor as its trials have judged the interval.
    low_s, high_s = 0.3 * saved_s - 0.05 * now_s, now_s - 0.5 * after_s
    constants = _constants(facts, runs[0][0].dtype)
    copies_s = 0.0
    if facts.on_gpu:
        copies_s = _copies_s(facts, runs)
        low_s, saved_s, high_s = now_s - slow_s, saved_s + copies_s, now_s + copies_s - fast_s
    sources = lines_of(op for run in runs for op in run if op.name in _SOFTMAX)
    return prospect_or_not(
        facts, low_s, saved_s, high_s,
        f"{_attentions(len(runs))} them again: {time_text(now_s)}, "
        f"fused about {time_text(after_s)}"
        + (f"; copies for its products, {time_text(copies_s)}, go as well" if copies_s else "")
        + unmeasured(*constants),
        sources,
        own_ends=facts.on_gpu and all(each.measured for each in constants),
    )  # fmt: skip


def _attentions(count: int) -> str:
    if count == 1:
        return "1 attention writes its scores and reads"
    return f"{count} attentions write their scores and read"


def _use(model: Any) -> Any:
    """The model with fused attention, by its own switch if it has one."""
    switch = getattr(model, "set_attn_implementation", None)
    if switch is not None:
        switch("sdpa")
        changed("fused_attention")
        return model
    import torch

    return torch.compile(model, backend=fuse_attention_in_graph)


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    program = as_program(work)
    yield replace(program, model=_use(program.model))


@contextmanager
def _in_script() -> Iterator[None]:
    def change(module: Any) -> None:
        if hasattr(module, "set_attn_implementation"):
            module.set_attn_implementation("sdpa")
            changed("fused_attention")
        elif is_module(module) and getattr(module, "_compiled_call_impl", None) is None:
            # One that another fix compiles keeps its compiler.
            compile_in_place(module, backend=fuse_attention_in_graph)

    with before_first_call(change):
        yield


FUSED_ATTENTION = Fix(
    name="fused_attention",
    judged_with=KERNELS,
    title="Fused attention",
    leaves=("memory.device.roof", "memory.device.below", "memory.page_faults",
            "compute.matrix.below", "compute.vector.below", "overhead.dispatch"),
    may_change=(NUMERICS, MEMORY, RANDOMNESS),
    consider=_consider,
    snippet="out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # scale: 1/sqrt(d)",
    apply=_apply,
    in_script=_in_script,
    changes_made=changes_of("fused_attention"),
    effect=UNBOUNDED,
)  # fmt: skip
