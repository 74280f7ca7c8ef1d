"""What kernels an op has on the simulated device, and how long they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

# (shape, bytes per element, strides)
Operand = tuple[tuple[int, ...], int, tuple[int, ...]]


@dataclass(frozen=True)
class Op:
    """An op as the device sees it: its name, the tensors that go in, those that come out."""

    name: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]

    @property
    def bytes_moved(self) -> int:
        """Of its tensors, each counted once."""
        return sum(prod(shape) * size for shape, size, _ in (*self.inputs, *self.outputs))

    @property
    def flops(self) -> float:
        """Multiplications and additions of a product; 0 for everything else."""
        shapes = [shape for shape, _, _ in self.inputs]
        short = self.name.removeprefix("aten::")
        if short in ("mm", "bmm"):
            return 2.0 * prod(shapes[0]) * shapes[1][-1]
        if short in ("addmm", "baddbmm"):
            return 2.0 * prod(shapes[1]) * shapes[2][-1]
        if short == "convolution":
            out, weight = self.outputs[0][0], shapes[1]
            return 2.0 * prod(out) * prod(weight[1:])
        if short == "convolution_backward":
            grad, weight = shapes[0], shapes[2]
            return 4.0 * prod(grad) * prod(weight[1:])
        return 0.0


@dataclass(frozen=True)
class Kernel:
    """One kernel of an op: its name and how long it runs, in ns."""

    name: str
    ns: int


# The kernels of an op; ``None`` leaves it to the vendor's rates.
Table = Callable[[Op], "tuple[Kernel, ...] | None"]


@dataclass(frozen=True)
class Vendor:
    """A make of device: its names for things, and its rates (FLOP/s, B/s) with their share reached.

    ``matrix`` is by bytes per element. ``calls`` are names of runtime calls that are not the
    ``runtime`` before the short one.
    """

    device: str
    kind: str
    runtime: str
    gemm: str
    convolution: str
    collective: str
    default_stream: int
    collective_stream: int
    memory_bytes: int = 80 * 10**9
    multiprocessors: int = 100
    matrix: Mapping[int, float] = field(default_factory=lambda: {8: 1e13, 4: 4e13, 2: 4e14})
    bytes_per_s: float = 2e12
    fixed_ns: int = 2000
    efficiency: float = 0.5
    runtime_category: str = "cuda_runtime"
    calls: Mapping[str, str] = field(default_factory=dict)

    def call_named(self, short: str) -> str:
        """The runtime call that NVIDIA's calls ``cuda`` and the short name."""
        return self.calls.get(short, f"{self.runtime}{short}")

    def kernels_of(self, op: Op) -> tuple[Kernel, ...]:
        """By its work at half the rates, which no test takes for the truth of a real device."""
        moved_s = op.bytes_moved / self.bytes_per_s
        flops_s = 0.0
        if op.flops:
            flops_s = op.flops / self.matrix[op.inputs[0][1] if op.inputs else 4]
        ns = self.fixed_ns + round(max(moved_s, flops_s) / self.efficiency * 1e9)
        return (Kernel(self.name_of(op), ns),)

    def name_of(self, op: Op) -> str:
        """A kernel's name, of the family that the op's kernels have on such devices."""
        short = op.name.rpartition("::")[2]
        if short in ("mm", "addmm", "bmm", "baddbmm"):
            return self.gemm
        if short.startswith("convolution"):
            return self.convolution
        if short in ("sum", "mean", "amax", "_softmax", "_log_softmax", "native_layer_norm"):
            return f"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, {short}> >"
        return f"void at::native::vectorized_elementwise_kernel<4, at::native::{short}<float> >"


NVIDIA = Vendor(
    device="NVIDIA Simulated", kind="cuda", runtime="cuda", gemm="ampere_sgemm_128x64_nn",
    convolution="implicit_convolve_sgemm<float, float, 1024, 5, 5, 3>",
    collective="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    default_stream=7, collective_stream=20,
)  # fmt: skip
AMD = Vendor(
    device="AMD Simulated", kind="hip", runtime="hip",
    gemm="Cijk_Ailk_Bljk_SB_MT64x64x16_SN_1LDSB0", convolution="miopenSp3AsmConv_v30_3_1_gfx9_fp32",
    collective="ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
    default_stream=0, collective_stream=4,
)  # fmt: skip
# As Kineto writes HIP's calls where a library launches modules, and copies of PyTorch's.
AMD_MODULES = replace(
    AMD, calls={"LaunchKernel": "hipExtModuleLaunchKernel", "MemcpyAsync": "hipMemcpyWithStream"}
)
# Kineto has a category of its own for SYCL's runtime.
INTEL = Vendor(
    device="Intel Simulated", kind="xpu", runtime="ur", gemm="gemm_kernel",
    convolution="gen_conv_kernel", collective="oneccl_allreduce_small", default_stream=0,
    collective_stream=4, runtime_category="xpu_runtime",
    calls={"LaunchKernel": "urEnqueueKernelLaunch", "MemcpyAsync": "urEnqueueUSMMemcpy",
           "StreamSynchronize": "urQueueFinish", "DeviceSynchronize": "urQueueFinish",
           "GraphLaunch": "urEnqueueCommandBufferExp"},
)  # fmt: skip


def slow(ns: int) -> Table:
    """Every op has one kernel that takes so many ns, under the name that it has on NVIDIA's."""
    return lambda op: (Kernel(NVIDIA.name_of(op), ns),)
