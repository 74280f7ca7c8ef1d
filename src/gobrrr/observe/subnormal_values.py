"""Subnormal numbers in what ops read and make: a sample of each tensor, read from its memory.

Between the smallest normal number (1.2e-38 in float32) and zero; many processors compute with them
some hundred cycles each. Nothing is dispatched: the memory of a tensor on the CPU is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from gobrrr.observe.program_facts import SubnormalFact
from gobrrr.timeline.nested import nested_tensors

# Smaller tensors take no time, whatever is in them.
_LEAST_ELEMENTS = 512
# Values of a tensor, tensors of a step, and seconds that looking at them may take.
_MOST_VALUES, _MOST_TENSORS, _MOST_S = 1024, 4000, 0.2
# Bits of the exponent and of the mantissa.
_BITS = {"float32": (0x7F800000, 0x007FFFFF), "float64": (0x7FF << 52, (1 << 52) - 1)}


class SubnormalWatch:
    """Notes which ops meet subnormal numbers."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], SubnormalFact] = {}
        self._left = _MOST_TENSORS
        self._left_s = _MOST_S

    def look(self, op: str, line: str, *values: Any) -> None:
        """Look at what an op was given and has made, while there is time left."""
        if self._left <= 0 or self._left_s <= 0:
            return
        begin_s = time.perf_counter()
        self._look(op, line, values)
        self._left_s -= time.perf_counter() - begin_s

    def _look(self, op: str, line: str, values: Any) -> None:
        for tensor in nested_tensors(values):
            found = subnormal_share(tensor)
            if found is None:
                continue
            self._left -= 1
            known = self._found.get((op, line))
            if found > 0 and (known is None or found > known.share):
                dtype = str(tensor.dtype).removeprefix("torch.")
                self._found[op, line] = SubnormalFact(op, line, found, dtype)

    def facts(self) -> Iterable[SubnormalFact]:
        """Those found so far."""
        return self._found.values()


def subnormal_share(tensor: Any) -> float | None:
    """Of a sample of a tensor's memory, what is subnormal; ``None``: it cannot be looked at."""
    import numpy as np
    import torch

    # ``type``: a subclass may hold no memory, or other memory.
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu":
        return None
    bits = _BITS.get(str(tensor.dtype).removeprefix("torch."))
    if bits is None or tensor.layout is not torch.strided or not tensor.numel() >= _LEAST_ELEMENTS:
        return None
    try:
        # A mode would take the question for a read of the program's.
        with torch._C.DisableTorchFunction():
            address, size = int(tensor.data_ptr()), int(tensor.element_size())
            first = int(tensor.storage_offset()) * size
            held = int(tensor.untyped_storage().nbytes()) - first
    except (RuntimeError, NotImplementedError):  # it has no memory
        return None
    # From its first element on: of a view that has gaps its neighbours too.
    elements = min(held // size, int(tensor.numel()))
    if not address or elements < _LEAST_ELEMENTS:
        return None
    # An odd stride: rows of a power of two are not met at one column alone.
    stride = max(1, elements // _MOST_VALUES) | 1
    sample = np.asarray(_Memory(address, -(-elements // stride), size, stride))
    exponent, mantissa = (sample.dtype.type(each) for each in bits)
    return float(np.mean(((sample & exponent) == 0) & ((sample & mantissa) != 0)))


class _Memory:
    """Every so many elements of some memory, as ``numpy`` asks for it: to be read alone."""

    def __init__(self, address: int, count: int, size: int, stride: int) -> None:
        self.__array_interface__ = {
            "version": 3, "typestr": f"<u{size}", "data": (address, True), "shape": (count,),
            "strides": (stride * size,),
        }  # fmt: skip
