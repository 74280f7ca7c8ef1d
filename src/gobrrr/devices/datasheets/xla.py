"""Google's TPUs and AWS's Trainium: chips that PyTorch reaches through the XLA compiler.

Their on-chip memories are managed by the compiler and are no caches. No vector rate is stated.
"""

from __future__ import annotations

from gobrrr.devices.datasheets.nvidia_sources import with_float8
from gobrrr.devices.datasheets.sheet import GIGA, MIB, TERA, DeviceSheet, Figure, giga, tera

GIB = 1024 * MIB
_TPU = "https://docs.cloud.google.com/tpu/docs/"
_TPU_V4_PAPER = (
    "https://arxiv.org/abs/2304.01433 (TPU v4: An Optically Reconfigurable Supercomputer, table 4: "
    "192 W at the most)"
)
TRAINIUM_2_SHEET = (
    "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/about-neuron/arch/neuron-hardware/"
    "trainium2.html"
)
_COMPILED = (
    "PyTorch runs on it through XLA, which compiles whole graphs. That is not modelled: the "
    "prediction is the time of CUDA-like kernels at these rates."
)


def _tpu(
    version: str,
    bfloat16: float,
    int8: float,
    memory: float,
    gb_per_s: float,
    ici_gb_per_s: float,
    board_power_w: Figure | None = None,
) -> DeviceSheet:
    """``memory``: bytes; ``ici_gb_per_s``: links to other chips, both directions together."""
    sheet = f"{_TPU}{version}"
    return DeviceSheet(
        key=f"TPU-{version}",
        name=f"Google Cloud TPU {version}",
        vendor="Google",
        architecture=f"TPU {version}",
        kind="xla",
        driver_names=(),
        aliases=("Trillium",) if version == "v6e" else (),
        matrix=tera(sheet, bfloat16=bfloat16, int8=int8),
        vector={},
        memory_bytes=Figure(memory, sheet),
        memory_bytes_per_s=Figure(gb_per_s * GIGA, sheet),
        interconnect=giga(sheet, ici=ici_gb_per_s),
        board_power_w=board_power_w,
        note=_COMPILED,
    )


TPU_V4 = _tpu("v4", 275, 275, 32 * GIB, 1228, 600, Figure(192, _TPU_V4_PAPER))
TPU_V5E = _tpu("v5e", 197, 393, 16 * GIGA, 819, 400)
TPU_V5P = _tpu("v5p", 459, 918, 95 * GIGA, 2765, 1200)
TPU_V6E = _tpu("v6e", 918, 1836, 32 * GIGA, 1638, 800)

TRAINIUM_2 = DeviceSheet(
    key="Trainium2",
    name="AWS Trainium2",
    vendor="AWS",
    architecture="Trainium 2",
    kind="xla",
    driver_names=(),
    aliases=("Trn2", "Trainium 2"),
    matrix=with_float8(
        tera(TRAINIUM_2_SHEET, float32=181, tf32=667, bfloat16=667, float16=667),
        1299 * TERA,
        TRAINIUM_2_SHEET,
    ),
    vector={},
    memory_bytes=Figure(96 * GIB, TRAINIUM_2_SHEET),
    memory_bytes_per_s=Figure(2.9 * TERA, TRAINIUM_2_SHEET),
    interconnect=giga(TRAINIUM_2_SHEET, neuronlink=1280),
    note=_COMPILED,
)

SHEETS = (TPU_V4, TPU_V5E, TPU_V5P, TPU_V6E, TRAINIUM_2)
