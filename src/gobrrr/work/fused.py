"""Kernels that Inductor generated: what their names and arguments tell.

``triton_poi_fused_add_gelu_native_layer_norm_3`` names the operators fused into it (each once, and
long lists are cut off), so FLOPs are a lower bound. Bytes are those of its arguments: a fused
kernel's whole point is that nothing else goes to memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from gobrrr.timeline.ops import TensorSpec
from gobrrr.work.estimate import OpClass, Work
from gobrrr.work.formulas.pointwise import cost_of
from gobrrr.work.formulas.pointwise_table import POINTWISE
from gobrrr.work.formulas.reductions import REDUCTIONS, SCANS
from gobrrr.work.traffic import account, arithmetic_dtype, is_float
from gobrrr.work.weights import FUNCTION, UNIFORM, WEIGHTS, transcendentals_in

_NAME = re.compile(
    r"^(?:graph_\d+_)?(?:triton_(?P<kind>poi|red|per)|cpp)_fused_(?P<ops>.+?)(?:_\d+)?$"
)

# FLOPs and functions per element of operators that Inductor names whole.
_WHOLE: dict[str, tuple[float, int]] = {
    "_softmax": (4 + FUNCTION, 1), "_log_softmax": (4 + FUNCTION, 1),
    "_safe_softmax": (4 + FUNCTION, 1),
    "_softmax_backward_data": (4, 0), "_log_softmax_backward_data": (3 + FUNCTION, 1),
    "native_layer_norm": (7, 0), "native_layer_norm_backward": (13, 0),
    "native_group_norm": (6, 0), "native_group_norm_backward": (8, 0),
    "_native_batch_norm_legit_functional": (6, 0), "_native_batch_norm_legit_no_training": (2, 0),
    "native_batch_norm_backward": (8, 0), "_fused_rms_norm": (4, 0),
    "_fused_rms_norm_backward": (9, 0), "native_dropout": (UNIFORM + 3, 0),
    "nll_loss_forward": (2, 0), "mse_loss": (3, 0), "glu": (3 + FUNCTION + 4, 1),
}  # fmt: skip


def _costs() -> dict[str, tuple[float, int]]:
    found: dict[str, tuple[float, int]] = {}
    for name, entry in POINTWISE.items():
        found[name] = cost_of(entry)
    for name, reduction in (*REDUCTIONS.items(), *SCANS.items()):
        weight = sum(WEIGHTS[function] for function in reduction.functions)
        found[name] = (reduction.per_input + weight, transcendentals_in(reduction.functions))
    found.update(_WHOLE)
    return found


_COSTS = _costs()
_LONGEST = max(name.count("_") for name in _COSTS) + 1


@lru_cache(maxsize=4096)
def operators_of(name: str) -> tuple[str, ...] | None:
    """Operators with arithmetic that a generated kernel's name lists; ``None`` for other names.

    Names are joined by underscores and have underscores of their own: the longest known name
    wins, and what is in none (views, copies, names cut off) is skipped.
    """
    match = _NAME.match(name)
    if match is None:
        return None
    words = match["ops"].split("_")
    found = []
    i = 0
    while i < len(words):
        for length in range(min(_LONGEST, len(words) - i), 0, -1):
            candidate = "_".join(words[i : i + length])
            if candidate in _COSTS:
                found.append(candidate)
                i += length
                break
        else:
            i += 1
    return tuple(found)


def work_of_fused(name: str, tensors: Sequence[TensorSpec]) -> Work | None:
    """Least work of a kernel that Inductor generated.

    Args:
        name: ``"triton_red_fused_add_mean_2"``, ``"cpp_fused_relu_0"``.
        tensors: its tensor arguments in order. Inductor puts outputs last, so the last one counts
            as written and the others as read; which of them are updated in place is not recorded.

    Returns:
        ``None`` for other names, and where no arguments or no dtypes were recorded.
    """
    operators = operators_of(name)
    if operators is None or not tensors or any(t.item_size_bytes is None for t in tensors):
        return None
    largest = max(tensor.unique_elements for tensor in tensors)
    floats = [tensor.dtype for tensor in tensors if is_float(tensor.dtype)]
    flops = sum(_COSTS[operator][0] for operator in operators) if floats else 0.0
    special = sum(_COSTS[operator][1] for operator in operators) if floats else 0
    reduces = "triton_red_" in name or "triton_per_" in name
    op_class: OpClass = "movement" if not flops else "elementwise"
    if reduces or any(op in REDUCTIONS or op in _WHOLE for op in operators if op != "glu"):
        op_class = "normalisation"
    return account(
        list(tensors[:-1]),
        [tensors[-1]],
        vector=float(flops * largest),
        special=float(special * largest),
        dtype=arithmetic_dtype(floats[0] if floats else tensors[0].dtype),
        op_class=op_class,
        fresh=False,
    )
