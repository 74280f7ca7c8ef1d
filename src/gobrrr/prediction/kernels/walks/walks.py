"""How often and in which order a kernel without a matrix product walks through memory.

Sources: PyTorch's CUDA kernels (aten/src/ATen/native/cuda): ScanUtils.cuh, MultiTensorApply.cuh,
Reduce.cuh, CUDALoops.cuh, Shape.cu. Norms, losses, pooling and more have modules of their own.
"""

from __future__ import annotations

from math import ceil, gcd, prod

from gobrrr.prediction.kernels.walks import (
    distance_walks,
    element_walks,
    loss_walks,
    norm_walks,
    ordering_walks,
    reduction_walks,
    sparse_walks,
    successive_walks,
    window_walks,
)
from gobrrr.prediction.kernels.walks.element_walks import fastest, last
from gobrrr.prediction.kernels.walks.walk import ONE, Machine, Recipe, Walk, dimension_of
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import UNTELLING, note_failure
from gobrrr.work.traffic import broadcast
from gobrrr.work.traits import Passes, traits_of

# multi_tensor_apply: elements of a chunk and blocks of a launch; tensors by number of lists.
_CHUNK, _BLOCKS = 65536, 320
_TENSORS_PER_LAUNCH = (110, 64, 48, 36, 30)
# What a thread of a copying kernel takes at a time where all is aligned; and the number of indices
# up to which a lookup's gradient is added up without sorting them.
_VECTOR_BYTES, _UNSORTED = 16, 3072
# Lookups: what the caches read at a time (CUDA C++ Best Practices Guide, "Coalesced Access to
# Global Memory"); threads of a block, blocks of a multiprocessor (CUDA C++ Programming Guide,
# technical specifications per compute capability: 16 to 32). Before PyTorch 2.8 each element cost
# three divisions, of up to 20 instructions (the same guide): in elements whose addresses an
# element-wise kernel computes, 135.6 us for 4096 rows of 5120 on an H100 (issue 151612 of pytorch).
_SECTOR_BYTES, _WARP, _ROW_BLOCK, _RESIDENT_BLOCKS = 32, 32, 256, 32
_DIVISIONS = 2.2


