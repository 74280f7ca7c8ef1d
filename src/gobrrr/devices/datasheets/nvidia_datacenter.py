"""NVIDIA data-centre GPUs, Volta to Ampere, and Jetson Orin. Matrix rates are dense."""

from __future__ import annotations

from dataclasses import replace

from gobrrr.devices.datasheets.nvidia_sources import (
    A10_SHEET,
    A10G_SHEET,
    A30_SHEET,
    A100_PAPER,
    A100_SHEET,
    CUDA_GUIDE,
    GA102,
    L1_SWEEP,
    L2_SWEEP,
    ORIN,
    P4_SHEET,
    P100_SHEET,
    PASCAL,
    T4_SHEET,
    TURING,
    V100_SHEET,
    VOLTA,
    exp_rate,
    integers,
    l2,
)
from gobrrr.devices.datasheets.sheet import GIGA, MIB, DeviceSheet, Figure, giga, tera

GIB = 1024 * MIB
_NO_BF16 = "no bfloat16 units: computed in float32"

P100_PCIE = DeviceSheet(
    key="P100-PCIe",
    name="NVIDIA Tesla P100 PCIe 16GB",
    vendor="NVIDIA",
    architecture="Pascal GP100",
    kind="cuda",
    driver_names=("Tesla P100-PCIE-16GB",),
    aliases=("P100",),
    matrix={},
    vector={
        **tera(P100_SHEET, float64=4.7, float32=9.3, float16=18.7),
        **tera(f"{_NO_BF16}; {P100_SHEET}", bfloat16=9.3),
        **integers(56, 1.303),
    },
    exp_per_s=exp_rate(56, 1.303),
    memory_bytes=Figure(16 * GIB, P100_SHEET),
    memory_bytes_per_s=Figure(732 * GIGA, P100_SHEET),
    caches=l2(4, PASCAL),
    multiprocessors=Figure(56, PASCAL),
    clock_hz=Figure(1.303e9, f"{P100_SHEET}: 9.3 TFLOP/s = 56 x 128 x 1.303 GHz"),
    interconnect=giga(P100_SHEET, pcie=32),
)

P4 = DeviceSheet(
    key="P4",
    name="NVIDIA Tesla P4",
    vendor="NVIDIA",
    architecture="Pascal GP104",
    kind="cuda",
    driver_names=("Tesla P4",),
    matrix={},
    vector={
        **tera(P4_SHEET, float32=5.5),
        **tera(f"{CUDA_GUIDE}: 1/32 of float32", float64=5.5 / 32),
        **tera(f"{CUDA_GUIDE}: 1/64 of float32", float16=5.5 / 64),
        **tera(f"{_NO_BF16}; {P4_SHEET}", bfloat16=5.5),
        **integers(20, 1.063, 128),
    },
    # Compute capability 6.1.
    exp_per_s=exp_rate(20, 1.063, 32),
    memory_bytes=Figure(8 * GIB, P4_SHEET),
    memory_bytes_per_s=Figure(192 * GIGA, P4_SHEET),
    caches=l2(2, f"{P4_SHEET} (GP104: 2048 KB)"),
    multiprocessors=Figure(20, f"{P4_SHEET}: 2560 cores of 128 a multiprocessor"),
    clock_hz=Figure(1.063e9, f"{P4_SHEET}: 5.5 TFLOP/s = 20 x 256 x 1.07 GHz"),
    interconnect=giga(P4_SHEET, pcie=32),
    note="Runs well below its boost clock within its 75 W.",
)

