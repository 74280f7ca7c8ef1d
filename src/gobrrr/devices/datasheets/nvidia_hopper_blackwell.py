"""NVIDIA Hopper and data-centre Blackwell. Matrix rates are dense: sheets print the sparse ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gobrrr.devices.datasheets.nvidia_sources import (
    B200_MEASURED,
    BLACKWELL,
    BLACKWELL_ULTRA,
    BLACKWELL_ULTRA_EXP,
    GB300_SHEET,
    GH200_SHEET,
    H100_SHEET,
    H200_SHEET,
    HGX_SHEET,
    HOPPER,
    L2_SWEEP,
    TRACES,
    exp_rate,
    integers,
    l2,
    with_float8,
)
from gobrrr.devices.datasheets.sheet import (
    GIGA,
    MIB,
    TERA,
    Cache,
    DeviceSheet,
    Figure,
    giga,
    tera,
)

GIB = 1024 * MIB

_SXM_MATRIX = with_float8(
    tera(HOPPER, float64=66.9, tf32=494.7, bfloat16=989.4, float16=989.4, int8=1978.9),
    1978.9 * TERA,
    HOPPER,
)
_SXM_VECTOR = {
    **tera(HOPPER, float64=33.5, float32=66.9, float16=133.8, bfloat16=133.8),
    **integers(132, 1.98),
}
_SXM_L2 = l2(
    50,
    HOPPER,
    Figure(9700 * GIGA, f"measured on an H200, the same GPU: {L2_SWEEP}h200.txt"),
    Figure(43 * MIB, f"measured on an H200: {L2_SWEEP}h200.txt, rate kept up to 44032 kB"),
)
_SXM_CLOCK = Figure(1.98e9, f"{HOPPER}: 66.9 TFLOP/s = 132 x 256 x 1.98 GHz")
_SXM_MATRIX_CLOCK = Figure(1.83e9, f"{HOPPER}: 989.4 TFLOP/s = 132 x 4096 x 1.83 GHz")
_FIXED = Figure(
    1.47e-6,
    f"shortest kernel of a recorded H100 step (h100_qwen1.5_0.5b_inference), {TRACES}: an upper "
    "bound of an empty kernel's time",
)


def _hopper_sxm(
    key: str,
    name: str,
    driver_names: tuple[str, ...],
    aliases: tuple[str, ...],
    gib: int,
    gb_per_s: float,
    sheet: str,
    interconnect: Mapping[str, Figure],
) -> DeviceSheet:
    return DeviceSheet(
        key=key,
        name=name,
        vendor="NVIDIA",
        architecture="Hopper",
        kind="cuda",
        driver_names=driver_names,
        aliases=aliases,
        matrix=_SXM_MATRIX,
        vector=_SXM_VECTOR,
        exp_per_s=exp_rate(132, 1.98),
        memory_bytes=Figure(gib * GIB, sheet),
        memory_bytes_per_s=Figure(gb_per_s * GIGA, sheet),
        caches=_SXM_L2,
        multiprocessors=Figure(132, HOPPER),
        clock_hz=_SXM_CLOCK,
        matrix_clock_hz=_SXM_MATRIX_CLOCK,
        interconnect=interconnect,
        kernel_fixed_s=_FIXED,
    )


H100_SXM = _hopper_sxm(
    "H100-SXM",
    "NVIDIA H100 SXM5 80GB",
    ("NVIDIA H100 80GB HBM3",),
    ("H100", "H100-SXM5", "NVIDIA H100"),
    80,
    3352,
    HOPPER,
    giga(H100_SHEET, nvlink=900, pcie=128),
)
H200_SXM = _hopper_sxm(
    "H200-SXM",
    "NVIDIA H200 SXM 141GB",
    ("NVIDIA H200",),
    ("H200",),
    141,
    4800,
    H200_SHEET,
    giga(H200_SHEET, nvlink=900, pcie=128),
)
GH200_96 = _hopper_sxm(
    "GH200-96GB",
    "NVIDIA GH200 Grace Hopper 96GB HBM3",
    ("NVIDIA GH200 480GB",),
    ("GH200",),
    96,
    4000,
    GH200_SHEET,
    giga(GH200_SHEET, nvlink=900, c2c=900),
)
GH200_144 = _hopper_sxm(
    "GH200-144GB",
    "NVIDIA GH200 Grace Hopper 144GB HBM3e",
    ("NVIDIA GH200 144G HBM3e",),
    (),
    144,
    4900,
    GH200_SHEET,
    giga(GH200_SHEET, nvlink=900, c2c=900),
)

H100_PCIE = DeviceSheet(
    key="H100-PCIe",
    name="NVIDIA H100 PCIe 80GB",
    vendor="NVIDIA",
    architecture="Hopper",
    kind="cuda",
    driver_names=("NVIDIA H100 PCIe",),
    matrix=with_float8(
        tera(HOPPER, float64=51.2, tf32=378, bfloat16=756, float16=756, int8=1513),
        1513 * TERA,
        HOPPER,
    ),
    vector={
        **tera(HOPPER, float64=25.6, float32=51.2, float16=102.4, bfloat16=102.4),
        **integers(114, 1.755),
    },
    exp_per_s=exp_rate(114, 1.755),
    memory_bytes=Figure(80 * GIB, HOPPER),
    memory_bytes_per_s=Figure(2039 * GIGA, HOPPER),
    caches=l2(
        50,
        HOPPER,
        Figure(6900 * GIGA, f"measured: {L2_SWEEP}h100_pcie.txt"),
        Figure(35.5 * MIB, f"measured: {L2_SWEEP}h100_pcie.txt, rate kept up to 36352 kB"),
    ),
    multiprocessors=Figure(114, HOPPER),
    clock_hz=Figure(1.755e9, f"{HOPPER}: 51.2 TFLOP/s = 114 x 256 x 1.755 GHz"),
    matrix_clock_hz=Figure(1.62e9, f"{HOPPER}: 756 TFLOP/s = 114 x 4096 x 1.62 GHz"),
    interconnect=giga(H100_SHEET, nvlink=600, pcie=128),
    link_peers=1,
)


def _hopper_nvl(
    key: str, name: str, driver: str, gib: int, gb_per_s: float, nvlink: float, sheet: str
) -> DeviceSheet:
    halved = f"{sheet}: stated with sparsity, halved"
    return DeviceSheet(
        key=key,
        name=name,
        vendor="NVIDIA",
        architecture="Hopper",
        kind="cuda",
        driver_names=(driver,),
        matrix=with_float8(
            {
                **tera(sheet, float64=60),
                **tera(halved, tf32=417.5, bfloat16=835.5, float16=835.5, int8=1670.5),
            },
            1670.5 * TERA,
            halved,
        ),
        vector={
            **tera(sheet, float64=30, float32=60),
            **tera(f"{HOPPER}: twice float32", float16=120, bfloat16=120),
            **integers(132, 1.785),
        },
        exp_per_s=exp_rate(132, 1.785),
        memory_bytes=Figure(gib * GIB, sheet),
        memory_bytes_per_s=Figure(gb_per_s * GIGA, sheet),
        caches=l2(50, HOPPER),
        multiprocessors=Figure(132, HOPPER),
        clock_hz=Figure(1.785e9, f"{sheet}: 60 TFLOP/s = 132 x 256 x 1.785 GHz, rounded"),
        matrix_clock_hz=Figure(1.545e9, f"{sheet}: 835.5 TFLOP/s = 132 x 4096 x 1.545 GHz"),
        interconnect=giga(sheet, nvlink=nvlink, pcie=128),
        # Bridges connect two of the H100 NVL, up to four of the H200 NVL.
        link_peers=1 if nvlink == 600 else 3,
    )


H100_NVL = _hopper_nvl(
    "H100-NVL", "NVIDIA H100 NVL 94GB", "NVIDIA H100 NVL", 94, 3900, 600, H100_SHEET
)
H200_NVL = _hopper_nvl(
    "H200-NVL", "NVIDIA H200 NVL 141GB", "NVIDIA H200 NVL", 141, 4800, 900, H200_SHEET
)

_BLACKWELL_HALVED = f"{BLACKWELL}: stated with sparsity, halved"
_BLACKWELL_L2: tuple[Cache, ...] = l2(126, B200_MEASURED)


def _blackwell(
    key: str,
    name: str,
    names: tuple[str, ...],
    aliases: tuple[str, ...],
    gib: int,
    tb_per_s: float,
    scale: Mapping[str, float],
) -> DeviceSheet:
    return DeviceSheet(
        key=key,
        name=name,
        vendor="NVIDIA",
        architecture="Blackwell",
        kind="cuda",
        driver_names=names,
        aliases=aliases,
        matrix=with_float8(
            {
                **tera(BLACKWELL, float64=scale["float64"]),
                **tera(
                    _BLACKWELL_HALVED,
                    tf32=scale["bfloat16"] / 2,
                    bfloat16=scale["bfloat16"],
                    float16=scale["bfloat16"],
                    int8=2 * scale["bfloat16"],
                    float4_e2m1fn_x2=4 * scale["bfloat16"],
                ),
            },
            2 * scale["bfloat16"] * TERA,
            _BLACKWELL_HALVED,
        ),
        vector={
            **tera(BLACKWELL, float64=scale["float64"], float32=scale["float32"]),
            # As on Hopper: packed half-precision arithmetic at twice the rate.
            **tera(
                f"{BLACKWELL}: twice float32, as on Hopper",
                float16=2 * scale["float32"],
                bfloat16=2 * scale["float32"],
            ),
            **integers(148, scale["clock"]),
        },
        exp_per_s=exp_rate(148, scale["clock"]),
        memory_bytes=Figure(gib * GIB, BLACKWELL),
        memory_bytes_per_s=Figure(tb_per_s * TERA, BLACKWELL),
        caches=_BLACKWELL_L2,
        multiprocessors=Figure(148, B200_MEASURED),
        clock_hz=Figure(
            scale["clock"] * GIGA, f"{BLACKWELL}: float32 = 148 x 256 x {scale['clock']} GHz"
        ),
        matrix_clock_hz=Figure(
            scale["bfloat16"] * TERA / (148 * 8192),
            f"{BLACKWELL}: bfloat16 = 148 x 8192 x the clock",
        ),
        interconnect=giga(BLACKWELL, nvlink=1800),
    )


B200 = _blackwell(
    "B200",
    "NVIDIA B200 SXM 180GB",
    ("NVIDIA B200",),
    ("B200-SXM",),
    180,
    7.7,
    {"float64": 37, "float32": 75, "bfloat16": 2250, "clock": 1.98},
)
GB200 = _blackwell(
    "GB200",
    "NVIDIA GB200 (one of its two GPUs) 186GB",
    ("NVIDIA GB200",),
    (),
    186,
    8.0,
    {"float64": 40, "float32": 80, "bfloat16": 2500, "clock": 2.11},
)


def _ultra(
    key: str,
    name: str,
    names: tuple[str, ...],
    of: DeviceSheet,
    sheet: str,
    float64: float,
    float4: float,
) -> DeviceSheet:
    """Blackwell Ultra: its predecessor's other rates, hardly any float64, more float4 and memory.

    Its special-function units are twice its predecessor's.

    ``float4``: dense, TFLOP/s. The rate of int8, which is a fraction of Blackwell's, is printed in
    whole POPS of several GPUs: no figure here.
    """
    bfloat16 = of.matrix["bfloat16"].value / TERA
    assert of.clock_hz is not None
    matrix = with_float8(
        {
            **tera(sheet, float64=float64),
            **tera(
                f"{sheet}: stated with sparsity, halved",
                tf32=bfloat16 / 2,
                bfloat16=bfloat16,
                float16=bfloat16,
            ),
            **tera(f"{sheet}: dense", float4_e2m1fn_x2=float4),
        },
        2 * bfloat16 * TERA,
        f"{sheet}: stated with sparsity, halved",
    )
    return replace(
        of,
        key=key,
        name=name,
        architecture="Blackwell Ultra",
        driver_names=names,
        aliases=(),
        matrix=matrix,
        vector={**of.vector, **tera(sheet, float64=float64)},
        exp_per_s=exp_rate(148, of.clock_hz.value / GIGA, 32, BLACKWELL_ULTRA_EXP),
        memory_bytes=Figure(288 * GIGA, BLACKWELL_ULTRA),
        memory_bytes_per_s=Figure(8 * TERA, BLACKWELL_ULTRA),
        interconnect=giga(BLACKWELL_ULTRA, nvlink=1800),
    )


B300 = _ultra(
    "B300", "NVIDIA B300 SXM 288GB", ("NVIDIA B300 SXM6 AC",), B200, HGX_SHEET, 1.25, 13500
)
GB300 = _ultra(
    "GB300",
    "NVIDIA GB300 (one of its two GPUs) 288GB",
    ("NVIDIA GB300",),
    GB200,
    GB300_SHEET,
    1.4,
    15000,
)

SHEETS = (
    H100_SXM,
    H100_PCIE,
    H100_NVL,
    H200_SXM,
    H200_NVL,
    GH200_96,
    GH200_144,
    B200,
    GB200,
    B300,
    GB300,
)
