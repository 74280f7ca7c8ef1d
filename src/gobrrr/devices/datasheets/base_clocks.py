"""The clock that a card keeps under any load within its power, in hertz, by key of the device.

Vendors call it base clock. Cards whose vendor states the boost clock alone have no row.
"""

from __future__ import annotations

from gobrrr.devices.datasheets.nvidia_sources import (
    A10_SHEET,
    A30_SHEET,
    A40_SHEET,
    A100_SHEET,
    GEFORCE,
    H100_SHEET,
    H200_SHEET,
    L4_SHEET,
    L40S_SHEET,
    T4_SHEET,
)
from gobrrr.devices.datasheets.sheet import GIGA, Figure


def _brief(ghz: float, card: str, page: str) -> Figure:
    return Figure(ghz * GIGA, f"NVIDIA {card} product brief (linked from {page})")


BASE_CLOCK_HZ: dict[str, Figure] = {
    "T4": _brief(0.585, "T4 Tensor Core GPU", T4_SHEET),
    "A10": _brief(0.885, "A10 GPU accelerator", A10_SHEET),
    "A30": _brief(0.930, "A30 GPU accelerator", A30_SHEET),
    "A40": _brief(1.305, "A40 GPU accelerator", A40_SHEET),
    "A100-PCIe-40GB": _brief(0.765, "A100 40GB PCIe GPU accelerator", A100_SHEET),
    "A100-PCIe-80GB": _brief(1.065, "A100 80GB PCIe GPU accelerator", A100_SHEET),
    "L4": _brief(0.795, "L4 GPU accelerator", L4_SHEET),
    "L40S": _brief(1.110, "L40S GPU accelerator", L40S_SHEET),
    "H100-PCIe": _brief(1.125, "H100 PCIe GPU", H100_SHEET),
    "H100-NVL": _brief(1.080, "H100 NVL GPU", H100_SHEET),
    "H200-NVL": _brief(1.365, "H200 NVL GPU", H200_SHEET),
    "RTX-3090": Figure(1.40e9, GEFORCE),
    "RTX-4070": Figure(1.92e9, GEFORCE),
    "RTX-4070-Super": Figure(1.98e9, GEFORCE),
    "RTX-4070-Ti": Figure(2.31e9, GEFORCE),
    "RTX-4070-Ti-Super": Figure(2.34e9, GEFORCE),
    "RTX-4080": Figure(2.21e9, GEFORCE),
    "RTX-4080-Super": Figure(2.29e9, GEFORCE),
    "RTX-4090": Figure(2.23e9, GEFORCE),
    "RTX-5070": Figure(2.33e9, GEFORCE),
    "RTX-5070-Ti": Figure(2.30e9, GEFORCE),
    "RTX-5080": Figure(2.30e9, GEFORCE),
    "RTX-5090": Figure(2.01e9, GEFORCE),
}
