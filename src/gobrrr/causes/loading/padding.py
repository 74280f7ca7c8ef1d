"""Sequences that are padded to the longest: work on positions that hold nothing."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.diagnosis.facts import LOADING, Facts
from gobrrr.timeline.quantities import count, percent, time_text

# Of the positions: batches of like lengths have a tenth of padding still.
_WORTH_IT = 0.2
# Fewer calls may be chance.
_FEWEST = 3
# What is packed already computes nothing for padding.
_PACKED = ("aten::_nested_tensor_from_mask", "aten::_pack_padded_sequence")


def _find(facts: Facts) -> Found | None:
    seen = () if facts.program is None else facts.program.padding
    told = [each for each in seen if each.given == "mask"] or list(seen)
    total = sum(each.total for each in told)
    if len(told) < _FEWEST or not total or facts.named(*_PACKED):
        return None
    share = sum(each.padded for each in told) / total
    if share < _WORTH_IT:
        return None
    # The optimizer has as much to do whatever the sequences' length; batches are made as before.
    work_s = sum(op.time_s for op in facts.ops if op.phase not in ("optimizer", LOADING))
    high_s = share * work_s
    said = "the mask says" if told[0].given == "mask" else "rows of tokens end in one value"
    return saves(
        f"{percent(share)} of the positions that the model is given are padding ({said}, in "
        f"{count(len(told))} calls of {count(round(total / len(told)))} positions)",
        tuple(dict.fromkeys(each.source for each in told if each.source))[:3],
        0.4 * high_s, 0.8 * high_s, high_s,
        f"of {time_text(work_s)} of kernels as many are for {time_text(high_s)}",
    )  # fmt: skip


PADDING = Cause(
    name="padding",
    title="sequences are padded to the longest of their batch (padding; bucketing by length)",
    words=("padding", "bucketing", "group_by_length", "packing", "sequences of similar length"),
    find=_find,
    remedy="batches of sequences of similar length (bucketing: sort by length, group_by_length), "
    "or packed sequences (nested tensors, flash attention with cu_seqlens)",
)
