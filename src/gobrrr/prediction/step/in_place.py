"""Derivatives that PyTorch writes into fresh zeros, which a capture has recorded out of place.

The gradients of ``gather``, ``index``, ``index_select``, ``take``, ``cummax`` and of every
reduction that returns places (``max``, ``min``, ``median``, ``sort``, ``topk``, ...) are zeros of
the input's shape with the result's gradient put into them: in place, unless a tensor is a subclass
or a dispatch mode watches (``gather_backward`` and ``index_select_backward`` in
TensorAdvancedIndexing.cpp, ``value_selecting_reduction_backward`` in ReduceOps.cpp,
``index_backward``, ``cummaxmin_backward`` and ``take_backward`` in FunctionsManual.cpp). A capture
is such a mode; out of place the whole tensor would be copied. ``torch.compile`` watches too: its
graphs keep what was recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from gobrrr.timeline.data import Phase
from gobrrr.timeline.graph import OpGraph, StepOp, peak_of
from gobrrr.timeline.ops import Arg, TensorSpec

_ZEROS = frozenset({"aten::new_zeros", "aten::zeros", "aten::zeros_like"})
# The operator in place, and what it takes beside the arguments of the other: ``unsafe`` of
# ``_index_put_impl_``, whose indices the forward pass has checked.
_IN_PLACE: dict[str, tuple[str, tuple[Arg, ...]]] = {
    "aten::index_add": ("aten::index_add_", ()),
    "aten::index_put": ("aten::_index_put_impl_", (True,)),
    "aten::put": ("aten::put_", ()),
    "aten::scatter": ("aten::scatter_", ()),
    "aten::scatter_add": ("aten::scatter_add_", ()),
}


def zeros_written_in_place(graph: OpGraph) -> OpGraph:
    """The graph with such derivatives in place; itself where it has none.

    They are told by zeros that the backward pass makes right before, and that nothing else names: a
    backward pass of the program's own that does the same out of place is taken for one of them.
    """
    uses = Counter(
        spec.storage
        for op in graph.ops
        for spec in (*op.call.tensors, *(op.call.outputs or ()))
    )  # fmt: skip
    ops, gone = list(graph.ops), {}
    for at, (zeros, put) in enumerate(zip(graph.ops, graph.ops[1:])):
        if _fills_alone(zeros, put, uses, graph.kept):
            ops[at], ops[at + 1] = _joined(zeros, put)
            gone[_storage(zeros)] = _storage(put)
    if not gone:
        return graph
    lives = dict(graph.lives)
    for old, new in gone.items():
        if old in lives and new in lives:
            lives[new] = replace(lives[new], born=lives.pop(old).born)
    return replace(
        graph,
        ops=tuple(ops),
        lives=lives,
        sizes_bytes={key: n for key, n in graph.sizes_bytes.items() if key not in gone},
        peak_memory_bytes=peak_of(lives.values(), len(ops)) if lives else graph.peak_memory_bytes,
    )


def _fills_alone(
    zeros: StepOp, put: StepOp, uses: Mapping[int | None, int], kept: frozenset[int]
) -> bool:
    """Whether one op of a backward pass makes zeros that the next one alone reads, to add there."""
    made, written = zeros.call.outputs or (), put.call.outputs or ()
    into = put.call.args[0] if put.call.args else None
    return (
        zeros.phase is put.phase is Phase.BACKWARD
        and zeros.call.name in _ZEROS
        and put.call.name in _IN_PLACE
        and len(made) == len(written) == 1
        and isinstance(into, TensorSpec)
        and into.storage is not None
        and written[0].storage is not None
        and into.storage == made[0].storage
        and uses[into.storage] == 2
        and into.storage not in kept
    )


def _storage(op: StepOp) -> int:
    (made,) = op.call.outputs or ()
    assert made.storage is not None
    return made.storage


def _joined(zeros: StepOp, put: StepOp) -> tuple[StepOp, StepOp]:
    """Both on the storage of the result, which all that follows names."""
    name, more = _IN_PLACE[put.call.name]
    (made,) = zeros.call.outputs or ()
    made = replace(made, storage=_storage(put))
    call = replace(put.call, name=name, args=(made, *put.call.args[1:], *more), outputs=(made,))
    return (
        replace(zeros, call=replace(zeros.call, outputs=(made,))), replace(put, call=call)
    )  # fmt: skip
