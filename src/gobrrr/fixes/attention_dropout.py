"""Attention dropout on a CPU: ``scaled_dot_product_attention`` with it is taken apart into ops."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gobrrr.capture.source_lines import blamed_line
from gobrrr.fixes.attention import find_attention, fused_seconds
from gobrrr.fixes.facts import Facts
from gobrrr.fixes.fix import NUMERICS, RANDOMNESS, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.fixes.scripts import attribute
from gobrrr.timeline.quantities import time_text


@contextmanager
def watching_attention() -> Iterator[list[tuple[str, bool]]]:
    """(line, with dropout) of the calls of ``scaled_dot_product_attention``, each once."""
    from torch.nn import functional

    original = functional.scaled_dot_product_attention
    lines: list[tuple[str, bool]] = []

    def call(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
             *args: Any, **kwargs: Any) -> Any:  # fmt: skip
        seen = blamed_line(sys._getframe(1)) or "", dropout_p > 0
        if seen not in lines:
            lines.append(seen)
        return original(query, key, value, attn_mask, dropout_p, *args, **kwargs)

    with attribute(functional, "scaled_dot_product_attention", call):
        yield lines


def _consider(facts: Facts) -> Considered:
    if facts.on_gpu:
        return RuledOut("on a GPU the fused attention kernel applies dropout")
    lines = {line for line, drops in facts.attention_calls if drops}
    runs = [run for run in find_attention(facts) if any(op.source in lines for op in run)]
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
