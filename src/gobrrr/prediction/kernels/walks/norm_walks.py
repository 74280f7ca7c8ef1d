"""Walks of softmax and of the norms: rows, groups and channels that are summed first.

Sources: PyTorch's CUDA kernels (aten/src/ATen/native/cuda): SoftMax.cu, layer_norm_kernel.cu,
group_norm_kernel.cu, Normalization.cuh.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from gobrrr.prediction.kernels.walks.walk import ONE, Machine, Walk, dimension_of, integers_of
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work

# Rows up to this length stay in registers (dispatch_softmax_forward).
_IN_REGISTERS = 1024
# Shared memory that a block may take without asking for more than the default.
_SHARED_BYTES = 48 * 1024
_CHANNEL_THREADS = 512
_WIDE_BLOCK = 1024
# Columns of a block that sums up gradients of weight and bias; rows beyond which blocks share them.
_GRADIENT_COLUMNS, _MANY_ROWS = 32, 64 * 1024
# What a thread takes at a time, the block of a layer norm, and what it has in flight (two vectors
# of each thread).
_VECTOR_BYTES = 16
_NARROW_BLOCK = 128
# Blocks that a multiprocessor holds (CUDA C++ Programming Guide, technical specifications per
# compute capability: 16 to 32); loads of a loop without stores that the compiler keeps under way.
_RESIDENT_BLOCKS, _IN_FLIGHT = 32, 4
# Share of the cache that keeps what was read first.
_STAYS = 0.25
_ROW_BYTES = 2 * _NARROW_BLOCK * _VECTOR_BYTES
# PyTorch's names of a batch norm that whatever backend may run.
_OWN = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update",
        "native_batch_norm_backward", "batch_norm_backward")  # fmt: skip
_OF_MIOPEN = ("float32", "float16", "bfloat16")
# Elements of a channel in one image up to which MIOpen keeps them in registers.
_KEPT_PLANE = 512


def softmax(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Softmax and its logarithm, forward and backward."""
    backward = "backward" in call.name
    x = call.tensors[0]
    dim = dimension_of(call.args[2 if backward else 1], len(x.shape))
    row, inner = x.shape[dim], prod(x.shape[dim + 1 :])
    rows = x.numel // max(row, 1)
    size = row * (x.item_size_bytes or 4)
    # Maximum, sum and result each read the input; backward the sum and the result.
    reads = 2.0 if backward else 3.0
    if inner > 1:
        return (_softmax_of_columns(x, row, inner, reads, machine),)
    if row <= _IN_REGISTERS:
        return (Walk(programs=rows / 4, trips=2),)
    if size <= _SHARED_BYTES and size % _VECTOR_BYTES == 0:
        return (Walk(arithmetic=2, programs=float(rows), trips=2),)
    # Rows that do not fit, or that do not start on 16 bytes, are read again each time.
    resident = max(1, machine.resident_threads // _WIDE_BLOCK)
    cold = 1.0 + (reads - 1.0) * _missed(rows, size, resident, machine)
    trips = _rounds(rows, resident, machine) * ceil(reads * size / (_VECTOR_BYTES * _WIDE_BLOCK))
    return (Walk(reads=reads, cold_reads=cold, arithmetic=2, programs=float(rows), trips=trips),)


def _softmax_of_columns(
    x: TensorSpec, row: int, inner: int, reads: float, machine: Machine
) -> Walk:
    """A thread for each column, or several where rows are short (``cunn_SpatialSoftMaxForward``).

    Neighbouring columns make a block of up to 1024 threads. It reads all of them once for the
    maximum, once for the sum and once for the result, so that what its multiprocessor and the
    others have under way at once has to lie in the cache.
    """
    columns, along = min(inner, _WIDE_BLOCK), 1
    if columns <= 64 <= row:
        along = 1 << max(0, (min(_WIDE_BLOCK // columns, row)).bit_length() - 1)
    blocks = x.numel // max(row * inner, 1) * ceil(inner / columns)
    resident = min(_RESIDENT_BLOCKS, max(1, machine.resident_threads // (columns * along)))
    size = row * columns * (x.item_size_bytes or 4)
    cold = 1.0 + (reads - 1.0) * _missed(blocks, size, resident, machine)
    trips = _rounds(blocks, resident, machine) * ceil(reads * ceil(row / along) / _IN_FLIGHT)
    programs = blocks * columns * along / 32
    return Walk(reads=reads, cold_reads=cold, arithmetic=2, programs=programs, trips=max(3, trips))


def _missed(programs: int, size: int, resident: int, machine: Machine) -> float:
    """Share of a row's second reads that find the row gone from the cache.

    ``size``: bytes of a row; ``resident``: rows that one multiprocessor works on. Of what is
    worked on at once the cache keeps a share of its own size, and the rest is read again.
    """
    if machine.units is None or not machine.cache_bytes:
        return 0.0 if machine.units is None else 1.0
    filled = min(programs, resident * machine.units) * size / machine.cache_bytes
    return max(0.0, 1.0 - _STAYS / filled) if filled else 0.0


def _rounds(programs: int, resident: int, machine: Machine) -> int:
    """How many pieces of work the busiest place for one has to do."""
    return 1 if machine.units is None else ceil(programs / (resident * machine.units))


def layer_norm(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Layer norm, RMS norm."""
    x = call.tensors[0]
    row = prod(integers_of(call.args[1]) or x.shape[-1:])
    rows = x.numel // max(row, 1)
    size = row * (x.item_size_bytes or 4)
    # Statistics first, then the result: the second read comes from the cache, if it is there. A
    # block of 128 threads takes 16 bytes each at a time, for rows as long as they may be.
    resident = max(1, machine.resident_threads // _NARROW_BLOCK)
    cold = 1.0 + _missed(rows, size, resident, machine)
    # Beside its reads a row waits for two sums across its block, for weight and bias, and for its
    # writes, where these are not hidden.
    trips = _rounds(rows, resident, machine) * (2 * ceil(size / _ROW_BYTES) + machine.row_trips)
    slots = machine.norm_slots * x.numel
    return (
        Walk(
            reads=2, cold_reads=cold, arithmetic=2, programs=float(rows), trips=trips, slots=slots
        ),
    )


def layer_norm_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Gradients of layer norm and RMS norm."""
    # The input's gradient; then those of weight and bias, which sum over rows: by a block for 32
    # columns, unless rows are many and such blocks few (``LaunchGammaBetaBackwardCUDAKernel``).
    x = call.tensors[1]
    row = prod(integers_of(call.args[2]) or x.shape[-1:])
    programs: float | None = row / _GRADIENT_COLUMNS
    if (
        machine.kind != "cuda"
        or machine.units is None
        or (x.numel > _MANY_ROWS * row and row // _GRADIENT_COLUMNS < machine.units // 2)
    ):
        programs = None
    sums = Walk(writes=0, arithmetic=0.5, efficiency=0.7, programs=programs)
    return (Walk(reads=2, arithmetic=1), sums)


def group_norm(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Group norm."""
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


def group_norm_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Gradients of group norm."""
    return (
        Walk(writes=0), Walk(reads=0, writes=0, arithmetic=0), Walk(),
        Walk(reads=0, writes=0, arithmetic=0),
    )  # fmt: skip


def batch_norm(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Batch norm, training and inference, of every backend."""
    flags = [arg for arg in call.args if isinstance(arg, bool)]
    # Old traces leave arguments out; cuDNN's is rarely chosen for inference.
    training = any(flags) if flags else "cudnn" in call.name
    if not training:
        return ONE
    x = call.tensors[0]
    if not _channels_last(x):
        if _by_miopen(call, x, 1, machine):
            return _walks_of_miopen(x, machine, backward=False)
        if _by_native(call, x, 1, machine):
            # Statistics, their update, the result.
            update = Walk(reads=0, writes=0, arithmetic=0)
            return (_by_channel(x, 1, machine), update, Walk(arithmetic=0.5))
        if machine.kind == "cuda" and len(x.shape) > 2:
            return (_walk_of_cudnn(x, machine),)
    # Statistics at a fraction of the bandwidth (fitted on a recorded V100 step).
    blocks = 2.0 * x.shape[1]
    return (Walk(writes=0, programs=blocks, efficiency=0.85), Walk(arithmetic=0.5))


def batch_norm_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Gradients of batch norm."""
    # The libraries' operators have the input first, PyTorch's own the gradient.
    x = call.tensors[0 if "cudnn" in call.name or "miopen" in call.name else 1]
    if not _channels_last(x):
        if _by_miopen(call, x, 2, machine):
            return _walks_of_miopen(x, machine, backward=True)
        if _by_native(call, x, 2, machine):
            return (replace(_by_channel(x, 2, machine), reads=2, writes=1),)
    return (Walk(writes=0, programs=2.0 * x.shape[1]), Walk(arithmetic=0.5))


def _by_miopen(call: OpCall, x: TensorSpec, weight_at: int, machine: Machine) -> bool:
    """Whether MIOpen normalises ``x``, whose channels are not last: as PyTorch decides on AMD.

    A captured step has PyTorch's own operator whatever runs it. MIOpen takes 16-bit inputs with
    float32 weights alone (``_select_batch_norm_backend`` in ATen/native/Normalization.cpp, MIOpen's
    docs/how-to/use-nhwc-batchnorm-in-pytorch.rst; bfloat16 from ROCm 6.4 on), and channels last
    only where an environment variable asks for it.
    """
    if machine.kind != "hip" or not 2 < len(x.shape) < 6 or x.dtype not in _OF_MIOPEN:
        return False
    weight = call.args[weight_at] if len(call.args) > weight_at else None
    if isinstance(weight, TensorSpec):
        return weight.dtype == "float32"
    # A library's operator has a weight that the trace left out.
    return "miopen" in call.name or "cudnn" in call.name


def _by_native(call: OpCall, x: TensorSpec, weight_at: int, machine: Machine) -> bool:
    """Whether PyTorch's own kernels normalise ``x``, a block for each channel.

    cuDNN wants a weight, which an instance norm has not as a rule (``_batch_norm_impl_index``).
    """
    if machine.kind == "hip":
        return True
    name = call.name.removeprefix("aten::").split(".")[0]
    own = name in _OWN and len(call.args) > 5 and call.args[weight_at] is None
    return machine.kind == "cuda" and own and len(x.shape) > 2


def _walk_of_cudnn(x: TensorSpec, machine: Machine) -> Walk:
    """Training by cuDNN (``bn_fw_tr_1C11_kernel_NCHW``).

    One block for each channel reads it twice and writes the result, each thread with two vectors of
    16 bytes under way (64 large channels on an H100 say so; the share of the bandwidth is fitted on
    a recorded V100 step).
    """
    channels = max(x.shape[1], 1)
    size = x.numel // channels * (x.item_size_bytes or 4)
    resident = max(1, machine.resident_threads // _CHANNEL_THREADS)
    trips = ceil(3 * size / (2 * _CHANNEL_THREADS * _VECTOR_BYTES))
    return Walk(
        reads=2, cold_reads=1.0 + _missed(channels, size, resident, machine),
        programs=float(channels), trips=_rounds(channels, resident, machine) * trips,
        efficiency=0.92,
    )  # fmt: skip


def _walks_of_miopen(x: TensorSpec, machine: Machine, *, backward: bool) -> tuple[Walk, ...]:
    """MIOpen's training in NCHW: a workgroup for each channel, or several for a part of each.

    Sources: ``UseMultiple`` and the variants in MIOpen's src/solver/batchnorm, and the loops of
    MIOpenBatchNormFwdTrainSpatial.cl (no recorded step has them: not measured).
    """
    batch, channels, plane = x.shape[0], max(x.shape[1], 1), prod(x.shape[2:])
    elements = batch * plane
    if _spread(batch, plane, mixed=x.dtype != "float32", backward=backward):
        # Statistics of parts, those of the channels, the result.
        whole = Walk(reads=0, writes=0, arithmetic=0)
        return (Walk(writes=0), whole, Walk(arithmetic=0.5))
    threads = _WIDE_BLOCK
    small = (plane < 256 and batch < 256) or (plane < 100 and batch <= 256)
    if small and not backward:
        threads = 256
    resident = max(1, machine.resident_threads // threads)
    rounds = _rounds(channels, resident, machine)
    if plane <= _KEPT_PLANE:
        # A thread keeps its elements: they are read once.
        trips = ceil(elements / (threads * _IN_FLIGHT))
        return (Walk(programs=float(channels), trips=rounds * trips),)
    # Two vectors of four elements under way, or four elements, for the statistics; then two.
    at_once = 8 if plane >= 4096 else _IN_FLIGHT
    trips = ceil(elements / (threads * at_once)) + ceil(elements / (threads * 2))
    size = elements * (x.item_size_bytes or 4) * (2 if backward else 1)
    cold = 1.0 + _missed(channels, size, resident, machine)
    return (
        Walk(reads=2, cold_reads=cold, programs=float(channels), trips=rounds * trips),
    )  # fmt: skip


def _spread(batch: int, plane: int, *, mixed: bool, backward: bool) -> bool:
    """Whether MIOpen takes several workgroups for a channel (``UseMultiple``)."""
    long = batch * plane >= 32 * 1024 * 1024
    if backward:
        return long and plane > _KEPT_PLANE
    if mixed:
        return False
    some = batch >= 3 and plane > _KEPT_PLANE and (long or plane <= 1024)
    return some or (batch > 768 and plane > 150)


def _by_channel(x: TensorSpec, reads: int, machine: Machine) -> Walk:
    """PyTorch's own batch norm (batch_norm_collect_statistics_kernel, ..._backward_kernel).

    One block of 512 threads for each channel; each thread takes its elements one after the other,
    so that each costs a trip to memory.
    """
    channels = max(x.shape[1], 1)
    rounds = _rounds(channels, max(1, machine.resident_threads // _CHANNEL_THREADS), machine)
    trips = reads * ceil(x.numel / channels / _CHANNEL_THREADS)
    return Walk(writes=0, programs=float(channels), trips=rounds * trips)


def _channels_last(x: TensorSpec) -> bool:
    return x.strides is not None and len(x.shape) > 2 and x.strides[1] == 1 and x.shape[1] > 1
