"""Copies of FSDP2 between parameters and the buffers that it communicates: bytes and no FLOPs.

Each is one op in a namespace of its own, ``fsdp`` (``_fsdp_collectives.py`` of
``torch.distributed.fsdp._fully_shard``), around an operator of ``aten`` or a list of copies.
"""

from __future__ import annotations

from math import ceil, prod

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.copies import moved
from gobrrr.work.registry import formula
from gobrrr.work.traffic import destinations, list_at, need


@formula("fsdp::split_with_sizes_copy")
def split_into(call: OpCall) -> Work:
    """``(all_gather_output, sizes, dim, out)``: each parameter written from the gathered buffer."""
    return moved([need(call, 0)], destinations(call, 3), fresh=False)


@formula("fsdp::all_gather_copy_in")
def copy_in(call: OpCall) -> Work:
    """``(inputs, all_gather_output, sizes, numel, rank)``: the shards into this rank's part."""
    shards, buffer = list_at(call, 0), need(call, 1)
    part = TensorSpec((sum(shard.numel for shard in shards),), buffer.dtype)
    return moved(shards, [part], fresh=False)


@formula("fsdp::chunk_cat", "aten::_chunk_cat")
def chunk_cat(call: OpCall) -> Work | None:
    """``(tensors, dim, num_chunks, out)``: all read; written with each padded to whole chunks."""
    parts = list_at(call, 0)
    given = destinations(call, 3)
    if given:
        return moved(parts, given, fresh=False)
    if call.outputs:
        return moved(parts, list(call.outputs))
    if not parts or not (isinstance(call.args[1], int) and isinstance(call.args[2], int)):
        return None
    dim, chunks = call.args[1], call.args[2]
    row = sum(_padded(part.shape, dim, chunks) for part in parts) // chunks
    return moved(parts, [TensorSpec((chunks, row), parts[0].dtype)])


def _padded(shape: tuple[int, ...], dim: int, chunks: int) -> int:
    """Elements once the dimension is a multiple of the number of chunks."""
    sizes = list(shape)
    sizes[dim] = chunks * ceil(sizes[dim] / chunks)
    return prod(sizes)


@formula("fsdp::copy_")
def copy_into(call: OpCall) -> Work:
    """``(tensor, data)``: ``data`` read, ``tensor`` written and not read."""
    return moved([need(call, 1)], [need(call, 0)], fresh=False)
