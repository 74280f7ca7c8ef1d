"""Intel Data Center GPU Max and Gaudi.

A Max 1550 holds two stacks, which PyTorch sees as two devices unless told otherwise
(``ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE``): the row of the driver's name is one stack.
"""

from __future__ import annotations

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

MAX_OVERVIEW = (
    "https://www.intel.com/content/www/us/en/developer/articles/technical/"
    "intel-data-center-gpu-max-series-overview.html"
)
MAX_1550_ARK = (
    "https://ark.intel.com/content/www/us/en/ark/products/232873/"
    "intel-data-center-gpu-max-1550.html"
)
GAUDI3_SLIDES = (
    "https://servethehome.com/intel-gaudi-3-for-ai-training-and-inference (Hot Chips 2024)"
)


def _max_1550(
    key: str, name: str, names: tuple[str, ...], aliases: tuple[str, ...], cores: int, note: str
) -> DeviceSheet:
    def at_clock(flops_per_clock: float) -> float:
        return cores * flops_per_clock * 1.6 / 1000

    why = f"{MAX_OVERVIEW}: rate per clock and Xe core x {cores} cores x 1.6 GHz"
    share = cores / 128
    return DeviceSheet(
        key=key,
        name=name,
        vendor="Intel",
        architecture="Xe HPC",
        kind="xpu",
        driver_names=names,
        aliases=aliases,
        matrix=tera(
            why,
            tf32=at_clock(2048),
            bfloat16=at_clock(4096),
            float16=at_clock(4096),
            int8=at_clock(8192),
        ),
        vector={
            **tera(why, float64=at_clock(256), float32=at_clock(256), float16=at_clock(512)),
            **tera(f"computed in float32; {why}", bfloat16=at_clock(256)),
        },
        memory_bytes=Figure(128 * GIB * share, MAX_1550_ARK),
        memory_bytes_per_s=Figure(3276.8 * GIGA * share, MAX_1550_ARK),
        caches=(Cache("l2", Figure(408 * MIB * share, MAX_OVERVIEW)),),
        multiprocessors=Figure(cores, MAX_1550_ARK),
        clock_hz=Figure(1.6e9, MAX_1550_ARK),
        interconnect=giga(MAX_OVERVIEW, pcie=128),
        note=note,
    )


MAX_1550_STACK = _max_1550(
    "Max-1550",
    "Intel Data Center GPU Max 1550 (one of its two stacks)",
    ("Intel(R) Data Center GPU Max 1550",),
    ("PVC", "Ponte Vecchio", "Max-1550-stack"),
    64,
    "One of the card's two stacks, which PyTorch sees as a device.",
)
MAX_1550_CARD = _max_1550(
    "Max-1550-card",
    "Intel Data Center GPU Max 1550 (whole card)",
    (),
    (),
    128,
    "The whole card: two devices to PyTorch, each with half of everything.",
)

GAUDI_2 = DeviceSheet(
    key="Gaudi2",
    name="Intel Gaudi 2",
    vendor="Intel",
    architecture="Gaudi 2",
    kind="hpu",
    driver_names=("GAUDI2",),
    aliases=("Gaudi 2", "HL-225"),
    matrix=tera(GAUDI3_SLIDES, bfloat16=432),
    vector={},
    memory_bytes=Figure(96 * GIB, GAUDI3_SLIDES),
    memory_bytes_per_s=Figure(2.46 * TERA, GAUDI3_SLIDES),
    interconnect=giga(GAUDI3_SLIDES, ethernet=600, pcie=64),
    link_peers=7,
    note="No vector rate is stated.",
)

GAUDI_3 = DeviceSheet(
    key="Gaudi3",
    name="Intel Gaudi 3",
    vendor="Intel",
    architecture="Gaudi 3",
    kind="hpu",
    driver_names=("GAUDI3",),
    aliases=("Gaudi 3", "HL-325"),
    matrix=tera(GAUDI3_SLIDES, bfloat16=1835, float8_e4m3fn=1835, float8_e5m2=1835),
    vector=tera(GAUDI3_SLIDES, bfloat16=28.7),
    memory_bytes=Figure(128 * GIB, GAUDI3_SLIDES),
    memory_bytes_per_s=Figure(3.67 * TERA, GAUDI3_SLIDES),
    caches=(Cache("l2", Figure(96 * MIB, GAUDI3_SLIDES), Figure(12.8 * TERA, GAUDI3_SLIDES)),),
    interconnect=giga(GAUDI3_SLIDES, ethernet=1200, pcie=128),
    link_peers=7,
    note="The vector rate is stated for bfloat16 alone.",
)

SHEETS = (MAX_1550_STACK, MAX_1550_CARD, GAUDI_2, GAUDI_3)
