"""A device of the data sheets as a program under capture sees it."""

from __future__ import annotations

import os
from typing import Any

from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.symbolic.op_graph import CaptureTarget
from gobrrr.symbolic.target.answers import DeviceAnswers
from gobrrr.symbolic.target.kernels import Abilities

# Compute capability by architecture: https://developer.nvidia.com/cuda-gpus
_CAPABILITY = {
    "Pascal GP100": (6, 0), "Pascal GP104": (6, 1),
    "Volta": (7, 0), "Turing": (7, 5), "Ampere GA100": (8, 0), "Ampere GA10x": (8, 6),
    "Ampere GA10x half-rate": (8, 6), "Ampere GA10B": (8, 7), "Ada": (8, 9),
    "Ada half-rate": (8, 9), "Ada capped": (8, 9), "Hopper": (9, 0), "Hopper capped": (9, 0),
    "Blackwell": (10, 0), "Blackwell Ultra": (10, 3), "RTX Blackwell": (12, 0),
    "RTX Blackwell half-rate": (12, 0), "CDNA 1": (9, 0), "CDNA 2": (9, 0), "CDNA 3": (9, 4),
    "CDNA 4": (9, 5),
}  # fmt: skip
_TYPES = {"hip": "cuda", "cuda": "cuda", "xpu": "xpu", "mps": "mps", "hpu": "hpu"}
# The largest heads that cuDNN's attention takes, where PyTorch prefers it: ``sdp_utils.cpp``,
# ``check_prefer_cudnn_attention`` and ``check_cudnn_tensor_shapes``.
_CUDNN_HEADS = {(9, 0): 256, (10, 0): 128}
# The first whose wheels bring a cuDNN that is preferred (later than 9.15):
# https://github.com/huggingface/transformers/pull/48163
_PREFERS_CUDNN = (2, 11)
_HALVES = frozenset({"float16", "bfloat16"})


def capture_target(device: TargetDevice) -> CaptureTarget:
    """What programs are told of the device, and which attention kernels they get there.

    ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp``: flash attention needs compute
    capability 8.0, the memory-efficient kernel 5.0 (bfloat16: 8.0). AMD's come from AOTriton.
    cuDNN's comes first on some, as in the wheels of the installed torch.
    """
    if device.kind == "cpu":
        return CaptureTarget(None, Abilities(frozenset(), frozenset()))
    capability = _CAPABILITY.get(device.architecture, (0, 0))
    modern = device.kind != "cuda" or capability >= (8, 0)
    if device.kind in ("cuda", "hip"):
        flash = _HALVES if modern else frozenset()
        efficient = frozenset({"float16", "float32"}) | (_HALVES if modern else frozenset())
    else:
        flash, efficient = (_HALVES if device.kind == "xpu" else frozenset()), frozenset()
    answers = DeviceAnswers(
        type=_TYPES.get(device.kind, "cuda"),
        name=device.sheet.driver_names[0] if device.sheet and device.sheet.driver_names
        else device.name,
        memory_bytes=device.memory_bytes,
        multiprocessors=device.multiprocessors,
        capability=capability,
        bfloat16=modern,
    )  # fmt: skip
    # ``aten/src/ATen/native/Dropout.cpp`` and ``RNN.cpp`` ask for these kinds.
    fused = device.kind in ("cuda", "hip", "xpu")
    prefers = device.kind == "cuda" and _prefers_cudnn()
    heads = _CUDNN_HEADS.get(capability, 0) if prefers else 0
    return CaptureTarget(answers, Abilities(flash, efficient, cudnn_head_size=heads, fused=fused))


def _prefers_cudnn() -> bool:
    import torch

    # The switch that PyTorch reads once, at its first attention.
    if os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1":
        return False
    return bool(torch.__version__ >= _PREFERS_CUDNN)


def what_programs_see(target: CaptureTarget) -> Any:
    """Equal for devices that programs cannot tell apart: one capture serves them all."""
    answers = target.answers
    seen = None if answers is None else (answers.type, answers.capability, answers.bfloat16)
    return seen, target.abilities
