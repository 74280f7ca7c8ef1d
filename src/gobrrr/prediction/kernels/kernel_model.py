"""What an op costs on a device: the time of the kernels that run it.

A roof is what no kernel can beat; this is what PyTorch's kernels are expected to take. Each kernel
costs its fixed time and the larger of its arithmetic and its traffic, at achieved rates: tiles and
waves for matrix products (``products``), passes over memory for the rest (``walks``), coefficients
with their sources (``coefficients``). Processors have a model of their own (``processor``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gobrrr.prediction.kernels.attention_time import (
    is_fused_attention,
    multiplied_in_parts,
    time_of_attention,
)
from gobrrr.prediction.kernels.chains import time_of_chain
from gobrrr.prediction.kernels.coefficients import Coefficients, coefficients_of
from gobrrr.prediction.kernels.contraction_shapes import ConvolutionShape, products_of
from gobrrr.prediction.kernels.direct_convolution import direct_convolution
from gobrrr.prediction.kernels.efficiency import (
    passes_beside,
    shape_of_convolution,
    tuned,
    vector_rate,
)
from gobrrr.prediction.kernels.flags import DEFAULT_FLAGS, Flags, work_with_flags
from gobrrr.prediction.kernels.float32_convolution import fastest, fewest_products
from gobrrr.prediction.kernels.kernels import Kernels, waves_text
from gobrrr.prediction.kernels.passes import (
    Pass,
    cache_bytes_per_s,
    dram_bytes_per_s,
    seconds_of,
    traffic_seconds,
)
from gobrrr.prediction.kernels.power import product_clock_share
from gobrrr.prediction.kernels.processor import time_on_processor
from gobrrr.prediction.kernels.products import time_of_product
from gobrrr.prediction.kernels.target import TargetDevice, target_device
from gobrrr.prediction.kernels.walks.walk_time import time_of_walks
from gobrrr.roofline.operator_limits import roof_of_op
from gobrrr.roofline.roof import Roof
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import percent, time_text
from gobrrr.work.estimate import Work

__all__ = ["DEFAULT_FLAGS", "Flags", "KernelEstimate", "TargetDevice", "estimate_op",
           "target_device", "work_with_flags"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class KernelEstimate:
    """Expected device time of one op.

    Attributes:
        time_s: all its kernels, their fixed cost included, in seconds; never below the roof.
        roof: what no kernel can beat, with its sides.
        fixed_s: the part of ``time_s`` that its kernels would take without any work.
        kernels: how many kernels it launches.
        regime: ``compute``, ``memory`` or ``overhead`` (fixed cost), the largest part of the time.
        level: the memory level whose bandwidth counts; ``""`` if no bytes move.
        because: the arithmetic, as a sentence.
        compute_s: time of the arithmetic alone, as fast as these kernels do it.
        traffic_s: time of the bytes alone, likewise.
        page_faults_s: the part of ``time_s`` in which fresh memory is brought in, on a processor.
        waiting_s: as in ``Kernels``.
    """

    time_s: float
    roof: Roof
    fixed_s: float
    kernels: int
    regime: str
    level: str
    because: str
    compute_s: float = 0.0
    traffic_s: float = 0.0
    page_faults_s: float = 0.0
    waiting_s: float = 0.0

    @property
    def matrix_s(self) -> float:
        """The matrix side of the roof, in seconds."""
        return self.roof.matrix_s

    @property
    def vector_s(self) -> float:
        """The vector side of the roof, in seconds."""
        return self.roof.vector_s

    @property
    def memory_s(self) -> float:
        """The memory side of the roof, in seconds."""
        return self.roof.memory_s


def estimate_op(
    call: OpCall,
    work: Work,
    device: TargetDevice,
    *,
    flags: Flags = DEFAULT_FLAGS,
    cold_bytes: float | None = None,
    coefficients: Coefficients | None = None,
) -> KernelEstimate | None:
    """Expected time of one op on ``device``.

    Args:
        call: the op with its shapes.
        work: its least work (``gobrrr.work.work_of``).
        device: what runs it.
        flags: settings of PyTorch that choose kernels.
        cold_bytes: of the bytes it moves, those that come from memory or go there rather than to
            the last-level cache (``roofline.residency``); ``None`` where its neighbours are not
            known: then a working set that fits into the cache is in it.
        coefficients: achieved fractions; by default those of the device's architecture.

    Returns:
        ``None`` where the work or a ceiling is unknown.
    """
    done = work_with_flags(call, work, device, flags)
    roof = roof_of_op(call, _least(call, done, device), device.ceilings, call.missed)
    if roof is None:
        return None
    moved = float(done.bytes_moved or 0)
    if not done.flops and not moved:
        return KernelEstimate(0.0, roof, 0.0, 0, "overhead", "", "It computes and moves nothing.")
    cold = _cold(done, device) if cold_bytes is None else min(cold_bytes, moved)
    if device.kind == "cpu":
        return _on_processor(call, done, device, cold, roof)
    c = coefficients or coefficients_of(device.sheet)
    c = tuned(call, done, device, c)
    kernels = _contraction(call, done, device, c, cold) or time_of_walks(
        call, done, device, c, cold, flags.row_vectors
    )
    if kernels is None:
        return None
    kernels = _with_passes(kernels, passes_beside(call, done, device), device, c)
    one_s = max(device.kernel_fixed_s, c.kernel_floor_s)
    fixed_s = one_s * kernels.count + kernels.latency_s
    time_s = max(fixed_s + kernels.seconds, roof.time_s)
    because = (
        f"{kernels.how}: {time_text(kernels.compute_s)} of arithmetic"
        f"{_reached(max(roof.matrix_s, roof.vector_s), kernels.compute_s)}, "
        f"{time_text(kernels.memory_s)} of memory traffic"
        f"{_reached(roof.memory_s, kernels.memory_s)}, {kernels.count} "
        f"kernel{'s' if kernels.count != 1 else ''} of {time_text(one_s)} fixed cost"
    )
    return KernelEstimate(
        time_s, roof, fixed_s, kernels.count,
        _regime(fixed_s, kernels.seconds, kernels.compute_s, kernels.memory_s),
        _level(done, roof, device, cold), because, kernels.compute_s, kernels.memory_s,
        waiting_s=kernels.waiting_s,
    )  # fmt: skip


def _reached(roof_s: float, seconds: float) -> str:
    """The share of a peak that a side of the kernels goes at, where both are known.

    Nothing where it would be more than the peak: a product's kernels are modelled by what they read
    from memory, and its roof may be that of a cache.
    """
    return f" ({percent(roof_s / seconds)} of the peak)" if 0 < roof_s <= seconds else ""


def _on_processor(
    call: OpCall, work: Work, device: TargetDevice, cold: float, roof: Roof
) -> KernelEstimate | None:
    found = time_on_processor(call, work, device, cold)
    if found is None:
        return None
    fixed_s = device.kernel_fixed_s
    moving_s = found.memory_s + found.page_faults_s
    because = (
        f"{found.how}: {time_text(found.compute_s)} of arithmetic, "
        f"{time_text(found.memory_s)} of memory traffic"
    )
    return KernelEstimate(
        max(fixed_s + found.seconds, roof.time_s + found.page_faults_s), roof, fixed_s, 1,
        _regime(fixed_s, found.seconds, found.compute_s, moving_s),
        _level(work, roof, device, cold), because, found.compute_s, found.memory_s,
        found.page_faults_s,
    )  # fmt: skip


def _regime(fixed_s: float, seconds: float, compute_s: float, memory_s: float) -> str:
    """The largest part of an op's time, of which ``seconds`` come beside its fixed cost."""
    if fixed_s > seconds:
        return "overhead"
    return "memory" if memory_s >= compute_s else "compute"


