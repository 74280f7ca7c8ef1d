"""What an op costs on a processor: arithmetic at the operator's own rate, and its traffic.

Unlike on a GPU nothing hides one behind the other: a core that waits for memory has no other thread
to run, and out-of-order execution reaches a few hundred instructions ahead, so both times add up.
Rates come from the machine's measured ceilings, those of PyTorch's own operators among them
(``devices.cpu.operators``); what is left are the few numbers of ``ProcessorCoefficients``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from gobrrr.prediction.kernels.attention_time import is_fused_attention
from gobrrr.prediction.kernels.coefficients import GENERIC
from gobrrr.prediction.kernels.contraction_shapes import products_of
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.kernels.walks.element_walks import crosses_rows
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import si
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.attention import causal_mask, visible_pairs
from gobrrr.work.traffic import arithmetic_dtype
from gobrrr.work.traits import traits_of


@dataclass(frozen=True, slots=True)
class ProcessorCoefficients:
    """What PyTorch's operators reach within a step of what was measured of them alone.

    Attributes:
        product: of the rate of the best product, for the arithmetic of any product.
        convolution: of the rate of the measured convolution.
        library: of the rate of the best product, for convolutions and recurrent cells where no
            convolution was measured.
        packing: how often a product's inputs go through the cache to be packed, beyond the first
            read: written in the order that the inner loops want, and read again (Goto and van de
            Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008).
        dram: of the memory's bandwidth at the op's mix of reads and writes.
        cache: of the bandwidth of the cache that holds the op's data: what the previous op left
            there lies in another level than the loops that measure a level leave it.
        vector: of the vector rate, for operators without a rate of their own.
        stream: of a level's bandwidth, for matrices that products read in order. With a vector 0.74
            to 0.9 of ``torch.sum`` over the same 67 MB, 0.6 to 0.65 over 4 MB, in turns with it;
            with it products of 2 to 512 rows by 1024 x 1024 alone are met within 22 %.
        source: on what they were fitted.
    """

    product: float = 0.82
    convolution: float = 0.9
    library: float = 0.6
    packing: float = 1.0
    dram: float = 1.0
    cache: float = 0.3
    vector: float = 0.3
    stream: float = 0.7
    source: str = "half of the networks of benchmarks/prediction_cpu, on one core of an AMD EPYC"


MEASURED = ProcessorCoefficients()

# Powers that are multiplications and square roots.
_PLAIN_POWERS = (0.5, -0.5, 1, 2, 3, -1, -2)
_WINDOWS = ("max_pool2d_with_indices", "avg_pool2d")
_FETCHED = ("index", "index_add")
_RECURRENT = ("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward")
# Keys that PyTorch's fused attention takes at a time; of a causal one it leaves out blocks that
# nobody sees (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp).
_KEYS = 512


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Seconds of arithmetic, of traffic and of page faults, and the arithmetic in words."""

    compute_s: float
    memory_s: float
    how: str
    page_faults_s: float = 0.0

    @property
    def seconds(self) -> float:
        """All, one after the other."""
        return self.compute_s + self.memory_s + self.page_faults_s


def time_on_processor(
    call: OpCall,
    work: Work,
    device: TargetDevice,
    cold_bytes: float,
    coefficients: ProcessorCoefficients = MEASURED,
) -> ProcessorTime | None:
    """Expected time of one op; ``None`` where a ceiling is missing.

    Args:
        call: the op with its shapes.
        work: its least work.
        device: a processor with measured ceilings.
        cold_bytes: of the bytes it moves, those that come from memory or go there.
        coefficients: shares that are reached within a step.
    """
    found = _time(call, work, device, cold_bytes, coefficients)
    return found and replace(found, page_faults_s=_page_faults(call, device))


def _time(
    call: OpCall, work: Work, device: TargetDevice, cold_bytes: float, c: ProcessorCoefficients
) -> ProcessorTime | None:
    memory_s = _traffic(work, device, cold_bytes, c)
    if memory_s is None:
        return None
    if is_fused_attention(call):
        compute_s = _attention(call, device)
        if compute_s is not None:
            return ProcessorTime(compute_s, memory_s, "scores at the measured rate of attention")
    if work.matrix_flops:
        return _contraction(call, work, device, cold_bytes, memory_s, c)
    rate = _own_rate(call, device)
    if rate is not None:
        name, elements, per_s = rate
        how = f"{si(elements)} elements at {si(per_s)}/s, the measured rate of {name}"
        return ProcessorTime(elements / per_s, memory_s, how)
    compute_s = _vector(work, device, c)
    if compute_s is None:
        return None
    return ProcessorTime(compute_s, memory_s, "a pass over memory")


