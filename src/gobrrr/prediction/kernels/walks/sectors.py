"""What memory moves for tensors with holes: whole sectors, not elements.

The caches of NVIDIA's GPUs fetch 32 bytes at the least (CUDA C++ Best Practices Guide, "Coalesced
Access to Global Memory"); AMD's fetch no less. So of every eighth float32 each has a sector of its
own. Writes are left as they are: caches may merge them.
"""

from __future__ import annotations

from functools import lru_cache

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work

SECTOR_BYTES = 32


def sectors_over_bytes(call: OpCall, work: Work) -> float:
    """What an op that reads all of its tensors must fetch, over the bytes that it reads; from 1 on.

    1 where it reads parts of them, or something else: which sectors these touch is not known.
    """
    # A copy into a tensor does not read it.
    tensors = call.tensors[1:] if call.name == "aten::copy_" else call.tensors
    if not work.bytes_read or all(tensor.is_contiguous for tensor in tensors):
        return 1.0
    distinct: dict[object, TensorSpec] = {}
    for at, spec in enumerate(tensors):
        known = spec.storage is not None and spec.offset is not None
        key = (spec.storage, spec.offset, spec.shape, spec.strides) if known else at
        distinct[key] = spec
    sizes = [spec.unique_bytes or 0 for spec in distinct.values()]
    if sum(sizes) != work.bytes_read:
        return 1.0
    fetched = [max(size, _sector_bytes(spec)) for size, spec in zip(sizes, distinct.values())]
    return sum(fetched) / sum(sizes)


def _sector_bytes(tensor: TensorSpec) -> int:
    if tensor.strides is None or tensor.item_size_bytes is None:
        return 0
    return _touched(tensor.shape, tensor.strides, tensor.item_size_bytes)


@lru_cache(maxsize=4096)
def _touched(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> int:
    """The least that whole sectors around all elements are, in bytes.

    Runs less than a sector apart have every sector of their span in use; others have none in
    common, and neighbours of sparse ones at most one. Nothing is said of sparse ones that overlap.
    """
    span = touched = item
    for stride, n in sorted((s * item, n) for s, n in zip(strides, shape) if s > 0 and n > 1):
        gap = stride - span
        span += (n - 1) * stride
        if gap >= SECTOR_BYTES:
            touched = n * (-(-touched // SECTOR_BYTES) * SECTOR_BYTES)
        elif touched == span - (n - 1) * stride:
            touched = span
        elif gap >= 0:
            touched = n * touched - (n - 1) * SECTOR_BYTES
    return touched
