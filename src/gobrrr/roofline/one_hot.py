"""One-hot vectors as a compiler has them: compared, not written into zeros.

On a device ``one_hot`` fills zeros and scatters ones into them; of the tensors that a compiler
traces with it compares the indices with every class, which fuses with what follows
(aten/src/ATen/native/Onehot.cpp). A capture holds what a device does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gobrrr.timeline.graph import StepOp
from gobrrr.timeline.ops import OpCall, TensorSpec


def one_hots_compared(ops: Sequence[StepOp]) -> tuple[StepOp, ...]:
    """The ops with one expression in the place of zeros and the ones scattered into them."""
    found = list(ops)
    for at, (zeros, unsqueezed, put) in enumerate(zip(ops, ops[1:], ops[2:])):
        names = [op.call.name for op in (zeros, unsqueezed, put)]
        if names != ["aten::zeros", "aten::unsqueeze", "aten::scatter_"]:
            continue
        made, index = zeros.call.outputs or (), unsqueezed.call.outputs or ()
        into, dim, places, value = put.call.args[:4]
        if not (isinstance(into, TensorSpec) and isinstance(places, TensorSpec) and made and index):
            continue
        same = into.storage == made[0].storage and places.storage == index[0].storage
        if same and dim == -1 and value == 1 and places.shape == (*into.shape[:-1], 1):
            found[at] = replace(zeros, call=OpCall("aten::empty", zeros.call.args, made))
            one_hot = OpCall("aten::one_hot", (places, into.shape[-1]), made)
            found[at + 2] = replace(put, call=one_hot)
    return tuple(found)
