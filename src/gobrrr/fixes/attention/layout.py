"""Contiguous rows for fused attention: PyTorch's kernel for CPUs takes no others.

Queries, keys and values whose last dimension is not contiguous (``qkv.transpose(-1, -2)`` of a
convolution's channels) make ``scaled_dot_product_attention`` run as separate ops. Copied first,
they take the fused kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.attention.attention import attention_on, fused_seconds
from gobrrr.fixes.changes import changed, changes_of
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
from gobrrr.fixes.programs import with_setting
from gobrrr.fixes.scripts import attribute
from gobrrr.fixes.spread import KERNELS
from gobrrr.timeline.quantities import time_text
from gobrrr.timeline.workload import Workload


def has_strided_rows(tensor: Any) -> bool:
    """Whether a tensor on a CPU is what the fused kernel refuses."""
    if tensor.is_nested or tensor.device.type != "cpu" or tensor.dim() == 0:
        return False
    return bool(tensor.stride(-1) != 1)


@contextmanager
def _with_contiguous_rows() -> Iterator[None]:
    from torch.nn import functional

    original = functional.scaled_dot_product_attention

    def call(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        parts = [query, key, value]
        if any(has_strided_rows(part) for part in parts):
            changed("attention_layout")
            parts = [part.contiguous() if has_strided_rows(part) else part for part in parts]
        return original(*parts, *args, **kwargs)

    with attribute(functional, "scaled_dot_product_attention", call):
        yield


@contextmanager
def _apply(work: Workload) -> Iterator[Workload]:
    yield with_setting(work, _with_contiguous_rows)


def _consider(facts: Facts) -> Considered:
    if facts.on_gpu:
        return RuledOut("it applies to calls on CPUs only")
    if facts.compiled:
        return RuledOut("the program is compiled: torch.compile makes these copies where it must")
    lines = {call.line for call in facts.attention_calls if call.strided}
    runs = attention_on(facts, lines)
    if not runs:
        return RuledOut("no fused attention is called on rows that are not contiguous")
    seconds = fused_seconds(facts, runs)
    if seconds is None:
        return RuledOut("this machine's rate of matrix products is unknown")
    now_s, after_s = seconds
    saved_s = now_s - after_s
    calls = "1 call" if len(runs) == 1 else f"{len(runs)} calls"
    return prospect_or_not(
        facts, 0.3 * saved_s - 0.05 * now_s, saved_s, now_s - 0.5 * after_s,
        f"{calls} of scaled_dot_product_attention with a query, key or value that is not "
        f"contiguous in its last dimension, for which PyTorch has no fused CPU kernel: "
        f"{time_text(now_s)}, fused about {time_text(after_s)}",
        tuple(sorted(lines)),
    )  # fmt: skip


ATTENTION_LAYOUT = Fix(
    name="attention_layout",
    judged_with=KERNELS,
    title="Contiguous queries, keys and values",
    leaves=("memory.device.roof", "memory.device.below", "memory.page_faults",
            "compute.matrix.below", "compute.vector.below", "overhead.dispatch"),
    may_change=(NUMERICS, MEMORY, RANDOMNESS),
    consider=_consider,
    snippet="q, k, v = q.contiguous(), k.contiguous(), v.contiguous()\n"
            "out = F.scaled_dot_product_attention(q, k, v)",
    apply=_apply,
    in_script=_with_contiguous_rows,
    changes_made=changes_of("attention_layout"),
    effect=UNBOUNDED,
)  # fmt: skip
