"""PyTorch's profiler without what it warns of."""

from __future__ import annotations

import inspect
from typing import Any


def profiler_of_torch(**options: Any) -> Any:
    """``torch.profiler.profile``, for one cycle: all its events are kept.

    Without ``acc_events`` PyTorch 2.11 warns that it keeps those of the last cycle alone.
    """
    import torch

    make: Any = torch.profiler.profile
    more = {"acc_events": True} if "acc_events" in inspect.signature(make).parameters else {}
    return make(**options, **more)
