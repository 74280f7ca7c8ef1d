"""What each kernel had to do: an operator's work, divided among the kernels that it launched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.kernel_names import element_of, uses_tf32
from gobrrr.attribution.leaves import COMPUTE_MATRIX
from gobrrr.devices.ceilings import Ceilings
from gobrrr.roofline.roof import Missed, Roof, roof_of
from gobrrr.timeline.data import HostKind, KernelKind, Timeline, names_that
from gobrrr.timeline.nesting import nearest
from gobrrr.timeline.ops import ITEM_SIZE_BYTES, Arg, OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.fused import work_of_fused

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
WorkOf = Callable[[OpCall], "Work | None"]


@dataclass(frozen=True)
class DeviceWork:
    """Work and roof of every kernel; rows are those of ``Timeline.kernels``.

    ``op`` is the host row of the operator whose work it is (of the innermost operator where none
    has a formula; -1: not linked). ``share`` is the kernel's part of that operator's work: an
    operator's kernels divide its work in proportion to their time, so that it counts once.
    ``call`` indexes ``Timeline.calls``: the call whose work it is (-1: none, or none linked).
    ``whole`` is the work of the whole operator, ``works`` and ``roofs`` the kernel's part.
    ``roof_ns`` is NaN where there is no formula or no ceiling.
    """

    op: Int64
    call: Int64
    share: Float64
    whole: tuple[Work | None, ...]
    works: tuple[Work | None, ...]
    roofs: tuple[Roof | None, ...]
    roof_ns: Float64


def work_of_kernels(
    timeline: Timeline, ceilings: Ceilings | None, work_of: WorkOf, parent: Int64
) -> DeviceWork:
    """Finds the work of every kernel that an operator launched; ``parent`` is the host's nesting.

    A kernel takes the work of the innermost operator around its launch that has a formula with
    something to do: ``aten::cudnn_convolution`` may have none where ``aten::convolution`` has.
    Kernels that Inductor generated take theirs from their names and arguments.
    """
    kernels, host = timeline.kernels, timeline.host
    count = len(kernels)
    is_kernel = moves_own_bytes(timeline)
    work_by_call = [usable_work(call, work_of) for call in timeline.calls]
    _infer_dtypes(timeline, work_by_call, work_of)
    has_work = np.array([work is not None for work in work_by_call] + [False], bool)
    is_op = host.kind == HostKind.OP
    with_work = nearest(parent, is_op & has_work[host.call])
    linked = is_kernel & (kernels.op >= 0)
    op = np.where(linked, kernels.op, -1)
    if len(with_work):
        worker = with_work[op]
        op = np.where(linked & (worker >= 0), worker, op)
    call = np.where(op >= 0, host.call[op] if len(host) else -1, -1).astype(np.int64)
    worked = has_work[call] & linked

    duration = np.maximum(kernels.end_ns - kernels.start_ns, 0).astype(np.float64)
    share = np.ones(count)
    rows = np.flatnonzero(worked)
    total = np.bincount(op[rows], weights=duration[rows], minlength=len(host) or 1)
    launched = np.bincount(op[rows], minlength=len(host) or 1)
    of_op = total[op[rows]]
    share[rows] = np.where(
        of_op > 0, duration[rows] / np.where(of_op > 0, of_op, 1.0), 1.0 / launched[op[rows]]
    )

    # Of an operator with a kernel in TF32 the others are too: copies into its layout have no name
    # for it, and hold a part of the operator's FLOPs.
    named = names_that(timeline.names, uses_tf32)
    in_tf32 = np.bincount(op[rows], weights=named[kernels.name[rows]], minlength=len(host) or 1) > 0
    whole: list[Work | None] = [None] * count
    works: list[Work | None] = [None] * count
    roofs: list[Roof | None] = [None] * count
    roof_ns = np.full(count, np.nan)
    known: dict[tuple[int, bool, float], tuple[Work, Work, Roof | None]] = {}
    keys = zip(call[rows].tolist(), in_tf32[op[rows]].tolist(), np.round(share[rows], 12).tolist())
    for row, key in zip(rows.tolist(), keys):
        found = known.get(key)
        if found is None:
            work = work_by_call[key[0]]
            assert work is not None
            missed = timeline.calls[key[0]].missed
            found = known[key] = _share_of(work, key[1], key[2], ceilings, missed)
        whole[row], works[row], roofs[row] = found
    roof_ns[rows] = [
        np.nan if roof is None else roof.time_s * 1e9 for roof in map(roofs.__getitem__, rows)
    ]
    for row in np.flatnonzero(is_kernel & (kernels.op < 0) & (kernels.twin >= 0)).tolist():
        same = int(kernels.twin[row])
        works[row], roofs[row], roof_ns[row] = works[same], roofs[same], roof_ns[same]
        call[row], share[row], whole[row] = call[same], share[same], whole[same]
    return DeviceWork(op, call, share, tuple(whole), tuple(works), tuple(roofs), roof_ns)


# Operators that the driver's memset does whole; in others it only prepares a kernel.
_BY_MEMSET = frozenset({"aten::zero_", "aten::fill_"})


def moves_own_bytes(timeline: Timeline) -> NDArray[np.bool_]:
    """Which device work does what its operator has to do, and has its formula and roof.

    Kernels, copies within the device's memory, and memsets that are all of their operator.
    """
    kernels, host = timeline.kernels, timeline.host
    by_memset = np.array([*(call.name in _BY_MEMSET for call in timeline.calls), False], bool)
    op_call = np.append(host.call, -1)[kernels.op]
    found: NDArray[np.bool_] = (
        (kernels.kind == KernelKind.KERNEL)
        | (kernels.kind == KernelKind.DEVICE_COPY)
        | ((kernels.kind == KernelKind.MEMSET) & by_memset[op_call])
    )
    return found


def _infer_dtypes(timeline: Timeline, work_by_call: list[Work | None], work_of: WorkOf) -> None:
    """Fills in work that only lacks dtypes, from the names of the kernels launched.

    The profiler gives lists of tensors (``aten::cat``) shapes but no dtypes; the kernel's template
    names its element, or at least the element's bytes.
    """
    kernels, host = timeline.kernels, timeline.host
    rows = np.flatnonzero((kernels.kind == KernelKind.KERNEL) & (kernels.op >= 0))
    if len(rows) == 0:
        return
    calls, first = np.unique(host.call[kernels.op[rows]], return_index=True)
    for index, at in zip(calls.tolist(), first.tolist()):
        if index < 0 or work_by_call[index] is not None:
            continue
        call = timeline.calls[index]
        if all(tensor.dtype for tensor in call.tensors):
            continue
        element = element_of(timeline.names[kernels.name[rows[at]]])
        dtype = _dtype_of_size(timeline, element) if isinstance(element, int) else element
        if dtype is not None:
            args = tuple(_with_dtype(arg, dtype) for arg in call.args)
            work_by_call[index] = usable_work(replace(call, args=args), work_of)


def _dtype_of_size(timeline: Timeline, size: int) -> str | None:
    """The commonest dtype of the trace with elements of ``size`` bytes; any where none is."""
    seen = Counter(tensor.dtype for call in timeline.calls for tensor in call.tensors)
    fitting = [dtype for dtype, bytes_ in ITEM_SIZE_BYTES.items() if bytes_ == size]
    return max(fitting, key=lambda dtype: seen[dtype], default=None)


def _with_dtype(arg: Arg, dtype: str) -> Arg:
    if isinstance(arg, TensorSpec):
        return arg if arg.dtype else replace(arg, dtype=dtype)
    if isinstance(arg, tuple):
        return tuple(_with_dtype(item, dtype) for item in arg)
    return arg


def usable_work(call: OpCall, work_of: WorkOf) -> Work | None:
    """Work that a kernel can have done: known, and not of an op that only allocates or views."""
    work = work_of(call)
    if work is None:
        work = work_of_fused(call.name, call.tensors)
    if work is None or work.flops is None or work.bytes_moved is None:
        return None
    return work if work.flops > 0 or work.bytes_moved > 0 else None


def _share_of(
    work: Work, tf32: bool, share: float, ceilings: Ceilings | None, missed: Missed
) -> tuple[Work, Work, Roof | None]:
    """The operator's work as its kernel computes it, the kernel's part of it, and that's roof."""
    tf32 = tf32 and work.compute_dtype == "float32"
    roof = None
    if ceilings is not None:
        roof = _tf32_roof(work, ceilings, missed) if tf32 else roof_of(work, ceilings, missed)
    if tf32:
        work = replace(work, compute_dtype="tf32")
    if share == 1.0:
        return work, work, roof
    # The roof of a part is the part of the roof: the level of memory is that of the whole.
    part = replace(
        work,
        matrix_flops=_scaled(work.matrix_flops, share),
        vector_flops=_scaled(work.vector_flops, share),
        special=work.special * share,
        bytes_read=_rounded(work.bytes_read, share),
        bytes_written=_rounded(work.bytes_written, share),
        unique_bytes=_rounded(work.unique_bytes, share),
        fresh_bytes=_rounded(work.fresh_bytes, share) or 0,
    )
    if roof is not None:
        roof = Roof(
            roof.time_s * share, roof.regime, roof.matrix_s * share, roof.vector_s * share,
            roof.memory_s * share, roof.level,
        )  # fmt: skip
    return work, part, roof


def _tf32_roof(work: Work, ceilings: Ceilings, missed: Missed) -> Roof | None:
    """Roof of a float32 op whose multiplications run in TF32, a format of the matrix unit alone."""
    rate = ceilings.matrix_flops_per_s("tf32")
    rest = roof_of(replace(work, matrix_flops=0.0), ceilings, missed)
    if rate is None or rest is None or not work.matrix_flops:
        return roof_of(work, ceilings, missed)
    matrix_s = work.matrix_flops / rate
    regime = COMPUTE_MATRIX if matrix_s > rest.time_s else rest.regime
    return Roof(
        max(matrix_s, rest.time_s), regime, matrix_s, rest.vector_s, rest.memory_s, rest.level
    )


def _scaled(value: float | None, share: float) -> float | None:
    return None if value is None else value * share


def _rounded(value: int | None, share: float) -> int | None:
    return None if value is None else round(value * share)
