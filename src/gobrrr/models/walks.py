"""How often and in which order a kernel without a matrix product walks through memory.

Sources: PyTorch's CUDA kernels (aten/src/ATen/native/cuda): SoftMax.cu, layer_norm_kernel.cu,
group_norm_kernel.cu, Normalization.cuh, ScanUtils.cuh, MultiTensorApply.cuh, Reduce.cuh,
DilatedMaxPool2d.cu, AveragePool2d.cu, Loss.cu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, prod

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import Work

# Rows up to this length stay in registers (dispatch_softmax_forward, layer norm's vectors).
_IN_REGISTERS = 1024
# Shared memory that a block may take without asking for more than the default.
_SHARED_BYTES = 48 * 1024
# multi_tensor_apply: elements of a chunk and blocks of a launch; tensors by number of lists.
_CHUNK, _BLOCKS = 65536, 320
_CHANNEL_THREADS = 512
_WIDE_BLOCK = 1024
# What a block of layer norm has in flight: 256 threads with 16 bytes each.
_ROW_BYTES = 4096
_TENSORS_PER_LAUNCH = (110, 64, 48, 36, 30)


@dataclass(frozen=True, slots=True)
class Walk:
    """One kernel's traffic relative to its op's least.

    Attributes:
        reads: how often it reads the op's inputs; 0 for none.
        cold_reads: how many of these find nothing in the cache, where the op's inputs are too
            large for it.
        writes: how often it writes the op's outputs.
        arithmetic: its share of the op's arithmetic, over 1 for index arithmetic.
        efficiency: of the bandwidth, for the order it walks in.
        programs: independent pieces of work; ``None``: enough for every multiprocessor.
        indexed: elements whose addresses are computed one by one.
        trips: trips to memory that depend on each other, beyond the first.
    """

    reads: float = 1.0
    writes: float = 1.0
    arithmetic: float = 1.0
    efficiency: float = 1.0
    programs: float | None = None
    indexed: float = 0.0
    trips: int = 0
    cold_reads: float = 1.0


ONE = (Walk(),)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a recipe may know of the device.

    ``strided``: the efficiency of walking across rows; ``kind``: ``cuda``, ``hip``, ...;
    ``units``: multiprocessors, ``None`` if unknown; ``cache_bytes``: of the last-level cache.
    """

    strided: float
    kind: str
    units: int | None
    cache_bytes: int


Recipe = Callable[[OpCall, Work, Machine], tuple[Walk, ...]]


