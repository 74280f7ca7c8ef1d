"""A device whose arithmetic is easy, and coefficients that add nothing of their own."""

from __future__ import annotations

from gobrrr.devices.ceilings import Ceiling, Ceilings, MemoryLevel
from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec

# 10 multiprocessors; 10 TFLOP/s on the matrix unit (1 each), 1 on the vector unit; 1 TB/s from
# memory, 4 from a cache of 8 MB; 1 us for a kernel that does nothing.
RATES = {
    "matrix.bfloat16": 10e12, "matrix.float32": 1e12, "matrix.tf32": 5e12, "vector.float32": 1e12,
    "vector.int32": 1e12, "vector.float32.exp": 1e11, "kernel.fixed": 1e-6,
}  # fmt: skip
CACHE_BYTES = 8_000_000


def toy_device(kind: str = "cuda", multiprocessors: int | None = 10) -> TargetDevice:
    rows = {name: Ceiling(name, value, "", "given", "test") for name, value in RATES.items()}
    levels = (
        MemoryLevel("l2", CACHE_BYTES, ((0.0, 4e12),)),
        MemoryLevel("dram", None, ((0.0, 1e12),)),
    )
    return TargetDevice(
        key="toy",
        name="toy device",
        kind=kind,
        architecture="toy",
        ceilings=Ceilings("toy device", rows, levels),
        sheet=None,
        multiprocessors=multiprocessors,
        memory_bytes=10**9,
        cache_bytes=CACHE_BYTES,
        kernel_fixed_s=1e-6,
    )


# Everything at its ceiling, arithmetic hidden behind traffic, nothing but the fixed cost beside.
IDEAL = Coefficients(
    matrix_fraction=1.0, float32_fraction=1.0, vector_fraction=1.0, dram_fraction=1.0,
    cache_fraction=1.0, tile_fill_s=0.0, kernel_floor_s=0.0, trip_s=0.0, index_instructions=0.0,
    overlap_loss=0.0, convolution_fraction=1.0, attention_fraction=1.0,
    attention_backward_fraction=1.0, attention_fill_s=0.0, direct_fraction=1.0,
    lone_share_of_dram=10.0,
)  # fmt: skip


def spec(*shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None,
         storage: int | None = None) -> TensorSpec:  # fmt: skip
    return TensorSpec(shape, dtype, strides, storage)


def aten(name: str, *args: Arg, outputs: tuple[TensorSpec, ...] | None = None) -> OpCall:
    return OpCall(f"aten::{name}", args, outputs)
