"""The power that a board may draw, in watts, by key of the device.

What the vendor states as TDP or maximum power of the board (for a part of a card: its share, said
in the source). Cards whose limit varies between products have no row.
"""

from __future__ import annotations

from gobrrr.devices.datasheets.nvidia_sources import (
    A10_SHEET,
    A30_SHEET,
    A40_SHEET,
    A100_SHEET,
    BLACKWELL,
    GA102,
    GB300_SHEET,
    H100_SHEET,
    H200_SHEET,
    HGX_SHEET,
    L4_SHEET,
    L40S_SHEET,
    P4_SHEET,
    P100_SHEET,
    RTX_6000_ADA_SHEET,
    RTX_A6000_SHEET,
    RTX_BLACKWELL,
    RTX_PRO_MAX_Q_SHEET,
    RTX_PRO_PAPER,
    RTX_PRO_SERVER_SHEET,
    T4_SHEET,
    V100_SHEET,
)
from gobrrr.devices.datasheets.sheet import Figure

_ADA_4090 = "https://www.nvidia.com/en-us/geforce/graphics-cards/40-series/rtx-4090/"
_ADA_4080 = "https://www.nvidia.com/en-us/geforce/graphics-cards/40-series/rtx-4080-family/"
_AMD = "https://www.amd.com/en/products/accelerators/instinct.html"
_MAX = (
    "https://ark.intel.com/content/www/us/en/ark/products/232873/"
    "intel-data-center-gpu-max-1550.html"
)
# A list of AWS's instances with their GPUs, by Shashank Prasanna of AWS.
_AWS_GPUS = "https://gist.github.com/shashankprasanna/10ebe6dc1ba1d8d93db17da4e2cc890e"
_GAUDI = (
    "https://www.intel.com/content/www/us/en/products/details/processors/ai-accelerators/gaudi.html"
)

BOARD_POWER_W: dict[str, Figure] = {
    "P100-PCIe": Figure(250, P100_SHEET),
    "P4": Figure(75, P4_SHEET),
    "V100-SXM2": Figure(300, V100_SHEET),
    "V100-SXM2-32GB": Figure(300, V100_SHEET),
    "V100-PCIe": Figure(250, V100_SHEET),
    "V100-PCIe-32GB": Figure(250, V100_SHEET),
    "T4": Figure(70, T4_SHEET),
    "A10": Figure(150, A10_SHEET),
    "A10G": Figure(300, f"{_AWS_GPUS}: limit in nvidia-smi"),
    "A100-SXM-40GB": Figure(400, A100_SHEET),
    "A100-SXM-80GB": Figure(400, A100_SHEET),
    "A100-PCIe-40GB": Figure(250, A100_SHEET),
    "A100-PCIe-80GB": Figure(300, A100_SHEET),
    "A30": Figure(165, A30_SHEET),
    "A40": Figure(300, A40_SHEET),
    "RTX-A6000": Figure(300, RTX_A6000_SHEET),
    "RTX-3090": Figure(350, GA102),
    "RTX-4090": Figure(450, _ADA_4090),
    "RTX-4080": Figure(320, _ADA_4080),
    "RTX-5090": Figure(575, RTX_BLACKWELL),
    "L4": Figure(72, L4_SHEET),
    "L40S": Figure(350, L40S_SHEET),
    "RTX-6000-Ada": Figure(300, RTX_6000_ADA_SHEET),
    "RTX-PRO-6000": Figure(600, RTX_PRO_PAPER),
    "RTX-PRO-6000-Server": Figure(600, f"{RTX_PRO_SERVER_SHEET}: 400 to 600 W, configurable"),
    "RTX-PRO-6000-Max-Q": Figure(300, RTX_PRO_MAX_Q_SHEET),
    "H100-SXM": Figure(700, H100_SHEET),
    "H100-PCIe": Figure(350, H100_SHEET),
    "H100-NVL": Figure(400, f"{H100_SHEET}: 350 to 400 W, configurable"),
    "H200-SXM": Figure(700, H200_SHEET),
    "H200-NVL": Figure(600, H200_SHEET),
    "B200": Figure(1000, BLACKWELL),
    "GB200": Figure(1200, BLACKWELL),
    "B300": Figure(1100, HGX_SHEET),
    "GB300": Figure(1400, GB300_SHEET),
    "MI100": Figure(300, _AMD),
    "MI210": Figure(300, _AMD),
    "MI250X": Figure(280, f"{_AMD}: 560 W for the card's two devices"),
    "MI250": Figure(280, f"{_AMD}: 560 W for the card's two devices"),
    "MI250X-card": Figure(560, _AMD),
    "MI250-card": Figure(560, _AMD),
    "MI300A": Figure(550, f"{_AMD}: 550 W, 760 W at peak"),
    "MI300X": Figure(750, _AMD),
    "MI325X": Figure(1000, _AMD),
    "MI350X": Figure(1000, _AMD),
    "MI355X": Figure(1400, _AMD),
    "Max-1550": Figure(300, f"{_MAX}: 600 W for the card's two devices"),
    "Max-1550-card": Figure(600, _MAX),
    "Gaudi2": Figure(600, _GAUDI),
    "Gaudi3": Figure(900, f"{_GAUDI}: the OAM card, air-cooled"),
}