def walks_of(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """The kernels of an op that is not a contraction; one plain stream where nothing is known.

    Such a kernel belongs to the machine's libraries as much as to the op.
    """
    name = call.name.partition("::")[2]
    recipe = _RECIPES.get(name)
    if call.name.startswith(("triton_", "cpp_fused_")):
        # Generated for its shapes: addresses are constants, and rows are read once.
        return ONE
    if recipe is None and name.startswith("_foreach_"):
        recipe = _foreach
    if recipe is None and name.startswith("_fused_") and "_norm" not in name:
        recipe = _foreach
    try:
        if recipe is not None:
            return recipe(call, work, machine)
        return _stream(call, work, machine)
    except (IndexError, ValueError, TypeError, ZeroDivisionError):
        # A trace that leaves arguments out.
        return ONE


def _stream(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Element-wise: as fast as memory where every tensor is walked along its rows."""
    return (
        Walk(efficiency=machine.strided if _crosses_rows(call) else 1.0, indexed=_indexed(call)),
    )


def _indexed(call: OpCall) -> float:
    """Elements of an element-wise op that computes addresses one by one; 0 for a plain stream.

    ``gpu_kernel_impl`` (CUDALoops.cuh) takes vectors where every operand is contiguous in the
    same way, and an offset calculator with integer divisions for broadcast and strided ones.
    """
    tensors = [t for t in (*call.tensors, *(call.outputs or ())) if t.numel > 1]
    if not tensors:
        return 0.0
    widest = max(tensors, key=lambda t: t.numel)
    same = all(
        t.shape == widest.shape and _order(t) == _order(widest) and t.unique_elements == t.numel
        and _dense(t)
        for t in tensors
    )  # fmt: skip
    return 0.0 if same else float(widest.numel)


def _order(tensor: TensorSpec) -> tuple[int, ...] | None:
    """Strides of the dimensions that have any, ``None`` for row-major order."""
    if tensor.strides is None or tensor.is_contiguous:
        return None
    return tuple(s for n, s in zip(tensor.shape, tensor.strides) if n > 1)


def _dense(tensor: TensorSpec) -> bool:
    """Whether the elements fill their memory without holes, in any order of dimensions."""
    if tensor.strides is None:
        return True
    expected = 1
    for stride, n in sorted((s, n) for n, s in zip(tensor.shape, tensor.strides) if n > 1):
        if stride != expected:
            return False
        expected *= n
    return True


def _crosses_rows(call: OpCall) -> bool:
    """Whether a large operand's fastest dimension is not that of the largest one.

    Such a read touches one element of each line of memory; caches give back a part.
    """
    tensors = [t for t in (*call.tensors, *(call.outputs or ())) if t.strides and t.numel > 4096]
    if not tensors:
        return False
    widest = max(tensors, key=lambda t: t.numel)
    fastest = _fastest(widest)
    for tensor in tensors:
        if len(tensor.shape) != len(widest.shape) or fastest is None:
            continue
        assert tensor.strides is not None
        stride = tensor.strides[fastest]
        if stride > 1 and tensor.shape[fastest] > 1:
            return True
    # The output of a copy is not in every trace: a copy out of a transposed tensor crosses rows.
    name = call.name.partition("::")[2]
    if name in ("clone", "contiguous", "copy_", "_to_copy") and len(tensors) == 1:
        strides = tensors[0].strides
        return strides is not None and 0 not in strides and fastest != _last(tensors[0])
    return False


def _fastest(tensor: TensorSpec) -> int | None:
    if tensor.strides is None:
        return None
    wide = [i for i, n in enumerate(tensor.shape) if n > 1 and tensor.strides[i] > 0]
    return min(wide, key=lambda i: (tensor.strides or ())[i]) if wide else None


def _last(tensor: TensorSpec) -> int | None:
    wide = [i for i, n in enumerate(tensor.shape) if n > 1]
    return wide[-1] if wide else None


def _dimension(arg: Arg, rank: int) -> int:
    if not isinstance(arg, int):
        raise ValueError("the dimension was not recorded")
    return arg % rank if rank else 0


def _softmax(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    backward = "backward" in call.name
    x = call.tensors[0]
    dim = _dimension(call.args[2 if backward else 1], len(x.shape))
    row, inner = x.shape[dim], prod(x.shape[dim + 1 :])
    rows = x.numel // max(row, 1)
    size = row * (x.item_size_bytes or 4)
    # Maximum, sum and result each read the input; backward the sum and the result.
    reads = 2.0 if backward else 3.0
    if inner > 1:
        return (Walk(reads=reads, arithmetic=2, programs=rows / 32, trips=3),)
    if row <= _IN_REGISTERS:
        return (Walk(programs=rows / 4, trips=2),)
    if size <= _SHARED_BYTES:
        return (Walk(arithmetic=2, programs=float(rows), trips=2),)
    cold = reads if _too_many(rows, size, 2, machine) else 1.0
    trips = _rounds(rows, 2, machine) * ceil(reads * size / (16 * _WIDE_BLOCK))
    return (Walk(reads=reads, cold_reads=cold, arithmetic=2, programs=float(rows), trips=trips),)


def _too_many(programs: int, size: int, resident: int, machine: Machine) -> bool:
    """Whether the rows that are worked on at once are more than half of the cache holds.

    ``size``: bytes of a row; ``resident``: rows that one multiprocessor works on.
    """
    if machine.units is None:
        return False
    return min(programs, resident * machine.units) * size > machine.cache_bytes / 2


def _rounds(programs: int, resident: int, machine: Machine) -> int:
    """How many pieces of work the busiest place for one has to do."""
    return 1 if machine.units is None else ceil(programs / (resident * machine.units))


def _layer_norm(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    x = call.tensors[0]
    row = prod(integers_of(call.args[1]) or x.shape[-1:])
    rows = x.numel // max(row, 1)
    size = row * (x.item_size_bytes or 4)
    # Statistics first, then the result: the second read comes from the cache, if it is there. A
    # block of 256 threads takes 16 bytes each at a time, for rows as long as they may be.
    cold = 2.0 if _too_many(rows, size, 8, machine) else 1.0
    trips = 2 * _rounds(rows, 8, machine) * ceil(size / _ROW_BYTES)
    return (Walk(reads=2, cold_reads=cold, arithmetic=2, programs=float(rows), trips=trips),)


def _layer_norm_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    # The input's gradient; then those of weight and bias, which sum over rows.
    return (Walk(reads=2, arithmetic=1), Walk(writes=0, arithmetic=0.5, efficiency=0.7))


def _group_norm(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    x = call.tensors[0]
    groups = call.args[6] if len(call.args) > 6 and isinstance(call.args[6], int) else 32
    programs = max(x.shape[0] * groups, 1)
    # Moments by group: a block of 512 threads for each, every element a trip to memory as in
    # ``_by_channel``. Then coefficients by channel, then the result.
    trips = _rounds(programs, 4, machine) * ceil(x.numel / programs / _CHANNEL_THREADS)
    return (
        Walk(writes=0, programs=float(programs), trips=trips),
        Walk(reads=0, writes=0, arithmetic=0),
        Walk(arithmetic=0.5),
    )


def _group_norm_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    return (
        Walk(writes=0), Walk(reads=0, writes=0, arithmetic=0), Walk(),
        Walk(reads=0, writes=0, arithmetic=0),
    )  # fmt: skip


def _batch_norm(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    flags = [arg for arg in call.args if isinstance(arg, bool)]
    # Old traces leave arguments out; cuDNN's is rarely chosen for inference.
    training = any(flags) if flags else "cudnn" in call.name
    if not training:
        return ONE
    if machine.kind == "hip" and "miopen" not in call.name and not _channels_last(call.tensors[0]):
        # Statistics, their update, the result.
        statistics = _by_channel(call.tensors[0], 1)
        return (statistics, Walk(reads=0, writes=0, arithmetic=0), Walk(arithmetic=0.5))
    # cuDNN: statistics at a fraction of the bandwidth (fitted on a recorded V100 step).
    channels = 2.0 * call.tensors[0].shape[1]
    return (Walk(writes=0, programs=channels, efficiency=0.85), Walk(arithmetic=0.5))


def _batch_norm_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    if machine.kind == "hip" and "miopen" not in call.name and not _channels_last(call.tensors[0]):
        return (replace(_by_channel(call.tensors[0], 2), reads=2, writes=1),)
    return (Walk(writes=0, programs=2.0 * call.tensors[0].shape[1]), Walk(arithmetic=0.5))


def _by_channel(x: TensorSpec, reads: int) -> Walk:
    """PyTorch's own batch norm (batch_norm_collect_statistics_kernel, ..._backward_kernel).

    One block of 512 threads for each channel; each thread takes its elements one after the other,
    so that each costs a trip to memory.
    """
    channels = max(x.shape[1], 1)
    trips = reads * ceil(x.numel / channels / _CHANNEL_THREADS)
    return Walk(writes=0, programs=float(channels), trips=trips)


def _channels_last(x: TensorSpec) -> bool:
    return x.strides is not None and len(x.shape) > 2 and x.strides[1] == 1 and x.shape[1] > 1


def _reduction(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    x = max(call.tensors, key=lambda t: t.numel)
    dims = integers_of(call.args[1]) if len(call.args) > 1 else None
    rank = len(x.shape)
    if not dims or rank == 0 or (rank - 1) in [d % rank for d in dims]:
        return (Walk(trips=3),)
    # Along columns: threads of a warp take neighbouring columns, so lines are used whole, but
    # rows are summed by blocks that then meet through memory.
    return (Walk(efficiency=0.85, trips=3),)


def _scan(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    x = call.tensors[0]
    dim = _dimension(call.args[1], len(x.shape))
    row, inner = x.shape[dim], prod(x.shape[dim + 1 :])
    rows = float(x.numel // max(row, 1))
    if row == x.numel:
        # One row: cub's scan over the whole device, which first totals the tiles.
        return (Walk(reads=0, writes=0, arithmetic=0), Walk(reads=1, arithmetic=2))
    if inner == 1:
        # A block of 16 threads by 32 rows walks along them, 32 elements a round.
        return (Walk(arithmetic=8, efficiency=0.6, programs=rows / 16),)
    return (Walk(arithmetic=2, efficiency=0.8, programs=rows / 256),)


def _window(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    # A thread per result reads its window through the first-level cache, with index arithmetic
    # (about eight instructions) for each element.
    return (Walk(arithmetic=8, efficiency=0.8),)


def _loss(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    # nll_loss with a mean over rows runs in one block.
    x = call.tensors[0]
    return (Walk(programs=1.0 if len(x.shape) <= 2 else None),)


def _sort(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    # Radix sort, 8 bits a pass, keys and 8-byte positions (cub::DeviceRadixSort).
    item = call.tensors[0].item_size_bytes or 4
    return tuple(Walk(reads=1, efficiency=0.6) for _ in range(item + 1))


def _top_k(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    # Radix select reads the row once for every 2 bits in the worst case, about five times.
    x = call.tensors[0]
    rows = x.numel // max(x.shape[-1] if x.shape else 1, 1)
    return (Walk(reads=5, arithmetic=5, programs=float(rows)), Walk(reads=0, writes=1))


def _scatter(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    # Atomic additions read and write a whole sector each.
    return (Walk(efficiency=0.4),)


def _gather(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    return (Walk(efficiency=0.6, indexed=_widest(call), trips=2),)


def _index_put(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    # With accumulation the indices are sorted first.
    accumulate = any(arg is True for arg in call.args)
    return (*(_sort(call, work, machine) if accumulate else ()), Walk(efficiency=0.4))


def _embedding_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    # Zero the gradient, then add rows up.
    return (Walk(reads=0), Walk(efficiency=0.5))


def _join(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    return (Walk(efficiency=0.9, indexed=1.5 * _widest(call), trips=2),)


def _foreach(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
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


def integers_of(arg: Arg) -> tuple[int, ...] | None:
    """A list of integers, or one; ``None`` if it was not recorded."""
    if isinstance(arg, int) and not isinstance(arg, bool):
        return (arg,)
    if isinstance(arg, tuple):
        found = tuple(n for n in arg if isinstance(n, int) and not isinstance(n, bool))
        return found if len(found) == len(arg) else None
    return None


_RECIPES: dict[str, Recipe] = {}


def _add(recipe: Recipe, names: str) -> None:
    _RECIPES.update(dict.fromkeys(names.split(), recipe))


_add(_softmax, "_softmax _log_softmax softmax log_softmax _softmax_backward_data "
     "_log_softmax_backward_data _safe_softmax")  # fmt: skip
_add(_layer_norm, "native_layer_norm layer_norm _fused_rms_norm rms_norm")
_add(_layer_norm_backward, "native_layer_norm_backward _fused_rms_norm_backward")
_add(_group_norm, "native_group_norm group_norm")
_add(_group_norm_backward, "native_group_norm_backward")
_add(_batch_norm, "native_batch_norm cudnn_batch_norm miopen_batch_norm batch_norm "
     "_native_batch_norm_legit _native_batch_norm_legit_functional "
     "_batch_norm_with_update _native_batch_norm_legit_no_training")  # fmt: skip
_add(_batch_norm_backward, "native_batch_norm_backward cudnn_batch_norm_backward "
     "miopen_batch_norm_backward batch_norm_backward")  # fmt: skip
_add(_reduction, "sum mean amax amin max min norm linalg_vector_norm var std var_mean std_mean "
     "prod logsumexp argmax argmin any all nansum")  # fmt: skip
_add(_scan, "cumsum cumprod cummax cummin logcumsumexp _cummax_helper _cummin_helper")
_add(_window, "max_pool2d_with_indices max_pool3d_with_indices avg_pool2d avg_pool3d "
     "max_pool2d avg_pool1d max_pool1d _adaptive_avg_pool2d adaptive_max_pool2d "
     "_adaptive_avg_pool3d upsample_bilinear2d upsample_bicubic2d upsample_nearest2d "
     "_upsample_bilinear2d_aa im2col col2im")  # fmt: skip
_add(_loss, "nll_loss_forward nll_loss_backward")
_add(_sort, "sort argsort unique _unique2 unique_dim")
_add(_top_k, "topk kthvalue")
_add(_scatter, "scatter_add scatter_add_ index_add index_add_ scatter_reduce avg_pool2d_backward "
     "max_pool2d_with_indices_backward upsample_bilinear2d_backward")  # fmt: skip
_add(_gather, "gather index index_select embedding take scatter scatter_ masked_scatter")
_add(_index_put, "index_put index_put_ _index_put_impl_")
_add(_embedding_backward, "embedding_dense_backward")
_add(_join, "cat stack roll flip constant_pad_nd")
