"""CUPTI, by which PyTorch's profiler sees an NVIDIA GPU: it stays attached after a profile."""

from __future__ import annotations

import gc
import os
import re
import time
from pathlib import Path
from typing import Any

from gobrrr.devices.accelerator import TraceProfiler, wait_for
from gobrrr.measure import torch_profiler

# Kineto reads it whenever a profile starts or ends (``CuptiActivityApi.cpp``).
TEARDOWN = "TEARDOWN_CUPTI"
# Before, CUDA graphs crash once CUPTI is attached anew (``start_trace`` in torch/profiler/
# profiler.py), and a program may capture one later.
_GRAPHS_SURVIVE_FROM = (12, 6)
_CALLS_UNTIL_GONE, _BETWEEN_S = 5, 0.002
# Whether gobrrr has set it, and whether a profile has run without it.
_is_ours = _stays_attached = False


def version_numbers(text: str) -> tuple[int, ...]:
    """Of CUDA or of a library of its.

    >>> version_numbers("13.0.85"), version_numbers("")
    ((13, 0, 85), ())
    """
    return tuple(int(number) for number in re.findall(r"\d+", text))


def detach_after_profile() -> bool:
    """Have PyTorch's profiler let go of the GPU when it ends; whether it will.

    Attached, each launch of the rest of the program costs more (pytorch/pytorch#144455, #146604). A
    setting of the program's, or of PyTorch's for compiled graphs, is kept, and so is CUPTI where a
    CUDA graph lives. It stays set: the next profiler has to know that CUPTI may be gone. Nor is it
    set once a profile has run without it: the next one held no kernel on an H200.
    """
    global _is_ours, _stays_attached
    import torch

    given = os.environ.get(TEARDOWN)
    if given is not None:
        return given == "1"
    cuda = version_numbers(torch.version.cuda or "")
    _stays_attached |= torch_profiler.others_ran or cuda < _GRAPHS_SURVIVE_FROM
    if _stays_attached or _holds_graphs(torch):
        _stays_attached = True
        return False
    os.environ[TEARDOWN] = "1"
    _is_ours = True
    return True


def wait_until_gone(kind: str) -> None:
    """After a profile: until the devices of a kind are let go, if that was asked for."""
    if os.environ.get(TEARDOWN) != "1":
        return
    # It goes at the end of the next call of the runtime, once a thread of Kineto's has asked for
    # that. A profile that begins before holds no calls and no kernels: on an H200 that of every
    # session which began right after another.
    for _ in range(_CALLS_UNTIL_GONE):
        wait_for(kind)
        time.sleep(_BETWEEN_S)


class Profiler(TraceProfiler):
    """PyTorch's, which lets go of the GPU when it ends where that is safe."""

    def stop(self, path: Path) -> None:
        """Wait for the device, end, write the trace, and see that CUPTI is gone."""
        super().stop(path)
        wait_until_gone(self._kind)

    def may_see_more(self) -> bool:
        """The setting is taken back if it is gobrrr's: a profile before may have run without."""
        global _is_ours, _stays_attached
        if not _is_ours or os.environ.get(TEARDOWN) != "1":
            return False
        del os.environ[TEARDOWN]
        _is_ours, _stays_attached = False, True
        return True


def _holds_graphs(torch: Any) -> bool:
    """Whether a CUDA graph lives in this process: the program's own, or compiled code's."""
    graph = getattr(torch.cuda, "CUDAGraph", None)
    # By its type: what an object says of its class is code of the program's.
    return graph is not None and any(issubclass(type(each), graph) for each in gc.get_objects())
