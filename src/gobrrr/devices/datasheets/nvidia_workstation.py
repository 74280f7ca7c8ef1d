"""NVIDIA GeForce, workstation and inference cards, Ampere to Blackwell. Matrix rates are dense.

GeForce tensor cores run at half rate when they accumulate in float32, which is what PyTorch asks
for; the rates here are those.
"""

from __future__ import annotations

from dataclasses import replace

from gobrrr.devices.datasheets.nvidia_sources import (
    ADA,
    GA102,
    L2_SWEEP,
    L4_SHEET,
    L40S_SHEET,
    RTX_6000_ADA_SHEET,
    RTX_BLACKWELL,
    RTX_PRO_MAX_Q_SHEET,
    RTX_PRO_PAPER,
    RTX_PRO_SERVER_SHEET,
    exp_rate,
    integers,
    l2,
    with_float8,
)
from gobrrr.devices.datasheets.sheet import GIGA, MIB, TERA, DeviceSheet, Figure, giga, tera

GIB = 1024 * MIB

# The L40 has the same GPU as the L40S and the RTX 6000 Ada, with as many SMs and as much cache.
_AD102_L2 = l2(
    96,
    ADA,
    Figure(5230 * GIGA, f"measured on an L40, the same GPU: {L2_SWEEP}l40.txt"),
    Figure(89.5 * MIB, f"measured on an L40: {L2_SWEEP}l40.txt, rate kept up to 91648 kB"),
)

