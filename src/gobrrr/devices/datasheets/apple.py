"""GPUs of Apple's M series, in each chip's largest configuration.

Apple states TFLOP/s for the M1 and M2 alone; for the M3 and M4 nothing but bandwidth is known
here, and rates stay unknown. Up to the M4 the GPU has no matrix units: a matrix product runs on
the vector units, half precision at the rate of float32.
"""

from __future__ import annotations

from gobrrr.devices.datasheets.sheet import GIGA, MIB, DeviceSheet, Figure, tera

GIB = 1024 * MIB

_NEWS = "https://www.apple.com/newsroom/"
M1 = f"{_NEWS}2020/11/apple-unleashes-m1/"
M1_PRO = (
    f"{_NEWS}2021/10/introducing-m1-pro-and-m1-max-the-most-powerful-chips-apple-has-ever-built/"
)
M1_ULTRA = (
    f"{_NEWS}2022/03/apple-unveils-m1-ultra-the-worlds-most-powerful-chip-for-a-personal-computer/"
)
M2 = f"{_NEWS}2022/06/apple-unveils-m2-with-breakthrough-performance-and-capabilities/"
M2_PRO = (
    f"{_NEWS}2023/01/apple-unveils-m2-pro-and-m2-max-next-generation-chips-for-next-level-"
    "workflows/"
)
M2_ULTRA = f"{_NEWS}2023/06/apple-introduces-m2-ultra/"
M3 = (
    f"{_NEWS}2023/10/apple-unveils-m3-m3-pro-and-m3-max-the-most-advanced-chips-for-a-personal-"
    "computer/"
)
M3_ULTRA = f"{_NEWS}2025/03/apple-reveals-m3-ultra-taking-apple-silicon-to-a-new-extreme/"
M4 = f"{_NEWS}2024/05/apple-introduces-m4-chip/"
M4_PRO = f"{_NEWS}2024/10/apple-introduces-m4-pro-and-m4-max/"


def _chip(
    chip: str, cores: int, gb_per_s: float, gib: int, source: str, tflops: float | None
) -> DeviceSheet:
    rates: dict[str, Figure] = {}
    if tflops is not None:
        rates = {
            **tera(source, float32=tflops),
            **tera(f"at the rate of float32; {source}", float16=tflops),
        }
    return DeviceSheet(
        key=chip.replace(" ", "-"),
        name=f"Apple {chip} ({cores}-core GPU)",
        vendor="Apple",
        architecture=chip.split(" ")[0],
        kind="mps",
        driver_names=(f"Apple {chip}",),
        matrix=rates,
        vector=rates,
        memory_bytes=Figure(gib * GIB, f"{source}: at most, shared with the CPU"),
        memory_bytes_per_s=Figure(gb_per_s * GIGA, source),
        multiprocessors=Figure(cores, source),
        note="" if tflops is not None else "Apple states no arithmetic rate for this chip.",
    )


SHEETS = (
    _chip("M1", 8, 68.25, 16, M1, 2.6),
    _chip("M1 Pro", 16, 200, 32, M1_PRO, 5.2),
    _chip("M1 Max", 32, 400, 64, M1_PRO, 10.4),
    _chip("M1 Ultra", 64, 800, 128, M1_ULTRA, 21),
    _chip("M2", 10, 100, 24, M2, 3.6),
    _chip("M2 Pro", 19, 200, 32, M2_PRO, 6.8),
    _chip("M2 Max", 38, 400, 96, M2_PRO, 13.6),
    _chip("M2 Ultra", 76, 800, 192, M2_ULTRA, 27.2),
    _chip("M3", 10, 100, 24, M3, None),
    _chip("M3 Pro", 18, 150, 36, M3, None),
    _chip("M3 Max", 40, 400, 128, M3, None),
    _chip("M3 Ultra", 80, 819, 512, M3_ULTRA, None),
    _chip("M4", 10, 120, 32, M4, None),
    _chip("M4 Pro", 20, 273, 64, M4_PRO, None),
    _chip("M4 Max", 40, 546, 128, M4_PRO, None),
)
