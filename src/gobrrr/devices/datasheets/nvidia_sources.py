"""Documents behind the NVIDIA rows, and what follows from them for every device of a kind."""

from __future__ import annotations

from collections.abc import Mapping

from gobrrr.devices.datasheets.sheet import GIGA, MIB, Cache, Figure

PASCAL = "https://images.nvidia.com/content/pdf/tesla/whitepaper/pascal-architecture-whitepaper.pdf"
P100_SHEET = "https://images.nvidia.com/content/tesla/pdf/nvidia-tesla-p100-PCIe-datasheet.pdf"
P4_SHEET = (
    "https://images.nvidia.com/content/pdf/tesla/184457-Tesla-P4-Datasheet-NV-Final-Letter-Web.pdf"
)
VOLTA = "https://images.nvidia.com/content/volta-architecture/pdf/volta-architecture-whitepaper.pdf"
V100_SHEET = (
    "https://images.nvidia.com/content/technologies/volta/pdf/"
    "volta-v100-datasheet-update-us-1165301-r5.pdf"
)
TURING = (
    "https://images.nvidia.com/aem-dam/en-zz/Solutions/design-visualization/technologies/"
    "turing-architecture/NVIDIA-Turing-Architecture-Whitepaper.pdf"
)
T4_SHEET = "https://www.nvidia.com/en-us/data-center/tesla-t4/"
A100_PAPER = (
    "https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/"
    "nvidia-ampere-architecture-whitepaper.pdf"
)
A100_SHEET = "https://www.nvidia.com/en-us/data-center/a100/"
GA102 = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
A10_SHEET = "https://www.nvidia.com/en-us/data-center/products/a10-gpu/"
A30_SHEET = "https://www.nvidia.com/en-us/data-center/products/a30-gpu/"
A40_SHEET = "https://www.nvidia.com/en-us/data-center/a40/"
RTX_A6000_SHEET = "https://www.nvidia.com/en-us/design-visualization/rtx-a6000/"
A10G_SHEET = (
    "https://d1.awsstatic.com/product-marketing/ec2/NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf"
)
ORIN = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/gtcf21/jetson-orin/"
    "nvidia-jetson-agx-orin-technical-brief.pdf"
)
ADA = (
    "https://images.nvidia.com/aem-dam/Solutions/Data-Center/l4/"
    "nvidia-ada-gpu-architecture-whitepaper-v2.1.pdf"
)
L4_SHEET = "https://www.nvidia.com/en-us/data-center/l4/"
L40S_SHEET = "https://www.nvidia.com/en-us/data-center/l40s/"
RTX_6000_ADA_SHEET = "https://www.nvidia.com/en-us/design-visualization/rtx-6000/"
HOPPER = "https://resources.nvidia.com/en-us-tensor-core/gtc22-whitepaper-hopper"
H100_SHEET = "https://www.nvidia.com/en-us/data-center/h100/"
H200_SHEET = "https://www.nvidia.com/en-us/data-center/h200/"
GH200_SHEET = "https://resources.nvidia.com/en-us-grace-cpu/grace-hopper-superchip"
BLACKWELL = "https://resources.nvidia.com/en-us-blackwell-architecture/datasheet"
HGX_SHEET = "https://www.nvidia.com/en-us/data-center/hgx/"
GB300_SHEET = "https://www.nvidia.com/en-us/data-center/gb300-nvl72/"
BLACKWELL_ULTRA = (
    "https://developer.nvidia.com/blog/"
    "inside-nvidia-blackwell-ultra-the-chip-powering-the-ai-factory-era/"
)
# "Making Softmax More Efficient with NVIDIA Blackwell Ultra": twice the special-function units of
# Blackwell. The 10.7e12 exponentials a second of ``BLACKWELL_ULTRA`` are 32 x 160 SMs x 2.09 GHz,
# of the whole chip.
BLACKWELL_ULTRA_EXP = (
    "https://developer.nvidia.com/blog/making-softmax-more-efficient-with-nvidia-blackwell-ultra/"
)
# NVIDIA's sheet of H20, L20 and L2, which it gave to partners, as printed there.
EXPORT_SHEET = (
    "https://semianalysis.com/2023/11/09/nvidias-new-china-ai-chips-circumvent/ (NVIDIA's product "
    "specifications of HGX H20, L20 PCIe and L2 PCIe)"
)
RTX_BLACKWELL = (
    "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/"
    "nvidia-rtx-blackwell-gpu-architecture.pdf"
)
RTX_PRO_PAPER = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/design-visualization/quadro-product-"
    "literature/NVIDIA-RTX-Blackwell-PRO-GPU-Architecture-v1.0.pdf"
)
RTX_PRO_SERVER_SHEET = (
    "https://www.nvidia.com/en-us/data-center/rtx-pro-6000-blackwell-server-edition/"
)
GEFORCE = "https://www.nvidia.com/en-us/geforce/graphics-cards/compare/"
RTX_PRO_MAX_Q_SHEET = (
    "https://www.nvidia.com/en-us/products/workstations/professional-desktop-gpus/"
    "rtx-pro-6000-max-q/"
)
B200_MEASURED = "https://chipsandcheese.com/p/nvidias-b200-keeping-the-cuda-juggernaut"
CUDA_GUIDE = (
    "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#arithmetic-instructions "
    "(results per clock and SM)"
)
L2_SWEEP = "https://github.com/te42kyfo/gpu-benches/blob/master/gpu-l2-cache/"
L1_SWEEP = "https://github.com/te42kyfo/gpu-benches/blob/master/gpu-cache/"
TRACES = "https://github.com/AMD-AGI/TraceLens"

# PyTorch names both 8-bit float formats; the tensor cores run them at one rate.
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")


def with_float8(rates: Mapping[str, Figure], rate: float, source: str) -> dict[str, Figure]:
    """``rates`` and the 8-bit float dtypes at ``rate`` FLOP/s."""
    return {**rates, **{name: Figure(rate, source) for name in FLOAT8}}


def exp_rate(
    multiprocessors: int, clock_ghz: float, per_clock: int = 16, source: str = CUDA_GUIDE
) -> Figure:
    """Evaluations/s of exp from special-function results per clock and SM.

    16 of compute capability 6.0, 7.0 to 9.0, 10.0 and 12.0 (``CUDA_GUIDE``).
    """
    return Figure(
        per_clock * multiprocessors * clock_ghz * GIGA,
        f"{source}: {per_clock} of exp2 x {multiprocessors} SMs x {clock_ghz} GHz",
    )


def integers(
    multiprocessors: int, clock_ghz: float, per_clock: int = 64, source: str = CUDA_GUIDE
) -> dict[str, Figure]:
    """Additions/s of integer dtypes, from ``per_clock`` 32-bit additions per clock and SM.

    Narrower ones run as 32 bits (packed instructions are not what compilers emit for tensors of
    bytes); 64 bits take two additions, the second with carry.
    """
    rate = per_clock * multiprocessors * clock_ghz * GIGA
    why = f"{source}: {per_clock} of 32 bits x {multiprocessors} SMs x {clock_ghz} GHz"
    rates = {name: Figure(rate, f"as int32: {why}") for name in ("bool", "uint8", "int8", "int16")}
    rates["int32"] = Figure(rate, why)
    rates["int64"] = Figure(rate / 2, f"two additions of 32 bits each: {why}")
    return rates


def l2(
    mib: float, source: str, rate: Figure | None = None, usable: Figure | None = None
) -> tuple[Cache, ...]:
    """The L2 cache alone, its size in MiB."""
    return (Cache("l2", Figure(mib * MIB, source), rate, usable),)