def _level(work: Work, roof: Roof, device: TargetDevice, cold: float) -> str:
    """The level that the op's bytes come from: the memory as soon as some of them do."""
    return roof.level if not cold or not work.bytes_moved else device.ceilings.levels[-1].name


def _with_passes(
    kernels: Kernels, passes: tuple[Pass, ...], device: TargetDevice, c: Coefficients
) -> Kernels:
    """The kernels of an op and those that a library runs around them."""
    if not passes:
        return kernels
    seconds = sum(seconds_of(once, device, c) or 0.0 for once in passes)
    memory_s = sum(traffic_seconds(once, device, c) or 0.0 for once in passes)
    return replace(
        kernels,
        seconds=kernels.seconds + seconds,
        memory_s=kernels.memory_s + memory_s,
        count=kernels.count + len(passes),
        how=f"{kernels.how}, {len(passes)} more passes over memory",
    )


def _cold(work: Work, device: TargetDevice) -> float:
    """Bytes from memory without knowing the neighbours: none if the working set fits."""
    moved = float(work.bytes_moved or 0)
    unique = moved if work.unique_bytes is None else work.unique_bytes
    # The other half is taken by what neighbours read and wrote in between.
    return 0.0 if unique <= device.cache_bytes / 2 else moved


def _contraction(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients, cold: float
) -> Kernels | None:
    """Kernels of matrix products; ``None`` for other ops."""
    if not work.matrix_flops:
        return None
    rate = device.ceilings.matrix_flops_per_s(work.compute_dtype)
    if rate is None:
        return None
    if is_fused_attention(call):
        return _attention(call, work, device, c, cold) or _unshaped(
            call, work, device, c, cold, rate
        )
    chained = time_of_chain(call, work, device, c, rate)
    if chained is not None:
        return chained
    direct = direct_convolution(call, work, device, c, cold)
    if direct is not None and direct.how.startswith("depthwise"):
        return direct
    slow = vector_rate(call, work.compute_dtype, device, c)
    if slow is not None:
        return _unshaped(call, work, device, replace(c, matrix_fraction=1.0), cold, slow)
    in_float32 = _float32_convolution(call, work, device, c, cold, rate)
    if in_float32 is not None:
        return in_float32
    products = products_of(call, work, c, cold)
    if not products:
        return direct or _unshaped(call, work, device, c, cold, rate)
    seconds = compute_s = memory_s = 0.0
    count = 0
    how = ""
    for product in products:
        found = time_of_product(product, device, c, rate)
        if found is None:
            return None
        seconds += found.seconds
        compute_s += found.compute_s
        memory_s += found.memory_s
        count += found.kernels
        if found.tile[0]:
            how = f"tiles of {found.tile[0]}x{found.tile[1]} in {waves_text(found.waves)}" + (
                f", split-k {found.split}" if found.split > 1 else ""
            )
        else:
            how = f"{product.m}x{product.n}x{product.k}"
    kernels = Kernels(seconds, compute_s, memory_s, count, how)
    if direct is not None and direct.seconds < kernels.seconds:
        return direct
    return kernels


