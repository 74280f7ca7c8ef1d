"""AMD Instinct GPUs. Matrix rates are dense.

An MI250 or MI250X card holds two dies (GCDs), which PyTorch sees as two devices: the rows that
answer to driver names are those of one die; ``...-card`` rows are the whole card.
"""

from __future__ import annotations

from dataclasses import replace

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

_SHEETS = "https://www.amd.com/content/dam/amd/en/documents/instinct-tech-docs/"
MI100_SHEET = "https://www.amd.com/en/products/accelerators/instinct/mi100.html"
MI210_SHEET = "https://www.amd.com/en/products/accelerators/instinct/mi200/mi210.html"
MI250_SHEET = "https://www.amd.com/en/products/accelerators/instinct/mi200/mi250.html"
MI250X_SHEET = "https://www.amd.com/en/products/accelerators/instinct/mi200/mi250x.html"
MI300A_SHEET = f"{_SHEETS}data-sheets/amd-instinct-mi300a-data-sheet.pdf"
MI300X_SHEET = f"{_SHEETS}data-sheets/amd-instinct-mi300x-data-sheet.pdf"
MI325X_SHEET = f"{_SHEETS}product-briefs/instinct-mi325x-datasheet.pdf"
MI350X_SHEET = f"{_SHEETS}product-briefs/amd-instinct-mi350x-gpu-brochure.pdf"
MI355X_SHEET = f"{_SHEETS}product-briefs/amd-instinct-mi355x-gpu-brochure.pdf"
CDNA3 = f"{_SHEETS}white-papers/amd-cdna-3-white-paper.pdf"
ROCM_SPECS = "https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html"
MI210_L2_SWEEP = "https://github.com/te42kyfo/gpu-benches/blob/master/gpu-l2-cache/mi210.txt"
TRACES = "https://github.com/AMD-AGI/TraceLens"
HTA_TRACES = "https://github.com/facebookresearch/HolisticTraceAnalysis"


def _halves(float32: float, source: str) -> dict[str, Figure]:
    """PyTorch's element-wise kernels compute half precision in float32."""
    return tera(f"computed in float32; {source}", float16=float32, bfloat16=float32)


def _integers(units: int, clock_ghz: float, source: str) -> dict[str, Figure]:
    """64 lanes per compute unit, one 32-bit addition per clock each; 64 bits take two."""
    rate = 64 * units * clock_ghz * GIGA
    why = f"{source}: 64 lanes x {units} CUs x {clock_ghz} GHz"
    rates = {name: Figure(rate, f"as int32: {why}") for name in ("bool", "uint8", "int8", "int16")}
    rates["int32"] = Figure(rate, why)
    rates["int64"] = Figure(rate / 2, f"two additions of 32 bits each: {why}")
    return rates


# ---- CDNA 1 ---------------------------------------------------------------------------------

MI100 = DeviceSheet(
    key="MI100",
    name="AMD Instinct MI100",
    vendor="AMD",
    architecture="CDNA 1",
    kind="hip",
    driver_names=("AMD Instinct MI100",),
    matrix=tera(MI100_SHEET, float32=46.1, bfloat16=92.3, float16=184.6, int8=184.6),
    vector={
        **tera(MI100_SHEET, float64=11.5, float32=23.1),
        **_halves(23.1, MI100_SHEET),
        **_integers(120, 1.502, MI100_SHEET),
    },
    memory_bytes=Figure(32 * GIB, MI100_SHEET),
    memory_bytes_per_s=Figure(1228.8 * GIGA, MI100_SHEET),
    caches=(Cache("l2", Figure(8 * MIB, ROCM_SPECS)),),
    multiprocessors=Figure(120, MI100_SHEET),
    clock_hz=Figure(1.502e9, MI100_SHEET),
    interconnect=giga(MI100_SHEET, xgmi=276, pcie=64),
    link_peers=3,
)

# ---- CDNA 2: one die ------------------------------------------------------------------------


def _cdna2_die(
    key: str,
    name: str,
    names: tuple[str, ...],
    aliases: tuple[str, ...],
    units: int,
    rates: tuple[float, float, float],
    dies: int,
    sheet: str,
    fixed: Figure | None,
) -> DeviceSheet:
    """``rates``: the card's TFLOP/s of float16 matrix, float32 matrix and float32 vector."""
    half, single, vector = (rate / dies for rate in rates)
    why = sheet if dies == 1 else f"{sheet}: the card's figure, halved for one of its two dies"
    return DeviceSheet(
        key=key,
        name=name,
        vendor="AMD",
        architecture="CDNA 2",
        kind="hip",
        driver_names=names,
        aliases=aliases,
        matrix=tera(why, float64=single, float32=single, bfloat16=half, float16=half, int8=half),
        vector={
            **tera(why, float64=vector, float32=vector),
            **_halves(vector, why),
            **_integers(units, 1.7, sheet),
        },
        memory_bytes=Figure(64 * GIB, why),
        memory_bytes_per_s=Figure(1638.4 * GIGA, why),
        caches=(
            Cache(
                "l2",
                Figure(8 * MIB, ROCM_SPECS),
                Figure(4300 * GIGA, f"measured on an MI210, the same die: {MI210_L2_SWEEP}"),
            ),
        ),
        multiprocessors=Figure(units, sheet),
        clock_hz=Figure(1.7e9, sheet),
        interconnect=giga(sheet, pcie=64),
        kernel_fixed_s=fixed,
        note="" if dies == 1 else "One of the card's two dies, which PyTorch sees as a device.",
    )