V100_SXM2 = DeviceSheet(
    key="V100-SXM2",
    name="NVIDIA Tesla V100 SXM2",
    vendor="NVIDIA",
    architecture="Volta",
    kind="cuda",
    # DGX Station: "500 TFLOPS (mixed precision)" for four, the SXM2 rate.
    driver_names=("Tesla V100-SXM2-16GB", "Tesla V100-DGXS-16GB"),
    aliases=("V100", "V100-SXM"),
    matrix=tera(VOLTA, float16=125),
    vector={
        **tera(VOLTA, float64=7.8, float32=15.7),
        **tera(f"{VOLTA}: twice float32", float16=31.4),
        **tera(f"{_NO_BF16}; {VOLTA}", bfloat16=15.7),
        **integers(80, 1.53),
    },
    exp_per_s=exp_rate(80, 1.53),
    memory_bytes=Figure(16 * GIB, f"{V100_SHEET}: 16 GB (32 GB: a row of its own)"),
    memory_bytes_per_s=Figure(900 * GIGA, V100_SHEET),
    caches=l2(6, VOLTA, Figure(2048 * 1.53 * GIGA, f"{A100_PAPER}: 2048 B/clk x 1.53 GHz")),
    multiprocessors=Figure(80, VOLTA),
    clock_hz=Figure(1.53e9, VOLTA),
    interconnect=giga(V100_SHEET, nvlink=300, pcie=32),
    # The hybrid cube mesh of a DGX-1 (VOLTA): six links to four others. A DGX-2 has a switch.
    link_peers=4,
)

V100_SXM2_32 = replace(
    V100_SXM2,
    key="V100-SXM2-32GB",
    name="NVIDIA Tesla V100 SXM2 32GB",
    driver_names=("Tesla V100-SXM2-32GB", "Tesla V100-DGXS-32GB"),
    aliases=(),
    memory_bytes=Figure(32 * GIB, V100_SHEET),
)

V100_PCIE = DeviceSheet(
    key="V100-PCIe",
    name="NVIDIA Tesla V100 PCIe",
    vendor="NVIDIA",
    architecture="Volta",
    kind="cuda",
    driver_names=("Tesla V100-PCIE-16GB",),
    matrix=tera(V100_SHEET, float16=112),
    vector={
        **tera(V100_SHEET, float64=7, float32=14),
        **tera(f"{VOLTA}: twice float32", float16=28),
        **tera(f"{_NO_BF16}; {V100_SHEET}", bfloat16=14),
        **integers(80, 1.38),
    },
    exp_per_s=exp_rate(80, 1.38),
    memory_bytes=Figure(16 * GIB, f"{V100_SHEET}: 16 GB (32 GB: a row of its own)"),
    memory_bytes_per_s=Figure(900 * GIGA, V100_SHEET),
    caches=l2(6, VOLTA, Figure(2440 * GIGA, f"measured: {L1_SWEEP}v100.txt, 1 to 5 MB")),
    multiprocessors=Figure(80, VOLTA),
    clock_hz=Figure(1.38e9, "https://github.com/te42kyfo/gpu-benches#cuda-roofline: 1380 MHz"),
    interconnect=giga(V100_SHEET, pcie=32),
)

V100_PCIE_32 = replace(
    V100_PCIE,
    key="V100-PCIe-32GB",
    name="NVIDIA Tesla V100 PCIe 32GB",
    driver_names=("Tesla V100-PCIE-32GB",),
    memory_bytes=Figure(32 * GIB, V100_SHEET),
)

T4 = DeviceSheet(
    key="T4",
    name="NVIDIA T4",
    vendor="NVIDIA",
    architecture="Turing",
    kind="cuda",
    driver_names=("Tesla T4", "NVIDIA T4"),
    matrix=tera(T4_SHEET, float16=65, int8=130),
    vector={
        **tera(T4_SHEET, float32=8.1),
        **tera(f"{TURING}: twice float32", float16=16.2),
        **tera(f"{TURING}: 1/32 of float32", float64=8.1 / 32),
        **tera(f"{_NO_BF16}; {T4_SHEET}", bfloat16=8.1),
        **integers(40, 1.59),
    },
    exp_per_s=exp_rate(40, 1.59),
    memory_bytes=Figure(16 * GIB, T4_SHEET),
    memory_bytes_per_s=Figure(320 * GIGA, T4_SHEET),
    caches=l2(4, TURING),
    multiprocessors=Figure(40, TURING),
    clock_hz=Figure(1.59e9, TURING),
    interconnect=giga(T4_SHEET, pcie=32),
    note="Runs well below its boost clock within its 70 W.",
)

