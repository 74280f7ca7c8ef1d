"""Attention dropout on a CPU: ``scaled_dot_product_attention`` with it is taken apart into ops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.diagnosis.facts import AttentionCall, Facts
from gobrrr.fixes.attention.attention import attention_on, fused_seconds
from gobrrr.fixes.attention.layout import has_strided_rows
from gobrrr.fixes.fix import NUMERICS, RANDOMNESS, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.fixes.scripts import attribute
from gobrrr.observe.source_lines import blamed_line
from gobrrr.timeline.quantities import time_text


@contextmanager
def watching_attention() -> Iterator[list[AttentionCall]]:
    """The calls of ``scaled_dot_product_attention``, those that are alike once."""
    from torch.nn import functional

    original = functional.scaled_dot_product_attention
    calls: list[AttentionCall] = []

    def call(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
             *args: Any, **kwargs: Any) -> Any:  # fmt: skip
        drops = dropout_p > 0
        trains = getattr(attn_mask, "requires_grad", False)
        strided = not drops and not trains and any(map(has_strided_rows, (query, key, value)))
        seen = AttentionCall(blamed_line(sys._getframe(1)) or "", drops, strided)
        if seen not in calls:
            calls.append(seen)
        return original(query, key, value, attn_mask, dropout_p, *args, **kwargs)

    with attribute(functional, "scaled_dot_product_attention", call):
        yield calls


def _consider(facts: Facts) -> Considered:
    if facts.on_gpu:
        return RuledOut("on a GPU the fused attention kernel applies dropout")
    lines = {call.line for call in facts.attention_calls if call.drops}
    runs = attention_on(facts, lines)
    if not runs:
        return RuledOut("no fused attention is called with dropout")
    seconds = fused_seconds(facts, runs)
    if seconds is None:
        return RuledOut("this machine's rate of matrix products is unknown")
    saved_s = seconds[0] - seconds[1]
    return prospect_or_not(
        facts, 0.3 * saved_s, saved_s, seconds[0] - 0.5 * seconds[1],
        f"{len(runs)} calls of scaled_dot_product_attention have dropout, for which PyTorch has "
        f"no fused CPU kernel: {time_text(seconds[0])}, without dropout about "
        f"{time_text(seconds[1])}; dropout after the output projection leaves attention fused",
        tuple(sorted(lines)),
    )  # fmt: skip


ATTENTION_DROPOUT = Fix(
    "attention_dropout", "No dropout inside attention",
    ("memory.device.roof", "memory.device.below", "compute.vector.below"),
    (NUMERICS, RANDOMNESS), _consider,
    "out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.0)",
)  # fmt: skip
