"""Activations that are computed again although memory would hold them."""

from __future__ import annotations

import re

from gobrrr.attribution.recomputed import SeenOp, recomputed
from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.source_text import lines_with
from gobrrr.fixes.dataflow import cost_s
from gobrrr.fixes.facts import Facts, OpFact, lines_of
from gobrrr.timeline.quantities import percent, si, time_text

# Of the memory, what the program may hold with all activations kept: other batches are larger.
_FITS = 0.6
_CALL = re.compile(r"\b(\w*checkpoint(_sequential|_wrapper)?|gradient_checkpointing\w*)\s*\(")


def recomputed_ops(facts: Facts) -> list[OpFact]:
    """The ops of the backward pass that repeat those of the forward pass."""
    seen = [SeenOp(op.name, op.shapes, op.phase, op.records) for op in facts.ops]
    return [facts.ops[place] for place in sorted(recomputed(seen))] if facts.in_order else []


def _find(facts: Facts) -> Found | None:
    again = recomputed_ops(facts)
    if not again or not facts.trains:
        return None
    kept = sum(op.fresh_bytes for op in again)
    held = None if facts.program is None else facts.program.max_rss_bytes
    memory = facts.memory_bytes
    # Of a device nothing tells the most that it held.
    if facts.on_gpu or held is None or memory is None or held + kept > _FITS * memory:
        return None
    again_s = sum(map(cost_s, again))
    flops = sum(op.matrix_flops or 0.0 for op in again)
    all_flops = sum(op.matrix_flops or 0.0 for op in facts.ops)
    return saves(
        f"{len(again)} ops of the backward pass compute the forward pass again: "
        f"{time_text(again_s)} of the step ({percent(again_s / facts.step_s)}), "
        f"{percent(flops / max(all_flops, 1.0))} of its matrix products; kept, their results take "
        f"{si(kept, 'B')} at most beside {si(held, 'B')} of {si(memory, 'B')}",
        _lines(facts, again), 0.4 * again_s, 0.85 * again_s, again_s,
    )  # fmt: skip


def _lines(facts: Facts, again: list[OpFact]) -> tuple[str, ...]:
    """Where the files of the step's lines call a checkpoint; the recomputed lines otherwise."""
    return lines_with(_CALL, (op.source for op in facts.ops)) or lines_of(again)


NEEDLESS_CHECKPOINTING = Cause(
    name="needless_checkpointing",
    title="activations are computed again although memory would hold them (activation "
    "checkpointing)",
    words=("activation checkpointing", "gradient checkpointing", "torch.utils.checkpoint",
           "gradient_checkpointing_enable"),
    find=_find,
    remedy="without torch.utils.checkpoint (gradient_checkpointing_disable()), or checkpoints of "
    "fewer blocks, as long as memory holds the activations",
    verified_by="no_checkpointing",
)  # fmt: skip