_A100_MATRIX = tera(A100_PAPER, float64=19.5, tf32=156, bfloat16=312, float16=312, int8=624)
_A100_VECTOR = {
    **tera(A100_PAPER, float64=9.7, float32=19.5, float16=78, bfloat16=39),
    **integers(108, 1.41),
}
_A100_L2 = l2(
    40,
    A100_PAPER,
    Figure(5400 * GIGA, f"measured: {L2_SWEEP}a100_80.txt (5120 B/clk stated, {A100_PAPER})"),
    Figure(28 * MIB, f"measured: {L2_SWEEP}a100_80.txt, rate kept up to 28160 kB"),
)


def _a100(
    key: str, form: str, gib: int, gb_per_s: float, names: tuple[str, ...], aliases: tuple[str, ...]
) -> DeviceSheet:
    return DeviceSheet(
        key=key,
        name=f"NVIDIA A100 {form} {gib}GB",
        vendor="NVIDIA",
        architecture="Ampere GA100",
        kind="cuda",
        driver_names=names,
        aliases=aliases,
        matrix=_A100_MATRIX,
        vector=_A100_VECTOR,
        exp_per_s=exp_rate(108, 1.41),
        memory_bytes=Figure(gib * GIB, A100_SHEET),
        memory_bytes_per_s=Figure(gb_per_s * GIGA, A100_SHEET),
        caches=_A100_L2,
        multiprocessors=Figure(108, A100_PAPER),
        clock_hz=Figure(1.41e9, A100_PAPER),
        interconnect=giga(A100_SHEET, nvlink=600, pcie=64),
        link_peers=1 if form == "PCIe" else None,
    )


A100_SXM_40 = _a100(
    "A100-SXM-40GB",
    "SXM4",
    40,
    1555,
    # PG509 is the board number that engineering SXM4 modules of 40 GB report.
    ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB", "NVIDIA A100-PG509-200"),
    ("A100-40GB",),
)
A100_SXM_80 = _a100(
    "A100-SXM-80GB",
    "SXM4",
    80,
    2039,
    ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
    ("A100", "A100-SXM", "A100-80GB"),
)
A100_PCIE_40 = _a100(
    "A100-PCIe-40GB", "PCIe", 40, 1555, ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"), ()
)
A100_PCIE_80 = _a100("A100-PCIe-80GB", "PCIe", 80, 1935, ("NVIDIA A100 80GB PCIe",), ("A100-PCIe",))

A30 = DeviceSheet(
    key="A30",
    name="NVIDIA A30",
    vendor="NVIDIA",
    architecture="Ampere GA100",
    kind="cuda",
    driver_names=("NVIDIA A30",),
    matrix=tera(A30_SHEET, float64=10.3, tf32=82, bfloat16=165, float16=165, int8=330),
    vector={
        **tera(A30_SHEET, float64=5.2, float32=10.3),
        **tera(f"{A100_PAPER}: 4 and 2 times float32; {A30_SHEET}", float16=41.2, bfloat16=20.6),
        **integers(56, 1.44),
    },
    exp_per_s=exp_rate(56, 1.44),
    memory_bytes=Figure(24 * GIB, A30_SHEET),
    memory_bytes_per_s=Figure(933 * GIGA, A30_SHEET),
    caches=l2(24, f"NVIDIA A30 GPU accelerator product brief (linked from {A30_SHEET})"),
    multiprocessors=Figure(56, f"{A30_SHEET}: 10.3 TFLOP/s = 56 x 128 x 1.44 GHz"),
    clock_hz=Figure(1.44e9, f"{A30_SHEET}: 10.3 TFLOP/s = 56 x 128 x 1.44 GHz"),
    interconnect=giga(A30_SHEET, nvlink=200, pcie=64),
    link_peers=1,
)

