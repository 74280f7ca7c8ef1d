"""GeForce cards of the Ada and Blackwell generations below the largest. Matrix rates are dense.

Rates follow from the papers' rates per clock and multiprocessor at the boost clock; tensor cores
run at half rate when they accumulate in float32, which is what PyTorch asks for.
"""

from __future__ import annotations

from gobrrr.devices.datasheets.nvidia_sources import (
    ADA,
    GEFORCE,
    RTX_BLACKWELL,
    exp_rate,
    integers,
    l2,
    with_float8,
)
from gobrrr.devices.datasheets.sheet import GIGA, MIB, TERA, DeviceSheet, Figure, giga, tera

GIB = 1024 * MIB


def _geforce(
    number: str,
    units: int,
    clock_ghz: float,
    gib: int,
    gb_per_s: float,
    l2_mib: int,
    watts: float,
    *,
    blackwell: bool = False,
) -> DeviceSheet:
    paper = RTX_BLACKWELL if blackwell else ADA

    def at_clock(flops_per_clock: float) -> float:
        return units * flops_per_clock * clock_ghz / 1000

    why = f"{units} SMs x the rate per clock of {paper} x {clock_ghz} GHz ({GEFORCE})"
    rates = {"tf32": 256.0, "bfloat16": 512.0, "float16": 512.0, "int8": 2048.0}
    if blackwell:
        rates["float4_e2m1fn_x2"] = 4096.0
    return DeviceSheet(
        key=f"RTX-{number.replace(' ', '-').replace('SUPER', 'Super')}",
        name=f"NVIDIA GeForce RTX {number}",
        vendor="NVIDIA",
        architecture="RTX Blackwell half-rate" if blackwell else "Ada half-rate",
        kind="cuda",
        driver_names=(f"NVIDIA GeForce RTX {number}",),
        matrix=with_float8(
            tera(why, **{dtype: at_clock(rate) for dtype, rate in rates.items()}),
            at_clock(1024) * TERA,
            why,
        ),
        vector={
            **tera(why, float32=at_clock(256), float16=at_clock(256), bfloat16=at_clock(256)),
            **tera(f"{why}: 1/64 of float32", float64=at_clock(4)),
            **(
                integers(units, clock_ghz, 128, RTX_BLACKWELL)
                if blackwell
                else integers(units, clock_ghz)
            ),
        },
        exp_per_s=exp_rate(units, clock_ghz),
        memory_bytes=Figure(gib * GIB, GEFORCE),
        memory_bytes_per_s=Figure(gb_per_s * GIGA, paper),
        caches=l2(l2_mib, paper),
        multiprocessors=Figure(units, f"{GEFORCE}: {units * 128} CUDA cores, 128 a multiprocessor"),
        clock_hz=Figure(clock_ghz * GIGA, GEFORCE),
        interconnect=giga(paper, pcie=128 if blackwell else 64),
        board_power_w=Figure(watts, GEFORCE),
    )


RTX_4070 = _geforce("4070", 46, 2.475, 12, 504.2, 36, 200)
RTX_4070_SUPER = _geforce("4070 SUPER", 56, 2.475, 12, 504.2, 48, 220)
RTX_4070_TI = _geforce("4070 Ti", 60, 2.61, 12, 504.2, 48, 285)
RTX_4070_TI_SUPER = _geforce("4070 Ti SUPER", 66, 2.61, 16, 672.3, 48, 285)
RTX_4080_SUPER = _geforce("4080 SUPER", 80, 2.55, 16, 736.3, 64, 320)
RTX_5070 = _geforce("5070", 48, 2.512, 12, 672, 48, 250, blackwell=True)
RTX_5070_TI = _geforce("5070 Ti", 70, 2.452, 16, 896, 48, 300, blackwell=True)
RTX_5080 = _geforce("5080", 84, 2.617, 16, 960, 64, 360, blackwell=True)

SHEETS = (
    RTX_4070,
    RTX_4070_SUPER,
    RTX_4070_TI,
    RTX_4070_TI_SUPER,
    RTX_4080_SUPER,
    RTX_5070,
    RTX_5070_TI,
    RTX_5080,
)
