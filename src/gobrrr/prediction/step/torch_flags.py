"""PyTorch's own settings that decide which kernels run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from gobrrr.prediction.kernels.kernel_model import Flags


def flags_in_force() -> Flags:
    """As the program has set them."""
    from torch import backends

    return Flags(
        tf32_matmul=_allows_tf32(backends.cuda.matmul, backends.cuda.matmul),
        tf32_convolution=_allows_tf32(getattr(backends.cudnn, "conv", None), backends.cudnn),
    )


def _allows_tf32(setting: Any, legacy: Any) -> bool:
    """By ``fp32_precision``, which programs of either interface set; before it, ``allow_tf32``.

    PyTorch refuses to read ``allow_tf32`` once a program has set the other.
    """
    precision = getattr(setting, "fp32_precision", None)
    if precision is not None:
        return bool(precision == "tf32")
    return bool(legacy.allow_tf32)


@contextlib.contextmanager
def tf32_allowed() -> Iterator[None]:
    """Matrix products in TF32, for as long as this is open."""
    import torch

    matmul = torch.backends.cuda.matmul
    setting = "fp32_precision" if hasattr(matmul, "fp32_precision") else "allow_tf32"
    before = getattr(matmul, setting)
    setattr(matmul, setting, "tf32" if setting == "fp32_precision" else True)
    try:
        yield
    finally:
        setattr(matmul, setting, before)
