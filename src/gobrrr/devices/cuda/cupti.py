"""CUPTI, by which PyTorch's profiler sees an NVIDIA GPU: it stays attached after a profile."""

from __future__ import annotations

import gc
import os
import re
from typing import Any

# Kineto reads it whenever a profile starts or ends (``CuptiActivityApi.cpp``).
TEARDOWN = "TEARDOWN_CUPTI"
# Before, CUDA graphs crash once CUPTI is attached anew (``start_trace`` in torch/profiler/
# profiler.py), and a program may capture one later.
_GRAPHS_SURVIVE_FROM = (12, 6)


def detach_after_profile() -> bool:
    """Have PyTorch's profiler let go of the GPU when it ends; whether it will.

    Attached, each launch of the rest of the program costs more (pytorch/pytorch#144455, #146604). A
    setting of the program's, or of PyTorch's for compiled graphs, is kept, and so is CUPTI where a
    CUDA graph lives. It stays set: the next profiler has to know that CUPTI may be gone.
    """
    import torch

    given = os.environ.get(TEARDOWN)
    if given is not None:
        return given == "1"
    version = tuple(int(part) for part in re.findall(r"\d+", torch.version.cuda or "")[:2])
    if version < _GRAPHS_SURVIVE_FROM or _holds_graphs(torch):
        return False
    os.environ[TEARDOWN] = "1"
    return True


def _holds_graphs(torch: Any) -> bool:
    """Whether a CUDA graph lives in this process: the program's own, or compiled code's."""
    graph = getattr(torch.cuda, "CUDAGraph", None)
    # By its type: what an object says of its class is code of the program's.
    return graph is not None and any(issubclass(type(each), graph) for each in gc.get_objects())