A10 = DeviceSheet(
    key="A10",
    name="NVIDIA A10",
    vendor="NVIDIA",
    architecture="Ampere GA10x",
    kind="cuda",
    driver_names=("NVIDIA A10",),
    matrix=tera(A10_SHEET, tf32=62.5, bfloat16=125, float16=125, int8=250),
    vector={
        **tera(A10_SHEET, float32=31.2),
        **tera(f"{GA102}: as float32", float16=31.2, bfloat16=31.2),
        **tera(f"{GA102}: 1/64 of float32", float64=31.2 / 64),
        **integers(72, 1.695),
    },
    exp_per_s=exp_rate(72, 1.695),
    memory_bytes=Figure(24 * GIB, A10_SHEET),
    memory_bytes_per_s=Figure(600 * GIGA, A10_SHEET),
    caches=l2(6, GA102),
    multiprocessors=Figure(72, f"{A10_SHEET}: 31.2 TFLOP/s = 72 x 256 x 1.695 GHz"),
    clock_hz=Figure(1.695e9, f"{A10_SHEET}: 31.2 TFLOP/s = 72 x 256 x 1.695 GHz"),
    interconnect=giga(A10_SHEET, pcie=64),
)

A10G = DeviceSheet(
    key="A10G",
    name="NVIDIA A10G",
    vendor="NVIDIA",
    architecture="Ampere GA10x half-rate",
    kind="cuda",
    driver_names=("NVIDIA A10G",),
    matrix=tera(A10G_SHEET, tf32=35, bfloat16=70, float16=70, int8=140),
    vector={
        **tera(A10G_SHEET, float32=35),
        **tera(f"{GA102}: as float32", float16=35, bfloat16=35),
        **tera(f"{GA102}: 1/64 of float32", float64=35 / 64),
        **integers(80, 1.71),
    },
    exp_per_s=exp_rate(80, 1.71),
    memory_bytes=Figure(24 * GIB, A10G_SHEET),
    memory_bytes_per_s=Figure(600 * GIGA, A10G_SHEET),
    caches=l2(6, GA102),
    multiprocessors=Figure(80, f"{A10G_SHEET}: 35 TFLOP/s = 80 x 256 x 1.71 GHz"),
    clock_hz=Figure(1.71e9, f"{A10G_SHEET}: 35 TFLOP/s = 80 x 256 x 1.71 GHz"),
    interconnect=giga(A10G_SHEET, pcie=64),
)

ORIN_AGX_64 = DeviceSheet(
    key="Jetson-AGX-Orin-64GB",
    name="NVIDIA Jetson AGX Orin 64GB",
    vendor="NVIDIA",
    architecture="Ampere GA10B",
    kind="cuda",
    # Every Orin module reports "Orin", whatever its size: that name cannot tell this one.
    driver_names=(),
    aliases=("Jetson-AGX-Orin", "Jetson Orin", "AGX Orin"),
    matrix={
        **tera(f"{ORIN}: 170 TOPS sparse, halved", int8=85),
        **tera(f"{ORIN}: half of int8", float16=42.5, bfloat16=42.5),
        **tera(f"{ORIN}: a quarter of int8", tf32=21.25),
    },
    vector={
        **tera(ORIN, float32=5.3),
        **tera(f"{ORIN}: twice float32", float16=10.6),
        **tera(f"computed in float32; {ORIN}", bfloat16=5.3),
        **integers(16, 1.3),
    },
    exp_per_s=exp_rate(16, 1.3),
    memory_bytes=Figure(64 * GIB, f"{ORIN}: shared with the CPU"),
    memory_bytes_per_s=Figure(204.8 * GIGA, ORIN),
    caches=l2(4, ORIN),
    multiprocessors=Figure(16, ORIN),
    clock_hz=Figure(1.3e9, ORIN),
    note="Two deep-learning accelerators beside the GPU are not counted.",
)

SHEETS = (
    P100_PCIE,
    P4,
    V100_SXM2,
    V100_PCIE,
    V100_PCIE_32,
    V100_SXM2_32,
    T4,
    A10,
    A10G,
    A100_SXM_40,
    A100_SXM_80,
    A100_PCIE_40,
    A100_PCIE_80,
    A30,
    ORIN_AGX_64,
)