def _float32_convolution(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients, cold: float, rate: float
) -> Kernels | None:
    """A convolution of one group by cuDNN on the vector path; ``None`` for others."""
    shape = _shape_in_float32(call, work, device)
    if shape is None:
        return None
    found = fastest(shape, device, c, cold, rate)
    if found is None:
        return None
    return Kernels(found.seconds, found.compute_s, found.memory_s, found.kernels, found.name)


def _shape_in_float32(call: OpCall, work: Work, device: TargetDevice) -> ConvolutionShape | None:
    """Of a convolution that ``float32_convolution`` knows the algorithms of."""
    if work.compute_dtype != "float32" or device.kind != "cuda" or not device.multiprocessors:
        return None
    shape = shape_of_convolution(call)
    return None if shape is None or shape.groups > 1 or shape.transposed else shape


def _least(call: OpCall, work: Work, device: TargetDevice) -> Work:
    """The work with the fewest products that an algorithm of its library takes: for the roof."""
    if not work.matrix_flops:
        return work
    shape = _shape_in_float32(call, work, device)
    if shape is None:
        return multiplied_in_parts(call, work, device)
    return replace(work, matrix_flops=min(work.matrix_flops, 2.0 * fewest_products(shape)))


def _attention(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients, cold: float
) -> Kernels | None:
    try:
        found = time_of_attention(call, work, device, c, cold)
    except (IndexError, ValueError, TypeError):
        # A trace that leaves arguments out.
        return None
    if found is None:
        return None
    how = f"blocks of {found.tile[0]} queries and {found.tile[1]} keys in {waves_text(found.waves)}"
    return Kernels(found.seconds, found.compute_s, found.memory_s, found.kernels, how)


def _unshaped(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients, cold: float, rate: float
) -> Kernels | None:
    """A contraction whose shapes are not known: its FLOPs at the rate of a large product."""
    dram, cache = dram_bytes_per_s(device, c), cache_bytes_per_s(device, c)
    if dram is None or cache is None:
        return None
    reached = rate * c.matrix_fraction
    reached *= product_clock_share(device, c, work.compute_dtype, reached, on_matrix=True)
    compute_s = (work.matrix_flops or 0.0) / reached
    memory_s = max(cold / dram, (work.bytes_moved or 0) / cache)
    # All of the device adds up parts of a dot product, which a second kernel adds up (cuBLAS's
    # ``dot_kernel`` and ``reduce_1Block_kernel``).
    count = 2 if call.name in ("aten::dot", "aten::vdot") else 1
    return Kernels(max(compute_s, memory_s), compute_s, memory_s, count, "a product")