def walks_of(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """The kernels of an op that is not a contraction; one plain stream where nothing is known.

    Such a kernel belongs to the machine's libraries as much as to the op.
    """
    if call.name.startswith(("triton_", "cpp_fused_")):
        # Generated for its shapes: addresses are constants, and rows are read once.
        return ONE
    passes = traits_of(call.name).passes
    try:
        found = (element_walks.stream if passes is None else _RECIPES[passes])(call, work, machine)
        return (*_made_contiguous(call, work, machine), *found) if passes in _CONTIGUOUS else found
    except UNTELLING as error:
        # A trace that leaves arguments out; else the recipe is wrong.
        note_failure(call, error, "model of the kernels", "its time is that of one plain stream")
        return ONE


def _made_contiguous(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """The copy that an op's kernels want of an input that is not row-major."""
    x = call.tensors[0]
    if x.is_contiguous or not work.bytes_written:
        return ()
    size = x.numel * (x.item_size_bytes or 4)
    return (
        Walk(
            writes=size / work.bytes_written, arithmetic=0.0,
            efficiency=1.0 if last(x) == fastest(x) else machine.strided,
            indexed=float(x.numel),
        ),
    )  # fmt: skip


def _scan(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    x = call.tensors[0]
    dim = dimension_of(call.args[1], len(x.shape))
    row, inner = x.shape[dim], prod(x.shape[dim + 1 :])
    rows = float(x.numel // max(row, 1))
    if row == x.numel:
        # One row: cub's scan over the whole device, which first totals the tiles.
        return (Walk(reads=0, writes=0, arithmetic=0), Walk(reads=1, arithmetic=2))
    if inner == 1:
        # A block of 16 threads by 32 rows walks along them, 32 elements a round.
        return (Walk(arithmetic=8, efficiency=0.6, programs=rows / 16),)
    # A thread for each column takes its elements one after the other: it may not read the next
    # before it has written the last, which could be the same memory as far as the compiler knows
    # (``tensor_kernel_scan_outer_dim``).
    rounds = 1 if machine.units is None else ceil(rows / (machine.resident_threads * machine.units))
    return (Walk(arithmetic=2, efficiency=0.8, programs=rows / 256, trips=row * rounds),)


def _scatter(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    return (Walk(efficiency=window_walks.ATOMIC),)


def _gather(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    inplace = call.name.endswith("_")
    moved = _scattered(call) if inplace else _widest(call)
    row = _row_bytes(call)
    if not row or machine.kind != "cuda":
        return (Walk(efficiency=0.6, indexed=moved, trips=2),)
    # Rows that are looked up lie anywhere: each costs the sectors that it touches.
    reads = _sectors(row) * _SECTOR_BYTES / row
    if not machine.row_vectors:
        slow = _DIVISIONS * moved
        return (Walk(reads=reads, cold_reads=reads, efficiency=0.8, indexed=slow, trips=2),)
    if row % _VECTOR_BYTES:
        return (Walk(reads=reads, cold_reads=reads, efficiency=0.6, indexed=moved, trips=2),)
    # Rows of whole vectors are copied as such, a block for each 4 KB of a row, whose threads wait
    # for the row's number and then for what stands there (vectorized_gather_kernel,
    # IndexKernelUtils.cu). 84 MB in 36.3 us, as told in issue 151612 of pytorch, are 0.8 of what
    # an H100's streams reach.
    item = call.tensors[0].item_size_bytes or 1
    blocks = moved * item / row * ceil(row / (_ROW_BLOCK * _VECTOR_BYTES))
    threads = min(_ROW_BLOCK, _WARP * ceil(row / (_WARP * _VECTOR_BYTES)))
    resident = min(_RESIDENT_BLOCKS, machine.resident_threads // threads)
    rounds = 1 if machine.units is None else ceil(blocks / (resident * machine.units))
    vectors = moved * item / _VECTOR_BYTES
    return (Walk(reads=reads, cold_reads=reads, efficiency=0.8, indexed=vectors, trips=2 * rounds),)


def _row_bytes(call: OpCall) -> int:
    """Bytes of the rows that an op looks up in a table; 0 where it picks elements otherwise."""
    name = call.name.partition("::")[2]
    if name not in ("embedding", "index_select", "index"):
        return 0
    table = call.tensors[0]
    if name == "index_select" and call.args[1] != 0:
        return 0
    if name == "index" and not _by_first(call):
        # Places in another dimension, or in several.
        return 0
    if not table.is_contiguous or call.tensors[1].dtype == "bool":
        return 0
    return prod(table.shape[1:]) * (table.item_size_bytes or 0)


def _by_first(call: OpCall) -> bool:
    """Whether ``aten::index`` has places in the first dimension alone."""
    places = call.args[1]
    if not isinstance(places, tuple) or not places:
        return False
    return isinstance(places[0], TensorSpec) and all(each is None for each in places[1:])


def _sectors(row: int) -> float:
    """Sectors that a row of so many bytes touches on average, wherever it begins."""
    step = gcd(row, _SECTOR_BYTES)
    return (row + _SECTOR_BYTES - step) / _SECTOR_BYTES


def _scattered(call: OpCall) -> float:
    """Elements that an op writes into places of its first tensor: those of its source."""
    return float(max((t.numel for t in call.tensors[1:]), default=1))


def _index_put(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    # With accumulation the places are sorted first, by as many bits as the largest of them has
    # (``index_put_with_sort_kernel``, Indexing.cu).
    if len(call.args) < 4 or call.args[3] is not True:
        return (Walk(efficiency=0.4),)
    x, places, values = call.tensors[0], call.args[1], call.tensors[-1]
    listed = places if isinstance(places, tuple) else ()
    given = [(n, place) for n, place in zip(x.shape, listed) if isinstance(place, TensorSpec)]
    masked = any(place.dtype in ("bool", "uint8") for _, place in given)
    count = values.numel if masked else prod(broadcast([place.shape for _, place in given]))
    sorts = _sorted_places(count, prod(n for n, _ in given), float(work.bytes_read or 0))
    return (*sorts, Walk(efficiency=0.4))


def _sorted_places(count: int, places: int, bytes_read: float) -> tuple[Walk, ...]:
    """A radix sort, 8 bits a pass: keys and positions of 8 bytes each are read and written."""
    share = 2 * count * 8 / max(bytes_read, 1.0)
    return (Walk(reads=2 * share, writes=0.0, arithmetic=0.0),) * ceil(
        max(places, 2).bit_length() / 8
    )


def _embedding_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    # Zero the gradient; sort the indices, 8 bits a pass, where they are many; add rows up into
    # those that are looked up (Embedding.cu, EmbeddingBackwardKernel.cu).
    grad, indices = call.tensors[0], call.tensors[1]
    rows = call.args[2] if isinstance(call.args[2], int) else indices.numel
    touched = min(1.0, indices.numel / max(rows, 1))
    sorts: tuple[Walk, ...] = ()
    if indices.numel > _UNSORTED:
        sorts = _sorted_places(indices.numel, rows, float(grad.unique_bytes or 1))
    return (Walk(reads=0), *sorts, Walk(writes=touched, efficiency=0.5))


def _join(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    elements = _widest(call)
    if machine.kind == "cuda" and _in_vectors(call):
        # CatArrayBatchedCopy_vectorized and ..._alignedK_contig (Shape.cu): addresses of 16 bytes.
        elements *= (call.tensors[0].item_size_bytes or _VECTOR_BYTES) / _VECTOR_BYTES
    return (Walk(efficiency=0.9, indexed=1.5 * elements, trips=2),)


def _in_vectors(call: OpCall) -> bool:
    """Whether each part of a concatenation is copied 16 bytes at a time.

    All of them contiguous and aligned, and what lies together in each of them whole vectors.
    """
    tensors = call.tensors
    if not tensors:
        return False
    dims = [arg for arg in call.args[1:] if isinstance(arg, int)]
    rank = len(tensors[0].shape)
    dim = dims[0] % rank if dims and rank else 0
    for tensor in tensors:
        item = tensor.item_size_bytes
        if item is None or not tensor.is_contiguous or len(tensor.shape) != rank:
            return False
        if (prod(tensor.shape[dim:]) * item) % _VECTOR_BYTES or ((tensor.offset or 0) * item) % (
            _VECTOR_BYTES
        ):
            return False
    return True


def _lists(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    lists = [arg for arg in call.args if isinstance(arg, tuple) and arg
             and isinstance(arg[0], TensorSpec)]  # fmt: skip
    if not lists:
        return ONE
    first = [t for t in lists[0] if isinstance(t, TensorSpec)]
    chunks = sum(ceil(t.numel / _CHUNK) for t in first)
    depth = min(len(lists), len(_TENSORS_PER_LAUNCH))
    launches = max(ceil(chunks / _BLOCKS), ceil(len(first) / _TENSORS_PER_LAUNCH[depth - 1]), 1)
    return tuple(
        Walk(1 / launches, 1 / launches, 1 / launches, 0.9, chunks / launches)
        for _ in range(launches)
    )


def _widest(call: OpCall) -> float:
    """Elements of the result: of the outputs, or what the inputs say."""
    if call.outputs:
        return float(sum(t.numel for t in call.outputs))
    name = call.name.partition("::")[2]
    if name in ("cat", "stack"):
        return float(sum(t.numel for t in call.tensors))
    # A lookup: indices times the row that each fetches.
    if len(call.tensors) > 1 and name in ("embedding", "index_select", "index"):
        row = prod(call.tensors[0].shape[1:])
        return float(call.tensors[1].numel * row)
    return float(max((t.numel for t in call.tensors), default=0))


# Kernels that begin with ``contiguous()`` or ``expect_contiguous()`` of their input:
# ScanKernels.cpp, SoftMax.cu (``host_softmax``). Layer norms ask for the same, but networks with
# transposed inputs of theirs take no longer for it (benchmarks/prediction_timm: 1.01 of the
# measured time without the copies, 1.11 to 1.13 with them).
_CONTIGUOUS: tuple[Passes | None, ...] = ("scan", "softmax")
_RECIPES: dict[Passes, Recipe] = {
    "softmax": norm_walks.softmax,
    "layer_norm": norm_walks.layer_norm,
    "layer_norm_backward": norm_walks.layer_norm_backward,
    "group_norm": norm_walks.group_norm,
    "group_norm_backward": norm_walks.group_norm_backward,
    "batch_norm": norm_walks.batch_norm,
    "batch_norm_backward": norm_walks.batch_norm_backward,
    "reduction": reduction_walks.reduction,
    "scan": _scan,
    "window": window_walks.window,
    "resample": window_walks.resample,
    "resample_backward": window_walks.resample_backward,
    "sample": window_walks.sample,
    "sample_backward": window_walks.sample_backward,
    "loss": loss_walks.nll_loss,
    "elementwise_loss": loss_walks.elementwise_loss,
    "elementwise_loss_backward": loss_walks.elementwise_loss_backward,
    "sort": ordering_walks.sort,
    "top_k": ordering_walks.top_k,
    "multinomial": ordering_walks.multinomial,
    "select": ordering_walks.select,
    "permutation": ordering_walks.permutation,
    "membership": ordering_walks.membership,
    "distances": distance_walks.distances,
    "fourier": successive_walks.fourier,
    **sparse_walks.RECIPES,
    "scatter": _scatter,
    "gather": _gather,
    "index_put": _index_put,
    "embedding_backward": _embedding_backward,
    "join": _join,
    "lists": _lists,
    "log_sum_exp": successive_walks.log_sum_exp,
    "masked_fill": successive_walks.masked_fill,
    "padding": successive_walks.padding,
    "count_nonzero": successive_walks.count_nonzero,
    "ctc_loss": loss_walks.ctc_loss,
}