def _card(die: DeviceSheet, key: str, name: str, aliases: tuple[str, ...]) -> DeviceSheet:
    """Both dies of an MI250 card together."""

    def twice(figure: Figure) -> Figure:
        return Figure(2 * figure.value, f"both dies: {figure.source}")

    assert die.memory_bytes is not None
    assert die.multiprocessors is not None
    return replace(
        die,
        key=key,
        name=name,
        driver_names=(),
        aliases=aliases,
        matrix={dtype: twice(rate) for dtype, rate in die.matrix.items()},
        vector={dtype: twice(rate) for dtype, rate in die.vector.items()},
        memory_bytes=twice(die.memory_bytes),
        memory_bytes_per_s=twice(die.memory_bytes_per_s),
        multiprocessors=twice(die.multiprocessors),
        caches=(),
        note="The whole card: two devices to PyTorch, each with half of everything.",
    )


MI210 = _cdna2_die(
    "MI210",
    "AMD Instinct MI210",
    ("AMD Instinct MI210",),
    (),
    104,
    (181.0, 45.3, 22.6),
    1,
    MI210_SHEET,
    Figure(1.92e-6, f"shortest kernel of a recorded step (mi210_gpu_only), {TRACES}"),
)
MI250_GCD = _cdna2_die(
    "MI250",
    "AMD Instinct MI250 (one of its two dies)",
    ("AMD Instinct MI250", "AMD Instinct MI250X / MI250"),
    ("MI250-GCD",),
    104,
    (362.1, 90.5, 45.3),
    2,
    MI250_SHEET,
    Figure(2.24e-6, f"shortest kernel of a recorded step (an MI250), {HTA_TRACES}"),
)
MI250X_GCD = _cdna2_die(
    "MI250X",
    "AMD Instinct MI250X (one of its two dies)",
    ("AMD Instinct MI250X", "AMD Instinct MI250X / MI250"),
    ("MI250X-GCD",),
    110,
    (383.0, 95.7, 47.9),
    2,
    MI250X_SHEET,
    None,
)
MI250_CARD = _card(MI250_GCD, "MI250-card", "AMD Instinct MI250 (whole card)", ())
MI250X_CARD = _card(MI250X_GCD, "MI250X-card", "AMD Instinct MI250X (whole card)", ())

# ---- CDNA 3 ---------------------------------------------------------------------------------

_MI300X_FIXED = Figure(
    0.64e-6,
    f"shortest kernel of a recorded step (mi300x_resnet_activation_checkpoint), {TRACES}: an "
    "upper bound of an empty kernel's time",
)
# Each XCD's L2 holds only what its own units use and writes back when a kernel ends: what one
# kernel leaves for the next is in the Infinity Cache. So L2 has no rate here and is no level.
_CDNA3_CACHES = (
    Cache("l2", Figure(32 * MIB, f"{ROCM_SPECS}: 4 MiB in each of 8 XCDs")),
    Cache("l3", Figure(256 * MIB, CDNA3), Figure(17.2 * TERA, f"{CDNA3}: Infinity Cache, peak")),
)


def _cdna3(
    key: str,
    name: str,
    names: tuple[str, ...],
    units: int,
    gib: int,
    tb_per_s: float,
    sheet: str,
    scale: float,
) -> DeviceSheet:
    """``scale``: compute units relative to the MI300X; clocks are the same 2.1 GHz."""
    matrix = tera(
        sheet,
        float64=163.4 * scale,
        float32=163.4 * scale,
        tf32=653.7 * scale,
        bfloat16=1307.4 * scale,
        float16=1307.4 * scale,
        int8=2614.9 * scale,
        float8_e4m3fnuz=2614.9 * scale,
        float8_e5m2fnuz=2614.9 * scale,
    )
    return DeviceSheet(
        key=key,
        name=name,
        vendor="AMD",
        architecture="CDNA 3",
        kind="hip",
        driver_names=names,
        matrix=matrix,
        vector={
            **tera(sheet, float64=81.7 * scale, float32=163.4 * scale),
            **_halves(163.4 * scale, sheet),
            **_integers(units, 2.1, sheet),
        },
        memory_bytes=Figure(gib * GIB, sheet),
        memory_bytes_per_s=Figure(tb_per_s * TERA, sheet),
        caches=_CDNA3_CACHES,
        multiprocessors=Figure(units, sheet),
        clock_hz=Figure(2.1e9, sheet),
        interconnect=giga(sheet, xgmi=896, pcie=128),
        link_peers=7,
        kernel_fixed_s=_MI300X_FIXED,
    )


