"""Server processors, one socket, by what their instruction sets do in a clock.

A rate is cores x FLOPs per clock and core x the clock that all cores are stated to hold: the
all-core boost where the sheet has one, else the base clock, which real code can exceed. A
processor that is here is better measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.devices.datasheets.sheet import GIGA, MIB, Cache, DeviceSheet, Figure, tera

ZEN3 = (
    "https://www.amd.com/content/dam/amd/en/documents/epyc-technical-docs/"
    "software-optimization-guides/56665.zip (Zen 3: two 256-bit FMA units)"
)
ZEN4 = (
    "https://www.amd.com/content/dam/amd/en/documents/epyc-technical-docs/"
    "software-optimization-guides/57647.zip (Zen 4: two 256-bit FMA units, AVX512_BF16)"
)
ZEN5 = (
    "https://www.amd.com/content/dam/amd/en/documents/epyc-technical-docs/"
    "software-optimization-guides/58455.zip (Zen 5: two 512-bit FMA units)"
)
INTEL_GUIDE = (
    "https://www.intel.com/content/www/us/en/developer/articles/technical/"
    "intel64-and-ia32-architectures-optimization.html (two 512-bit FMA units; AMX: 1024 bfloat16 "
    "or 2048 int8 multiply-adds per clock)"
)
NEOVERSE_N1 = "https://developer.arm.com/documentation/swog309707 (N1: two 128-bit FMA units)"
NEOVERSE_V1 = (
    "https://developer.arm.com/documentation/pjdoc466751330-9685 (V1: two 256-bit FMA units)"
)
NEOVERSE_V2 = "https://developer.arm.com/documentation/109898 (V2: four 128-bit FMA units)"


@dataclass(frozen=True, slots=True)
class _Core:
    """FLOPs per clock and core, a multiply-add counting two."""

    architecture: str
    source: str
    float32: int
    bfloat16: int | None = None
    int8: int | None = None


_CORES = {
    "Zen 3": _Core("Zen 3", ZEN3, 32),
    # VDPBF16PS does two multiply-adds where an FMA does one.
    "Zen 4": _Core("Zen 4", ZEN4, 32, bfloat16=64),
    "Zen 5": _Core("Zen 5", ZEN5, 64, bfloat16=128),
    "Ice Lake": _Core("Ice Lake", INTEL_GUIDE, 64),
    "Sapphire Rapids": _Core("Sapphire Rapids", INTEL_GUIDE, 64, bfloat16=2048, int8=4096),
    "Neoverse N1": _Core("Neoverse N1", NEOVERSE_N1, 16),
    "Neoverse V1": _Core("Neoverse V1", NEOVERSE_V1, 32),
    "Neoverse V2": _Core("Neoverse V2", NEOVERSE_V2, 32),
}


def _cpu(
    key: str,
    name: str,
    vendor: str,
    core: str,
    cores: int,
    clock_ghz: float,
    gb_per_s: float,
    l3_mib: float,
    sheet: str,
    names: tuple[str, ...] = (),
) -> DeviceSheet:
    kind = _CORES[core]
    why = f"{kind.source} x {cores} cores x {clock_ghz} GHz ({sheet})"

    def rate(per_clock: int) -> float:
        return cores * per_clock * clock_ghz / 1000

    single, double = rate(kind.float32), rate(kind.float32) / 2
    matrix = tera(why, float32=single, float64=double)
    if kind.bfloat16 is not None:
        matrix |= tera(why, bfloat16=rate(kind.bfloat16))
    if kind.int8 is not None:
        matrix |= tera(why, int8=rate(kind.int8))
    halves = tera(f"computed in float32; {why}", bfloat16=single, float16=single)
    return DeviceSheet(
        key=key,
        name=name,
        vendor=vendor,
        architecture=kind.architecture,
        kind="cpu",
        driver_names=names,
        matrix=matrix,
        vector={**tera(why, float32=single, float64=double), **halves},
        memory_bytes=None,
        memory_bytes_per_s=Figure(gb_per_s * GIGA, sheet),
        caches=(Cache("l3", Figure(l3_mib * MIB, sheet)),),
        multiprocessors=Figure(cores, sheet),
        clock_hz=Figure(clock_ghz * GIGA, sheet),
        note="One socket with every memory channel filled at its highest speed.",
    )


_EPYC = "https://www.amd.com/en/products/processors/server/epyc"
_ARK = "https://ark.intel.com/content/www/us/en/ark/products"

SHEETS = (
    _cpu(
        "EPYC-7763", "AMD EPYC 7763", "AMD", "Zen 3", 64, 2.45, 204.8, 256,
        f"{_EPYC}/7003-series/amd-epyc-7763.html (base clock)",
        ("AMD EPYC 7763 64-Core Processor",),
    ),
    _cpu(
        "EPYC-9654", "AMD EPYC 9654", "AMD", "Zen 4", 96, 3.55, 460.8, 384,
        f"{_EPYC}/4th-generation-9004-and-8004-series/amd-epyc-9654.html",
        ("AMD EPYC 9654 96-Core Processor",),
    ),
    _cpu(
        "EPYC-9755", "AMD EPYC 9755", "AMD", "Zen 5", 128, 2.7, 614.4, 512,
        f"{_EPYC}/9005-series/amd-epyc-9755.html (base clock, DDR5-6400)",
        ("AMD EPYC 9755 128-Core Processor",),
    ),
    _cpu(
        "Xeon-8380", "Intel Xeon Platinum 8380", "Intel", "Ice Lake", 40, 2.3, 204.8, 60,
        f"{_ARK}/212287/intel-xeon-platinum-8380-processor.html (base clock)",
        ("Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz",),
    ),
    _cpu(
        "Xeon-8480+", "Intel Xeon Platinum 8480+", "Intel", "Sapphire Rapids", 56, 2.0, 307.2, 105,
        f"{_ARK}/231746/intel-xeon-platinum-8480-processor.html (base clock)",
        ("Intel(R) Xeon(R) Platinum 8480+", "Intel(R) Xeon(R) Platinum 8480C"),
    ),
    _cpu(
        "Xeon-8592+", "Intel Xeon Platinum 8592+", "Intel", "Sapphire Rapids", 64, 1.9, 358.4, 320,
        f"{_ARK}/237261/intel-xeon-platinum-8592-processor.html (base clock; Emerald Rapids, the "
        "same cores)",
        ("INTEL(R) XEON(R) PLATINUM 8592+",),
    ),
    _cpu(
        "Altra-Q80-30", "Ampere Altra Q80-30", "Ampere", "Neoverse N1", 80, 3.0, 204.8, 32,
        "https://amperecomputing.com/briefs/ampere-altra-family-product-brief",
    ),
    _cpu(
        "Graviton3", "AWS Graviton3", "AWS", "Neoverse V1", 64, 2.6, 307.2, 32,
        "https://github.com/aws/aws-graviton-getting-started",
    ),
    _cpu(
        "Grace", "NVIDIA Grace (one of a superchip's two)", "NVIDIA", "Neoverse V2", 72, 3.1, 512,
        114,
        "https://resources.nvidia.com/en-us-grace-cpu/data-center-datasheet (half a superchip)",
    ),
)  # fmt: skip