def _page_faults(call: OpCall, device: TargetDevice) -> float:
    """Seconds in which results too large for the allocator to keep are brought in page by page."""
    least = device.mapped_from_bytes
    fault_s, size = (device.ceilings.value(name) for name in ("page_fault", "page_fault.size"))
    if least is None or fault_s is None or not size:
        return 0.0
    given = {tensor.storage for tensor in call.tensors}
    fresh = sum(
        tensor.unique_bytes or 0
        for tensor in call.outputs or ()
        if (tensor.unique_bytes or 0) >= least
        and (tensor.storage is None or tensor.storage not in given)
    )
    return fresh / size * fault_s


def _traffic(
    work: Work, device: TargetDevice, cold_bytes: float, c: ProcessorCoefficients
) -> float | None:
    """Seconds for the op's bytes: the cold ones at the memory's rate, the rest at a cache's."""
    moved = float(work.bytes_moved or 0)
    if not moved:
        return 0.0
    levels = device.ceilings.levels
    held = device.ceilings.level_for(moved)
    if not levels or held is None:
        return None
    read, written = float(work.bytes_read or 0), float(work.bytes_written or 0)
    unique = moved if work.unique_bytes is None else float(work.unique_bytes)
    cold = min(cold_bytes / moved, 1.0)
    seconds = cold * levels[-1].seconds(read, written, unique) / c.dram
    if cold < 1.0:
        inner = held if held is not levels[-1] or len(levels) == 1 else levels[-2]
        seconds += (1 - cold) * inner.seconds(read, written, unique) / c.cache
    return seconds


def _vector(work: Work, device: TargetDevice, c: ProcessorCoefficients) -> float | None:
    dtype = arithmetic_dtype(work.compute_dtype)
    seconds = 0.0
    if work.vector_flops:
        rate = device.ceilings.vector_flops_per_s(dtype)
        if rate is None:
            return None
        seconds = work.vector_flops / (rate * c.vector)
    if work.special:
        rate = device.ceilings.value(f"vector.{dtype}.exp")
        if rate is not None:
            seconds = max(seconds, work.special / (rate * c.vector))
    return seconds


def _contraction(
    call: OpCall,
    work: Work,
    device: TargetDevice,
    cold_bytes: float,
    memory_s: float,
    c: ProcessorCoefficients,
) -> ProcessorTime | None:
    """Products: blocked so that their arithmetic runs from the cache, after packing the inputs."""
    flops = float(work.matrix_flops or 0)
    name = call.name.partition("::")[2]
    rate = device.ceilings.matrix_flops_per_s(work.compute_dtype)
    if rate is None:
        return None
    products = products_of(call, work, GENERIC, cold_bytes) if "conv" not in name else ()
    if products and all(product.batch * min(product.m, product.n) == 1 for product in products):
        return _matrix_times_vector(work, device, cold_bytes, rate, c)
    kind = "convolution_backward" if "backward" in name else "convolution"
    own = device.ceilings.value(f"operator.{kind}")
    if "conv" in name and own is not None and work.compute_dtype == "float32":
        per_s, how = own * c.convolution, "at the measured rate of a convolution"
    elif "conv" in name or name in _RECURRENT:
        per_s, how = rate * c.library, "at a share of the rate of products"
    else:
        per_s, how = rate * c.product, "at the rate of products"
        if products:
            how = f"{products[0].m}x{products[0].n}x{products[0].k} {how}"
            # Panels of a matrix are read in order, as in a product with a vector.
            c = replace(c, cache=c.stream)
            memory_s = _traffic(work, device, cold_bytes, c) or 0.0
    caches = [level for level in device.ceilings.levels if level.capacity_bytes is not None]
    packed = float(work.bytes_read or 0)
    packing_s = caches[-1].seconds(packed, 0.0, packed) * c.packing / c.cache if caches else 0.0
    return ProcessorTime(flops / per_s, memory_s + packing_s, how)


