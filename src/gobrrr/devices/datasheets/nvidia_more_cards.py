"""More NVIDIA cards of workstations and servers, Ampere and Ada. Matrix rates are dense."""

from __future__ import annotations

from gobrrr.devices.datasheets.nvidia_sources import (
    A40_SHEET,
    ADA,
    GA102,
    RTX_A6000_SHEET,
    exp_rate,
    integers,
    l2,
    with_float8,
)
from gobrrr.devices.datasheets.sheet import GIGA, MIB, TERA, DeviceSheet, Figure, giga, tera

GIB = 1024 * MIB


def _ga102(
    key: str,
    name: str,
    sheet: str,
    *,
    float32: float,
    tf32: float,
    float16: float,
    int8: float,
    clock_ghz: float,
    gb_per_s: float,
    aliases: tuple[str, ...] = (),
) -> DeviceSheet:
    clock = f"{sheet}: {float32} TFLOP/s = 84 x 256 x {clock_ghz} GHz"
    return DeviceSheet(
        key=key,
        name=f"NVIDIA {name}",
        vendor="NVIDIA",
        architecture="Ampere GA10x",
        kind="cuda",
        driver_names=(f"NVIDIA {name}",),
        aliases=aliases,
        matrix=tera(sheet, tf32=tf32, bfloat16=float16, float16=float16, int8=int8),
        vector={
            **tera(sheet, float32=float32),
            **tera(f"{GA102}: as float32", float16=float32, bfloat16=float32),
            **tera(f"{GA102}: 1/64 of float32", float64=float32 / 64),
            **integers(84, clock_ghz),
        },
        exp_per_s=exp_rate(84, clock_ghz),
        memory_bytes=Figure(48 * GIB, sheet),
        memory_bytes_per_s=Figure(gb_per_s * GIGA, sheet),
        caches=l2(6, GA102),
        multiprocessors=Figure(84, f"{sheet}: 10752 cores, 128 a multiprocessor"),
        clock_hz=Figure(clock_ghz * 1e9, clock),
        interconnect=giga(sheet, nvlink=112.5, pcie=64),
        link_peers=1,
    )


A40 = _ga102(
    "A40", "A40", A40_SHEET,
    float32=37.4, tf32=74.8, float16=149.7, int8=299.3, clock_ghz=1.74, gb_per_s=696,
)  # fmt: skip
RTX_A6000 = _ga102(
    "RTX-A6000", "RTX A6000", RTX_A6000_SHEET,
    # The sheet states 309.7 in 16 bits with sparsity; the other dtypes follow as in all of GA10x.
    float32=38.7, tf32=77.4, float16=154.8, int8=309.7, clock_ghz=1.8, gb_per_s=768,
    aliases=("A6000",),
)  # fmt: skip

RTX_4080 = DeviceSheet(
    key="RTX-4080",
    name="NVIDIA GeForce RTX 4080",
    vendor="NVIDIA",
    architecture="Ada half-rate",
    kind="cuda",
    driver_names=("NVIDIA GeForce RTX 4080",),
    matrix=with_float8(
        tera(ADA, tf32=48.7, bfloat16=97.5, float16=97.5, int8=390), 195 * TERA, ADA
    ),
    vector={
        **tera(ADA, float32=48.7, float16=48.7, bfloat16=48.7),
        **tera(f"{ADA}: 1/64 of float32", float64=48.7 / 64),
        **integers(76, 2.505),
    },
    exp_per_s=exp_rate(76, 2.505),
    memory_bytes=Figure(16 * GIB, ADA),
    memory_bytes_per_s=Figure(716.8 * GIGA, ADA),
    caches=l2(64, ADA),
    multiprocessors=Figure(76, ADA),
    clock_hz=Figure(2.505e9, ADA),
    interconnect=giga(ADA, pcie=64),
)

SHEETS = (A40, RTX_A6000, RTX_4080)