MI300X = _cdna3(
    "MI300X",
    "AMD Instinct MI300X",
    ("AMD Instinct MI300X", "AMD Instinct MI300X VF", "AMD Instinct MI300X OAM"),
    304,
    192,
    5.3,
    MI300X_SHEET,
    1.0,
)
MI325X = _cdna3(
    "MI325X",
    "AMD Instinct MI325X",
    ("AMD Instinct MI325X", "AMD Instinct MI325X VF"),
    304,
    256,
    6.0,
    MI325X_SHEET,
    1.0,
)
MI300A = replace(
    _cdna3(
        "MI300A",
        "AMD Instinct MI300A",
        ("AMD Instinct MI300A",),
        228,
        128,
        5.3,
        f"{MI300A_SHEET}: 228 of the MI300X's 304 CUs at its clock",
        228 / 304,
    ),
    # 6 of 8 XCDs.
    caches=(
        Cache("l2", Figure(24 * MIB, f"{ROCM_SPECS}: 4 MiB in each of 6 XCDs")),
        _CDNA3_CACHES[1],
    ),
    kernel_fixed_s=None,
    link_peers=3,
    note="Memory is shared with the processor cores.",
)

MI308X = replace(
    _cdna3(
        "MI308X",
        "AMD Instinct MI308X",
        ("AMD Instinct MI308X",),
        80,
        192,
        5.3,
        f"{MI300X_SHEET}: 80 of the MI300X's 304 CUs (ROCm's tuning guides) at its clock",
        80 / 304,
    ),
    # 4 of 8 XCDs, 20 CUs each.
    caches=(
        Cache("l2", Figure(16 * MIB, f"{ROCM_SPECS}: 4 MiB in each of 4 XCDs")),
        _CDNA3_CACHES[1],
    ),
    kernel_fixed_s=None,
    note="AMD states no rates for it: those here are bounds, of its CUs at the MI300X's clock.",
)

# ---- CDNA 4 ---------------------------------------------------------------------------------


def _cdna4(key: str, name: str, clock_ghz: float, sheet: str) -> DeviceSheet:
    """Rates per clock and CU from the MI355X's: 2516.6 TFLOP/s = 256 x 4096 x 2.4 GHz."""

    def at_clock(flops_per_clock: float) -> float:
        return 256 * flops_per_clock * clock_ghz / 1000

    return DeviceSheet(
        key=key,
        name=name,
        vendor="AMD",
        architecture="CDNA 4",
        kind="hip",
        driver_names=(name, f"{name} VF"),
        matrix=tera(
            sheet,
            float64=at_clock(128),
            float32=at_clock(256),
            bfloat16=at_clock(4096),
            float16=at_clock(4096),
            int8=at_clock(8192),
            float8_e4m3fn=at_clock(8192),
            float8_e5m2=at_clock(8192),
            float4_e2m1fn_x2=at_clock(16384),
        ),
        vector={
            **tera(sheet, float64=at_clock(128), float32=at_clock(256)),
            **_halves(at_clock(256), sheet),
            **_integers(256, clock_ghz, sheet),
        },
        memory_bytes=Figure(288 * GIB, sheet),
        memory_bytes_per_s=Figure(8.0 * TERA, sheet),
        caches=(
            Cache("l2", Figure(32 * MIB, f"{ROCM_SPECS}: 4 MiB in each of 8 XCDs")),
            Cache("l3", Figure(256 * MIB, ROCM_SPECS)),
        ),
        multiprocessors=Figure(256, sheet),
        clock_hz=Figure(clock_ghz * GIGA, sheet),
        interconnect=giga(sheet, xgmi=1075, pcie=128),
        link_peers=7,
    )


MI350X = _cdna4("MI350X", "AMD Instinct MI350X", 2.2, MI350X_SHEET)
MI355X = _cdna4("MI355X", "AMD Instinct MI355X", 2.4, MI355X_SHEET)

SHEETS = (
    MI100,
    MI210,
    MI250X_GCD,
    MI250_GCD,
    MI250X_CARD,
    MI250_CARD,
    MI300A,
    MI300X,
    MI308X,
    MI325X,
    MI350X,
    MI355X,
)