def _matrix_times_vector(
    work: Work, device: TargetDevice, cold_bytes: float, rate: float, c: ProcessorCoefficients
) -> ProcessorTime | None:
    """A product with one row or column: PyTorch calls a gemv (aten/src/ATen/native/BlasKernel.cpp).

    Each element of the matrix is used once, so nothing is packed, and the matrix is a stream that
    the processor fetches ahead of its arithmetic: the op takes the longer of both. Measured of
    1 x 1024 x 1024 to 1 x 4096 x 4096 alone, on one core of an AMD EPYC: bfloat16 at 15 GFLOP/s
    from a cache as from memory (its best product: 15), float32 at what the level delivers.
    """
    memory_s = _traffic(work, device, cold_bytes, replace(c, dram=c.stream, cache=c.stream))
    if memory_s is None:
        return None
    compute_s = float(work.matrix_flops or 0) / rate
    how = "a matrix times a vector, each element used once"
    # What the other side hides takes no time of its own.
    if compute_s > memory_s:
        return ProcessorTime(compute_s, 0.0, how)
    return ProcessorTime(0.0, memory_s, how)


def _attention(call: OpCall, device: TargetDevice) -> float | None:
    """Scores at the measured rate for the head's size, and queries at theirs.

    ``None`` where no attention was measured, or arguments are missing. The time per score is
    interpolated between sizes, and grows with the size beyond the last.
    """
    backward = "backward" in call.name
    tensors = call.tensors[1:] if backward else call.tensors
    if len(tensors) < 2 or len(tensors[0].shape) < 3:
        return None
    heads, (queries, size) = prod(tensors[0].shape[:-2]), tensors[0].shape[-2:]
    keys = tensors[1].shape[-2]
    kind = "attention_backward" if backward else "attention"
    prefix = f"operator.{kind}."
    points = sorted(
        (int(name.removeprefix(prefix)), 1.0 / row.value)
        for name, row in device.ceilings.rows.items()
        if name.startswith(prefix) and name.removeprefix(prefix).isdigit()
    )
    if not points:
        return None
    blocks = visible_pairs(-(-queries // _KEYS), -(-keys // _KEYS), causal_mask(call)) * _KEYS**2
    scores = min(blocks, queries * keys)
    per_query = device.ceilings.value("operator.attention.query")
    seconds = heads * scores * _between(points, size)
    if per_query is not None:
        # What it takes beside its scores, which are few: of 8 keys.
        alone = max(1.0 / per_query - 8 * _between(points, 16), 0.0)
        seconds += heads * queries * alone
    return seconds


def _between(points: list[tuple[int, float]], size: int) -> float:
    """Seconds per score for heads of ``size``."""
    if size >= points[-1][0]:
        return points[-1][1] * size / points[-1][0]
    below = points[0]
    for point in points:
        if size <= point[0]:
            share = (size - below[0]) / (point[0] - below[0]) if point[0] > below[0] else 1.0
            return below[1] + max(share, 0.0) * (point[1] - below[1])
        below = point
    return below[1]


def _own_rate(call: OpCall, device: TargetDevice) -> tuple[str, float, float] | None:
    """An operator's measured row: its name, the elements of this call, elements per second."""
    base = call.name.partition("::")[2]
    name = traits_of(call.name).rate or base
    if name in ("gelu", "gelu_backward") and "tanh" in call.args:
        name = f"{name}.tanh"
    multiplied = name == "pow" and _power(call) in _PLAIN_POWERS
    per_s = None if multiplied else device.ceilings.value(f"operator.{name}")
    if per_s is None and crosses_rows(call):
        name, per_s = "transpose", device.ceilings.value("operator.transpose")
    if per_s is None:
        return None
    elements = _elements(call, name)
    return (name, elements, per_s) if elements else None


def _power(call: OpCall) -> object:
    return call.args[1] if len(call.args) > 1 else None


def _elements(call: OpCall, name: str) -> float:
    """Elements as ``devices.cpu.operators`` counts them for this row."""
    outputs = call.outputs or ()
    if name in _WINDOWS and outputs:
        window = call.args[1] if len(call.args) > 1 else None
        sizes = [n for n in window if isinstance(n, int)] if isinstance(window, tuple) else []
        square = sizes * 2 if len(sizes) == 1 else sizes
        return float(outputs[0].numel * (prod(square) if square else 1))
    if name == "upsample_nearest2d" and outputs:
        return float(outputs[0].numel)
    if name in _FETCHED:
        if name == "index" and outputs:
            return float(outputs[0].numel)
        # What is added: the last tensor that is no index.
        values = [t for t in call.tensors if not (t.dtype or "").startswith("int")]
        return float(values[-1].numel) if values else 0.0
    return float(max((t.numel for t in (*call.tensors, *outputs)), default=0))
