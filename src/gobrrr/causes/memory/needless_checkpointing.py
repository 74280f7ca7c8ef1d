"""Activations that are computed again although memory would hold them."""

from __future__ import annotations

import re

from gobrrr.attribution.recomputed import SeenOp, recomputed
from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.source_text import lines_with
from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.fixes.patterns.dataflow import cost_s
from gobrrr.timeline.quantities import percent, si, time_text

# Of the memory, what the program may hold with all activations kept: other batches are larger.
_FITS = 0.6
# What names a function that is computed again, where it is called; and what turns that on from any
# other file.
_CALL = re.compile(r"(?<!\w)checkpoint(_sequential)?\s*\(")
_FROM_AFAR = re.compile(
    r"\b(checkpoint_wrapper|apply_activation_checkpointing|gradient_checkpointing_enable"
    r"|set_grad_checkpointing)\s*\(|\bgradient_checkpointing\s*=\s*True"
)


def recomputed_ops(facts: Facts) -> list[OpFact]:
    """The ops of the backward pass that repeat those of the forward pass."""
    seen = [SeenOp(op.name, op.shapes, op.phase, op.records) for op in facts.ops]
    return [facts.ops[place] for place in sorted(recomputed(seen))] if facts.in_order else []


def _find(facts: Facts) -> Found | None:
    again = recomputed_ops(facts)
    if not again or not facts.trains:
        return None
    kept = sum(op.fresh_bytes for op in again)
    program, memory = facts.program, facts.memory_bytes
    if program is None or memory is None:
        return None
    held = program.max_device_bytes if facts.on_gpu else program.max_rss_bytes
    if held is None or held + kept > _FITS * memory:
        return None
    again_s = sum(map(cost_s, again))
    flops = sum(op.matrix_flops or 0.0 for op in again)
    all_flops = sum(op.matrix_flops or 0.0 for op in facts.ops)
    return saves(
        f"{len(again)} ops of the backward pass compute the forward pass again, "
        f"{percent(flops / max(all_flops, 1.0))} of its matrix products; kept, their results take "
        f"{si(kept, 'B')} at most beside {si(held, 'B')} of {si(memory, 'B')}",
        _lines(facts, again), 0.4 * again_s, 0.85 * again_s, again_s,
        f"they take {time_text(again_s)} of the step ({percent(again_s / facts.step_s)})",
    )  # fmt: skip


def _lines(facts: Facts, again: list[OpFact]) -> tuple[str, ...]:
    """Where a checkpoint is called in the files of recomputed lines, or turned on in another."""
    own = [op.source for op in again]
    return (
        lines_with(_CALL, own)
        or lines_with(_FROM_AFAR, (*own, *(op.source for op in facts.ops)))
        or lines_of(again)
    )


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