RTX_3090 = DeviceSheet(
    key="RTX-3090",
    name="NVIDIA GeForce RTX 3090",
    vendor="NVIDIA",
    architecture="Ampere GA10x half-rate",
    kind="cuda",
    driver_names=("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
    matrix=tera(GA102, tf32=35.6, bfloat16=71, float16=71, int8=284),
    vector={
        **tera(GA102, float32=35.6, float16=35.6, bfloat16=35.6),
        **tera(f"{GA102}: 1/64 of float32", float64=35.6 / 64),
        **integers(82, 1.695),
    },
    exp_per_s=exp_rate(82, 1.695),
    memory_bytes=Figure(24 * GIB, GA102),
    memory_bytes_per_s=Figure(936 * GIGA, GA102),
    caches=l2(6, GA102),
    multiprocessors=Figure(82, GA102),
    clock_hz=Figure(1.695e9, GA102),
    interconnect=giga(GA102, nvlink=112.5, pcie=64),
    link_peers=1,
)

L4 = DeviceSheet(
    key="L4",
    name="NVIDIA L4",
    vendor="NVIDIA",
    architecture="Ada",
    kind="cuda",
    driver_names=("NVIDIA L4",),
    matrix=with_float8(
        tera(
            f"{L4_SHEET}: stated with sparsity, halved",
            tf32=60,
            bfloat16=121,
            float16=121,
            int8=242.5,
        ),
        242.5 * TERA,
        f"{L4_SHEET}: stated with sparsity, halved",
    ),
    vector={
        **tera(L4_SHEET, float32=30.3),
        **tera(f"{ADA}: as float32", float16=30.3, bfloat16=30.3),
        **tera(f"{ADA}: 1/64 of float32", float64=30.3 / 64),
        **integers(58, 2.04),
    },
    exp_per_s=exp_rate(58, 2.04),
    memory_bytes=Figure(24 * GIB, L4_SHEET),
    memory_bytes_per_s=Figure(300 * GIGA, L4_SHEET),
    caches=l2(48, ADA),
    multiprocessors=Figure(58, ADA),
    clock_hz=Figure(2.04e9, f"{L4_SHEET}: 30.3 TFLOP/s = 58 x 256 x 2.04 GHz"),
    interconnect=giga(L4_SHEET, pcie=64),
    note="Runs well below its boost clock within its 72 W.",
)

L40S = DeviceSheet(
    key="L40S",
    name="NVIDIA L40S",
    vendor="NVIDIA",
    architecture="Ada",
    kind="cuda",
    driver_names=("NVIDIA L40S",),
    matrix=with_float8(
        tera(L40S_SHEET, tf32=183, bfloat16=362.05, float16=362.05, int8=733),
        733 * TERA,
        L40S_SHEET,
    ),
    vector={
        **tera(L40S_SHEET, float32=91.6),
        **tera(f"{ADA}: as float32", float16=91.6, bfloat16=91.6),
        **tera(f"{ADA}: 1/64 of float32", float64=91.6 / 64),
        **integers(142, 2.52),
    },
    exp_per_s=exp_rate(142, 2.52),
    memory_bytes=Figure(48 * GIB, L40S_SHEET),
    memory_bytes_per_s=Figure(864 * GIGA, L40S_SHEET),
    caches=_AD102_L2,
    multiprocessors=Figure(142, L40S_SHEET),
    clock_hz=Figure(2.52e9, f"{L40S_SHEET}: 91.6 TFLOP/s = 142 x 256 x 2.52 GHz"),
    interconnect=giga(L40S_SHEET, pcie=64),
)

RTX_6000_ADA = DeviceSheet(
    key="RTX-6000-Ada",
    name="NVIDIA RTX 6000 Ada Generation",
    vendor="NVIDIA",
    architecture="Ada",
    kind="cuda",
    driver_names=("NVIDIA RTX 6000 Ada Generation",),
    matrix=with_float8(
        tera(
            f"{RTX_6000_ADA_SHEET}: 1457 TFLOP/s of float8 with sparsity, and {ADA} for the ratios",
            tf32=182.1,
            bfloat16=364.2,
            float16=364.2,
            int8=728.5,
        ),
        728.5 * TERA,
        f"{RTX_6000_ADA_SHEET}: stated with sparsity, halved",
    ),
    vector={
        **tera(RTX_6000_ADA_SHEET, float32=91.1),
        **tera(f"{ADA}: as float32", float16=91.1, bfloat16=91.1),
        **tera(f"{ADA}: 1/64 of float32", float64=91.1 / 64),
        **integers(142, 2.505),
    },
    exp_per_s=exp_rate(142, 2.505),
    memory_bytes=Figure(48 * GIB, RTX_6000_ADA_SHEET),
    memory_bytes_per_s=Figure(960 * GIGA, RTX_6000_ADA_SHEET),
    caches=_AD102_L2,
    multiprocessors=Figure(142, ADA),
    clock_hz=Figure(2.505e9, f"{RTX_6000_ADA_SHEET}: 91.1 TFLOP/s = 142 x 256 x 2.505 GHz"),
    interconnect=giga(RTX_6000_ADA_SHEET, pcie=64),
)

RTX_4090 = DeviceSheet(
    key="RTX-4090",
    name="NVIDIA GeForce RTX 4090",
    vendor="NVIDIA",
    architecture="Ada half-rate",
    kind="cuda",
    driver_names=("NVIDIA GeForce RTX 4090",),
    matrix=with_float8(
        tera(ADA, tf32=82.6, bfloat16=165.2, float16=165.2, int8=660.6), 330.3 * TERA, ADA
    ),
    vector={
        **tera(ADA, float32=82.6, float16=82.6, bfloat16=82.6),
        **tera(f"{ADA}: 1/64 of float32", float64=82.6 / 64),
        **integers(128, 2.52),
    },
    exp_per_s=exp_rate(128, 2.52),
    memory_bytes=Figure(24 * GIB, ADA),
    memory_bytes_per_s=Figure(1008 * GIGA, ADA),
    caches=l2(72, ADA),
    multiprocessors=Figure(128, ADA),
    clock_hz=Figure(2.52e9, ADA),
    interconnect=giga(ADA, pcie=64),
)

RTX_5090 = DeviceSheet(
    key="RTX-5090",
    name="NVIDIA GeForce RTX 5090",
    vendor="NVIDIA",
    architecture="RTX Blackwell half-rate",
    kind="cuda",
    driver_names=("NVIDIA GeForce RTX 5090",),
    matrix=with_float8(
        tera(
            RTX_BLACKWELL,
            tf32=104.8,
            bfloat16=209.5,
            float16=209.5,
            int8=838,
            float4_e2m1fn_x2=1676,
        ),
        419 * TERA,
        RTX_BLACKWELL,
    ),
    vector={
        **tera(RTX_BLACKWELL, float32=104.8, float16=104.8, bfloat16=104.8),
        **tera(f"{RTX_BLACKWELL}: 1/64 of float32", float64=104.8 / 64),
        **integers(170, 2.407, 128, RTX_BLACKWELL),
    },
    exp_per_s=exp_rate(170, 2.407),
    memory_bytes=Figure(32 * GIB, RTX_BLACKWELL),
    memory_bytes_per_s=Figure(1792 * GIGA, RTX_BLACKWELL),
    caches=l2(96, RTX_BLACKWELL),
    multiprocessors=Figure(170, RTX_BLACKWELL),
    clock_hz=Figure(2.407e9, RTX_BLACKWELL),
    interconnect=giga(RTX_BLACKWELL, pcie=128),
)


def _rtx_pro_6000(
    key: str, name: str, driver: str, aliases: tuple[str, ...], clock_ghz: float, source: str
) -> DeviceSheet:
    def at_clock(flops_per_clock: float) -> float:
        return 188 * flops_per_clock * clock_ghz / 1000

    why = f"{source}: 188 SMs x the rate per clock of {RTX_PRO_PAPER} x {clock_ghz} GHz"
    return DeviceSheet(
        key=key,
        name=name,
        vendor="NVIDIA",
        architecture="RTX Blackwell",
        kind="cuda",
        driver_names=(driver,),
        aliases=aliases,
        matrix=with_float8(
            tera(
                why,
                tf32=at_clock(512),
                bfloat16=at_clock(1024),
                float16=at_clock(1024),
                int8=at_clock(2048),
                float4_e2m1fn_x2=at_clock(4096),
            ),
            at_clock(2048) * TERA,
            why,
        ),
        vector={
            **tera(why, float32=at_clock(256), float16=at_clock(256), bfloat16=at_clock(256)),
            **tera(f"{RTX_PRO_PAPER}: 1/64 of float32", float64=at_clock(4)),
            **integers(188, clock_ghz, 128, RTX_PRO_PAPER),
        },
        exp_per_s=exp_rate(188, clock_ghz),
        memory_bytes=Figure(96 * GIB, RTX_PRO_PAPER),
        memory_bytes_per_s=Figure(1792 * GIGA, RTX_PRO_PAPER),
        caches=l2(128, RTX_PRO_PAPER),
        multiprocessors=Figure(188, RTX_PRO_PAPER),
        clock_hz=Figure(clock_ghz * GIGA, source),
        interconnect=giga(RTX_PRO_PAPER, pcie=128),
    )


RTX_PRO_6000 = _rtx_pro_6000(
    "RTX-PRO-6000",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    ("RTX PRO 6000", "RTX PRO 6000 Blackwell"),
    2.617,
    RTX_PRO_PAPER,
)
RTX_PRO_6000_MAX_Q = _rtx_pro_6000(
    "RTX-PRO-6000-Max-Q",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    (),
    2.28,
    f"{RTX_PRO_MAX_Q_SHEET}: 110 TFLOP/s and 3511 TOPS (float4, sparse)",
)
RTX_PRO_6000_SERVER = replace(
    _rtx_pro_6000(
        "RTX-PRO-6000-Server",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        (),
        2.493,
        f"{RTX_PRO_SERVER_SHEET}: 120 TFLOP/s of float32",
    ),
    memory_bytes_per_s=Figure(1597 * GIGA, RTX_PRO_SERVER_SHEET),
)

SHEETS = (
    RTX_3090,
    RTX_4090,
    RTX_5090,
    L4,
    L40S,
    RTX_6000_ADA,
    RTX_PRO_6000,
    RTX_PRO_6000_MAX_Q,
    RTX_PRO_6000_SERVER,
)
