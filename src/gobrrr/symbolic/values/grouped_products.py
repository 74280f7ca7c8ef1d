"""Grouped products as PyTorch carries them out on the target: one kernel, or one per group.

``aten/src/ATen/native/cuda/GroupedBlas.cpp``: bfloat16 on compute capability 9 and 10 (and on AMD)
is one kernel; everything else copies the offsets to the host and calls ``mm`` group by group.
"""

from __future__ import annotations

from typing import Any

from gobrrr.symbolic.graph_storages import HOST
from gobrrr.symbolic.stand_ins import real_call, value_of

_FAST_MAJORS = (9, 10)


def has_grouped_kernel(capability: tuple[int, int], dtype: str) -> bool:
    """Whether a device multiplies groups in one kernel; capability (0, 0): not NVIDIA's."""
    return dtype == "bfloat16" and (capability[0] in _FAST_MAJORS or capability == (0, 0))


def ends_of(offsets: Any) -> list[int] | None:
    """The ends of the groups as numbers; ``None`` where they are not known."""
    value = value_of(offsets)
    return None if value is None else [int(end) for end in real_call(_numbers, (value,), {})]


def _numbers(value: Any) -> Any:
    return value.tolist()


def even_ends(rows: int, groups: int) -> list[int]:
    """The ends of groups of equal sizes, to one."""
    return [rows * (group + 1) // groups for group in range(groups)]


def multiply_group_by_group(
    storages: Any, a: Any, b: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """``_grouped_mm`` by products of its groups, as where there is no kernel for it.

    ``(t, k) @ (g, k, n)``, ``(g, m, k) @ (k, t)``, ``(m, t) @ (t, n)`` cut by ``offs``, or
    ``(g, m, k) @ (g, k, n)``.
    """
    import torch

    aten = torch.ops.aten
    dtype = out_dtype or a.dtype
    if a.dim() == 3 and b.dim() == 3:
        return aten.bmm(a, b)
    storages.moving_to = HOST
    try:
        on_host = aten._to_copy.default(offs)
    finally:
        storages.moving_to = None
    cut = a.shape[0] if b.dim() == 3 else b.shape[1] if a.dim() == 3 else a.shape[1]
    ends = ends_of(on_host) or even_ends(cut, offs.numel())
    if a.dim() == 2 and b.dim() == 3:
        out = aten.empty.memory_format([a.shape[0], b.shape[2]], dtype=dtype)
    elif a.dim() == 3:
        out = aten.empty.memory_format([a.shape[1], b.shape[1]], dtype=dtype)
    else:
        out = aten.empty.memory_format([len(ends), a.shape[0], b.shape[1]], dtype=dtype)
    start = 0
    for group, end in enumerate(ends):
        if b.dim() == 3:
            rows, into = aten.slice(a, 0, start, end), aten.slice(out, 0, start, end)
            pair = (rows, aten.select(b, 0, group))
        elif a.dim() == 3:
            into = aten.slice(out, 1, start, end)
            pair = (aten.select(a, 0, group), aten.slice(b, 1, start, end))
        else:
            into = aten.select(out, 0, group)
            pair = (aten.slice(a, 1, start, end), aten.slice(b, 0, start, end))
        if end > start or (a.dim() == 2 and b.dim() == 2):
            aten.mm.out(*pair, out=into)
        start = end
    return out
