"""NVIDIA data-centre GPUs for markets with export rules. Matrix rates are dense.

A800 and H800 are the A100 and H100 with slower links (and, on Hopper, hardly any float64). The H20
and the L20 have units whose rates are held below what their clock would give: their architectures
are named "capped".
"""

from __future__ import annotations

from dataclasses import replace

from gobrrr.devices.datasheets.nvidia_datacenter import A100_PCIE_80, A100_SXM_80
from gobrrr.devices.datasheets.nvidia_hopper_blackwell import H100_PCIE, H100_SXM
from gobrrr.devices.datasheets.nvidia_sources import (
    ADA,
    EXPORT_SHEET,
    HOPPER,
    exp_rate,
    integers,
    l2,
    with_float8,
)
from gobrrr.devices.datasheets.sheet import GIGA, MIB, TERA, DeviceSheet, Figure, giga, tera

GIB = 1024 * MIB
A800_SHEET = "https://www.nvidia.cn/data-center/a800/ (NVIDIA A800 Tensor Core GPU data sheet)"
H800_SHEET = "https://www.nvidia.cn/data-center/h800/ (NVIDIA H800 Tensor Core GPU data sheet)"

A800_SXM = replace(
    A100_SXM_80,
    key="A800-SXM-80GB",
    name="NVIDIA A800 SXM4 80GB",
    driver_names=("NVIDIA A800-SXM4-80GB",),
    aliases=("A800", "A800-SXM"),
    interconnect=giga(A800_SHEET, nvlink=400, pcie=64),
    board_power_w=Figure(400, A800_SHEET),
)
A800_PCIE = replace(
    A100_PCIE_80,
    key="A800-PCIe-80GB",
    name="NVIDIA A800 PCIe 80GB",
    driver_names=("NVIDIA A800 80GB PCIe",),
    aliases=("A800-PCIe",),
    interconnect=giga(A800_SHEET, nvlink=400, pcie=64),
    board_power_w=Figure(300, A800_SHEET),
)
H800_SXM = replace(
    H100_SXM,
    key="H800-SXM",
    name="NVIDIA H800 SXM5 80GB",
    driver_names=("NVIDIA H800",),
    aliases=("H800", "H800-SXM5"),
    matrix={**H100_SXM.matrix, **tera(H800_SHEET, float64=1)},
    vector={**H100_SXM.vector, **tera(H800_SHEET, float64=1)},
    interconnect=giga(H800_SHEET, nvlink=400, pcie=128),
    board_power_w=Figure(700, H800_SHEET),
)
H800_PCIE = replace(
    H100_PCIE,
    key="H800-PCIe",
    name="NVIDIA H800 PCIe 80GB",
    driver_names=("NVIDIA H800 PCIe",),
    matrix={**H100_PCIE.matrix, **tera(H800_SHEET, float64=0.8)},
    vector={**H100_PCIE.vector, **tera(H800_SHEET, float64=0.8)},
    interconnect=giga(H800_SHEET, nvlink=400, pcie=128),
    board_power_w=Figure(350, H800_SHEET),
)

H20 = DeviceSheet(
    key="H20",
    name="NVIDIA H20 SXM 96GB",
    vendor="NVIDIA",
    architecture="Hopper capped",
    kind="cuda",
    driver_names=("NVIDIA H20",),
    aliases=("H20-SXM",),
    matrix=with_float8(
        tera(EXPORT_SHEET, float64=1, tf32=74, bfloat16=148, float16=148, int8=296),
        296 * TERA,
        EXPORT_SHEET,
    ),
    vector={
        **tera(EXPORT_SHEET, float64=1),
        # The sheet printed 44 before the chip was sold: 2.2 GHz on the 78 multiprocessors that it
        # has, and no GH100 clocks beyond 1.98.
        **tera(f"{HOPPER}: 78 x 256 x 1.98 GHz ({EXPORT_SHEET}: 44)", float32=39.5),
        **tera(f"{HOPPER}: twice float32", float16=79, bfloat16=79),
        **integers(78, 1.98),
    },
    exp_per_s=exp_rate(78, 1.98),
    memory_bytes=Figure(96 * GIB, EXPORT_SHEET),
    memory_bytes_per_s=Figure(4000 * GIGA, EXPORT_SHEET),
    caches=l2(60, EXPORT_SHEET),
    multiprocessors=Figure(
        78, "https://browser.geekbench.com (device query of an NVIDIA H20: 78 compute units)"
    ),
    clock_hz=Figure(1.98e9, f"{HOPPER}: the H100's clock, whose chip it has"),
    interconnect=giga(EXPORT_SHEET, nvlink=900, pcie=128),
    board_power_w=Figure(400, EXPORT_SHEET),
    note="Its tensor cores are held at a quarter of what they would do at their clock.",
)
L20 = DeviceSheet(
    key="L20",
    name="NVIDIA L20",
    vendor="NVIDIA",
    architecture="Ada capped",
    kind="cuda",
    driver_names=("NVIDIA L20",),
    matrix=with_float8(
        tera(EXPORT_SHEET, tf32=59.8, bfloat16=119.5, float16=119.5, int8=239),
        239 * TERA,
        EXPORT_SHEET,
    ),
    vector={
        **tera(EXPORT_SHEET, float32=59.8),
        **tera(f"{ADA}: as float32; {EXPORT_SHEET}", float16=59.8, bfloat16=59.8),
        **tera(f"{ADA}: 1/64 of float32; {EXPORT_SHEET}", float64=59.8 / 64),
        **integers(92, 2.52),
    },
    exp_per_s=exp_rate(92, 2.52),
    memory_bytes=Figure(48 * GIB, EXPORT_SHEET),
    memory_bytes_per_s=Figure(864 * GIGA, EXPORT_SHEET),
    caches=l2(96, EXPORT_SHEET),
    multiprocessors=Figure(92, f"{EXPORT_SHEET}: 59.8 TFLOP/s = 92 x 256 x 2.54 GHz"),
    clock_hz=Figure(2.52e9, f"{ADA}: the clock of the L40S, whose chip it has"),
    interconnect=giga(EXPORT_SHEET, pcie=64),
    board_power_w=Figure(275, EXPORT_SHEET),
    note="Its tensor cores are held at half of what they would do at their clock.",
)

SHEETS = (A800_SXM, A800_PCIE, H800_SXM, H800_PCIE, H20, L20)
