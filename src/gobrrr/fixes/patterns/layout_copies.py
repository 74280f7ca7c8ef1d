"""Copies that only lay a tensor out otherwise: ``.contiguous()`` on a view that could be read."""

from __future__ import annotations

from gobrrr.diagnosis.facts import Facts, OpFact, lines_of
from gobrrr.fixes.fix import MEMORY, Considered, Fix, RuledOut, prospect_or_not
from gobrrr.fixes.patterns.dataflow import cost_s, flow_of
from gobrrr.timeline.ops import TensorSpec
from gobrrr.timeline.quantities import si, time_text

_COPIES = ("aten::clone", "aten::contiguous", "aten::copy_")
# A reshape that merges strided dimensions cannot do without its copy.
_RESHAPES = ("aten::_unsafe_view", "aten::view", "aten::reshape")
# What reading the strided view in place costs of the copy: low, expected, high saving.
_INSTEAD = (0.4, 0.8, 1.0)


def _consider(facts: Facts) -> Considered:
    flow = flow_of(facts)
    if flow is None:
        return RuledOut("the order of the step's ops is unknown")
    copies: list[OpFact] = []
    for place, op in enumerate(facts.ops):
        if op.phase == "backward" or not only_moves(op):
            continue
        if flow.reads[place] and not _merged_afterwards(facts, place):
            copies.append(op)
    if not copies:
        return RuledOut("no view is copied that could be read as it is")
    now_s = sum(map(cost_s, copies))
    moved = sum(op.bytes_moved or 0 for op in copies)
    low_s, expected_s, high_s = (now_s * share for share in _INSTEAD)
    return prospect_or_not(
        facts, low_s, expected_s, high_s,
        f"{len(copies)} copies of views that are not contiguous move {si(moved, 'B')} in "
        f"{time_text(now_s)}; matrix products and most ops read a view as it is, and a tensor "
        "that must be contiguous can be stored that way",
        lines_of(copies),
    )  # fmt: skip


def _merged_afterwards(facts: Facts, place: int) -> bool:
    """Whether a reshape follows that the view before the copy would not have allowed."""
    op = facts.ops[place]
    outputs = {spec.storage for spec in op.call.outputs or ()}
    source = _source(op)
    return any(
        later.name in _RESHAPES
        and any(spec.storage in outputs for spec in later.call.tensors[:1])
        and not can_view(source, (later.call.outputs or (source,))[0].shape)
        for later in facts.ops[place + 1 : place + 4]
    )


def can_view(source: TensorSpec, shape: tuple[int, ...]) -> bool:
    """Whether a strided tensor can be seen in another shape without a copy.

    Dimensions may be merged where one's stride is the next one's times its size
    (``computeStride`` in aten/src/ATen/TensorUtils.cpp).
    """
    # Runs of dimensions that lie behind each other, as (elements, stride of the last).
    runs: list[int] = []
    previous = 0
    for n, stride in zip(source.shape, source.strides or ()):
        if n == 1:
            continue
        if runs and previous == n * stride:
            runs[-1] *= n
        else:
            runs.append(n)
        previous = stride
    left = [n for n in shape if n != 1]
    for run in runs:
        filled = 1
        while left and filled < run:
            filled *= left.pop(0)
        if filled != run:
            return False
    return not left


def _source(op: OpFact) -> TensorSpec:
    tensors = op.call.tensors
    return tensors[1 if op.name == "aten::copy_" and len(tensors) > 1 else 0]


def only_moves(op: OpFact) -> bool:
    """Whether it copies a strided tensor into a contiguous one of the same type."""
    if op.name not in _COPIES or not op.call.tensors:
        return False
    source = _source(op)
    made = (op.call.outputs or op.call.tensors[:1])[0]
    same = made.dtype == source.dtype and made.shape == source.shape
    return same and made.is_contiguous and not source.is_contiguous and 0 not in (
        source.strides or ()
    )  # fmt: skip


LAYOUT_COPIES = Fix(
    "layout_copies", "Read views instead of copying them",
    ("memory.device.roof", "memory.device.below", "memory.page_faults"), (MEMORY,), _consider,
    "torch.bmm(q.transpose(0, 1), k)  # without .contiguous()",
)  # fmt: skip
